"""Diagnostics of weights: definitions by loops, tails of known index, verdicts in words."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import genpareto

import osiris_jax as oj
from osiris_jax.inference.propensities import Propensities
from osiris_jax.inference.weights import (
    CAREFUL,
    FINE,
    NO_TRUST,
    Support,
    Weights,
    overall,
    support,
    tail_index,
    verdicts,
    weight_diagnostics,
    with_error,
)

LOG_WEIGHTS = st.lists(st.floats(-30, 30) | st.just(-math.inf), min_size=1, max_size=40)


@given(LOG_WEIGHTS, st.integers(0, 100))
def test_size_and_shares_by_loops(log_weight, seed):
    length = np.random.default_rng(seed).integers(1, 9, len(log_weight))
    found = weight_diagnostics(log_weight, length)
    weights = [math.exp(x) for x in log_weight]
    total, squares = sum(weights), sum(w * w for w in weights)
    assert found.number == len(weights)
    assert found.zero_share == pytest.approx(sum(w == 0 for w in weights) / len(weights))
    assert found.mean == pytest.approx(total / len(weights))
    if len(weights) > 1:
        spread = sum((w - total / len(weights)) ** 2 for w in weights) / (len(weights) - 1)
        expected = pytest.approx(math.sqrt(spread / len(weights)), rel=1e-6, abs=1e-12)
        assert found.mean_error == expected
    if total:
        assert found.effective_size == pytest.approx(total**2 / squares)
        assert found.largest_share == pytest.approx(max(weights) / total)
    else:
        assert found.effective_size == 0
        assert math.isnan(found.largest_share)


@given(LOG_WEIGHTS, st.floats(-700, 700))
def test_a_common_factor_changes_nothing(log_weight, shift):
    length = np.arange(len(log_weight))
    plain = weight_diagnostics(log_weight, length)
    shifted = weight_diagnostics(np.asarray(log_weight) + shift, length)
    assert shifted.effective_size == pytest.approx(plain.effective_size, rel=1e-6)
    assert (shifted.tail_index is None) == (plain.tail_index is None)
    if plain.tail_index is not None:
        assert shifted.tail_index == pytest.approx(plain.tail_index, abs=1e-6)


def test_equal_weights_are_all_worth_their_number():
    found = weight_diagnostics(np.full(40, 3.0), np.arange(40))
    assert found == Weights(
        number=40,
        effective_size=pytest.approx(40),
        largest_share=pytest.approx(1 / 40),
        zero_share=0.0,
        mean=pytest.approx(math.exp(3)),
        mean_error=0.0,
        tail_index=None,
        length_correlation=None,
    )


def test_longer_trajectories_of_smaller_weight():
    length = np.arange(1, 21)
    assert weight_diagnostics(-2.0 * length, length).length_correlation == pytest.approx(-1)


def test_ties_at_the_cut_have_no_tail_index():
    """As after omission, where many trajectories keep no ratio; a few ties only change it a bit."""
    rng = np.random.default_rng(0)
    heavy = rng.normal(size=100)
    assert tail_index(np.concatenate([np.zeros(400), heavy[:40]])) is None
    tied, plain = np.sort(heavy), np.sort(heavy)
    tied[-21:-18] = tied[-21]
    assert tail_index(tied) == pytest.approx(tail_index(plain), abs=0.2)


@pytest.mark.parametrize("shape", [0.2, 0.6, 1.2])
def test_the_tail_index_of_pareto_weights(shape):
    """Mean of 50 fits within 4 standard errors of what the prior leaves of the true index.

    The fit is biased by order 1 / tail; 1,000 other samples of this size gave 0.0053 +- 0.0017,
    0.0027 +- 0.0023 and -0.0014 +- 0.0032, far below the standard error of the 50.
    """
    number, repeats = 20_000, 50
    samples = genpareto(shape).rvs((repeats, number), random_state=3)
    found = np.array([tail_index(np.log(sample)) for sample in samples])
    in_tail = math.ceil(3 * math.sqrt(number))
    expected = (in_tail * shape + 10 * 0.5) / (in_tail + 10)
    error = found.std(ddof=1) / math.sqrt(repeats)
    assert error < 0.02
    assert abs(found.mean() - expected) < 4 * error


def test_the_tail_index_beside_maximum_likelihood():
    """SciPy's fit to the same exceedances; both have the same large-sample limit."""
    weight = genpareto(0.4).rvs(20_000, random_state=8)
    in_tail = math.ceil(3 * math.sqrt(len(weight)))
    ordered = np.sort(weight)
    beyond = ordered[-in_tail:] - ordered[-in_tail - 1]
    shape, _, _ = genpareto.fit(beyond, floc=0)
    with_prior = (in_tail * shape + 5) / (in_tail + 10)
    assert tail_index(np.log(weight)) == pytest.approx(with_prior, abs=0.02)


def slow_tail_index(weights):
    """Zhang and Stephens (2009), equations by loops; 10 further observations of k = 0.5."""
    ordered = sorted(weights)
    n = math.ceil(min(len(weights) / 5, 3 * math.sqrt(len(weights))))
    x = [w - ordered[-n - 1] for w in ordered[-n:]]
    m = 30 + math.floor(math.sqrt(n))
    theta = [
        1 / x[-1] + (1 - math.sqrt(m / (j - 0.5))) / (3 * x[math.floor(n / 4 + 0.5) - 1])
        for j in range(1, m + 1)
    ]
    shape = [sum(math.log(1 - b * y) for y in x) / n for b in theta]
    score = [n * (math.log(-b / k) - k - 1) for b, k in zip(theta, shape, strict=True)]
    chance = [1 / sum(math.exp(other - mine) for other in score) for mine in score]
    best = sum(b * c for b, c in zip(theta, chance, strict=True))
    k = sum(math.log(1 - best * y) for y in x) / n
    return (n * k + 10 * 0.5) / (n + 10)


@pytest.mark.parametrize("number", [25, 60, 400])
def test_the_tail_index_by_loops(number):
    weights = genpareto(0.8).rvs(number, random_state=number)
    assert tail_index(np.log(weights)) == pytest.approx(slow_tail_index(weights), rel=1e-6)


@pytest.mark.parametrize("number", [1, 5, 20])
def test_too_few_weights_have_no_tail(number):
    assert tail_index(np.linspace(0, 1, number)) is None


def test_weights_must_fit_their_lengths():
    for log_weight, length in ((np.zeros(3), np.zeros(4)), (np.zeros((2, 2)), np.zeros((2, 2)))):
        with pytest.raises(ValueError, match=r"^log_weight: "):
            weight_diagnostics(log_weight, length)


def log_with(behavior, target):
    """One trajectory of three steps and one of one, whose policies at each step are given."""
    episodes = []
    for steps in ((0, 1, 2), (0,)):
        episode = {"states": list(steps), "actions": [0] * len(steps)}
        episode |= {"rewards": [1.0] * len(steps)}
        episode |= {"behavior_probs": [behavior[s] for s in steps]}
        episode |= {"target_probs": [target[s] for s in steps]}
        episodes.append(episode)
    return oj.from_episodes(episodes)


def test_unsupported_actions():
    behavior = [[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]]
    target = [[0.8, 0.2], [0.0, 1.0], [1.0, 0.0]]
    batch = log_with(behavior, target)
    assert support(batch) == Support(pytest.approx(2 / 4), pytest.approx(2 * 0.2 / 4))
    assert support(batch.replace(behavior_probs=None)) is None
    padded = oj.pad_to(batch, 9)
    poison = jnp.where(padded.mask[..., None], padded.target_probs, jnp.nan)
    assert support(padded.replace(target_probs=poison)) == support(batch)


GOOD = Weights(1000, 800.0, 0.01, 0.0, 1.02, 0.03, 0.1, 0.0)
RIGHT = Propensities(1.001, 0.002, 0.3)


def changed(**change):
    return dataclasses.replace(GOOD, **change)


@pytest.mark.parametrize(
    ("change", "of_log", "level", "said"),
    [
        ({}, {}, FINE, "worth 800 of 1,000"),
        ({"effective_size": 29.0}, {}, CAREFUL, "worth 29 of 1,000"),
        ({"effective_size": 9.0}, {}, NO_TRUST, "worth 9 of 1,000"),
        ({"mean": 1.07}, {}, CAREFUL, "1.070±0.030 and should be 1: wrong propensities"),
        ({"mean": 0.93}, {}, CAREFUL, "0.930±0.030 and should be 1: what the target would do"),
        ({"mean": 1.13}, {}, NO_TRUST, "1.130±0.030 and should be 1"),
        ({"mean": 0.87}, {}, NO_TRUST, "0.870±0.030 and should be 1"),
        ({"mean": 1.3, "mean_error": 0.0}, {}, CAREFUL, "its error cannot be told"),
        ({"mean": 1.0, "mean_error": 0.0}, {}, FINE, "worth 800"),
        ({}, {"supported": Support(0.0, 0.0)}, FINE, "worth 800"),
        ({}, {"supported": Support(0.1, 0.01)}, CAREFUL, "never does"),
        ({}, {"supported": Support(0.5, 0.2)}, NO_TRUST, "never does"),
        ({}, {"before": changed(effective_size=29.0)}, CAREFUL, "every ratio in full"),
        ({}, {"before": changed(effective_size=6.0)}, CAREFUL, "every ratio in full"),
        ({}, {"before": changed(effective_size=4.0)}, NO_TRUST, "every ratio in full"),
        ({"mean": 0.5}, {"before": GOOD}, FINE, "worth 800"),
        ({}, {"before": changed(mean=0.5)}, NO_TRUST, "0.500±0.030 and should be 1"),
        ({}, {"propensities": RIGHT}, FINE, "worth 800"),
        ({}, {"propensities": RIGHT._replace(mean_ratio=0.99)}, CAREFUL, "0.9900±0.0020"),
        ({}, {"propensities": RIGHT._replace(mean_ratio=1.1)}, NO_TRUST, "do not fit the log"),
        ({}, {"propensities": RIGHT._replace(repeats=4.0)}, CAREFUL, "knew more than the log"),
        ({}, {"propensities": RIGHT._replace(repeats=7.0)}, NO_TRUST, "knew more than the log"),
        ({}, {"propensities": RIGHT._replace(repeats=-9.0)}, FINE, "worth 800"),
        ({}, {"propensities": RIGHT._replace(repeats=None)}, FINE, "worth 800"),
        ({}, {"cut_off": 0.04}, FINE, "worth 800"),
        ({}, {"cut_off": 0.2}, CAREFUL, "20 % of the episodes are cut off"),
        ({"effective_size": 0.0, "largest_share": math.nan}, {}, NO_TRUST, "every weight is 0"),
    ],
)
def test_verdicts_have_their_reason_first(change, of_log, level, said):
    found = verdicts(changed(**change), **of_log)
    assert overall(found) == found[0].level == level
    assert said in found[0].reason


@pytest.mark.parametrize("tail", [0.6, 0.9, 3.0])
def test_the_tail_index_does_not_decide_alone(tail):
    """F11: 785 of 2,000 with a largest weight of 1.2 % is no reason for distrust."""
    weights = changed(number=2000, effective_size=785.0, largest_share=0.012, tail_index=tail)
    found = verdicts(weights)
    assert overall(found) == FINE
    assert any(f"tail index of the weights {tail:.2f}" in one.reason for one in found)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.0234, 0.0312, "1.023±0.031"),
        (12.3, 4.0, "12.3±4.0"),
        (1234.0, 560.0, "1234±560"),
        (1.0, 0.0, "1"),
        (math.inf, math.nan, "inf"),
    ],
)
def test_a_number_with_its_error(value, error, text):
    assert with_error(value, error) == text


def test_a_warning_of_the_omission_calls_for_care():
    found = verdicts(GOOD, None, ["the omission is biased"])
    assert found[0] == (CAREFUL, "the omission is biased")


def test_the_omission_gives_the_kept_weights():
    batch = oj.make("waiting-room").rollout(jax.random.key(0), 30)
    found = oj.omission_diagnostics(batch, "welch", alpha=0.3, weighting="none")
    keep = found.states_kept
    for i, length in enumerate(found.lengths):
        states, ratios = np.asarray(batch.state)[i, :length], np.asarray(batch.log_ratio)[i]
        kept = ratios[:length][keep[states]]
        assert found.log_weights[i] == pytest.approx(kept.sum(), abs=1e-5)
    assert np.abs(found.log_weights).max() > 0
