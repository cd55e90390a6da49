"""Tabular worlds, ICU-Sepsis and CartPole: what they refuse, and that they move as they should."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import enumeration

import osiris_jax as oj
from osiris_jax.data.policies import Tabular
from osiris_jax.worlds import WORLDS, make
from osiris_jax.worlds.tabular import TabularWorld

UNIFORM = np.full((3, 2), 0.5)

SUCCESSORS = np.array([[1, 2], [0, 2], [2, 2]])

REWARD = np.array([[1.0, 2.0], [-1.0, 5.0], [0.0, 0.0]])

KEY = jax.random.key(0)

FIELDS = ("reward", "log_ratio", "action", "state", "mask")


def dense(successors):
    return np.eye(len(successors))[successors]


def changed(array, place, value):
    array = np.array(array, np.result_type(array, np.asarray(value)))
    array[place] = value
    return array


def world_with(**changes):
    arguments = {"transition": SUCCESSORS, "reward": REWARD, "start": 0, "horizon": 8}
    arguments |= {"behavior": UNIFORM, "target": np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])}
    return TabularWorld(**(arguments | changes))


@pytest.fixture(scope="module")
def world():
    return world_with()


# ------------------------------------------------------------------------------- refusals

REFUSED = {
    "transition sum": (
        {"transition": changed(dense(SUCCESSORS), (1, 0, 2), 0.5)},
        r"transition: probabilities sum to 1\.5 at state 1, action 0",
    ),
    "transition negative": (
        {"transition": changed(dense(SUCCESSORS), (0, 1, 0), -0.5)},
        r"transition: -0\.5 is not in \[0, 1\] at state 0, action 1, successor 0",
    ),
    "transition NaN": (
        {"transition": changed(dense(SUCCESSORS), (0, 1, 2), np.nan)},
        r"transition: nan is not in \[0, 1\] at state 0, action 1, successor 2",
    ),
    "transition axes": ({"transition": np.zeros(3)}, r"transition: expected .* got shape \(3,\)"),
    "no states": ({"transition": np.zeros((0, 2), int)}, r"transition: .* got shape \(0, 2\)"),
    "successor axis": ({"transition": np.ones((3, 2, 4))}, "transition: 3 states, but 4 success"),
    "ragged transition": ({"transition": [[1, 2], [0], [2, 2]]}, "transition: rows of unequal"),
    "text": ({"transition": [["1", "2"]] * 3}, "transition: expected numbers"),
    "float successors": (
        {"transition": SUCCESSORS.astype(float)},
        r"transition: \[state, action\] must hold integers",
    ),
    "successor too large": (
        {"transition": changed(SUCCESSORS, (1, 1), 3)},
        "transition: successor 3 is not a state at state 1, action 1",
    ),
    "successor negative": (
        {"transition": changed(SUCCESSORS, (0, 1), -1)},
        "transition: successor -1 is not a state at state 0, action 1",
    ),
    "reward shape": ({"reward": REWARD[:2]}, r"reward: expected 3 states x 2 .* shape \(2, 2\)"),
    "reward infinite": (
        {"reward": changed(REWARD, (1, 0), np.inf)},
        "reward: not finite at state 1, action 0",
    ),
    "reward by successor NaN": (
        {"reward": changed(np.zeros((3, 2, 3)), (1, 0, 2), np.nan)},
        "reward: not finite at state 1, action 0, successor 2",
    ),
    "start unknown": ({"start": 3}, "start: 3 is not one of the 3 states"),
    "start negative": ({"start": -1}, "start: -1 is not one of the 3 states"),
    "start fractional": ({"start": 0.5}, r"start: 0\.5 is not one of the 3 states"),
    "start sum": ({"start": [0.5, 0.25, 0.0]}, r"start: not a distribution over .* sum 0\.75"),
    "start below 0": ({"start": [1.5, -0.5, 0.0]}, "start: not a distribution"),
    "start shape": ({"start": [0.5, 0.5]}, r"start: expected 3 states, got \(2,\)"),
    "start terminal": ({"start": 2}, "start: a terminal state at state 2"),
    "start partly terminal": ({"start": [0.5, 0, 0.5]}, "start: a terminal state at state 2"),
    "terminal shape": ({"terminal": [False, True]}, "terminal: expected true or false for 3"),
    "behavior sum": (
        {"behavior": changed(UNIFORM, (1, 1), 0.25)},
        r"behavior: probabilities sum to 0\.75 at state 1$",
    ),
    "target negative": (
        {"target": changed(UNIFORM, (2, 0), -0.5)},
        r"target: -0\.5 is not in \[0, 1\] at state 2, action 0",
    ),
    "target NaN": ({"target": changed(UNIFORM, (2, 0), np.nan)}, "target: nan is not in"),
    "behavior shape": ({"behavior": UNIFORM.T}, r"behavior: expected 3 states x 2 .* \(2, 3\)"),
    "oracle shape": ({"oracle": [True]}, r"oracle: expected 3 states, got \(1,\)"),
    "horizon 0": ({"horizon": 0}, "horizon: expected a positive integer, got 0"),
    "horizon float": ({"horizon": 8.0}, r"horizon: expected a positive integer, got 8\.0"),
}


@pytest.mark.parametrize(("changes", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_world_names_what_it_refuses(changes, problem):
    with pytest.raises(ValueError, match=f"^{problem}"):
        world_with(**changes)


ASKED = {
    "n": ({"n": 0}, "n: expected a positive integer, got 0"),
    "n float": ({"n": 2.0}, r"n: expected a positive integer, got 2\.0"),
    "steps": ({"steps": 0}, "steps: expected a positive integer, got 0"),
    "steps float": ({"steps": 3.5}, r"steps: expected a positive integer, got 3\.5"),
    "seed": ({"key": 0}, r"key: expected jax\.random\.key\(seed\)"),
    "raw key": ({"key": np.zeros(2, np.uint32)}, r"key: expected jax\.random\.key\(seed\)"),
    "old key": ({"key": jnp.zeros(2, jnp.uint32)}, r"key: expected jax\.random\.key\(seed\)"),
    "no keys": ({"key": jax.random.split(KEY, 3)[:0]}, r"key: expected one key .* shape \(0,\)"),
    "key axes": ({"key": jax.random.split(KEY, (2, 2))}, r"key: expected .* shape \(2, 2\)"),
    "policy name": (
        {"policy": "expert"},
        "policy: 'expert' is unknown; there are behavior, target",
    ),
    "policy shape": ({"policy": UNIFORM[:2]}, r"policy: expected 3 states x 2 actions"),
    "policy sum": ({"policy": UNIFORM / 2}, r"policy: probabilities sum to 0\.5 at state 0"),
    "policy object": ({"policy": Tabular(UNIFORM * 2)}, r"policy: probabilities sum to 2 at st"),
}


@pytest.mark.parametrize(("asked", "problem"), ASKED.values(), ids=ASKED)
def test_a_rollout_names_what_it_refuses(world, asked, problem):
    with pytest.raises(ValueError, match=f"^{problem}"):
        world.rollout(**({"key": KEY, "n": 4} | asked))


# ------------------------------------------------------------------------------- meanings


def assert_same_data(one, other):
    for field in FIELDS:
        ours, theirs = (np.asarray(getattr(batch, field)) for batch in (one, other))
        np.testing.assert_array_equal(ours, theirs, err_msg=field)


def test_successors_are_certain_transitions_in_dynamics_and_data(world):
    certain = world_with(transition=dense(SUCCESSORS))
    for field in dataclasses.fields(world.dynamics):
        ours, theirs = (getattr(x.dynamics, field.name) for x in (world, certain))
        np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
    batch = world.rollout(KEY, 8)
    assert_same_data(batch, certain.rollout(KEY, 8))
    assert np.asarray(batch.mask).sum() > 8
    for t, states in enumerate(np.asarray(batch.state).T[:-1]):
        going = np.asarray(batch.mask)[:, t + 1]
        actions = np.asarray(batch.action)[:, t]
        following = np.asarray(batch.state)[:, t + 1]
        np.testing.assert_array_equal(following[going], SUCCESSORS[states, actions][going])
    assert not np.any(np.asarray(batch.state)[np.asarray(batch.mask)] == 2)  # ends on entering
    paid = REWARD[np.asarray(batch.state), np.asarray(batch.action)] * np.asarray(batch.mask)
    np.testing.assert_array_equal(batch.reward, paid)


def test_a_reward_may_depend_on_the_successor_too(world):
    spread = np.repeat(REWARD[:, :, None], 3, axis=2)
    for transition in (SUCCESSORS, dense(SUCCESSORS)):
        wide = world_with(transition=transition, reward=spread)
        np.testing.assert_array_equal(wide.dynamics.reward, world.dynamics.reward)
    numbered = np.arange(18.0).reshape(3, 2, 3) * ~np.array([False, False, True])[:, None, None]
    narrow = np.take_along_axis(numbered, SUCCESSORS[..., None], 2)[..., 0]
    wide = world_with(reward=numbered)
    np.testing.assert_array_equal(wide.dynamics.reward[..., 0], narrow)
    assert wide.exact().value == world_with(reward=narrow).exact().value
    assert wide.exact().value != 0


def test_terminal_states_are_those_kept_for_ever_without_reward():
    assert world_with().dynamics.terminal.tolist() == [False, False, True]
    paying = changed(REWARD, (2, 1), 0.5)
    assert not world_with(reward=paying).dynamics.terminal.any()
    leaving = changed(SUCCESSORS, (2, 1), 0)
    assert not world_with(transition=leaving).dynamics.terminal.any()
    given = world_with(reward=paying, terminal=[False, False, True])
    assert given.dynamics.terminal.tolist() == [False, False, True]
    slippery = dense(SUCCESSORS)
    slippery[2, 0] = [0.0, 1e-3, 1 - 1e-3]
    assert not world_with(transition=slippery).dynamics.terminal.any()


def test_terminal_rows_need_not_be_distributions():
    transition = dense(SUCCESSORS)
    transition[2] = 0
    empty = world_with(transition=transition, terminal=[False, False, True])
    assert empty.exact().value == world_with().exact().value


def test_a_policy_may_be_a_name_a_table_or_an_object(world):
    table = changed(UNIFORM, 0, [0.125, 0.875])
    for policy in (table, table.tolist(), Tabular(table)):
        np.testing.assert_allclose(world.policy_table(policy), table, rtol=1e-6)
    assert world.policy_table("target") is world.target_probs
    np.testing.assert_array_equal(world.rollout(KEY, 8, policy="target").log_ratio, 0)


def test_the_gymnax_environment_steps_as_the_dynamics_do():
    mdp = enumeration.random_mdp(4)
    names = ("transition", "reward", "start", "behavior", "target", "horizon", "terminal")
    world = TabularWorld(**{name: getattr(mdp, name) for name in names})
    env, params = world.environment, world.environment.default_params
    assert (env.num_actions, env.name) == (world.num_actions, "tabular")
    assert params.max_steps_in_episode == mdp.horizon
    assert env.observation_space(params).n == world.num_states
    lively = np.flatnonzero(~mdp.terminal)
    keys = jax.random.split(KEY, 40)

    @jax.jit
    @jax.vmap
    def both(key, place, action):
        state = env.reset(key, params)[1].replace(place=place)
        through_env = env.step_env(key, state, action, params)
        return through_env, world.dynamics.step(key, place, action)

    place = np.resize(lively, 40)
    action = np.arange(40) // len(lively) % world.num_actions
    played, (following, reward, ended) = both(keys, jnp.asarray(place), jnp.asarray(action))
    observation, state, paid, terminated, info = played
    np.testing.assert_array_equal(observation, following)
    np.testing.assert_array_equal(state.place, following)
    np.testing.assert_array_equal(state.time, 1)
    np.testing.assert_array_equal(paid, reward)
    np.testing.assert_array_equal(terminated, ended)
    np.testing.assert_array_equal(info["discount"], 1.0 - np.asarray(ended))
    assert np.all(mdp.transition[place, action, following] > 0)
    np.testing.assert_allclose(paid, mdp.reward[place, action, following], rtol=1e-6)
    np.testing.assert_array_equal(ended, mdp.terminal[following])
    assert 0 < np.sum(ended) < 40


def test_make_lists_the_worlds_and_gives_the_same_object_twice():
    with pytest.raises(ValueError, match="world: 'maze' is unknown; there are") as caught:
        make("maze")
    families = ("lift-7 to 17", "lift-stochastic-7 to 17", "random-00 to 31")
    alone = [name for name in WORLDS if not name.startswith(("lift-", "random-"))]
    assert all(name in str(caught.value) for name in (*alone, *families))
    assert make("express") is make("express")
    assert oj.make is make


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("dilly-dallying", "787b1838b505867d"),
        ("waiting-room", "539d1adc2fb3b42b"),
        ("cartpole", "2f78e9ae45ce8e4b"),
        ("lunar-lander", "dd17f297e3417194"),
    ],
)
def test_identities_are_those_of_study_folders_written_before(name, digest):
    """As of 0.1.0: a folder whose world has another digest cannot be resumed."""
    assert make(name).identity() == digest
