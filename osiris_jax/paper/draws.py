"""The data sets of a reproduction: trials that overlap, as published, or independent ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jaxtyping import Float, Int

from osiris_jax.batch import TrajectoryBatch, bucket_length
from osiris_jax.core.random_streams import POOL_STREAM, TARGET_STREAM
from osiris_jax.study.chunks import Chunks
from osiris_jax.study.source import DataSets, keys_of, target_keys
from osiris_jax.worlds.gridworld import GridWorld
from osiris_jax.worlds.rollout import record
from osiris_jax.worlds.tabular import TabularWorld, log_ratio_table
from osiris_jax.worlds.world import World

FIRST_SEED = 2020
UNIFORMS_PER_STEP = 2  # one for the action; the second, for the deterministic move, is not used
CHUNK_CELLS = 2**21


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The data sets of all trials, to be had in any order.

    Overlapping: trial k holds trajectories k, ..., k + size - 1 of one pool, so that it shares all
    but one of them with trial k + 1. Independent: trial k is that of a study of the same seed. All
    trials have one length of time, so that a kernel is compiled once.

    Attributes:
      world: a world.
      size: trajectories in a data set.
      trials: how many data sets there are.
      overlapping: whether they overlap.
      seed: of all that is random; a gridworld's pool is the published one whatever the seed.
      observations: whether to keep observations, where the world has any.
    """

    world: Any
    size: int
    trials: int
    _: dataclasses.KW_ONLY
    overlapping: bool
    seed: int = 0
    observations: bool = False

    @cached_property
    def pool(self) -> tuple[TrajectoryBatch, Float[Array, " traj"]] | None:
        """Trajectories of the behaviour and returns of the target that overlapping trials share."""
        if not self.overlapping:
            return None
        number = self.size + self.trials - 1
        if isinstance(self.world, GridWorld):
            on_policy = legacy_rollout(self.world, number, "target").reward.sum(-1)
            return legacy_rollout(self.world, number), on_policy
        key = random.fold_in(random.key(self.seed), POOL_STREAM)
        batch = self.world.rollout(key, number, observations=self.observations)
        outcomes = self.world.returns(random.fold_in(key, TARGET_STREAM), number)
        return batch, jnp.asarray(outcomes.returns, batch.dtype)

    def of(self, trials: np.ndarray) -> DataSets:
        """The data sets of these trials, with returns of the target policy."""
        keys, batch = keys_of(self.seed, trials), self.batch_of(trials)
        if self.pool is not None:
            on_policy = self.pool[1][self._window(trials)]
        else:
            on_policy = self.world.returns(target_keys(keys), self.size).returns
        return DataSets(keys, batch, jnp.asarray(on_policy, batch.dtype))

    def batch_of(self, trials: np.ndarray) -> TrajectoryBatch:
        """[trial, traj, time] the behaviour's data in these trials."""
        if self.pool is not None:
            window = self._window(trials)
            return jax.tree.map(lambda field: field[window], self.pool[0])
        keys, world = keys_of(self.seed, trials), self.world
        if isinstance(world, World):
            return record(
                world.dynamics,
                world.decider("behavior"),
                keys,
                self.size,
                steps=self.steps,
                lanes=world.lanes(len(keys) * self.size),
                observations=self.observations and world.has_observations,
            )
        batch = world.rollout(keys, self.size, observations=self.observations)
        return batch.replace(num_states=bucket_length(batch.num_states))

    def in_chunks(self) -> Iterator[TrajectoryBatch]:
        """The behaviour's data in all trials, about `CHUNK_CELLS` steps at a time at most."""
        chunks = Chunks.even(self.trials, CHUNK_CELLS // (self.size * self.steps))
        simulated = isinstance(self.world, World) and not isinstance(self.world, TabularWorld)
        # one program rounds otherwise than its parts, and CartPole's trajectories follow
        batch_of = jax.jit(self.batch_of) if simulated and self.pool is None else self.batch_of
        return map(batch_of, map(chunks.of, range(chunks.number)))

    @cached_property
    def steps(self) -> int:
        """A length of time that holds every trial."""
        if self.pool is not None:
            return self.pool[0].mask.shape[-1]
        if not isinstance(self.world, World):
            return self.world.horizon
        return self.world.steps_needed(keys_of(self.seed, np.arange(self.trials)), self.size)

    def _window(self, trials: np.ndarray) -> Int[Array, "trial traj"]:
        """Where in the pool the trajectories of each trial are."""
        return jnp.asarray(np.asarray(trials)[:, None] + np.arange(self.size)[None])


def legacy_rollout(world: GridWorld, number: int, policy: str = "behavior") -> TrajectoryBatch:
    """The first trajectories of the paper's stream, which is frozen.

    Trajectory j comes from `np.random.RandomState(2020 + j)`. Every step takes two uniforms; the
    first chooses the action by its place in the cumulated probabilities.
    """
    probs = world.policy_table(policy)
    successor, reward, terminal = world.maze.successor, world.maze.reward, world.maze.terminal
    bounds = probs.cumsum(1)
    bounds = bounds / bounds[:, -1:]
    count = UNIFORMS_PER_STEP * world.horizon
    streams = [np.random.RandomState(FIRST_SEED + j).random_sample(count) for j in range(number)]
    uniform = np.stack(streams)[:, ::UNIFORMS_PER_STEP]
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
