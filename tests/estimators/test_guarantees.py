"""Guaranteed intervals hold whatever rounding did to the data: the truth is never cut off by it."""

import numpy as np
import pytest

import osiris_jax as oj
from osiris_jax.inference.exact import terms_of

GUARANTEED = ("hoeffding", "bernstein", "hcope")


def one_step(reward, log_ratio=None):
    """One-step trajectories in float32, as users give them in float64."""
    number = len(reward)
    return oj.from_arrays(
        reward=reward[:, None],
        log_ratio=np.zeros((number, 1)) if log_ratio is None else log_ratio[:, None],
        state=np.zeros((number, 1), int),
        action=np.zeros((number, 1), int),
    )


@pytest.mark.parametrize("method", GUARANTEED)
def test_returns_that_float32_cannot_tell_apart(method):
    """All returns are 1e6 + 0.03, in float32 1e6: the high end of Hoeffding's was 1000000.0096."""
    batch = one_step(np.full(20_000, 1e6 + 0.03))
    assert float(batch.reward[0, 0]) == 1e6
    for name in ("mc", "is", "pdis"):
        bounds = {"return_bounds": (1e6, 1e6 + 1)}
        if name != "mc" and method != "hcope":
            bounds["weight_bound"] = 1.0
        if name == "pdis":
            bounds["return_bounds"] = (0.0, 1e6 + 1)
        low, high = oj.intervals(batch, name, methods=method, **bounds)[name].intervals[method]
        assert low <= 1e6 + 0.03 <= high, (low, high)
        if (method, name) == ("hoeffding", "mc"):
            assert high - low < 0.3


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_of_stored_numbers_holds_that_of_the_numbers_given(seed):
    """What float64 data would give lies within, for any data that float32 rounds."""
    rng = np.random.default_rng(seed)
    number = (50, 317, 2000)[seed % 3]
    scale = 10.0 ** rng.integers(0, 7)
    reward = scale * (1 + 1e-6 * rng.random(number))
    log_ratio = rng.choice([-1.0, 1.0], number) * rng.random(number) * 1e-3
    weight = np.exp(log_ratio)
    batch = one_step(reward, log_ratio)
    known = {"return_bounds": (0.0, 2 * scale), "weight_bound": 1.01}
    found = oj.intervals(batch, ["mc", "is", "pdis"], methods=GUARANTEED, **known)
    for name, terms in (("mc", reward), ("is", reward * weight), ("pdis", reward * weight)):
        top = 2 * scale * (1.0 if name == "mc" else 1.01)
        log = np.log(2 / 0.05)
        radius = top * np.sqrt(log / (2 * number))
        low, high = found[name].intervals["hoeffding"]
        assert low <= max(terms.mean() - radius, 0)
        assert high >= min(terms.mean() + radius, 2 * scale)
        log = np.log(4 / 0.05)
        radius = np.sqrt(2 * terms.var(ddof=1) * log / number) + 7 * top * log / (3 * (number - 1))
        low, high = found[name].intervals["bernstein"]
        assert low <= max(terms.mean() - radius, 0)
        assert high >= min(terms.mean() + radius, 2 * scale)


@pytest.mark.parametrize("name", ["mc", "is", "pdis"])
@pytest.mark.parametrize("seed", range(5))
def test_terms_are_within_their_stated_error(name, seed):
    """Against the numbers before they were stored, in long double."""
    rng = np.random.default_rng(seed)
    number, steps, discount = 30, 40, 0.97
    lengths = rng.integers(1, steps + 1, number)
    mask = np.arange(steps)[None] < lengths[:, None]
    reward = np.where(mask, rng.normal(1e3, 1.0, (number, steps)), 0)
    target, behavior = rng.uniform(0.05, 0.95, (2, number, steps))
    batch = oj.from_arrays(
        reward=reward,
        target_prob=np.where(mask, target, 1.0),
        behavior_prob=np.where(mask, behavior, 1.0),
        state=np.zeros((number, steps), int),
        action=np.zeros((number, steps), int),
        lengths=lengths,
    )
    found = terms_of(batch, oj.ESTIMATORS[name], float(np.float32(discount)))
    exact = reward.astype(np.longdouble) * np.longdouble(discount) ** np.arange(steps)[None]
    ratio = np.where(mask, target / behavior, 1.0).astype(np.longdouble)
    weight = np.cumprod(ratio, 1) if name != "mc" else np.ones_like(ratio)
    terms = (exact * (weight if name == "pdis" else weight[:, -1:])).sum(1)
    assert np.all(np.abs(found["terms"] - terms) <= found["error"])
    assert np.all(np.abs(found["weights"] - weight[:, -1]) <= found["weight_error"] + 1e-300)
    assert np.all(found["error"] <= 1e-3 * np.abs(terms))
    moved = np.abs(found["terms"] - terms) / found["error"]
    assert moved.max() > 1e-4
