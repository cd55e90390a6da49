"""The data's own Markov chain: moments of composite policies, by the oracle and by the truth."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import MAX_STEPS, NUM_STATES, load, poisoned, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import selection as oracle_selection

import osiris_jax as oj
from osiris_jax.models import empirical
from osiris_jax.models.empirical import BLOCK, composite_moments

MAPS = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 1, 1, 1]], bool)
compiled_moments = jax.jit(composite_moments)


@pytest.fixture
def by_links(monkeypatch):
    """Moments by pairs of states, as where a matrix of them would be too large."""
    monkeypatch.setattr(empirical, "MOST_CELLS", 0)
    return jax.jit(
        lambda batch, keep, *, discount: composite_moments(batch, keep, discount=discount)
    )


def cut(data, steps):
    """The first steps of each trajectory."""
    return [{name: field[:steps] for name, field in episode.items()} for episode in data]


def expect_moments(found, data, maps, discount):
    """Equal to the oracle's, `centred` relative to what cancels in it."""
    for number, keep in enumerate(maps):
        value, second, centred = oracle_selection.composite_moments(data, keep, discount)
        largest = max(np.abs(episode["rewards"]).max() for episode in data)
        np.testing.assert_allclose(found.value[number], value, rtol=1e-9, atol=1e-9 * largest)
        np.testing.assert_allclose(found.second[number], second, rtol=1e-9, atol=1e-300)
        scale = 1e-9 * (second + largest**2)
        np.testing.assert_allclose(found.centred[number], centred, rtol=1e-9, atol=scale)


# The chain against the oracle -----------------------------------------------------------------


@settings(max_examples=60)
@given(ragged_data(), st.sampled_from([1.0, 0.9, 0.0]), st.sampled_from([1, 3, MAX_STEPS]))
def test_moments_of_any_map(data, discount, steps):
    """Cut at 1 or 3 steps most trajectories end when the longest does, so may have been cut."""
    data = cut(data, steps)
    with jax.enable_x64(True):
        found = compiled_moments(load(data), MAPS, discount=discount)
    expect_moments(found, data, MAPS, discount)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_more_links_than_a_block_holds(zeros, by_links, double):
    rng = np.random.default_rng(7)
    data = random_data(7, 150, zeros=zeros, spread=0.4)
    for episode in data:
        episode["states"] = rng.integers(60, size=len(episode["states"]))
    pairs = {
        (s, after)
        for episode in data
        for s, after in zip(episode["states"], [*episode["states"][1:], None], strict=True)
    }
    assert BLOCK < len(pairs) < 2 * BLOCK
    maps = rng.random((4, 60)) < 0.5
    for form in (by_links, compiled_moments):
        expect_moments(form(load(data, num_states=60), maps, discount=0.9), data, maps, 0.9)


def test_few_links_too(by_links, double):
    data = cut(random_data(3, 6, zeros=0.2), 3)
    expect_moments(by_links(load(data), MAPS, discount=0.9), data, MAPS, 0.9)


def test_float32_follows():
    data = random_data(5, 6, spread=0.3)
    found = compiled_moments(load(data), MAPS, discount=0.9)
    assert {x.dtype for x in found} == {jnp.dtype("float32")}
    expected = np.array([oracle_selection.composite_moments(data, keep, 0.9) for keep in MAPS])
    np.testing.assert_allclose(np.array(found[:3]).T, expected, rtol=1e-4, atol=1e-4)


def test_padding_never_matters(double):
    batch = load(random_data(1, 6, max_steps=MAX_STEPS - 3, zeros=0.1))
    expected = compiled_moments(oj.trim(batch), MAPS, discount=0.9)
    for other in (batch, poisoned(batch), poisoned(oj.pad_to(batch, 3 * MAX_STEPS))):
        found = compiled_moments(other, MAPS, discount=0.9)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_maps_matter_only_through_ratios(double):
    """With nothing kept the chain is the behaviour's; with ratios of one every map says so."""
    batch = load(random_data(2, 6))
    none = jnp.zeros((1, NUM_STATES), bool)
    behaviour = compiled_moments(batch, none, discount=0.9)
    ones = batch.replace(log_ratio=jnp.zeros_like(batch.log_ratio))
    for x, expected in zip(compiled_moments(ones, MAPS, discount=0.9), behaviour, strict=True):
        np.testing.assert_allclose(x, np.broadcast_to(expected, x.shape), rtol=1e-12)
    np.testing.assert_allclose(behaviour.centred, behaviour.second - behaviour.value**2, rtol=1e-9)
    assert len(set(np.asarray(compiled_moments(batch, MAPS, discount=0.9).value))) == len(MAPS)


def test_a_bandit_is_a_weighted_mean_by_hand(double):
    """Two states of two visits each; in the first the ratios 1 and 3 become 1/2 and 3/2."""
    data = [
        {"states": [s], "actions": [0], "rewards": [r], "log_ratio": [np.log(rho)]}
        for s, r, rho in ((0, 1.0, 1.0), (0, 5.0, 3.0), (1, 2.0, 0.5), (1, 4.0, 0.5))
    ]
    batch = oj.from_episodes(data, num_states=2)
    found = compiled_moments(batch, np.array([[True, True], [False, True]]), discount=1.0)
    np.testing.assert_allclose(found.value, [(4 + 3) / 2, (3 + 3) / 2])
    square = (0.5**2 + 7.5**2) / 2
    np.testing.assert_allclose(found.second, [(square + 10) / 2, (13 + 10) / 2])
    about = (0.25 * (1 - 3.5) ** 2 + 2.25 * (5 - 3.5) ** 2 + (2 - 3.5) ** 2 + (4 - 3.5) ** 2) / 4
    np.testing.assert_allclose(found.centred, [about, (4 + 4 + 1 + 1) / 4])


# The chain against the truth ------------------------------------------------------------------


def random_world(*, ends):
    """Five states, two actions; in the last a trajectory ends, or nothing ever does."""
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.full(NUM_STATES, 2.0), (NUM_STATES, 2))
    reward = np.array([1.0, 0.0]) + 0.3 * rng.normal(size=(NUM_STATES, 2))
    terminal = np.arange(NUM_STATES) == NUM_STATES - 1 if ends else np.zeros(NUM_STATES, bool)
    policies = {
        "behavior": rng.dirichlet((8, 8), NUM_STATES),
        "target": rng.dirichlet((12, 6), NUM_STATES),
    }
    return oj.TabularWorld(transition, reward, 0, **policies, horizon=6, terminal=terminal)


@pytest.mark.parametrize("ends", [True, False])
def test_the_chain_approaches_the_truth(ends, double):
    """Value and second moment from 400 independent data sets, within 4 standard errors.

    Both are smooth functions of means over N trajectories, biased by b / N + O(1 / N^2). Twice
    what 2 N say less what the first N of these say has no part of order 1 / N; its spread over the
    data sets gives the standard error.
    """
    world, size = random_world(ends=ends), 100
    exact = world.exact(0.95)
    batch = world.rollout(random.split(random.key(4), 400), 2 * size)
    assert (batch.lengths.max(1) == world.horizon).all()

    @jax.jit
    def moments(batch):
        find = partial(composite_moments, keep=jnp.asarray(MAPS), discount=0.95)
        return jnp.stack(jax.vmap(find)(batch)[:2])

    half = moments(jax.tree.map(lambda x: x[:, :size], batch))
    found = 2 * moments(batch) - half
    error = np.std(found, 1) / np.sqrt(found.shape[1])
    values = [exact.policy_value(exact.composite(keep)) for keep in MAPS]
    expected = np.array([values, exact.power_means("osiris", keep=MAPS, order=2)[1]])
    assert (np.abs(np.asarray(found).mean(1) - expected) < 4 * error).all()
    assert (error < 0.05 * np.abs(expected)).all()
    assert np.ptp(values) > 20 * error[0].max()
