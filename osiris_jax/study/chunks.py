"""Trials in chunks of one size: memory does not grow with them, and a kernel is compiled once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.memory import free
from osiris_jax.study.source import keys_of

DEFAULT_MEMORY, SHARE_OF_FREE = 2**29, 0.25
LARGEST_CHUNK = 8192
Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """A `Progress` that tells nobody."""


def most_trials(bytes_per_trial: int, memory: int | None) -> int:
    """How many trials a chunk may hold, within a share of what is free unless memory is given."""
    budget = min(SHARE_OF_FREE * free(), DEFAULT_MEMORY) if memory is None else memory
    return min(int(budget // bytes_per_trial), LARGEST_CHUNK)


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Trials 0, ..., trials - 1, so many at a time."""

    trials: int
    size: int

    @classmethod
    def even(cls, trials: int, most: int) -> Chunks:
        """As few chunks as hold at most `most` trials each, all of nearly one size."""
        number = -(-trials // max(1, most))
        return cls(trials, -(-trials // number))

    @property
    def number(self) -> int:
        return -(-self.trials // self.size)

    def of(self, chunk: int) -> np.ndarray:
        """[trial] the numbers of a chunk's trials; the last chunk may be shorter."""
        first = chunk * self.size
        return np.arange(first, min(first + self.size, self.trials), dtype=np.uint32)

    def repeated(self, chunk: int) -> np.ndarray:
        """[size] those of a chunk, the last repeated: every chunk has one shape."""
        trials = self.of(chunk)
        return np.pad(trials, (0, self.size - len(trials)), mode="edge")


def by_size(
    plan: Any,
    cells: int,
    statistic: Callable[[Array, TrajectoryBatch], Any],
    progress: Progress | None,
    *,
    probs: bool = False,
) -> Iterator[tuple[int, Any]]:
    """(size, statistic of all data sets) for each size: a tree of arrays [trial, ...].

    Args:
      plan: has a world, trials, sizes and a seed, as `Coverage` and `Calibration`.
      cells: steps, padded, that a chunk may hold.
      statistic: of the keys and data sets of some trials, always as many; what it says of those
        beyond the last is dropped.
      progress: called with ("data sets", done, total).
      probs: whether data sets hold the probabilities of all actions.
    """
    tell, total = progress or silent, len(plan.sizes) * plan.trials
    for number, size in enumerate(plan.sizes):
        chunks, parts = Chunks.even(plan.trials, cells // (size * plan.world.horizon)), []
        for first in range(0, plan.trials, chunks.size):
            keys = keys_of(plan.seed, np.arange(first, first + chunks.size, dtype=np.uint32))
            batches = plan.world.rollout(keys, size, probs=probs)
            parts.append(jax.device_get(statistic(keys, batches)))
            done = min(first + chunks.size, plan.trials)
            tell("data sets", number * plan.trials + done, total)
        yield size, jax.tree.map(lambda *x: np.concatenate(x)[: plan.trials], *parts)
