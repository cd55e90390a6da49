"""The gymnax environment of a maze, step by step beside a plain walker."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.walker import EAST, NORTH, SOUTH, WEST, Walker

from osiris_jax.worlds import make
from osiris_jax.worlds.environments import Gridworld
from osiris_jax.worlds.gridworld import MAZE

STEP_LIMIT = 12

PAPER = Walker(MAZE, {"A": 5.0, "Z": -5.0})


@pytest.fixture(scope="module")
def env():
    """The paper's maze with a short limit; one object, for two equal ones compile twice."""
    return Gridworld(MAZE, step_limit=STEP_LIMIT)


def walk(env, actions, number=0):
    """What the environment returns for each action, through gymnax's public interface."""
    key = jax.random.key(number)
    observation, state = env.reset(key, env.default_params)
    assert int(observation) == PAPER.starts()[0]
    returned = []
    for time, action in enumerate(actions):
        step_key = jax.random.fold_in(key, time)
        returned.append(env.step(step_key, state, jnp.int32(action), env.default_params))
        state = returned[-1][1]
    return returned


def test_reaching_a_terminal_cell_pays_ends_and_resets(env):
    east = walk(env, [EAST] * 11 + [EAST, SOUTH])
    observation, state, reward, terminated, truncated, info = east[10]
    assert (float(reward), bool(terminated), bool(truncated)) == (5.0, True, False)
    assert int(info["final_observation"]) == PAPER.number((4, 12))
    assert float(info["discount"]) == 0.0
    assert (int(observation), int(state.place), int(state.time)) == (57, 57, 0)
    assert [float(step[2]) for step in east[:10]] == [0.0] * 10
    assert [int(step[0]) for step in east[:10]] == list(range(58, 68))
    assert int(east[11][0]) == 58
    assert (float(east[12][2]), bool(east[12][3])) == (-5.0, True)


def test_the_step_limit_truncates_and_resets(env):
    north = walk(env, [NORTH, SOUTH] * (STEP_LIMIT // 2) + [NORTH])
    flags = [(bool(step[3]), bool(step[4])) for step in north]
    assert flags == [(False, t + 1 == STEP_LIMIT) for t in range(STEP_LIMIT + 1)]
    observation, state, reward, *_, info = north[STEP_LIMIT - 1]
    assert (int(observation), int(state.time), float(reward)) == (57, 0, 0.0)
    assert int(info["final_observation"]) == 57
    assert float(info["discount"]) == 1.0  # cut, not over
    assert (int(north[-1][0]), int(north[-1][1].time)) == (43, 1)


def test_ending_on_the_last_step_both_terminates_and_truncates(env):
    last = walk(env, [WEST] + [EAST] * 11)[-1]
    assert (bool(last[3]), bool(last[4]), float(last[2])) == (True, True, 5.0)


def test_spaces_hold_observations_and_actions(env):
    params = env.default_params
    actions, places = env.action_space(params), env.observation_space(params)
    assert (actions.n, places.n, env.num_actions, env.name) == (4, 98, 4, "gridworld")
    observation, state = env.reset(jax.random.key(1), params)
    assert observation.dtype == places.dtype
    assert places.contains(observation)
    assert all(actions.contains(action) for action in range(4))
    assert not actions.contains(4)
    assert not places.contains(98)
    assert set(env.state_space(params).spaces) == {"time", "place"}
    assert env.state_space(params).spaces["place"].contains(state.place)


def test_random_walks_under_jit_and_vmap_agree_with_the_walker(env):
    lanes, steps = 64, 60
    actions = np.random.default_rng(0).integers(0, 4, (lanes, steps))
    actions[:16, :11] = EAST
    params = env.default_params

    @jax.jit
    @jax.vmap
    def play(key, chosen):
        def step(state, given):
            observation, state, *rest, info = env.step(given[0], state, given[1], params)
            return state, (observation, *rest, info["final_observation"])

        state = env.reset(key, params)[1]
        return jax.lax.scan(step, state, (jax.random.split(key, steps), chosen))[1]

    keys = jax.random.split(jax.random.key(2), lanes)
    played = [np.asarray(part) for part in play(keys, jnp.asarray(actions))]
    endings = {"A": 0, "Z": 0, "cut": 0}
    for lane in range(lanes):
        cell, time = (4, 1), 0
        for step in range(steps):
            cell, reward, ended = PAPER.step(cell, actions[lane, step])
            time += 1
            cut, final = time == STEP_LIMIT, PAPER.number(cell)
            endings["cut"] += cut
            if ended:
                endings[PAPER.cells[cell]] += 1
            if ended or cut:
                cell, time = (4, 1), 0
            expected = (PAPER.number(cell), reward, ended, cut, final)
            assert tuple(part[lane, step] for part in played) == expected, (lane, step)
    assert min(endings.values()) >= 5


def test_the_worlds_environment_is_its_maze_with_its_limit():
    world = make("express")
    env = world.environment
    assert env.maze is world.maze
    assert env.default_params.max_steps_in_episode == 100
    for field in ("successor", "reward", "terminal", "start"):
        ours, theirs = (getattr(x, field) for x in (env.default_params.dynamics, world.dynamics))
        np.testing.assert_array_equal(ours, theirs)


def test_rewards_and_step_reward_reach_the_environment():
    env = Gridworld("oB", {"B": 7.0}, step_limit=3, step_reward=-1.0)
    _, state = env.reset(jax.random.key(0))
    stay = env.step_env(jax.random.key(0), state, WEST, env.default_params)
    leave = env.step_env(jax.random.key(0), state, EAST, env.default_params)
    assert (float(stay[2]), bool(stay[3])) == (-1.0, False)
    assert (float(leave[2]), bool(leave[3])) == (7.0, True)
