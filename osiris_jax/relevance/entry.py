"""All that the package knows of a relevance test: its entry in the registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import chex
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import ALPHA
from osiris_jax.core.registry import Entry, Registry


@dataclasses.dataclass(frozen=True)
class RelevanceTest(Entry):
    """A relevance test: `function(batch, **options)` to evidence by [state] or [traj, state].

    Attributes:
      large_is_relevant: False for p-values; True for a statistic that is large where a state is
        relevant, whose level is called threshold and not alpha.
      default_level: the level where none is given.
      reads: the fields of a batch that it reads.
      by_lag: the same test by [lag, state]; None where there is none.
    """

    large_is_relevant: bool = False
    default_level: float = ALPHA
    reads: tuple[str, ...] = ("reward", "mask", "log_ratio", "state")
    by_lag: Callable[..., Any] | None = None

    def __call__(self, batch: TrajectoryBatch, **options: Any) -> Any:
        evidence = self.function(batch, **options)
        if isinstance(evidence, Array):
            chex.assert_axis_dimension(evidence, -1, batch.num_states)
        return evidence

    @property
    def level_name(self) -> str:
        return "threshold" if self.large_is_relevant else "alpha"


class Thresholds(MutableMapping[str, float]):
    """A view of a registry: the usual threshold of every test whose evidence is a statistic."""

    def __init__(self, tests: Registry[RelevanceTest]):
        self._tests = tests

    def __getitem__(self, name: str) -> float:
        if not self._tests[name].large_is_relevant:
            raise KeyError(name)
        return self._tests[name].default_level

    def __setitem__(self, name: str, threshold: float) -> None:
        changed = {"large_is_relevant": True, "default_level": threshold}
        self._tests[name] = dataclasses.replace(self._tests[name], **changed)

    def __delitem__(self, name: str) -> None:
        changed = {"large_is_relevant": False, "default_level": ALPHA}
        self._tests[name] = dataclasses.replace(self._tests[name], **changed)

    def __iter__(self) -> Iterator[str]:
        return (name for name, test in self._tests.items() if test.large_is_relevant)

    def __len__(self) -> int:
        return sum(1 for _ in self)
