"""Lunar Lander and the DQN that plays it: against plain loops, over processes and cached files."""

import os
import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.batch import bucket_length
from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds import gymnasium_episodes, playing
from osiris_jax.worlds.lunar_lander import LunarLander, lunar_lander, require_extra

HORIZON = 90

KEY = jax.random.key(7)

FIELDS = ("reward", "log_ratio", "action", "observation", "behavior_log_prob")


@pytest.fixture(scope="module")
def q():
    return QNetwork.create(jax.random.key(3), (16,), 4, np.linspace(0.5, 1.5, 8))


@pytest.fixture
def world(q, tmp_path):
    return make_world(q, tmp_path)


def make_world(q, cache, **changes):
    settings = {"behavior_epsilon": 0.4, "target_epsilon": 0.2, "horizon": HORIZON}
    settings |= {"cache": cache, "processes": 1, "progress": False}
    return LunarLander(q, **(settings | changes))


def ragged(batch, field):
    """The real steps of each trajectory, as a list of arrays."""
    mask = np.asarray(batch.mask)
    return [np.asarray(row)[m] for row, m in zip(getattr(batch, field), mask, strict=True)]


def assert_same(one, other, trajectories=None):
    for field in FIELDS:
        pairs = zip(ragged(one, field)[:trajectories], ragged(other, field), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, theirs, err_msg=field)


def play_by_hand(q, epsilon, key, number):
    """(observation, action, greedy, reward) of each step, from the definition."""
    high, low = np.asarray(jax.random.key_data(jax.random.fold_in(key, number))).tolist()
    seed = high * 2**32 + low
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    require_extra()
    env = gymnasium.make("LunarLander-v3", max_episode_steps=HORIZON)
    observation, _ = env.reset(seed=seed)
    rows = []
    best = jax.jit(lambda observation: jnp.argmax(q(observation)))
    while True:
        greedy = int(best(observation))
        action = greedy
        if generator.random() < epsilon:
            action = int(generator.integers(4))
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, greedy, reward))
        observation = following
        if terminated or truncated:
            return rows


@pytest.mark.parametrize("policy", ["behavior", "target"])
def test_episodes_are_those_of_a_plain_loop(q, world, double, policy):
    epsilon = {"behavior": 0.4, "target": 0.2}
    n = 6
    batch = world.rollout(KEY, n, policy=policy)
    returns, lengths = world.returns(KEY, n, policy=policy)
    assert len(set(lengths)) > 1, "no episode ends by itself"
    assert HORIZON in lengths, "no episode is cut"
    for number in range(n):
        with jax.enable_x64(False):
            rows = play_by_hand(q, epsilon[policy], KEY, number)
        observation, action, greedy, reward = map(np.asarray, zip(*rows, strict=True))
        assert lengths[number] == len(rows)
        np.testing.assert_allclose(returns[number], sum(reward), rtol=1e-12)
        np.testing.assert_array_equal(ragged(batch, "observation")[number], observation)
        np.testing.assert_array_equal(ragged(batch, "action")[number], action)
        np.testing.assert_array_equal(ragged(batch, "reward")[number], reward)

        def log_prob(name, agrees=action == greedy):
            return np.log(np.where(agrees, 1 - 0.75 * epsilon[name], 0.25 * epsilon[name]))

        log_behavior = ragged(batch, "behavior_log_prob")[number]
        np.testing.assert_allclose(log_behavior, log_prob(policy), rtol=1e-12)
        ratio = log_prob("target") - log_prob(policy)
        np.testing.assert_allclose(ragged(batch, "log_ratio")[number], ratio, atol=1e-12)
        assert policy == "target" or len(np.unique(ratio)) == 2


@pytest.mark.parametrize("policy", ["behavior", "target"])
def test_probabilities_are_those_of_the_networks(world, double, policy):
    batch, plain = (world.rollout(KEY, 3, policy=policy, probs=probs) for probs in (True, False))
    real = np.asarray(batch.mask)
    sampler = world.behavior if policy == "behavior" else world.target
    for found, by in ((batch.behavior_probs, sampler), (batch.target_probs, world.target)):
        assert found.shape == (*real.shape, 4)
        # what is greedy was decided in single precision
        expected = by(batch.observation.astype("float32"))
        np.testing.assert_allclose(found[real], expected[real], rtol=1e-6)
        assert not np.asarray(found)[~real].any()
        np.testing.assert_allclose(found[real].sum(-1), np.ones(real.sum()), rtol=1e-12)
    action = np.asarray(batch.action)[..., None]
    taken = [
        np.take_along_axis(np.asarray(x), action, axis=-1)[..., 0][real]
        for x in (batch.target_probs, batch.behavior_probs)
    ]
    ratio = np.log(taken[0]) - np.log(taken[1])
    np.testing.assert_allclose(np.asarray(batch.log_ratio)[real], ratio, atol=1e-12)
    assert_same(batch, plain)
    assert plain.target_probs is None
    assert plain.behavior_probs is None
    assert world.rollout(jax.random.split(KEY, 2), 2, probs=True).target_probs.shape[0] == 2


def test_discounted_returns(world):
    batch = world.rollout(KEY, 2)
    returns, _ = world.returns(KEY, 2, policy="behavior", discount=0.9)
    for reward, value in zip(ragged(batch, "reward"), returns, strict=True):
        by_hand = sum(0.9**t * float(r) for t, r in enumerate(reward))
        np.testing.assert_allclose(value, by_hand, rtol=1e-5)


def test_the_number_of_processes_changes_nothing(q):
    alone = make_world(q, None).rollout(KEY, 5)
    shared = make_world(q, None, processes=2, progress=True).rollout(KEY, 5)
    assert_same(alone, shared)
    np.testing.assert_array_equal(alone.state, shared.state)


def test_shape_states_and_padding(world):
    batch = world.rollout(KEY, 4)
    longest = int(batch.lengths.max())
    assert batch.mask.shape == (4, min(bucket_length(longest), HORIZON))
    assert batch.num_actions == 4
    observation = np.concatenate(ragged(batch, "observation"))
    bins = np.stack(
        [np.digitize(column, np.linspace(-1, 1, 3)) for column in observation[:, :6].T]
        + [np.digitize(column, (0, 1)) for column in observation[:, 6:].T],
        axis=1,
    )
    visited, label = np.unique(bins, axis=0, return_inverse=True)
    np.testing.assert_array_equal(np.concatenate(ragged(batch, "state")), label.reshape(-1))
    assert batch.num_states == len(visited) > 3
    cell = np.ravel_multi_index(visited.T, (4,) * 6 + (3,) * 2)
    np.testing.assert_array_equal(np.unique(world.bins(jnp.asarray(observation))), cell)
    for field in (*FIELDS, "state"):
        assert not np.asarray(getattr(batch, field))[~np.asarray(batch.mask)].any()


def test_cutting(world):
    whole, cut = world.rollout(KEY, 3), world.rollout(KEY, 3, steps=20)
    assert cut.mask.shape == (3, 20)
    assert cut.mask.all()
    assert world.rollout(KEY, 3, steps=20, observations=False).observation is None
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(cut, field), getattr(whole, field)[:, :20])
    assert cut.num_states == len(np.unique(cut.state)) < whole.num_states


def test_keys_give_trials(world):
    keys = jax.random.split(KEY, 3)
    batch = world.rollout(keys, 2)
    assert batch.mask.shape[:2] == (3, 2)
    singles = [world.rollout(key, 2) for key in keys]
    for trial, single in enumerate(singles):
        one = jax.tree.map(lambda field, trial=trial: field[trial], batch)
        assert_same(one, single)
        np.testing.assert_array_equal(
            np.concatenate(ragged(one, "state")), np.concatenate(ragged(single, "state"))
        )
    assert batch.num_states == max(single.num_states for single in singles)
    returns, lengths = world.returns(keys, 2, policy="behavior")
    assert returns.shape == lengths.shape == (3, 2)
    np.testing.assert_array_equal(lengths, batch.lengths)


@pytest.fixture
def played(monkeypatch):
    """The numbers of episodes asked of the environment, in order."""
    numbers = []

    def play(*task):
        episodes = gymnasium_episodes.play(*task)
        numbers.append(len(episodes["lengths"]))
        return episodes

    monkeypatch.setattr(playing, "play", play)
    return numbers


def test_what_was_played_is_not_played_again(q, world, played, tmp_path):
    first = world.rollout(KEY, 3)
    assert sum(played) == 3
    smaller = world.rollout(KEY, 2)
    assert sum(played) == 3
    assert_same(first, smaller, 2)
    larger = world.rollout(KEY, 5)
    assert sum(played) == 5
    assert_same(larger, make_world(q, None).rollout(KEY, 5))
    assert len(list(tmp_path.iterdir())) == 1
    world.rollout(jax.random.key(8), 1)
    world.rollout(KEY, 1, policy="target")
    make_world(q, tmp_path, horizon=50).rollout(KEY, 1)
    make_world(q.replace(scale=q.scale * 2), tmp_path).rollout(KEY, 1)
    assert len(list(tmp_path.iterdir())) == 5


def cut_short(content):
    return content[: len(content) // 2]


def flip_a_byte(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte, lambda content: b""])
def test_a_damaged_file_is_reported_and_replaced(world, played, tmp_path, damage):
    before = world.rollout(KEY, 2)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=path.name):
        after = world.rollout(KEY, 2)
    assert sum(played) == 4
    assert_same(before, after)
    assert_same(before, world.rollout(KEY, 2))


def test_a_file_of_something_else_is_not_used(world, tmp_path):
    before = world.rollout(KEY, 2)
    (path,) = tmp_path.iterdir()
    arrays = dict(np.load(path))
    np.savez(path, **(arrays | {"reward": arrays["reward"][1:]}))
    with pytest.warns(UserWarning, match="damaged"):
        assert_same(before, world.rollout(KEY, 2))


def test_an_interrupted_write_leaves_the_old_file(world, played, tmp_path, monkeypatch):
    before = world.rollout(KEY, 2)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            world.rollout(KEY, 4)
    assert len(list(tmp_path.iterdir())) == 1
    played.clear()
    assert_same(before, world.rollout(KEY, 2))
    assert not played


@pytest.mark.parametrize("module", ["Box2D", "gymnasium"])
def test_the_missing_extra_is_named(world, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "osiris-jax\[lunar\]"'):
        world.rollout(KEY, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda world: world.rollout(KEY, 1, policy="random"), "policy"),
        (lambda world: world.rollout(KEY, 0), "n: 0"),
        (lambda world: world.rollout(KEY, 1, steps=0), "steps: 0"),
        (lambda world: world.rollout(jax.random.key_data(KEY), 1), "key"),
        (lambda world: make_world(world.q, None, horizon=0), "horizon"),
        (lambda world: make_world(world.q, None, target_epsilon=1.5), "target_epsilon"),
        (lambda world: LunarLander(QNetwork.create(KEY, (4,), 2, np.ones(4))), "q: 4 inputs"),
    ],
)
def test_bad_input(world, call, message):
    with pytest.raises(ValueError, match=message):
        call(world)


def test_the_processes_end_with_what_ends_the_play(q, monkeypatch):
    started = []

    def start():
        started.append(begin())
        return started[-1]

    begin = playing._start
    monkeypatch.setattr(playing, "_start", start)
    results = playing.results([task(q, "LunarLander-v3", seed) for seed in range(200)], 2)
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)
    assert len(started) == 2
    assert all(worker.returncode is not None for worker in started)


def task(q, env_id, seed):
    return env_id, gymnasium_episodes.weights_of(q), 0.1, 1000, [seed]


def test_a_failure_in_a_process_is_told(q):
    tasks = [task(q, "no-such-environment", 0)] * 2
    with pytest.raises(RuntimeError, match="no-such-environment"):
        list(playing.results(tasks, 2))


def test_the_playing_processes_import_no_jax():
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "print([name for name in ('jax', 'osiris_jax', 'flax') if name in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", code, gymnasium_episodes.__file__]
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "[]"


def test_the_shipped_network_flies():
    world = lunar_lander()
    assert world.name == "lunar-lander"
    assert world.q.widths[-1] == 4
    assert len(world.q.scale) == 8
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(world.q))
    world = LunarLander(world.q, cache=None, processes=1, progress=False)
    returns, _ = world.returns(jax.random.key(0), 8)
    assert returns.mean() > 150
