"""Double DQN for Gymnasium environments: one plain process acts in NumPy, JAX learns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds.dqn import ADAM, Learner, Transition
from osiris_jax.worlds.gymnasium_episodes import q_values, weights_of

if TYPE_CHECKING:
    import gymnasium

MINIBATCH, FINAL_LEARNING_RATE = 64, 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train.

    Attributes:
      hidden: sizes of the hidden layers.
      steps: environment steps.
      discount: of the values learned.
      learning_rate: Adam's, falling linearly to `FINAL_LEARNING_RATE` at the last step.
      capacity: transitions remembered.
      warm_up: steps before the first update.
      update_every: steps between updates.
      refresh_every: steps between copies of the network to the slow one.
      final_epsilon: what the rate of random actions falls to, linearly from 1.
      epsilon_steps: steps in which it falls.
      snapshot_every: steps between snapshots.
    """

    hidden: Sequence[int] = (128, 128)
    steps: int = 300_000
    discount: float = 0.99
    learning_rate: float = 1e-3
    capacity: int = 100_000
    warm_up: int = 1_000
    update_every: int = 4
    refresh_every: int = 1_000
    final_epsilon: float = 0.02
    epsilon_steps: int = 50_000
    snapshot_every: int = 10_000

    def epsilon(self, step: int) -> float:
        return max(self.final_epsilon, 1 - (1 - self.final_epsilon) * step / self.epsilon_steps)

    def rate(self, step: int) -> float:
        fall = FINAL_LEARNING_RATE - self.learning_rate
        return self.learning_rate + fall * step / self.steps


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What a training gives.

    Attributes:
      snapshots: (step, network), from early to late.
      curve: (step, undiscounted return) of every finished episode, exploration included.
      losses: [update] the mean Huber loss of every minibatch.
    """

    snapshots: list[tuple[int, QNetwork]]
    curve: list[tuple[int, float]]
    losses: np.ndarray

    @property
    def network(self) -> QNetwork:
        """The network after the last step."""
        return self.snapshots[-1][1]


@jax.jit
def _learn(learner: Learner, minibatch: Transition, rate: float, discount: float):
    return learner.learn(minibatch, ADAM, rate=rate, discount=discount)


def train(
    make_env: Callable[[], gymnasium.Env],
    settings: Settings,
    *,
    seed: int = 0,
    on_progress: Callable[[int, float], Any] | None = None,
) -> Training:
    """Trains a Q-network; the same seed gives the same networks.

    Args:
      make_env: makes an environment with vector observations and a finite number of actions.
      settings: how to train.
      seed: of the environment, the exploration, the minibatches and the first weights.
      on_progress: called with (step, return) at the end of every episode.
    """
    env, generator = make_env(), np.random.default_rng(seed)
    dim, num_actions = env.observation_space.shape[0], int(env.action_space.n)  # pyright: ignore
    scale = np.ones(dim, np.float32)
    q = QNetwork.create(jax.random.key(seed), settings.hidden, num_actions, scale)
    learner, weights = Learner(q, q, ADAM.init(q.params)), weights_of(q)
    replay = Transition.blank(settings.capacity, dim, np.float32)
    observation, _ = env.reset(seed=int(generator.integers(2**31)))
    episode_return, snapshots, curve, losses = 0.0, [], [], []
    for step in range(1, settings.steps + 1):
        if generator.random() < settings.epsilon(step):
            action = int(generator.integers(num_actions))
        else:
            action = int(q_values(weights, observation).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        seen = observation, action, reward, following, terminated
        for field, value in zip(replay, seen, strict=True):
            field[(step - 1) % settings.capacity] = value
        observation = following
        episode_return += float(reward)
        if terminated or truncated:
            curve.append((step, episode_return))
            if on_progress:
                on_progress(step, episode_return)
            episode_return = 0.0
            observation, _ = env.reset()
        if step > settings.warm_up and step % settings.update_every == 0:
            filled = min(step, settings.capacity)
            places = generator.integers(filled, size=MINIBATCH)
            minibatch = Transition(*(field[places] for field in replay))
            learner, loss = _learn(learner, minibatch, settings.rate(step), settings.discount)
            weights = weights_of(learner.q)
            losses.append(float(loss))
        if step % settings.refresh_every == 0:
            learner = learner._replace(slow=learner.q)
        if step % settings.snapshot_every == 0 or step == settings.steps:
            snapshots.append((step, learner.q))
    env.close()
    return Training(snapshots, curve, np.asarray(losses))
