"""CartPole steps as Gymnasium's does, and is cut where we say."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds.cartpole import cartpole_with

KEY = jax.random.key(0)


def balancing():
    """A Q-function by hand: push the way that the pole leans and the cart drifts."""
    kernel = np.array([[0.0, 0.1], [0.0, 0.4], [0.0, 4.0], [0.0, 1.0]], np.float32)
    params = {"params": {"Dense_0": {"kernel": kernel, "bias": np.zeros(2, np.float32)}}}
    return QNetwork(params, np.ones(4, np.float32), (2,))


@pytest.fixture(scope="module")
def cartpole():
    return cartpole_with(balancing(), horizon=700)


def gymnasium_step(env, state, action):
    env.reset(seed=0)
    env.unwrapped.state = np.array(state, np.float64)
    _, reward, terminated, truncated, _ = env.step(int(action))
    return np.array(env.unwrapped.state), reward, terminated or truncated


def some_states(count):
    """Random states, half of them near a bound so that many a step ends there."""
    rng = np.random.default_rng(0)
    states = rng.uniform([-2.3, -2, -0.2, -2], [2.3, 2, 0.2, 2], (count, 4))
    side = rng.choice([-1, 1], count // 4)
    states[: count // 4, 0], states[: count // 4, 1] = 2.39 * side, 2.5 * side
    states[count // 4 : count // 2, 2] = 0.2 * side
    states[count // 4 : count // 2, 3] = 2.0 * side
    return states


def test_single_steps_are_gymnasiums(float_type, cartpole):
    """From synchronised states; longer runs part, for the system is unstable."""
    states = some_states(240).astype(float_type)
    actions = np.arange(240) % 2
    dynamics = cartpole.dynamics

    @jax.jit
    @jax.vmap
    def step(state, action):
        observation, inner = dynamics.reset(jax.random.key(0))
        names = ("x", "x_dot", "theta", "theta_dot")
        inner = inner.replace(**{name: state[i] for i, name in enumerate(names)})
        (observation, _), reward, done = dynamics.step(jax.random.key(0), (state, inner), action)
        return observation, reward, done

    found, rewards, done = step(jnp.asarray(states), jnp.asarray(actions))
    assert found.dtype == float_type
    env = gymnasium.make("CartPole-v1")
    tolerance = 1e-6 if float_type == "float32" else 1e-12
    ended = 0
    for number, (state, action) in enumerate(zip(states, actions, strict=True)):
        following, reward, terminated = gymnasium_step(env, state, action)
        np.testing.assert_allclose(found[number], following, rtol=tolerance, atol=tolerance)
        assert rewards[number] == reward
        distance = np.abs(np.abs(following[[0, 2]]) - [2.4, 12 * np.pi / 180]).min()
        if distance > 1e-5:
            assert bool(done[number]) == terminated
            ended += terminated
    assert 80 <= ended <= 160


def test_no_trajectory_is_cut_at_500_steps_but_at_the_horizon(cartpole):
    lengths = np.asarray(cartpole.returns(KEY, 16).lengths)
    assert lengths.max() == 700
    assert ((lengths > 500) & (lengths <= 700)).sum() >= 4
    assert cartpole.dynamics.params.max_steps_in_episode > 500


def test_a_rollout_is_cut_at_steps(cartpole):
    batch = cartpole.rollout(KEY, 4, steps=24)
    assert batch.mask.shape == (4, 24)
    assert bool(batch.mask.all())
    assert (batch.observation.shape, batch.num_states) == ((4, 24, 4), 256)
    np.testing.assert_array_equal(batch.reward, 1)
    assert np.all(np.abs(batch.observation[:, 0]) <= 0.05)
