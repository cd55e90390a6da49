"""The data sets of a reproduction: trials that overlap, as published, or independent ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch, bucket_length, pad_to
from osiris_jax.core.random_streams import POOL_STREAM, TARGET_STREAM
from osiris_jax.study.chunks import Chunks
from osiris_jax.study.source import DataSets, keys_of, target_keys
from osiris_jax.worlds.gridworld import GridWorld
from osiris_jax.worlds.tabular import log_ratio_table
from osiris_jax.worlds.world import SHORT, World

FIRST_SEED = 2020
UNIFORMS_PER_STEP = 2  # one for the action; the second, for the deterministic move, is not used
CHUNK_CELLS = 2**21

Data = Callable[[Any, int, int], Iterable[TrajectoryBatch]]


class Pool(NamedTuple):
    """Trajectories [traj, time] of the behaviour, and returns [traj] of the target."""

    batch: TrajectoryBatch
    on_policy: Array


class Draws:
    """The data sets of all trials, to be had in any order.

    Overlapping: trial k holds trajectories k, ..., k + size - 1 of one pool, so that it shares all
    but one of them with trial k + 1. Independent: trial k is that of a study of the same seed.

    Args:
      world: a world.
      size: trajectories in a data set.
      trials: how many data sets there are.
      overlapping: whether they overlap.
      seed: of all that is random; a gridworld's pool is the published one whatever the seed.
      observations: whether to keep observations, where the world has any.
    """

    def __init__(
        self,
        world: Any,
        size: int,
        trials: int,
        *,
        overlapping: bool,
        seed: int = 0,
        observations: bool = False,
    ):
        self.world, self.size, self.trials = world, size, trials
        self.seed, self.observations = seed, observations
        self.pool = self._pool() if overlapping else None

    def of(self, trials: np.ndarray) -> DataSets:
        """The data sets of these trials."""
        keys = keys_of(self.seed, trials)
        if self.pool is not None:
            window = jnp.asarray(np.asarray(trials)[:, None] + np.arange(self.size)[None])
            return DataSets(keys, *jax.tree.map(lambda field: field[window], self.pool))
        batch = self.world.rollout(keys, self.size, observations=self.observations)
        if self.world.horizon <= SHORT:
            batch = pad_to(batch, self.world.horizon)
        found = self.world.returns(target_keys(keys), self.size)
        return DataSets(keys, batch, jnp.asarray(found.returns, batch.dtype))

    def _pool(self) -> Pool:
        number = self.size + self.trials - 1
        if isinstance(self.world, GridWorld):
            batch = legacy_rollout(self.world, number)
            returns = legacy_rollout(self.world, number, "target").reward.sum(-1)
            return Pool(batch, returns)
        key = random.fold_in(random.key(self.seed), POOL_STREAM)
        batch = self.world.rollout(key, number, observations=self.observations)
        found = self.world.returns(random.fold_in(key, TARGET_STREAM), number)
        return Pool(batch, jnp.asarray(found.returns, batch.dtype))


def data_sets(
    world: Any,
    size: int,
    trials: int,
    *,
    overlapping: bool,
    seed: int = 0,
    chunk_size: int = 100,
    observations: bool = False,
) -> Iterator[DataSets]:
    """All data sets, a chunk of trials at a time; arguments as in `Draws`."""
    draws = Draws(
        world, size, trials, overlapping=overlapping, seed=seed, observations=observations
    )
    chunks = Chunks(trials, chunk_size)
    return map(draws.of, map(chunks.of, range(chunks.number)))


def independent_data(seed: int = 0) -> Data:
    """Independent trials, trial k from fold_in(key(seed), k) as in a `Study`.

    All chunks of a call have one length of time, so that each kernel is compiled once, and no more
    than about `CHUNK_CELLS` steps, so that memory does not grow with the trials.
    """

    def batches(world: Any, size: int, trials: int) -> Iterator[TrajectoryBatch]:
        keys, simulated = keys_of(seed, Chunks(trials, trials).of(0)), isinstance(world, World)
        steps = world.steps_needed(keys, size) if simulated else world.horizon
        chunks = Chunks.even(trials, CHUNK_CELLS // (size * steps))
        for chunk in range(chunks.number):
            some = keys[chunks.of(chunk)]
            yield _simulate(some, world, size, steps) if simulated else _play(some, world, size)

    return batches


@partial(jax.jit, static_argnames=("world", "size", "steps"))
def _simulate(keys: Array, world: World, size: int, steps: int) -> TrajectoryBatch:
    return world.rollout(keys, size, steps=steps)


def _play(keys: Array, world: Any, size: int) -> TrajectoryBatch:
    batch = world.rollout(keys, size)
    return batch.replace(num_states=bucket_length(batch.num_states))


def legacy_rollout(world: GridWorld, number: int, policy: str = "behavior") -> TrajectoryBatch:
    """The first trajectories of the paper's stream, which is frozen.

    Trajectory j comes from `np.random.RandomState(2020 + j)`. Every step takes two uniforms; the
    first chooses the action by its place in the cumulated probabilities.
    """
    probs = world.policy_table(policy)
    successor, reward, terminal = world.maze.successor, world.maze.reward, world.maze.terminal
    bounds = probs.cumsum(1)
    bounds = bounds / bounds[:, -1:]
    uniform = _legacy_uniforms(number, world.horizon)
    shape = (number, world.horizon)
    states, actions = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    state = np.full(number, np.flatnonzero(world.maze.start)[0])
    running, mask = np.ones(number, bool), np.zeros(shape, bool)
    for time in range(world.horizon):
        action = (bounds[state] <= uniform[:, time, None]).sum(1)
        states[:, time], actions[:, time], mask[:, time] = state, action, running
        state = successor[state, action]
        running = running & ~terminal[state]
    log_ratio = log_ratio_table(world.target_probs, probs)[states, actions]
    return TrajectoryBatch(
        reward=jnp.asarray(np.where(mask, reward[states, actions], 0), float),
        mask=jnp.asarray(mask),
        log_ratio=jnp.asarray(np.where(mask, log_ratio, 0), float),
        action=jnp.asarray(np.where(mask, actions, 0)),
        state=jnp.asarray(np.where(mask, states, 0)),
        num_states=world.num_states,
        num_actions=world.num_actions,
    )


def _legacy_uniforms(number: int, steps: int) -> np.ndarray:
    """[traj, time] the uniform that chooses each action."""
    count = UNIFORMS_PER_STEP * steps
    streams = [np.random.RandomState(FIRST_SEED + j).random_sample(count) for j in range(number)]
    return np.stack(streams)[:, ::UNIFORMS_PER_STEP]
