"""Double DQN, and its loop for gymnax environments: acting, replay, learning in one compiled call.

Mnih et al. 2015 with the double estimator of van Hasselt et al. 2016. The loop here multiplies
rewards by 1 - discount, so that Q is of the size of one reward; the greedy policy is the same. That
for Gymnasium is in `dqn_gymnasium`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int, PyTree

from osiris_jax.models.networks import QNetwork

ADAM = optax.scale_by_adam()
CLIPPED_ADAM = optax.chain(optax.clip_by_global_norm(10.0), ADAM)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
      hidden: sizes of the hidden layers.
      updates: number of gradient steps.
      snapshots: how many networks to keep on the way, at equal distances.
      envs: environments that act side by side, one step each per update.
      batch: transitions per update.
      buffer: transitions kept for replay.
      learning_rate: of Adam.
      discount: gamma of the learner.
      target_every: updates between copies to the target network.
      epsilon: probability of a random action, from the first value to the second ...
      epsilon_share: ... over this share of the updates, then constant.
      episode_limit: an episode is cut after so many steps (and bootstrapped).
    """

    hidden: tuple[int, ...] = (24, 24)
    updates: int = 15_000
    snapshots: int = 100
    envs: int = 20
    batch: int = 128
    buffer: int = 50_000
    learning_rate: float = 1e-3
    discount: float = 0.99
    target_every: int = 200
    epsilon: tuple[float, float] = (1.0, 0.1)
    epsilon_share: float = 0.3
    episode_limit: int = 1000

    def __post_init__(self):
        for name in ("updates", "snapshots", "envs", "batch", "buffer", "target_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected a positive number, got {getattr(self, name)}")
        if self.updates % self.snapshots:
            raise ValueError(
                f"snapshots: {self.updates} updates do not divide into {self.snapshots}"
            )
        if self.buffer % self.envs:
            raise ValueError(f"buffer: {self.buffer} is not a multiple of the {self.envs} envs")


class Transition(NamedTuple):
    """Steps of environments: those just taken, a minibatch, or all that are kept for replay."""

    observation: Float[Array, "step dim"]
    action: Int[Array, " step"]
    reward: Float[Array, " step"]
    following: Float[Array, "step dim"]
    terminated: Bool[Array, " step"]

    @classmethod
    def blank(cls, steps: int, dim: int, dtype: Any) -> Transition:
        """Zeros in NumPy, to be written over."""
        observation, number = np.zeros((steps, dim), dtype), np.zeros(steps, dtype)
        action, terminated = np.zeros(steps, np.int32), np.zeros(steps, bool)
        return cls(observation, action, number, observation.copy(), terminated)  # pyright: ignore


class Snapshot(NamedTuple):
    """A network on the way, and how the learner did since the one before.

    Attributes:
      update: number of gradient steps so far.
      q: the network.
      episodes: how many training episodes ended.
      mean_return: their mean return, NaN if none ended.
      loss: mean loss.
    """

    update: Any
    q: QNetwork
    episodes: Array
    mean_return: Array
    loss: Array


def td_loss(q: QNetwork, slow: QNetwork, seen: Transition, discount: Any) -> Float[Array, ""]:
    """Mean Huber loss of Q(s, a) against r + gamma Q_slow(s', argmax_a Q(s', a)).

    The future counts as 0 after a terminal step, but not after one that a time limit cut off.
    """
    best = jnp.argmax(q(seen.following), -1)
    later = jnp.take_along_axis(slow(seen.following), best[:, None], 1)[:, 0]
    aim = seen.reward + discount * jnp.where(seen.terminated, 0, later)
    value = jnp.take_along_axis(q(seen.observation), seen.action[:, None], 1)[:, 0]
    return optax.huber_loss(value, lax.stop_gradient(aim)).mean()


class Learner(NamedTuple):
    """The network that learns, the older copy that it learns from, and Adam's state."""

    q: QNetwork
    slow: QNetwork
    adam: optax.OptState

    def learn(
        self, minibatch: Transition, adam: optax.GradientTransformation, *, rate: Any, discount: Any
    ) -> tuple[Learner, Float[Array, ""]]:
        """After one step of `adam` at this learning rate, and the loss before it."""

        def loss_of(params: PyTree) -> Float[Array, ""]:
            return td_loss(self.q.replace(params=params), self.slow, minibatch, discount)

        loss, gradient = jax.value_and_grad(loss_of)(self.q.params)
        direction, state = adam.update(gradient, self.adam)
        params = jax.tree.map(lambda old, way: old - rate * way, self.q.params, direction)
        return self._replace(q=self.q.replace(params=params), adam=state), loss


class _Loop(NamedTuple):
    """All that changes from update to update; [env] or [buffer] leads the arrays of steps."""

    key: Array
    learner: Learner
    replay: Transition
    observation: Float[Array, "env dim"]
    inner: PyTree
    running_return: Float[Array, " env"]
    update: Int[Array, ""]


def train(key: Array, env: Any, params: Any, scale: Any, settings: Settings) -> Iterator[Snapshot]:
    """Trains, and yields a snapshot after every equal share of the updates.

    Args:
      key: consumed. An array of keys [seed] trains as many networks side by side, and every array
        of a snapshot then has a leading axis [seed].
      env: a gymnax environment with a finite set of actions.
      params: its parameters.
      scale: [dim] what observations are multiplied by.
      settings: how to train.
    """
    params = params.replace(max_steps_in_episode=settings.episode_limit)
    begin, segment = partial(_begin, env, settings), partial(_segment, env, settings)
    if key.ndim:
        begin = jax.vmap(begin, in_axes=(None, 0, None))
        segment = jax.vmap(segment, in_axes=(None, 0))
    loop = jax.jit(begin)(params, key, jnp.asarray(scale, float))
    run = jax.jit(segment, donate_argnums=1)
    for number in range(settings.snapshots):
        loop, snapshot = run(params, loop)
        update = (number + 1) * (settings.updates // settings.snapshots)
        yield snapshot._replace(update=update)


def _begin(env: Any, settings: Settings, params: Any, key: Array, scale: Array) -> _Loop:
    key, key_q, key_env = random.split(key, 3)
    q = QNetwork.create(key_q, settings.hidden, env.num_actions, scale)
    observation, inner = jax.vmap(env.reset_env, (0, None))(
        random.split(key_env, settings.envs), params
    )
    replay = Transition.blank(settings.buffer, observation.shape[1], jnp.result_type(float))
    return _Loop(
        key=key,
        learner=Learner(q, q, CLIPPED_ADAM.init(q.params)),
        replay=jax.tree.map(jnp.asarray, replay),
        observation=observation,
        inner=jax.tree.map(jnp.asarray, inner),
        running_return=jnp.zeros(settings.envs),
        update=jnp.zeros((), jnp.int32),
    )


def _segment(env: Any, settings: Settings, params: Any, loop: _Loop) -> tuple[_Loop, Snapshot]:
    length = settings.updates // settings.snapshots
    update = partial(_update, env, settings, params)
    loop, (losses, ended, returns) = lax.scan(update, loop, length=length)
    episodes = ended.sum()
    mean = jnp.where(episodes > 0, returns.sum() / jnp.maximum(episodes, 1), jnp.nan)
    return loop, Snapshot(jnp.zeros(()), loop.learner.q, episodes, mean, losses.mean())


def _update(env: Any, settings: Settings, params: Any, loop: _Loop, _: None):
    """One step of every environment, then one of the learner."""
    key, key_act, key_env, key_draw = random.split(loop.key, 4)
    action = _explore(key_act, loop, settings, env.num_actions)
    observation, inner, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
        random.split(key_env, settings.envs), loop.inner, action, params
    )
    seen = Transition(
        observation=loop.observation,
        action=action.astype(jnp.int32),
        reward=(1 - settings.discount) * reward,
        following=info["final_observation"],
        terminated=terminated,
    )
    place = (loop.update * settings.envs) % settings.buffer
    replay = jax.tree.map(
        lambda old, new: lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), place, 0),
        loop.replay,
        seen,
    )
    filled = jnp.minimum((loop.update + 1) * settings.envs, settings.buffer)
    places = random.randint(key_draw, (settings.batch,), 0, filled)
    minibatch = jax.tree.map(lambda field: field[places], replay)
    learner, loss = loop.learner.learn(
        minibatch, CLIPPED_ADAM, rate=settings.learning_rate, discount=settings.discount
    )
    refresh = (loop.update + 1) % settings.target_every == 0
    slow = jax.tree.map(lambda new, old: jnp.where(refresh, new, old), learner.q, learner.slow)
    done = terminated | truncated
    running_return = loop.running_return + reward
    after = _Loop(
        key=key,
        learner=learner._replace(slow=slow),
        replay=replay,
        observation=observation,
        inner=jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), inner, loop.inner),
        running_return=jnp.where(done, 0, running_return),
        update=loop.update + 1,
    )
    return after, (loss, done.sum(), jnp.where(done, running_return, 0).sum())


def _explore(key: Array, loop: _Loop, settings: Settings, num_actions: int) -> Int[Array, " env"]:
    first, last = settings.epsilon
    progress = loop.update / (settings.updates * settings.epsilon_share)
    epsilon = first + (last - first) * jnp.minimum(progress, 1)
    greedy = jnp.argmax(loop.learner.q(loop.observation), -1)
    key_which, key_random = random.split(key)
    anything = random.randint(key_random, greedy.shape, 0, num_actions)
    return jnp.where(random.uniform(key_which, greedy.shape) < epsilon, anything, greedy)
