"""What a figure is made from, and what comes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.paper.drawing import title_of
from osiris_jax.paper.draws import Draws
from osiris_jax.paper.protocol import Protocol
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
    protocol: Protocol
    trials: int | None
    sizes: tuple[int, ...] | None
    seed: int
    progress: Progress

    def trials_in(self, world: Any) -> int:
        return self.trials or TRIALS.get(world.name, OTHER_TRIALS)

    def trials_text(self) -> str:
        """How many trials of which worlds, for a caption."""
        parts = [f"{self.trials_in(w)} trials of {title_of(w.name)}" for w in self.worlds]
        return ", ".join(parts)

    def chunks(self, world: Any) -> Iterator[TrajectoryBatch]:
        """The data sets of a world, told to `progress` as they come."""
        trials, done = self.trials_in(world), 0
        size = self.sizes[0] if self.sizes else world.size
        overlapping = self.protocol.seeds == "overlapping"
        draws = Draws(
            world, size, trials, overlapping=overlapping, seed=self.seed, observations=True
        )
        self.progress(world.name, 0, trials)
        for batch in draws.in_chunks():
            yield batch
            done += len(batch.mask)
            self.progress(world.name, done, trials)
