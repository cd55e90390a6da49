"""Policies and Q-functions as plain Python functions, wherever policies are taken."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import osiris_jax as oj
from osiris_jax.data.policies import EpsilonGreedy, Mixture, Softmax, Tabular
from osiris_jax.study.store import world_identity
from osiris_jax.worlds import rollout
from osiris_jax.worlds.cartpole import BINS, environment

WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)


def q(observation):
    return jax.nn.relu(observation @ WEIGHTS) - 0.5


def behavior(observation):
    return jax.nn.softmax(observation @ WEIGHTS)


def target(observation):
    return jnp.stack([jnp.float32(0.3), jnp.float32(0.7)]) + 0 * observation[0]


def world_of(behavior, target, **options):
    return oj.GymnaxWorld(environment(), behavior, target, 20, bins=BINS, **options)


def test_functions_give_the_data_that_pytrees_give():
    key = random.key(3)
    plain = world_of(EpsilonGreedy(q, 0.5), Softmax(q, 2.0)).rollout(key, 30, probs=True)
    wrapped = jax.tree_util.Partial(q)
    known = world_of(EpsilonGreedy(wrapped, 0.5), Softmax(wrapped, 2.0))
    expected = known.rollout(key, 30, probs=True)
    chex.assert_trees_all_equal(plain, expected)


def test_functions_are_policies_with_ratios_of_their_own():
    batch = world_of(behavior, target).rollout(random.key(0), 40, probs=True)
    seen, mask = np.asarray(batch.observation), np.asarray(batch.mask)
    chance = np.asarray(jax.nn.softmax(seen @ np.asarray(WEIGHTS)))
    taken = np.take_along_axis(chance, np.asarray(batch.action)[..., None], -1)[..., 0]
    wanted = np.log(np.where(np.asarray(batch.action) == 1, 0.7, 0.3)) - np.log(taken)
    np.testing.assert_allclose(np.asarray(batch.log_ratio)[mask], wanted[mask], atol=1e-5)
    again = oj.with_policies(batch, target=jax.vmap(target), behavior=EpsilonGreedy(q, 1.0))
    halves = np.where(np.asarray(batch.action) == 1, 0.7, 0.3) / 0.5
    np.testing.assert_allclose(np.asarray(again.log_ratio)[mask], np.log(halves)[mask], atol=1e-5)
    returns = world_of(behavior, target).returns(random.key(0), 40, policy=behavior)
    np.testing.assert_array_equal(returns.lengths, batch.lengths)


def test_a_function_is_compiled_once_and_its_arrays_are_read_anew():
    held = {"weights": WEIGHTS}

    def reads(observation):
        return jax.nn.softmax(jax.nn.relu(observation @ held["weights"]))

    world = world_of(reads, target)
    key = random.key(1)
    first = world.rollout(key, 20)
    before = rollout._record._cache_size()
    np.testing.assert_array_equal(world.rollout(key, 20).action, first.action)
    held["weights"] = -3 * WEIGHTS
    second = world.rollout(key, 20)
    assert rollout._record._cache_size() == before
    fresh = world_of(lambda seen: jax.nn.softmax(jax.nn.relu(seen @ (-3 * WEIGHTS))), target)
    np.testing.assert_array_equal(second.action, fresh.rollout(key, 20).action)
    assert not np.array_equal(first.action, second.action)


def test_two_functions_do_not_share_a_compilation():
    def always(action):
        def policy(observation):
            return jax.nn.one_hot(action, 2) + 0 * observation[0]

        return policy

    for action in (0, 1):
        batch = world_of(always(action), target).rollout(random.key(0), 5)
        assert set(np.asarray(batch.action)[np.asarray(batch.mask)].tolist()) == {action}


BAD = {
    "behavior: gives probabilities of shape (3,)": (lambda seen: jnp.ones(3) / 3, target),
    "target: gives probabilities of shape (3,)": (behavior, Softmax(lambda seen: jnp.ones(3))),
    "target: gives probabilities of shape ()": (behavior, lambda seen: seen[0]),
    "behavior: JAX cannot trace": (lambda seen: np.asarray(seen)[:2], target),
    "target: JAX cannot trace": (behavior, lambda seen: [0.5, 0.5] if seen[0] > 0 else [1.0, 0.0]),
    "behavior: reads states": (Tabular(np.ones((4, 2)) / 2), target),
    "target: expected a policy or a function": (behavior, np.ones((4, 2)) / 2),
}


@pytest.mark.parametrize("problem", BAD)
def test_what_is_wrong_with_a_function_is_named(problem):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}") as found:
        world_of(*BAD[problem])
    assert len(str(found.value).splitlines()) == 1


def test_a_policy_given_to_rollout_is_checked_too():
    with pytest.raises(ValueError, match=r"^policy: gives probabilities of shape \(5,\)"):
        world_of(behavior, target).rollout(random.key(0), 3, policy=lambda seen: jnp.ones(5) / 5)


def test_functions_inside_mixtures():
    mixed = Mixture((EpsilonGreedy(q, 0.1), Softmax(q), behavior), (0.5, 0.25, 0.25))
    batch = world_of(mixed, target).rollout(random.key(0), 5)
    assert np.isfinite(np.asarray(batch.log_ratio)[np.asarray(batch.mask)]).all()


def test_worlds_of_functions_are_told_apart_and_known_again():
    class Plan:
        def __init__(self, *policies):
            self.world = world_of(*policies)

    first = world_identity(Plan(EpsilonGreedy(q, 0.5), target))
    assert first == world_identity(Plan(EpsilonGreedy(q, 0.5), target))
    assert first != world_identity(Plan(EpsilonGreedy(lambda seen: -q(seen), 0.5), target))
    assert first != world_identity(Plan(EpsilonGreedy(q, 0.5), behavior))


def test_a_study_takes_functions():
    world = world_of(EpsilonGreedy(q, 0.5), target)
    found = oj.Study(world=world, trials=3, sizes=(4,), estimators=("wis",)).run(seed=0)
    assert np.isfinite(found.rows[0]["mean"])


TRACED = {
    "from_arrays": lambda batch: oj.from_arrays(
        reward=batch.reward, action=batch.action, state=batch.state, log_ratio=batch.log_ratio
    ),
    "with_policies": lambda batch: oj.with_policies(batch, target=lambda s: jnp.ones((len(s), 2))),
    "with_states": lambda batch: oj.with_states(batch, BINS),
}


@pytest.mark.parametrize("name", TRACED)
def test_what_checks_values_says_so_under_jit(name):
    batch = world_of(behavior, target).rollout(random.key(0), 5)

    def value(batch):
        return oj.estimate(TRACED[name](batch), "wis")

    with pytest.raises(
        ValueError, match=rf"is being traced .* {name} .* TrajectoryBatch\(\.\.\.\)"
    ):
        jax.jit(value)(batch)
