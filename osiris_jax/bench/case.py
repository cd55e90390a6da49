"""What a case is: something to time, with its rival, its shape, and where it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from osiris_jax.study.checks import MOST_TRIALS

TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user chose, and the sizes that follow from it.

    Attributes:
      quick: tiny shapes, to see that everything works; the figures mean nothing.
      trials: of the whole pipeline.
      dtype: "float32" or "float64".
    """

    quick: bool = False
    trials: int | None = None
    dtype: str = "float32"

    def __post_init__(self):
        if self.trials is not None and not 1 <= self.trials <= MOST_TRIALS:
            raise ValueError(f"trials: expected a positive number, got {self.trials}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected float32 or float64, got {self.dtype!r}")

    def size(self, full: Any, quick: Any) -> Any:
        """A number, or a list of names: one for figures, one to see that everything works."""
        return quick if self.quick else full

    @property
    def pipeline_trials(self) -> int:
        return self.trials or self.size(10_000, 16)

    @property
    def runs(self) -> int:
        return self.size(5, 2)

    @property
    def budget(self) -> float:
        """Seconds after which no further run of a case begins."""
        return self.size(30.0, 2.0)

    @property
    def log_shape(self) -> tuple[int, int, int]:
        """Trajectories, steps and states of the log."""
        return self.size((1000, 100, 25), (30, 8, 5))


class Rival(NamedTuple):
    """Another way to the same numbers.

    Attributes:
      name: of the library.
      function: computes them.
      ours: the same by this library in float64, called where x64 is enabled; to be compared.
      part: of the case's work that the rival does; its seconds are divided by it.
      tolerance: by how much both may differ, relative to the largest number.
    """

    name: str
    function: Callable[[], Any]
    ours: Callable[[], Any]
    part: float = 1.0
    tolerance: float = TOLERANCE


class Work(NamedTuple):
    """What to time, with a rival, and the bytes that it must move at least."""

    function: Callable[[], Any]
    rival: Rival | None = None
    moved: Callable[[], int] | None = None


class Place(NamedTuple):
    """A process of its own, pinned to so many cores, its CPU divided into so many devices."""

    cores: int
    devices: int


class Case(NamedTuple):
    """A row of the table to be.

    Attributes:
      make: prepares the data; not timed.
      axis: the entry of `shape` that a scaling curve varies.
      place: where it runs; None in this process.
      budget: replaces that of the settings.
    """

    group: str
    name: str
    shape: dict[str, int]
    make: Callable[[], Work]
    axis: str | None = None
    place: Place | None = None
    budget: float | None = None
