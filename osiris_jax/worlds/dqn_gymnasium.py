"""Double DQN for Gymnasium environments: one plain process acts in NumPy, JAX learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax

from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds.dqn import Transition, td_loss
from osiris_jax.worlds.gymnasium_episodes import q_values, weights_of

if TYPE_CHECKING:
    import gymnasium

ADAM = optax.scale_by_adam()


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What a training gives.

    Attributes:
      network: the network after the last step.
      snapshots: (step, network), from early to late, the last being `network`.
      curve: (step, undiscounted return) of every finished episode, exploration included.
      losses: [update] the mean Huber loss of every minibatch.
    """

    network: QNetwork
    snapshots: list[tuple[int, QNetwork]]
    curve: list[tuple[int, float]]
    losses: np.ndarray


class ReplayBuffer:
    """The most recent transitions.

    Attributes:
      fields: observation, action, reward, following, terminated; each [capacity, ...].
      size: how many are filled.
    """

    def __init__(self, capacity: int, dim: int):
        self.fields = {
            "observation": np.zeros((capacity, dim), np.float32),
            "action": np.zeros(capacity, np.int32),
            "reward": np.zeros(capacity, np.float32),
            "following": np.zeros((capacity, dim), np.float32),
            "terminated": np.zeros(capacity, bool),
        }
        self.capacity, self.size, self._next = capacity, 0, 0

    def add(self, **transition: Any) -> None:
        """Takes the place of the oldest transition, once full."""
        for name, value in transition.items():
            self.fields[name][self._next] = value
        self._next = (self._next + 1) % self.capacity
        self.size = max(self.size, self._next or self.capacity)

    def sample(self, generator: np.random.Generator, number: int) -> Transition:
        """Independent transitions, with replacement."""
        rows = generator.integers(self.size, size=number)
        return Transition(**{name: field[rows] for name, field in self.fields.items()})


@jax.jit
def _learn(network, frozen, state, batch, discount, learning_rate):
    def loss_of(params):
        return td_loss(network.replace(params=params), frozen, batch, discount)

    loss, gradient = jax.value_and_grad(loss_of)(network.params)
    direction, state = ADAM.update(gradient, state)
    params = jax.tree.map(lambda old, way: old - learning_rate * way, network.params, direction)
    return network.replace(params=params), state, loss


def train(
    make_env: Callable[[], gymnasium.Env],
    *,
    hidden: Sequence[int] = (128, 128),
    steps: int = 300_000,
    seed: int = 0,
    scale: Any = 1.0,
    discount: float = 0.99,
    learning_rate: float = 1e-3,
    final_learning_rate: float = 1e-4,
    batch_size: int = 64,
    capacity: int = 100_000,
    warm_up: int = 1_000,
    update_every: int = 4,
    refresh_every: int = 1_000,
    final_epsilon: float = 0.02,
    epsilon_steps: int = 50_000,
    snapshot_every: int = 10_000,
    on_progress: Callable[[int, float], Any] | None = None,
) -> Training:
    """Trains a Q-network; the same seed gives the same networks.

    Args:
      make_env: makes an environment with vector observations and a finite number of actions.
      hidden: sizes of the hidden layers.
      steps: environment steps.
      seed: of the environment, the exploration, the minibatches and the first weights.
      scale: what observations are multiplied by first, a number or one for each dimension.
      discount: of the values learned.
      learning_rate: Adam's, falling linearly to `final_learning_rate` at the last step.
      final_learning_rate: see above.
      batch_size: transitions in a minibatch.
      capacity: transitions remembered.
      warm_up: steps before the first update.
      update_every: steps between updates.
      refresh_every: steps between copies of the network to the frozen one.
      final_epsilon: what the rate of random actions falls to, linearly from 1.
      epsilon_steps: steps in which it falls.
      snapshot_every: steps between snapshots.
      on_progress: called with (step, return) at the end of every episode.
    """
    env = make_env()
    dim, num_actions = env.observation_space.shape[0], int(env.action_space.n)  # pyright: ignore
    scale = np.broadcast_to(np.asarray(scale, np.float32), (dim,))
    network = QNetwork.create(jax.random.key(seed), hidden, num_actions, scale)
    frozen, weights = network, weights_of(network)
    state = ADAM.init(network.params)
    generator = np.random.default_rng(seed)
    buffer = ReplayBuffer(capacity, dim)
    snapshots, curve, losses = [], [], []

    observation, _ = env.reset(seed=int(generator.integers(2**31)))
    episode_return = 0.0
    for step in range(1, steps + 1):
        epsilon = max(final_epsilon, 1 - (1 - final_epsilon) * step / epsilon_steps)
        if generator.random() < epsilon:
            action = int(generator.integers(num_actions))
        else:
            action = int(q_values(weights, observation).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        buffer.add(
            observation=observation,
            action=action,
            reward=reward,
            following=following,
            terminated=terminated,
        )
        observation = following
        episode_return += float(reward)
        if terminated or truncated:
            curve.append((step, episode_return))
            if on_progress:
                on_progress(step, episode_return)
            observation, _ = env.reset()
            episode_return = 0.0
        if step > warm_up and step % update_every == 0:
            batch = buffer.sample(generator, batch_size)
            rate = learning_rate + (final_learning_rate - learning_rate) * step / steps
            network, state, loss = _learn(network, frozen, state, batch, discount, rate)
            weights = weights_of(network)
            losses.append(float(loss))
        if step % refresh_every == 0:
            frozen = network
        if step % snapshot_every == 0 or step == steps:
            snapshots.append((step, network))
    env.close()
    return Training(network, snapshots, curve, np.asarray(losses))
