"""A grid of levels at once, against one level after another by loops."""

from functools import partial

import jax
import numpy as np
import pytest

from osiris_jax import stats
from osiris_jax.data import from_episodes
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.pipeline import compose
from osiris_jax.relevance.omission import PART

STATES = 6
OF_WEIGHTS = [name for name, entry in ESTIMATORS.items() if entry.of_weights is not None]


def data(seed, longest, size=9):
    rng = np.random.default_rng(seed)
    episodes = []
    for steps in rng.integers(1, longest + 1, size):
        log_ratio = rng.normal(size=steps)
        log_ratio[rng.random(steps) < 0.5 / longest] = -np.inf
        episodes.append(
            {
                "states": rng.integers(STATES, size=steps),
                "actions": rng.integers(2, size=steps),
                "rewards": rng.normal(size=steps),
                "log_ratio": log_ratio,
            }
        )
    return episodes


def log_weights_by_loops(episodes, kept):
    """Of every trajectory, the sum of the log-ratios of kept states."""
    return [
        sum(x for x, s in zip(one["log_ratio"], one["states"], strict=True) if kept[s])
        for one in episodes
    ]


GRIDS = ((0.3, 0.0, 1.0, 0.05, 0.3), (0.5,), tuple(np.linspace(0, 1, 21)))


@jax.jit
def log_weights_at(batch, value, grids):
    """Of every grid of levels: by p-values, and by a threshold."""
    return [
        [
            compose.log_weights_at(batch, compose.Evidence(value, by_threshold, False), levels)
            for by_threshold in (False, True)
        ]
        for levels in grids
    ]


@pytest.mark.parametrize("longest", [5, 40, 700])
def test_log_weights_at_all_levels(longest, double):
    episodes = data(longest, longest)
    batch = from_episodes(episodes, num_states=STATES)
    value = np.asarray([0.0, 0.05, 0.2, 0.3, 0.9, 1.0])
    found = log_weights_at(batch, value, list(map(np.array, GRIDS)))
    for levels, by_test in zip(GRIDS, found, strict=True):
        for by_threshold, of_levels in zip((False, True), by_test, strict=True):
            for level, weights in zip(levels, of_levels, strict=True):
                kept = value > level if by_threshold else (value <= level) & (level > 0)
                expected = log_weights_by_loops(episodes, kept)
                np.testing.assert_allclose(weights, expected, atol=1e-10)


def test_evidence_by_trajectory_keeps_its_own_states(double):
    episodes = data(3, 30)
    batch = from_episodes(episodes, num_states=STATES)
    value = np.random.default_rng(0).random((len(episodes), STATES))
    ((found, _),) = log_weights_at(batch, value, [np.array([0.2, 0.7])])
    for level, weights in zip((0.2, 0.7), found, strict=True):
        expected = [
            log_weights_by_loops([one], row <= level)[0]
            for one, row in zip(episodes, value, strict=True)
        ]
        np.testing.assert_allclose(weights, expected, atol=1e-10)


@pytest.mark.parametrize("estimator", OF_WEIGHTS)
@pytest.mark.parametrize("max_kept", [None, 2])
def test_a_grid_is_its_levels_one_by_one(estimator, max_kept, double):
    batch = from_episodes(data(11, 20), num_states=STATES)
    options = {"max_kept": max_kept, "discount": 0.9}

    def values(at, levels):
        evidence = compose.gather(batch, estimator, "welch")
        return at(batch, estimator, evidence, levels, **options)

    levels = np.asarray([1.0, 0.1, 0.0, 0.6])
    one_by_one = jax.jit(partial(values, compose.value_at))
    found = jax.jit(partial(values, compose.values_at))(levels)
    for level, value in zip(levels, found, strict=True):
        np.testing.assert_allclose(value, one_by_one(level), rtol=1e-10)


def test_a_long_grid_in_float32_does_not_drift():
    steps = 200_000
    ratio = np.full(steps, 0.1, np.float32)
    one = {"states": np.zeros(steps, int), "actions": np.zeros(steps, int)}
    batch = from_episodes([one | {"rewards": np.ones(steps), "log_ratio": ratio}], num_states=1)
    ((found, _),) = log_weights_at(batch, np.zeros(1, np.float32), [np.float32([0.5, 1.0])])
    bound = (PART + 2) * 2.0**-24  # of a sum of so many terms one after another
    np.testing.assert_allclose(found, steps * np.float64(np.float32(0.1)), rtol=bound)


def test_moments_of_families_are_those_of_their_segments(double):
    rng = np.random.default_rng(4)
    shape, items = (2, 5, 2), 300
    segment = rng.integers(-1, 20, items)
    segment = np.where(segment < 0, 20, segment)
    segment[segment == 7] = 6
    value = rng.normal(1e6, 1.0, items) * (1 + (segment // 2) % 5)
    value[segment == 3] = 5e6
    found = jax.jit(stats.family_moments, static_argnums=2)(value, segment, shape)
    found = jax.tree.map(np.asarray, found)
    for place, number in np.ndenumerate(np.arange(20).reshape(shape)):
        family = value[(segment < 20) & ((segment // 2) % 5 == place[1])]
        origin = np.clip(0, family.min(), family.max())
        own = value[segment == number]
        assert found.size[place] == len(own)
        if len(own):
            np.testing.assert_allclose(found.mean[place], (own - origin).mean(), rtol=1e-12)
            squares = ((own - own.mean()) ** 2).sum()
            np.testing.assert_allclose(found.squares[place], squares, rtol=1e-6, atol=1e-300)
    assert found.squares[0, 1, 1] == 0
