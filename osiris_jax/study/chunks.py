"""Trials in chunks of one size: memory does not grow with them, and a kernel is compiled once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import numpy as np

Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """A `Progress` that tells nobody."""


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


class Sized(Protocol):
    """Data sets of a world in several sizes, as in `Coverage` and `Calibration`."""

    @property
    def world(self) -> Any: ...
    @property
    def trials(self) -> int: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...


def by_size(
    study: Sized,
    cells: int,
    statistic_of: Callable[[int], Callable[[np.ndarray], Any]],
    progress: Progress | None,
) -> Iterator[tuple[int, Any]]:
    """(size, statistic of all trials) for each size: a tree of arrays [trial, ...].

    Args:
      study: the world, its trials and sizes.
      cells: steps, padded, that a chunk may hold.
      statistic_of: by size, the statistic of some trials, always as many; what it says of those
        beyond the last is dropped.
      progress: called with ("data sets", done, total).
    """
    tell, total = progress or silent, len(study.sizes) * study.trials
    for number, size in enumerate(study.sizes):
        chunks = Chunks.even(study.trials, cells // (size * study.world.horizon))
        statistic, parts = statistic_of(size), []
        for first in range(0, study.trials, chunks.size):
            trials = np.arange(first, first + chunks.size, dtype=np.uint32)
            parts.append(statistic(trials))
            done = min(first + chunks.size, study.trials)
            tell("data sets", number * study.trials + done, total)
        yield size, jax.tree.map(lambda *x: np.concatenate(x)[: study.trials], *parts)
