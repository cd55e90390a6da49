"""The published stream and its windows; published classes, networks and cuts against oracles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    golden,
    in_numpy,
    load,
    poisoned,
    ragged_data,
    random_data,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import paper as oracle_paper
from oracles import published as oracle_published

import osiris_jax as oj
from osiris_jax.core.random_streams import TARGET_STREAM, integers_below
from osiris_jax.paper import network, published
from osiris_jax.paper.draws import Draws, legacy_rollout

GRIDWORLDS = ("dilly-dallying", "express")
FIELDS = {"states": "state", "actions": "action", "rewards": "reward", "log_ratio": "log_ratio"}
STEPS = 20


def assert_same_episode(batch, number, episode):
    steps = len(episode["rewards"])
    assert int(batch.lengths[number]) == steps
    for name, field in FIELDS.items():
        actual = getattr(batch, field)[number, :steps]
        np.testing.assert_allclose(actual, episode[name], rtol=0, atol=1e-14)


@pytest.mark.parametrize("policy", ["behavior", "target"])
@pytest.mark.parametrize("world", GRIDWORLDS)
def test_the_stream_is_that_of_a_plain_loop(world, policy, double):
    batch = in_numpy(legacy_rollout(oj.make(world), 12, policy))
    for number in range(12):
        episode = oracle_paper.legacy_episode(world, policy, number)
        assert_same_episode(batch, number, episode)


@pytest.mark.parametrize(("case", "world"), [("DD", "dilly-dallying"), ("XP", "express")])
def test_the_stream_is_that_of_the_paper(case, world, double):
    data, _ = golden()[f"Gridworld{case}-0-100"]
    batch = in_numpy(legacy_rollout(oj.make(world), 100))
    for number, episode in enumerate(data):
        assert_same_episode(batch, number, episode)


def test_published_trials_overlap_in_all_but_one_trajectory(double):
    draws = Draws(oj.make("express"), 25, 6, overlapping=True)
    trials = draws.of(np.arange(6))
    stream = in_numpy(legacy_rollout(oj.make("express"), 30))
    for k in range(6):
        np.testing.assert_array_equal(trials.data.state[k], stream.state[k : k + 25])
    np.testing.assert_array_equal(trials.data.state[1:, :-1], trials.data.state[:-1, 1:])
    np.testing.assert_array_equal(trials.on_policy[1:, :-1], trials.on_policy[:-1, 1:])
    assert draws.pool is not None
    assert len(draws.pool[1]) == 25 + 6 - 1
    target = in_numpy(legacy_rollout(oj.make("express"), 30, "target"))
    np.testing.assert_array_equal(trials.on_policy[3], target.reward[3:28].sum(1))


def test_independent_trials_are_those_of_a_study():
    world = oj.make("express")
    trials = Draws(world, 5, 9, overlapping=False, seed=4).of(np.array([7, 2]))
    for place, k in enumerate((7, 2)):
        key = random.fold_in(random.key(4), k)
        expected = oj.pad_to(world.rollout(key, 5), world.horizon)
        for name in (*FIELDS.values(), "mask"):
            np.testing.assert_array_equal(
                getattr(trials.data, name)[place], getattr(expected, name)
            )
        on_policy = world.returns(random.fold_in(key, TARGET_STREAM), 5).returns
        np.testing.assert_array_equal(trials.on_policy[place], on_policy)


@pytest.mark.parametrize("overlapping", [True, False])
def test_chunks_follow_one_another(overlapping, monkeypatch):
    whole = Draws(oj.make("express"), 5, 7, overlapping=overlapping, seed=4)
    monkeypatch.setattr("osiris_jax.paper.draws.CHUNK_CELLS", 3 * 5 * whole.steps)
    parts = list(whole.in_chunks())
    assert [len(part.mask) for part in parts] == [3, 3, 1]
    for name in (*FIELDS.values(), "mask"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole.of(np.arange(7)).data, name))


def test_the_pool_of_another_world_follows_the_seed():
    world = oj.make("waiting-room")
    one, other = (
        Draws(world, 6, 4, overlapping=True, seed=seed).of(np.arange(4)) for seed in (0, 1)
    )
    assert (one.data.lengths != other.data.lengths).any()
    np.testing.assert_array_equal(one.data.state[1:, :-1], one.data.state[:-1, 1:])
    assert len(np.unique(np.asarray(one.on_policy))) > 1


@jax.jit
def pvalues_with_coins(batch, coins):
    return published.pvalues_published(batch, classes="return", coins=coins)


@given(seed=st.integers(0, 10**6), size=st.sampled_from([2, 6]))
@settings(max_examples=25)
def test_classes_by_return_with_coins(double, seed, size):
    data = random_data(seed, size, coarse=True)
    batch = load(data)
    rng = np.random.default_rng(seed)
    visit = rng.random(batch.mask.shape) < 0.5
    action = rng.random((NUM_STATES, NUM_ACTIONS)) < 0.5
    expected = oracle_paper.pvalues_by_return(data, NUM_STATES, visit, action)
    coins = published.Coins(visit, action)
    for given_batch in (batch, poisoned(batch)):
        actual = pvalues_with_coins(given_batch, coins)
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_coins_have_their_odds_and_do_not_see_padding():
    batch = oj.make("express").rollout(random.key(0), 40)
    coins = published.Coins.toss(random.key(1), batch)
    visits, actions = np.asarray(coins.visit), np.asarray(coins.action)
    for found, chance in ((visits, 0.5), (actions, 0.69146)):
        assert abs(found.mean() - chance) < 4 * np.sqrt(chance * (1 - chance) / found.size)
    longer = published.Coins.toss(random.key(1), oj.pad_to(batch, 120))
    np.testing.assert_array_equal(longer.visit[:, : batch.mask.shape[1]], visits)
    np.testing.assert_array_equal(longer.action, actions)


@given(data=ragged_data())
@settings(max_examples=25)
def test_cuts_by_products_are_those_of_the_definition(double, data):
    batch = load(data)
    expected = oracle_published.incris_published(data)
    value = cuts_by_products(batch)
    size = max(1.0, max(np.abs(episode["rewards"]).max() for episode in data))
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6 * size)
    assert float(value) == pytest.approx(float(cuts_by_products(poisoned(batch))), rel=1e-9)


@jax.jit
def cuts_by_products(batch):
    return published.choose_cuts_by_products(batch, batch.log_ratio).mean.sum()


@pytest.mark.parametrize("is_long", [False, True])
def test_long_data_go_by_products(monkeypatch, is_long):
    seen, real = [], published.choose_cuts_by_products

    def watched(*arguments):
        seen.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(published, "LONG", MAX_STEPS - is_long)
    monkeypatch.setattr(published, "choose_cuts_by_products", watched)
    batch = load(random_data(0, 6))
    published.incris_published(batch, batch.log_ratio)
    assert bool(seen) == is_long


@pytest.mark.parametrize("with_observations", [False, True])
def test_published_nn_q(double, with_observations):
    data = random_data(3, 6)
    rng = np.random.default_rng(0)
    for episode in data:
        if with_observations:
            episode["observations"] = rng.normal(size=(len(episode["rewards"]), 2))
    batch, key = load(data), random.key(5)
    weights_key, draw_key = random.split(key)
    rows = np.concatenate(
        [e["observations"] if with_observations else e["states"][:, None] for e in data]
    ).astype(float)
    layers = network.first_layers(weights_key, (rows.shape[1], 32, 32, NUM_ACTIONS), jnp.float64)
    minibatches = [
        np.asarray(integers_below(draw_key, t, 128, jnp.asarray(len(rows)))) for t in range(STEPS)
    ]
    start = [(np.array(layer.kernel).T, np.array(layer.bias)) for layer in layers]
    asked = rows if with_observations else np.arange(NUM_STATES, dtype=float)[:, None]
    expected = oracle_paper.nn_q(data, start, minibatches, rows, asked)
    fit = jax.jit(functools.partial(network.nn_q_published, steps=STEPS))
    for given_batch in (batch, poisoned(batch)):
        actual = fit(given_batch, key=key)
        actual = actual.value[batch.mask] if with_observations else actual
        np.testing.assert_allclose(actual, expected, rtol=1e-7)


def test_first_layers_are_uniform_as_in_pytorch():
    layers = network.first_layers(random.key(0), (400, 300, 4), jnp.float32)
    for layer, inputs in zip(layers, (400, 300), strict=True):
        bound = 1 / np.sqrt(inputs)
        for part in (np.asarray(layer.kernel), np.asarray(layer.bias)):
            assert np.abs(part).max() <= bound
        kernel = np.asarray(layer.kernel) / bound
        assert abs(kernel.mean()) < 4 * np.sqrt(1 / 3 / kernel.size)
        assert kernel.var() == pytest.approx(1 / 3, rel=0.1)
