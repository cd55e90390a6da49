"""The trainer: it learns what is known to be best, and does the same again for the same key."""

import chex
import jax
import numpy as np
import pytest
from jax import random

from osiris_jax.worlds import dqn, training
from osiris_jax.worlds.environments import Gridworld

SETTINGS = dqn.Settings(
    hidden=(16,),
    updates=600,
    snapshots=3,
    envs=8,
    batch=32,
    buffer=800,
    learning_rate=1e-2,
    discount=0.8,
    target_every=20,
    episode_limit=20,
)


class Corridor(Gridworld):
    """Four cells in a row, the end pays; the observation is the place as a number."""

    def __init__(self):
        super().__init__("######\n#o..A#\n######", {"A": 1.0}, step_limit=20)

    def observe(self, key, state, action, params):
        return (super().observe(key, state, action, params)[None] - 7.0).astype(float)


@pytest.fixture(scope="module")
def snapshots():
    env = Corridor()
    runs = dqn.train(random.split(random.key(0), 2), env, env.default_params, [0.5], SETTINGS)
    return list(runs)


def test_the_best_action_is_learned_by_every_run(snapshots):
    """East in every cell; Q there is (1 - discount) * discount^(steps left - 1)."""
    q = snapshots[-1].q
    for run in range(2):
        one = jax.tree.map(lambda leaf, run=run: leaf[run], q)
        values = np.asarray(one(np.arange(3.0)[:, None]))
        np.testing.assert_array_equal(values.argmax(1), [2, 2, 2])
        expected = (1 - SETTINGS.discount) * SETTINGS.discount ** np.array([2, 1, 0])
        np.testing.assert_allclose(values.max(1), expected, rtol=0.25)


def test_snapshots_report_how_the_learner_did(snapshots):
    assert [snapshot.update for snapshot in snapshots] == [200, 400, 600]
    assert all((np.asarray(snapshot.episodes) > 0).all() for snapshot in snapshots)
    means = np.asarray([snapshot.mean_return for snapshot in snapshots])
    assert ((means >= 0) & (means <= 1)).all()
    assert (means[-1] > 0.9).all()


def test_runs_differ_and_the_same_key_gives_the_same_networks(snapshots):
    env = Corridor()
    (again, *_) = dqn.train(
        random.split(random.key(0), 2), env, env.default_params, [0.5], SETTINGS
    )
    chex.assert_trees_all_equal(snapshots[0].q, again.q)
    kernel = np.asarray(snapshots[0].q.params["params"]["Dense_0"]["kernel"])
    assert (kernel[0] != kernel[1]).any()


@pytest.mark.parametrize(
    ("change", "field"),
    [({"updates": 0}, "updates"), ({"snapshots": 7}, "snapshots"), ({"envs": 7}, "buffer")],
)
def test_settings_that_cannot_work_are_named(change, field):
    with pytest.raises(ValueError, match=field):
        dqn.Settings(**change)


def test_the_nearest_network_is_steady_and_near_both_aims(monkeypatch):
    """Lengths are given: exponential ones at several means, and one that a few episodes carry."""
    spread = -np.log(1 - (np.arange(64) + 0.5) / 64)
    means = [(300, 700), (610, 1500), (600, 1900), (608, 1504)]
    lengths = np.stack([np.outer(pair, spread) for pair in means])
    lengths[3] = np.where(np.arange(64) < 60, 10, lengths[3].sum(1, keepdims=True) / 4)
    monkeypatch.setattr(training, "_lengths", lambda networks, key, episodes: lengths[networks])
    monkeypatch.setitem(training.KEPT, "screen", 3)
    chosen = training._nearest(
        list(np.arange(4)),
        stage="screen",
        key=random.key(0),
        aims=(608, 1504),
        progress=training.silent,
    )
    assert chosen == [1, 2, 0]
