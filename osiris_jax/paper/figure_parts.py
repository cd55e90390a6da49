"""What all figures of the paper share: what they are made from, claims, titles and legends."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.paper.draws import Draws
from osiris_jax.paper.protocol import Protocol
from osiris_jax.study.chunks import Progress

TRIALS = {"dilly-dallying": 200, "express": 200, "cartpole": 50, "lunar-lander": 20}
OTHER_TRIALS = 50
ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
CLEAR = 2  # standard errors
COLUMN, WIDE = 3.05, 6.55  # saving adds a tenth of an inch on every side
LABEL, TITLE = 7, 8
TITLES = {
    "dilly-dallying": "Dilly-Dallying Gridworld",
    "express": "Express Gridworld",
    "cartpole": "CartPole",
    "lunar-lander": "Lunar Lander",
}


def title_of(world: str) -> str:
    return TITLES.get(world, world)


class Drawn(NamedTuple):
    """A figure, the numbers in it, and what the paper claims of it.

    Attributes:
      figure: to be saved with `plots.save`.
      caption: what is to be seen, in words.
      rows: the numbers, a list of dicts.
      claims: see `claim`.
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
    sizes: tuple[int, ...]
    seed: int
    progress: Progress

    def trials_in(self, world: Any) -> int:
        return self.trials or TRIALS.get(world.name, OTHER_TRIALS)

    def trials_text(self) -> str:
        """How many trials of which worlds, for a caption."""
        return ", ".join(f"{self.trials_in(w)} trials of {title_of(w.name)}" for w in self.worlds)

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


class Measured(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


def claim(
    world: str,
    text: str,
    larger: tuple[str, Measured],
    smaller: tuple[str, Measured],
    difference: Measured | None = None,
) -> dict[str, Any]:
    """A claim that one number exceeds another; it holds if it does by two standard errors.

    Args:
      world, text: what is claimed where.
      larger, smaller: the two numbers and what they are.
      difference: of the two, with its error; by default as if they were independent.
    """
    (larger_name, first), (smaller_name, second) = larger, smaller
    if difference is None:
        difference = Measured(first.value - second.value, math.hypot(first.error, second.error))
    return {
        "world": world,
        "claim": text,
        "larger": larger_name,
        "larger_value": first.value,
        "larger_se": first.error,
        "smaller": smaller_name,
        "smaller_value": second.value,
        "smaller_se": second.error,
        "difference": difference.value,
        "difference_se": difference.error,
        "holds": bool(difference.value > CLEAR * difference.error),
    }


def level_colours(levels: Sequence[float]) -> dict[float, Any]:
    """A colour for each level, dark for small ones."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(levels)))
    return dict(zip(sorted(levels), colours, strict=True))


def levels_legend(
    figure: Figure, colours: Mapping[float, Any], more: Sequence[Line2D] = ()
) -> None:
    """A dot for each level, and further lines, below the panels or beside a narrow one."""
    dots = [
        Line2D([], [], color=colour, marker="o", ms=3.5, lw=0, label=f"{alpha:g}")
        for alpha, colour in colours.items()
    ]
    beside = bool(more) and figure.get_figwidth() < WIDE  # too many for the width of a column
    figure.legend(
        handles=[*dots, *more],
        loc="outside right center" if beside else "outside lower center",
        ncols=1 if beside else len(dots) + len(more),
        title="level \N{GREEK SMALL LETTER ALPHA}",
        fontsize=LABEL,
        title_fontsize=LABEL,
        frameon=False,
        handletextpad=0.4,
        columnspacing=0.9,
        handlelength=1.4,
    )
