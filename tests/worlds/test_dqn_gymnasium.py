"""Double DQN for Gymnasium environments, by values that are known."""

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds.dqn import Transition, td_loss
from osiris_jax.worlds.dqn_gymnasium import Settings, train


class OneState(gymnasium.Env):
    """One state; only action 2 pays. An episode is one step, or is cut off after five."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, terminates):
        self.terminates, self.time = terminates, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.ones(1, np.float32), float(action == 2), self.terminates, self.time == 5, {}


@pytest.mark.parametrize(("terminates", "values"), [(True, [0, 0, 1]), (False, [1, 1, 2])])
def test_dqn_learns_the_values_of_one_state(terminates, values):
    pace = {"steps": 3_000, "warm_up": 50, "update_every": 2, "refresh_every": 50}
    exploring = {"epsilon_steps": 2_000, "final_epsilon": 0.3}
    settings = Settings(hidden=(8,), discount=0.5, learning_rate=1e-2, **pace, **exploring)
    result = train(lambda: OneState(terminates), settings)
    np.testing.assert_allclose(result.network(jnp.ones(1)), values, atol=0.1)


def test_dqn_bootstraps_with_the_frozen_network_at_the_action_of_the_other():
    network = QNetwork.create(jax.random.key(0), (5,), 3, np.ones(2))
    frozen = QNetwork.create(jax.random.key(1), (5,), 3, np.ones(2))
    value, frozen_value = jax.jit(network.__call__), jax.jit(frozen.__call__)
    generator = np.random.default_rng(0)
    batch = {
        "observation": generator.normal(size=(20, 2)).astype(np.float32),
        "action": generator.integers(3, size=20),
        "reward": 3 * generator.normal(size=20).astype(np.float32),
        "following": generator.normal(size=(20, 2)).astype(np.float32),
        "terminated": generator.random(20) < 0.5,
    }
    losses = []
    for i in range(20):
        following = batch["following"][i]
        goal = batch["reward"][i]
        if not batch["terminated"][i]:
            goal += 0.9 * frozen_value(following)[np.argmax(value(following))]
        gap = abs(float(value(batch["observation"][i])[batch["action"][i]] - goal))
        losses.append(gap**2 / 2 if gap < 1 else gap - 0.5)
    ours = jax.jit(td_loss)(network, frozen, Transition(**batch), 0.9)
    np.testing.assert_allclose(ours, np.mean(losses), rtol=1e-5)


def test_dqn_is_finite_and_the_same_for_the_same_seed():
    settings = Settings(hidden=(8,), steps=400, warm_up=100, capacity=200, snapshot_every=150)
    told = []

    def run(seed):
        return train(
            lambda: gymnasium.make("CartPole-v1"),
            settings,
            seed=seed,
            on_progress=lambda *episode: told.append(episode),
        )

    one = run(0)
    assert told == one.curve
    again, other = run(0), run(1)
    assert [step for step, _ in one.snapshots] == [150, 300, 400]
    assert len(one.losses) == 75
    assert np.isfinite(one.losses).all()
    assert one.curve == again.curve != other.curve
    chex.assert_tree_all_finite(one.network.params)
    chex.assert_trees_all_equal(one.network.params, again.network.params)
