"""What a figure is made from, and what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.paper.drawing import title_of
from osiris_jax.paper.draws import Data, independent_data
from osiris_jax.paper.figure_data import KeepMap
from osiris_jax.study.chunks import Progress

TRIALS = {"dilly-dallying": 200, "express": 200, "cartpole": 50, "lunar-lander": 20}
OTHER_TRIALS = 50


class Drawn(NamedTuple):
    """A figure, the numbers in it, and what the paper claims of it.

    Attributes:
      figure: to be saved with `plots.save`.
      caption: what is to be seen, in words.
      rows: the numbers, a list of dicts.
      claims: see `osiris_jax.paper.claims`.
    """

    figure: Figure
    caption: str
    rows: list[dict[str, Any]]
    claims: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class FigureInputs:
    """What a figure is made from; fields as the arguments of `figure`."""

    worlds: Sequence[Any]
    keep: KeepMap
    protocol: str
    data: Data | None
    trials: int | None
    sizes: tuple[int, ...] | None
    seed: int
    progress: Progress

    def trials_in(self, world: Any) -> int:
        return self.trials or TRIALS.get(world.name, OTHER_TRIALS)

    @property
    def size(self) -> int | None:
        """The one |D| asked for, if any."""
        return self.sizes[0] if self.sizes else None

    def trials_text(self) -> str:
        """How many trials of which worlds, for a caption."""
        parts = [f"{self.trials_in(w)} trials of {title_of(w.name)}" for w in self.worlds]
        return ", ".join(parts)

    def chunks(self, world: Any, size: int | None = None) -> Iterator[TrajectoryBatch]:
        """The data sets of a world, told to `progress` as they come."""
        trials, done = self.trials_in(world), 0
        data = self.data or independent_data(self.seed)
        self.progress(world.name, 0, trials)
        for batch in data(world, size or world.size, trials):
            yield batch
            done += len(batch.mask)
            self.progress(world.name, done, trials)
