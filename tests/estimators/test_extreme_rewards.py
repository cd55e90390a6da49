"""Rewards near the largest number of float32: finite wherever the estimate can be represented."""

from functools import partial

import jax
import numpy as np
import oracles as oracle
import pytest
from datasets import MAX_STEPS, NUM_ACTIONS, NUM_STATES, load, random_data
from oracles import doubly_robust as oracle_dr

import osiris_jax as oj

LARGE = 3e38
BY_ORACLE = [name for name in oj.ESTIMATORS if name in oracle.ESTIMATORS]


STEPS = 3
load = partial(load, steps=STEPS)


def signed(seed, size=40):
    """One-step returns of +-3e38, nearly in balance, and ratios near 1."""
    data = random_data(seed, size, max_steps=1, spread=0.05)
    for i, episode in enumerate(data):
        episode["rewards"] = np.full(1, np.float32(LARGE if i % 2 else -LARGE))
        episode["log_ratio"] = episode["log_ratio"].astype(np.float32)
    return data


def positive(seed, size=40):
    """Many returns of up to 3e38 whose mean is a tenth of it."""
    data = random_data(seed, size, max_steps=STEPS, spread=0.05)
    for i, episode in enumerate(data):
        episode["rewards"] = np.full(len(episode["rewards"]), np.float32(LARGE / 3 if i % 3 else 0))
        episode["log_ratio"] = episode["log_ratio"].astype(np.float32)
    return data


@pytest.mark.parametrize("name", BY_ORACLE)
@pytest.mark.parametrize("kind", [signed, positive])
def test_sums_of_large_rewards_do_not_overflow(name, kind):
    data = kind(0)
    expected = oracle.ESTIMATORS[name](data)
    assert abs(expected) < np.finfo("float32").max
    value = oj.estimate(load(data), name)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5 * LARGE)


@pytest.mark.parametrize("name", ["dr", "wdr", "dm", "stepwise", "stepwise-dr", "magic", "drl"])
def test_nor_do_those_with_a_fitted_or_a_given_q(name):
    data = positive(1)
    batch = load(data)
    assert np.isfinite(oj.estimate(batch, name))
    if name == "stepwise":
        np.testing.assert_allclose(oj.estimate(batch, name), oracle.pdis(data), rtol=1e-5)
        return
    q = np.full((NUM_STATES, NUM_ACTIONS), np.float32(LARGE / 2))
    value = oj.estimate(batch, name, q=q)
    if name in oracle_dr.ESTIMATORS:
        of_steps = [q[episode["states"]] for episode in data]
        expected = oracle_dr.ESTIMATORS[name](data, of_steps, 1.0)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5 * LARGE)


@pytest.mark.parametrize("name", BY_ORACLE)
def test_after_omission_neither(name):
    data = positive(2)
    keep = np.arange(NUM_STATES) % 2 == 0
    value = oj.estimate(load(data), name, relevance="oracle", keep=keep)
    expected = oracle.ESTIMATORS[name](oracle.omit(data, keep))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.parametrize("name", oj.ESTIMATORS)
def test_usual_rewards_are_not_touched(name, float_type):
    """The power is 1: the estimate is that of the function without room, but for the compiler."""
    batch = load(random_data(3, 8), steps=MAX_STEPS)
    function = oj.ESTIMATORS[name]
    bare = getattr(function, "__wrapped__", function)

    @jax.jit
    def both(batch):
        return function(batch, batch.log_ratio), bare(batch, batch.log_ratio)

    found, expected = both(batch)
    np.testing.assert_allclose(found, expected, rtol=16 * np.finfo(float_type).eps)


@pytest.mark.parametrize("steps", [1, 2])
def test_mis_without_weight_at_its_last_step_is_undefined(steps, float_type):
    """An empty normaliser is NaN, also at a step after which nothing is normalised any more."""
    data = random_data(5, 6, max_steps=1)
    for episode in data:
        for name, x in episode.items():
            episode[name] = np.repeat(x, steps, axis=0)
        episode["log_ratio"][-1] = -np.inf
    for batch in (load(data, steps=steps), load(data, steps=9)):
        assert np.isnan(oj.estimate(batch, "mis"))
        assert np.isnan(oj.estimate(batch, "cwpdis"))
    assert np.isnan(oracle.mis(data))
