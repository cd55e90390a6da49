"""Double DQN in JAX for gymnax environments: acting, replay and learning in one compiled call.

Mnih et al. 2015 with the double estimator of van Hasselt et al. 2016. Rewards are multiplied by
1 - discount, so that Q is of the size of one reward; the greedy policy is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax, random

from osiris_jax.models.networks import QNetwork


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
    """One step of every environment, or a minibatch of such."""

    observation: Array
    action: Array
    reward: Array
    following: Array
    terminated: Array


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


class _Learner(NamedTuple):
    key: Array
    q: QNetwork
    slow: QNetwork
    optimizer: Any
    replay: Transition
    observation: Array
    inner: Any
    running_return: Array
    update: Array


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
    learner = jax.jit(begin)(params, key, jnp.asarray(scale, float))
    run = jax.jit(segment, donate_argnums=1)
    for number in range(settings.snapshots):
        learner, snapshot = run(params, learner)
        update = (number + 1) * (settings.updates // settings.snapshots)
        yield snapshot._replace(update=update)


def _begin(env, settings: Settings, params, key: Array, scale: Array) -> _Learner:
    key, key_q, key_env = random.split(key, 3)
    q = QNetwork.create(key_q, settings.hidden, env.num_actions, scale)
    observation, inner = jax.vmap(env.reset_env, (0, None))(
        random.split(key_env, settings.envs), params
    )
    blank = Transition(
        observation=jnp.zeros((settings.buffer, *observation.shape[1:])),
        action=jnp.zeros(settings.buffer, jnp.int32),
        reward=jnp.zeros(settings.buffer),
        following=jnp.zeros((settings.buffer, *observation.shape[1:])),
        terminated=jnp.zeros(settings.buffer, bool),
    )
    return _Learner(
        key=key,
        q=q,
        slow=jax.tree.map(jnp.copy, q),
        optimizer=_adam(settings).init(q.params),
        replay=blank,
        observation=observation,
        inner=jax.tree.map(jnp.asarray, inner),
        running_return=jnp.zeros(settings.envs),
        update=jnp.zeros((), jnp.int32),
    )


def _adam(settings: Settings) -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(settings.learning_rate))


def _segment(env, settings: Settings, params, learner: _Learner) -> tuple[_Learner, Snapshot]:
    step = partial(_update, env, settings, params)
    length = settings.updates // settings.snapshots
    learner, (losses, ended, returns) = lax.scan(step, learner, length=length)
    episodes = ended.sum()
    mean = jnp.where(episodes > 0, returns.sum() / jnp.maximum(episodes, 1), jnp.nan)
    snapshot = Snapshot(jnp.zeros(()), learner.q, episodes, mean, losses.mean())
    return learner, snapshot


def _update(env, settings: Settings, params, learner: _Learner, _):
    key, key_act, key_env, key_draw = random.split(learner.key, 4)
    progress = learner.update / (settings.updates * settings.epsilon_share)
    first, last = settings.epsilon
    epsilon = first + (last - first) * jnp.minimum(progress, 1)

    greedy = jnp.argmax(learner.q(learner.observation), -1)
    key_which, key_random = random.split(key_act)
    anything = random.randint(key_random, greedy.shape, 0, env.num_actions)
    action = jnp.where(random.uniform(key_which, greedy.shape) < epsilon, anything, greedy)
    observation, inner, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
        random.split(key_env, settings.envs), learner.inner, action, params
    )
    seen = Transition(
        observation=learner.observation,
        action=action.astype(jnp.int32),
        reward=(1 - settings.discount) * reward,
        following=info["final_observation"],
        terminated=terminated,
    )
    place = (learner.update * settings.envs) % settings.buffer
    replay = jax.tree.map(
        lambda old, new: lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), place, 0),
        learner.replay,
        seen,
    )
    filled = jnp.minimum((learner.update + 1) * settings.envs, settings.buffer)
    drawn = random.randint(key_draw, (settings.batch,), 0, filled)
    minibatch = jax.tree.map(lambda field: field[drawn], replay)

    def loss_of(params: Any) -> Array:
        return td_loss(learner.q.replace(params=params), learner.slow, minibatch, settings.discount)

    loss, gradient = jax.value_and_grad(loss_of)(learner.q.params)
    change, optimizer = _adam(settings).update(gradient, learner.optimizer)
    q = learner.q.replace(params=optax.apply_updates(learner.q.params, change))
    refresh = (learner.update + 1) % settings.target_every == 0
    slow = jax.tree.map(lambda new, old: jnp.where(refresh, new, old), q, learner.slow)

    done = terminated | truncated
    running_return = learner.running_return + reward
    after = _Learner(
        key=key,
        q=q,
        slow=slow,
        optimizer=optimizer,
        replay=replay,
        observation=observation,
        inner=jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), inner, learner.inner),
        running_return=jnp.where(done, 0, running_return),
        update=learner.update + 1,
    )
    return after, (loss, done.sum(), jnp.where(done, running_return, 0).sum())


def td_loss(q: QNetwork, slow: QNetwork, seen: Transition, discount) -> Array:
    """Mean Huber loss of Q(s, a) against r + gamma Q_slow(s', argmax_a Q(s', a)).

    The future counts as 0 after a terminal step, but not after one that a time limit cut off.
    """
    best = jnp.argmax(q(seen.following), -1)
    later = jnp.take_along_axis(slow(seen.following), best[:, None], 1)[:, 0]
    aim = seen.reward + discount * jnp.where(seen.terminated, 0, later)
    value = jnp.take_along_axis(q(seen.observation), seen.action[:, None], 1)[:, 0]
    return optax.huber_loss(value, lax.stop_gradient(aim)).mean()
