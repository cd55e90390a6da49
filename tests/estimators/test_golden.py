"""Every golden value and p-value: outputs of the paper's own code, reproduced."""

import jax
import numpy as np
import oracles as oracle
import pytest
from datasets import golden, load

import osiris_jax as oj
from osiris_jax.paper import published
from osiris_jax.relevance import keep_steps, omit

GOLDEN = golden()
NUM_STATES = 98
NUM_STEPS = 100
ALPHAS = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
MODERATE_SPAN = 20


@jax.jit
def published_values(batch):
    """What the golden files hold, under their keys."""
    values = {name: oj.estimate(batch, name) for name in ("is", "wis", "phwis")}
    cuts = published.choose_cuts_published(batch, batch.log_ratio)
    values["incris_published"] = cuts.mean.sum()
    values["mis_published"] = published.mis_published(batch, batch.log_ratio)
    pvalues = {test: published.pvalues_published(batch, test) for test in ("welch", "smirnov")}
    for test, suffix in (("welch", ""), ("smirnov", "_smirnov")):
        for alpha in ALPHAS:
            keep = keep_steps(published.keep_published(pvalues[test], alpha), batch)
            kept = omit(batch.log_ratio, keep)
            values[f"osiris{suffix}@{alpha}"] = oj.ESTIMATORS["is"](batch, kept)
            values[f"osirwis{suffix}@{alpha}"] = oj.ESTIMATORS["wis"](batch, kept)
    return values, pvalues, cuts.cut


def as_array(values):
    return np.array([np.nan if value is None else value for value in values])


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_in_float64(name, double):
    data, entry = GOLDEN[name]
    values, pvalues, _ = published_values(load(data, NUM_STEPS, NUM_STATES))
    for test in pvalues:
        if f"p_{test}" in entry:
            expected = as_array(entry[f"p_{test}"])
            np.testing.assert_allclose(pvalues[test][: len(expected)], expected, rtol=1e-9)
    assert set(entry["values"]) == set(values)
    for key, expected in entry["values"].items():
        np.testing.assert_allclose(values[key], expected, rtol=1e-9, atol=1e-14, err_msg=key)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_in_float32(name):
    data, entry = GOLDEN[name]
    values, _, cuts = published_values(load(data, NUM_STEPS, NUM_STATES))
    if np.ptp([episode["log_ratio"].sum() for episode in data]) < MODERATE_SPAN:
        for key, expected in entry["values"].items():
            if key != "incris_published":
                np.testing.assert_allclose(values[key], expected, rtol=1e-3, atol=1e-6, err_msg=key)
    assert_cuts_nearly_best(data, np.asarray(cuts))


def assert_cuts_nearly_best(data, cuts):
    for t in (1, 2, 5, oracle.horizon(data)):
        alive = [episode for episode in data if len(episode["rewards"]) >= t]
        if alive:
            scores = [score for score, _ in oracle.window_scores(alive, t, end=None)]
            chosen = scores[t - cuts[t - 1]]
            assert chosen <= min(scores) * (1 + 1e-3) + 1e-9


def test_marginalised_importance_sampling_has_an_absorbing_state(double):
    data, _ = GOLDEN["GridworldDD-0-25"]
    assert oj.estimate(load(data, NUM_STEPS, NUM_STATES), "mis") == pytest.approx(4.94, abs=0.005)
