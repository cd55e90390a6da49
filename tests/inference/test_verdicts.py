"""Verdicts of whole evaluations: what misled at 0.1.0, and the simulated logs they are set on."""

import math
import random
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import osiris_jax as oj
from osiris_jax.inference.weights import CAREFUL, FINE, NO_TRUST, SEVERITY

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import verdict_logs

QUICK = {"methods": "percentile", "resamples": 200}
GOOD, DETERMINISTIC, CONFOUNDER = (
    verdict_logs.KINDS.index((kind, True))
    for kind in ("good-overlap", "deterministic", "confounder")
)
WRONG = verdict_logs.KINDS.index(("wrong-propensities", True))
LARGE = 4


def load(kind, number=LARGE):
    """A log of 960 trajectories, of the design half."""
    return verdict_logs.draw_log(kind, number).batch


def evaluate(batch, *names, **options):
    return oj.evaluate(batch, names or ("osirwis", "wis"), **QUICK, **options)


def said(row):
    return " | ".join(f"{verdict.level}: {verdict.reason}" for verdict in row.reasons)


@pytest.fixture(scope="module")
def good():
    return load(GOOD)


def test_a_good_log_is_fine(good):
    found = evaluate(good)
    assert {row.verdict for row in found.rows} == {FINE}, [said(row) for row in found.rows]
    assert "as it should be" in said(found.main)


def test_a_hopeless_log_is_not_hidden_by_omission():
    """F10: the headline was fine where the target is deterministic and `wis` has 9.5 of 300."""
    found = evaluate(load(DETERMINISTIC))
    assert found["wis"].weights.effective_size < 30
    assert found.main.estimator == "osirwis"
    assert found.main.verdict != FINE
    assert "with every ratio in full the weights are worth" in said(found.main)


@pytest.mark.parametrize(
    ("kind", "reason"), [(WRONG, "do not fit the log"), (CONFOUNDER, "knew more than the log")]
)
def test_bad_propensities_are_seen(kind, reason):
    """F12: the mean weight and the checks of propensities speak."""
    found = evaluate(load(kind))
    for row in found.rows:
        assert row.verdict == NO_TRUST
        assert reason in said(row)


def test_the_mean_weight_is_shown(good):
    """F12: in the text, the table and the summary."""
    found = evaluate(good)
    weights = np.exp(np.asarray(found.log_weights))
    row = found["wis"]
    assert row.weights.mean == pytest.approx(weights.mean(), rel=1e-5)
    error = weights.std(ddof=1) / math.sqrt(len(weights))
    assert row.weights.mean_error == pytest.approx(error, rel=1e-5)
    assert "mean weight" in str(found).splitlines()[0]
    assert f"{weights.mean():.3f}±" in str(found)
    flat = found.summary()["rows"][1]
    assert flat["mean_weight"] == row.weights.mean
    assert flat["mean_weight_error"] == row.weights.mean_error
    assert found.summary()["propensities"]["mean_ratio"] == pytest.approx(1, abs=0.05)


def test_nothing_kept_is_judged_by_the_weights_before(good):
    """F14: the estimate is the behaviour's own value, with an effective size that means nothing."""
    kept_none = evaluate(good, alpha=0.0)["osirwis"]
    assert kept_none.value == pytest.approx(evaluate(good, "mc").main.value, rel=1e-5)
    assert kept_none.verdict == CAREFUL
    assert "no ratio is kept" in said(kept_none)
    poor = evaluate(load(DETERMINISTIC), alpha=0.0)
    assert poor["wis"].weights.effective_size < 30
    assert poor["osirwis"].verdict == NO_TRUST
    assert "too little of the target to show that none matters" in said(poor["osirwis"])


def test_everything_kept_is_no_warning(good):
    """F15: the same numbers have the same verdict."""
    found = evaluate(good, alpha=1.0)
    assert found["osirwis"].value == pytest.approx(found["wis"].value, rel=1e-5)
    assert found["osirwis"].verdict == found["wis"].verdict == FINE
    assert "every ratio is kept" not in str(found)


def test_an_interval_without_width_is_none(good):
    """F13: all returns equal; "1 to 1" is no interval."""
    constant = good.replace(reward=jnp.zeros_like(good.reward).at[:, 0].set(1))
    found = evaluate(constant)
    for row in found.rows:
        assert row.interval[1] == pytest.approx((1, 1), abs=1e-6)
    wis = found["wis"]
    assert wis.verdict == CAREFUL
    assert "has no width" in said(wis)
    assert " to 1" not in str(found)


def test_episodes_that_are_cut_off_speak(good):
    """F28."""
    truncated = np.arange(len(good.reward)) % 10 == 0
    found = evaluate(good.replace(truncated=truncated))
    assert found.main.verdict == CAREFUL
    assert "10 % of the episodes are cut off" in said(found.main)


def first_look(seed, number=400):
    """The README's example; truth 0.8."""
    rng = random.Random(seed)

    def episode(steps):
        actions = rng.choices([0, 1], k=steps)
        rewards = [0.0] * (steps - 1) + [rng.gauss(actions[0], 0.5)]
        policies = {"behavior_prob": [0.5] * steps, "target_prob": [[0.2, 0.8][a] for a in actions]}
        return {
            "states": [0] + [1] * (steps - 1),
            "actions": actions,
            "rewards": rewards,
        } | policies

    return oj.from_episodes([episode(rng.randint(2, 14)) for _ in range(number)])


def test_the_first_look_with_default_arguments():
    """F9: 40 seeds; fewer than 32 intervals would hold by chance of 3e-4 if 95 % do."""
    held = 0
    for seed in range(40):
        found = oj.intervals(first_look(seed), "osirwis", methods="percentile")["osirwis"]
        low, high = found.intervals["percentile"]
        held += low <= 0.8 <= high
    assert held >= 32


def test_truths_of_the_simulated_logs():
    """Their dynamic programming against simulation, within 4 standard errors."""
    for kind in (1, 5, 9):
        rng = np.random.default_rng(kind)
        world = verdict_logs.draw_world(rng, *verdict_logs.KINDS[kind])
        *_, rewards, lengths = verdict_logs.simulate(world, rng, 20_000)
        real = np.arange(verdict_logs.STEPS) < lengths[:, None]
        returns = (rewards * real).sum(1)
        error = returns.std() / math.sqrt(len(returns))
        assert abs(verdict_logs.value(world, world.behavior) - returns.mean()) < 4 * error


def test_verdicts_order_errors_on_some_logs_of_the_design_half():
    """50 logs: the mean |error| of `wis` rises with the verdict; the benchmark has them all."""
    errors = {verdict: [] for verdict in SEVERITY}
    for kind in range(len(verdict_logs.KINDS)):
        for number in range(LARGE, 30, 6):
            row = evaluate(load(kind, number), "wis").main
            errors[row.verdict].append(abs(row.value - verdict_logs.draw_log(kind, number).truth))
    means = [np.mean(errors[verdict]) for verdict in SEVERITY]
    assert means == sorted(means)
    assert min(map(len, errors.values())) >= 5
