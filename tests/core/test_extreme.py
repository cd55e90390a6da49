"""Long horizons, huge and vanishing ratios, large returns, against long double arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import NUM_STATES, load
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.core import masked

MILLION = 1_000_000
UP, DOWN = 0.03, -0.22  # like CartPole's: the greedy action a little likelier, others less
LOG_WEIGHT_ERROR = {"float32": 1e-2, "float64": 1e-9}


def balanced_steps(rng, steps, target, float_type):
    """Two-valued log-ratios in random order whose sum is near `target`."""
    ups = round((target - steps * DOWN) / (UP - DOWN))
    return rng.permutation(np.where(np.arange(steps) < ups, UP, DOWN)).astype(float_type)


def long_data(float_type):
    rng = np.random.default_rng(0)
    lengths = (MILLION, MILLION - 250_000, MILLION)
    targets = (1.0, -0.5, 0.3)
    return [
        {
            "states": rng.integers(2, size=steps),
            "actions": np.zeros(steps, int),
            "rewards": rng.normal(1.0, 0.5, size=steps).astype(float_type),
            "log_ratio": balanced_steps(rng, steps, target, float_type),
        }
        for steps, target in zip(lengths, targets, strict=True)
    ]


def long_oracle(data):
    """The definitions for long data, vectorised over time in long double."""
    steps = max(len(e["rewards"]) for e in data)
    reward, log_ratio = (np.zeros((len(data), steps), np.longdouble) for _ in range(2))
    for i, episode in enumerate(data):
        reward[i, : len(episode["rewards"])] = episode["rewards"]
        log_ratio[i, : len(episode["rewards"])] = episode["log_ratio"]
    weight = np.exp(np.cumsum(log_ratio, axis=1))
    total, final = reward.sum(1), weight[:, -1]
    lengths = np.array([len(e["rewards"]) for e in data])
    groups = [lengths == length for length in set(lengths)]
    return {
        "mc": total.mean(),
        "is": (total * final).mean(),
        "wis": (total * final).sum() / final.sum(),
        "pdis": (reward * weight).sum() / len(data),
        "cwpdis": ((reward * weight).sum(0) / weight.sum(0)).sum(),
        "phwis": sum(g.mean() * (total * final)[g].sum() / final[g].sum() for g in groups),
        "mis": long_mis(data, steps),
    }


def long_mis(data, steps):
    """Marginalised IS of three trajectories: shares are renormalised at each step."""
    padded = steps + 1
    states = np.full((3, padded), -1)
    ratios, rewards = np.ones((3, padded)), np.zeros((3, padded))
    for row, episode in enumerate(data):
        length = len(episode["rewards"])
        states[row, :length] = episode["states"]
        ratios[row, :length] = np.exp(episode["log_ratio"].astype(float))
        rewards[row, :length] = episode["rewards"]
    meet = [(states[i] == states[j])[1:].tolist() for i, j in ((0, 1), (0, 2), (1, 2))]
    columns = [x[:steps].tolist() for x in (*ratios, *rewards)]
    a, b, c, value = 1 / 3, 1 / 3, 1 / 3, 0.0
    for ra, rb, rc, ga, gb, gc, ab, ac, bc in zip(*columns, *meet, strict=False):
        a, b, c = a * ra, b * rb, c * rc
        value += a * ga + b * gb + c * gc
        total = a + b + c
        if ab and ac:
            a = b = c = total / 3
        elif ab:
            a = b = (a + b) / 2
        elif ac:
            a = c = (a + c) / 2
        elif bc:
            b = c = (b + c) / 2
        a, b, c = a / total, b / total, c / total
    return value


def test_a_million_steps(float_type):
    data = long_data(float_type)
    batch = oj.from_episodes(data)
    for name, expected in long_oracle(data).items():
        error = 2 * LOG_WEIGHT_ERROR[float_type]
        np.testing.assert_allclose(
            oj.estimate(batch, name), float(expected), rtol=error, err_msg=name
        )


@pytest.mark.parametrize("order", ["random", "rising", "falling"])
def test_log_weights_of_a_million_steps(order, float_type):
    """In sorted order partial sums reach 26,000 and repeat one rounding error 880,000 times."""
    log_ratio = balanced_steps(np.random.default_rng(1), MILLION, 0.0, float_type)[None]
    if order != "random":
        log_ratio = np.sort(log_ratio)[:, :: 1 if order == "rising" else -1].copy()
    mask = jnp.ones(log_ratio.shape, bool)
    exact = np.cumsum(log_ratio.astype(np.longdouble), axis=1)
    error = LOG_WEIGHT_ERROR[float_type]
    running = jax.jit(masked.running_log_weights)(jnp.asarray(log_ratio), mask)
    np.testing.assert_allclose(np.asarray(running, np.longdouble), exact, rtol=0, atol=error)
    whole = jax.jit(masked.log_weights)(jnp.asarray(log_ratio), mask)
    np.testing.assert_allclose(np.asarray(whole, np.longdouble), exact[:, -1], rtol=0, atol=error)


def test_a_sum_keeps_what_rounding_lost(float_type):
    """Half of the pairs that are added first lose a one, and the rest cancels."""
    large = 2.0 ** (np.finfo(float_type).nmant + 1)
    x = np.zeros((2, 64, 2), float_type)
    x[0] = large, -large
    x[1, :, 0] = 1
    assert masked.total(jnp.asarray(x.ravel())) == 64


def wild_data(seed, zeros):
    """Log-ratios up to 50 in size, ratios of zero, returns around 1e6."""
    rng = np.random.default_rng(seed)
    data = []
    for steps in rng.integers(1, 13, size=6):
        log_ratio = rng.uniform(-50, 50, size=steps)
        log_ratio[rng.random(steps) < zeros] = -np.inf
        data.append(
            {
                "states": rng.integers(NUM_STATES, size=steps),
                "actions": np.zeros(steps, int),
                "rewards": rng.normal(1e6, 1e3, size=steps) / steps,
                "log_ratio": log_ratio,
            }
        )
    return data


def representable(value, float_type):
    limits = np.finfo(float_type)
    return value == 0 or limits.tiny <= abs(value) <= limits.max


@pytest.mark.filterwarnings(
    "ignore:overflow:RuntimeWarning"
)  # the oracle's exact value is too large
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1]))
def test_wild_ratios(seed, zeros):
    data = wild_data(seed, zeros)
    expected = {name: reference(data) for name, reference in oracle.ESTIMATORS.items()}
    for float_type, error in (("float64", 1e-6), ("float32", 1e-2)):
        with jax.enable_x64(float_type == "float64"):
            batch = load(data)
            for name, value in expected.items():
                actual = float(oj.estimate(batch, name))
                if np.isnan(value):
                    assert np.isnan(actual), name
                elif representable(value, float_type):
                    assert np.isfinite(actual), (name, value)
                    if name != "incris" or float_type == "float64":
                        np.testing.assert_allclose(actual, value, rtol=error, err_msg=name)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["to-go", "future"]))
def test_pvalues_of_wild_ratios(seed, weighting):
    data = wild_data(seed, 0.1)
    with jax.enable_x64(True):
        actual = oj.relevance_pvalues(load(data), "welch", weighting=weighting)
    expected = oracle.pvalues(data, NUM_STATES, "welch", weighting=weighting)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_effects_of_wild_ratios_are_numbers(seed, float_type):
    """Their scale may overflow, where an effect that noise alone would show is still 0."""
    batch = load(wild_data(seed, 0.1))
    effects = {
        shrink: oj.relevance_pvalues(batch, "effect", shrink=shrink, weighting="to-go")
        for shrink in (False, True)
    }
    assert np.all(effects[True] >= 0)
    assert np.all(effects[True] <= effects[False])
    assert np.any(effects[True] == 0)


def test_pvalues_of_large_returns(float_type):
    """Returns of 1e6 with standard deviation 1: p-values as exact as the data."""
    rng = np.random.default_rng(5)
    data = [
        {
            "states": [i % 3],
            "actions": [0],
            "rewards": np.array([rng.normal(1e6 + 0.1 * (i % 2), 1.0)], float_type),
            "log_ratio": [0.1 * (-1) ** i],
        }
        for i in range(3000)
    ]
    batch = oj.from_episodes(data)
    for test in ("welch", "smirnov"):
        actual = oj.relevance_pvalues(batch, test, weighting="none")
        expected = oracle.pvalues(data, 3, test, weighting="none")
        error = 1e-6 if test == "smirnov" else {"float32": 1e-4, "float64": 1e-9}[float_type]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=error)
        assert np.ptp(expected) > 0.01


@pytest.mark.parametrize("constant", [1e6 / 3, -0.1, 0.0])
def test_wis_of_a_constant_return_is_that_constant(constant, float_type):
    rng = np.random.default_rng(6)
    data = [
        {
            "states": [0],
            "actions": [0],
            "rewards": [constant],
            "log_ratio": rng.normal(scale=20, size=1),
        }
        for _ in range(1000)
    ]
    assert oj.estimate(oj.from_episodes(data), "wis") == np.asarray(constant, float_type)


@pytest.mark.parametrize("size", [60.0, 95.0, 200.0])
def test_mis_where_a_share_vanishes_and_comes_back(size, float_type):
    """Half of the data leave with a weight of exp(-size) and return in two equal steps."""
    log_ratio = [[0.0, 0.0, 0.0, 0.0], [-size, size / 2, size / 2, 0.1]]
    data = [
        {
            "states": [0, 1 + i % 2, 3 + i % 2, 5 + i % 2],
            "actions": [0, 0, 0, 0],
            "rewards": [0.0, 0.0, 0.0, 1.0 + i],
            "log_ratio": log_ratio[i % 2],
        }
        for i in range(6)
    ]
    value = oj.estimate(oj.from_episodes(data), "mis")
    np.testing.assert_allclose(value, oracle.mis(data), rtol=1e-4)
