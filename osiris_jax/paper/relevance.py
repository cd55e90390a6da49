"""Figures 4 and S4 of the paper: where states are called relevant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from osiris_jax import plots
from osiris_jax.core.pictures import tidy
from osiris_jax.paper import figure_parts as parts
from osiris_jax.paper.figure_parts import Drawn, FigureInputs, claim
from osiris_jax.paper.relevance_data import MeanRelevance, mean_relevance
from osiris_jax.worlds import make
from osiris_jax.worlds.gridworld import CORRIDOR, GridWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RowsAndClaims = tuple[list[dict[str, Any]], list[dict[str, Any]]]
LEVEL, NUM_BINS = 0.05, 40
ACROSS = 4
EAST, SOUTH = 2, 1
STAR = {"marker": "*", "ms": 9, "mfc": "#00D08A", "mec": "black", "mew": 0.6, "lw": 0}
DOT = {"marker": "o", "ms": 2.2, "mfc": "white", "mec": "black", "mew": 0.3, "lw": 0}
DIMENSIONS = {  # what each is called, and the range that is drawn
    "cartpole": (
        ("cart position (m)", -2.4, 2.4),
        ("cart velocity (m/s)", -4.0, 4.0),
        ("pole angle (rad)", -0.21, 0.21),
        ("pole angular\nvelocity (rad/s)", -4.0, 4.0),
    ),
    "lunar-lander": (
        ("horizontal position\n(half widths)", -1.0, 1.0),
        ("height\n(half heights)", -0.5, 1.7),
        ("horizontal velocity\n(scaled)", -1.5, 1.5),
        ("vertical velocity\n(scaled)", -1.5, 1.0),
        ("angle (rad)", -2.0, 2.0),
        ("angular velocity\n(scaled)", -4.0, 4.0),
        ("left leg on ground\n(0 no, 1 yes)", -0.5, 1.5),
        ("right leg on ground\n(0 no, 1 yes)", -0.5, 1.5),
    ),
}
MAIN_DIMENSION = {"cartpole": 3, "lunar-lander": 4}


class Range(NamedTuple):
    """Bins whose distance from 0 is in [low, high)."""

    low: float
    high: float = math.inf

    def of(self, edges: np.ndarray) -> np.ndarray:
        middle = np.abs((edges[1:] + edges[:-1]) / 2)
        return (self.low <= middle) & (middle < self.high)

    def __str__(self) -> str:
        return f"{self.low:g} " + ("and more" if self.high == math.inf else f"to {self.high:g}")


CLAIMS = {
    "cartpole": [
        ("relevance rises with |angular velocity|", larger, smaller)
        for larger, smaller in (
            (Range(0.5, 1), Range(0, 0.5)),
            (Range(1), Range(0.5, 1)),
            (Range(1), Range(0, 0.5)),
        )
    ],
    "lunar-lander": [
        ("relevance is larger when tilted", Range(0.2, 0.5), Range(0, 0.1)),
        ("relevance falls again when rotated far", Range(0.2, 0.5), Range(1)),
    ],
}


def relevance_figure(inputs: FigureInputs) -> Drawn:
    """Figure 4: a map of relevance, or relevance over the dimension the paper shows."""
    ratios = [2 if isinstance(world, GridWorld) else 1 for world in inputs.worlds]
    width = parts.COLUMN if sum(ratios) <= 2 else parts.WIDE
    figure = Figure(figsize=(width, 2.25), layout="constrained")
    grid = figure.add_gridspec(1, len(ratios), width_ratios=ratios)
    panels = [
        {MAIN_DIMENSION.get(world.name, 0): figure.add_subplot(grid[0, place])}
        for place, world in enumerate(inputs.worlds)
    ]
    return _drawn(inputs, figure, panels, "center")


def all_relevance_figure(inputs: FigureInputs) -> Drawn:
    """Figure S4: maps of relevance, and relevance over all dimensions."""
    numbers = [1 if isinstance(w, GridWorld) else len(_dimensions(w)) for w in inputs.worlds]
    heights = []
    for world, number in zip(inputs.worlds, numbers, strict=True):
        heights += [2.6] if isinstance(world, GridWorld) else [1.55] * -(-number // ACROSS)
    figure = Figure(figsize=(parts.WIDE, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), ACROSS, height_ratios=heights)
    panels, line = [], 0
    for world, number in zip(inputs.worlds, numbers, strict=True):
        places = {dim: grid[line + dim // ACROSS, dim % ACROSS] for dim in range(number)}
        if isinstance(world, GridWorld):
            places = {0: grid[line, 1:3]}
        panels.append({dim: figure.add_subplot(place) for dim, place in places.items()})
        line += -(-number // ACROSS)
    return _drawn(inputs, figure, panels, "left")


def _dimensions(world: Any) -> Sequence[tuple[str, float, float]]:
    if world.name not in DIMENSIONS:
        raise ValueError(
            f"worlds: {world.name!r} is neither a gridworld nor one of {', '.join(DIMENSIONS)}"
        )
    return DIMENSIONS[world.name]


def _drawn(
    inputs: FigureInputs,
    figure: Figure,
    panels: Sequence[Mapping[int, Axes]],
    title_at: Literal["left", "center"],
) -> Drawn:
    """The figure with each world drawn in its panels, which are by dimension."""
    rows, claims = [], []
    for world, axes in zip(inputs.worlds, panels, strict=True):
        first = next(iter(axes.values()))
        if isinstance(world, GridWorld):
            table, of_world = _map_in(figure, first, inputs, world)
        else:
            table, of_world = _dimensions_in(axes, inputs, world)
            first.set_title(parts.title_of(world.name), fontsize=parts.TITLE, loc=title_at)
        rows += table
        claims += of_world
    caption = (
        f"Mean of estimated relevance over the visits to a state, level {LEVEL:g}, "
        f"{inputs.trials_text()}. Bands: one standard error. Grey: where the visits are. Dotted: "
        "borders of the cells in which relevance is tested. Star: the state of the paper's example."
    )
    return Drawn(figure, caption, rows, claims)


def _map_in(figure: Figure, axis: Axes, inputs: FigureInputs, world: GridWorld) -> RowsAndClaims:
    relevance = mean_relevance(inputs.chunks(world), LEVEL, inputs.protocol)
    draw_map(figure, axis, world, relevance)
    claims = [map_claim(world, relevance)]
    if world.name == "express":
        other = make("dilly-dallying")
        dallying = mean_relevance(inputs.chunks(other), LEVEL, inputs.protocol)
        claims.insert(0, corridors_claim((world, relevance), (other, dallying)))
    columns, rows = world.maze.shape[1], []
    for state in np.flatnonzero(relevance.visits).tolist():
        place = {"world": world.name, "row": state // columns, "column": state % columns}
        rows.append(place | _numbers(relevance, state))
    return rows, claims


def _dimensions_in(axes: Mapping[int, Axes], inputs: FigureInputs, world: Any) -> RowsAndClaims:
    dimensions, rows = _dimensions(world), []
    edges = np.stack([np.linspace(low, high, NUM_BINS + 1) for _, low, high in dimensions])
    relevance = mean_relevance(inputs.chunks(world), LEVEL, inputs.protocol, edges)
    bins = getattr(world, "bins", None) or world.dynamics.bins
    for number, (dim, axis) in enumerate(axes.items()):
        draw_dimension(axis, relevance[dim], edges[dim], bins.edges[dim])
        axis.set_xlabel(dimensions[dim][0], fontsize=parts.LABEL)
        if number % ACROSS == 0:
            axis.set_ylabel("mean relevance", fontsize=parts.LABEL)
            axis.set_yticks([-0.13, 0, 0.5, 1], ["visits", "0.0", "0.5", "1.0"])
            axis.yaxis.get_major_ticks()[0].tick1line.set_visible(False)
    for dim, (label, _, _) in enumerate(dimensions):
        where = {"world": world.name, "dimension": label.replace("\n", " ")}
        for place in np.flatnonzero(relevance[dim].visits).tolist():
            low, high = edges[dim, place : place + 2].tolist()
            rows.append(where | {"low": low, "high": high} | _numbers(relevance[dim], place))
    return rows, dimension_claims(world.name, relevance, edges)


def _numbers(relevance: MeanRelevance, place: int) -> dict[str, Any]:
    return {
        "alpha": LEVEL,
        "mean": float(relevance.mean[place]),
        "mean_se": float(relevance.standard_error[place]),
        "visits": int(relevance.visits[place]),
    }


def map_claim(world: GridWorld, relevance: MeanRelevance) -> dict[str, Any]:
    """Figure 4: corridor states are less relevant than the others."""
    corridor = world.maze.is_letter(CORRIDOR)
    return claim(
        world.name,
        "corridor states are less relevant",
        ("elsewhere", relevance.pooled(~corridor)),
        ("corridor", relevance.pooled(corridor)),
        relevance.pooled(~corridor, less=corridor),
    )


def corridors_claim(*pair: tuple[GridWorld, MeanRelevance]) -> dict[str, Any]:
    """Figure S4: Express's corridor is called relevant more often than Dilly-Dallying's."""
    larger, smaller = (
        (f"corridor of {world.name}", relevance.pooled(world.maze.is_letter(CORRIDOR)))
        for world, relevance in pair
    )
    text = "the corridor is relevant more often than in dilly-dallying"
    return claim(pair[0][0].name, text, larger, smaller)


def dimension_claims(
    world: str, relevance: MeanRelevance, edges: np.ndarray
) -> list[dict[str, Any]]:
    """Figure 4: where in CartPole and Lunar Lander states are relevant; relevance by [dim]."""
    claims = []
    for text, *ranges in CLAIMS.get(world, ()):
        of_one = relevance[MAIN_DIMENSION[world]]
        groups = [x.of(edges[MAIN_DIMENSION[world]]) for x in ranges]
        larger, smaller = (
            (f"mean theta at {x} ({of_one.visits[group].sum():.0f} visits)", of_one.pooled(group))
            for x, group in zip(ranges, groups, strict=True)
        )
        claims.append(claim(world, text, larger, smaller, of_one.pooled(groups[0], less=groups[1])))
    return claims


def draw_map(figure: Figure, axis: Axes, world: GridWorld, relevance: MeanRelevance) -> None:
    """Visit-weighted mean of theta in every cell of a gridworld; relevance without rows."""
    plots.draw_cells(axis, world)
    rows, columns = world.maze.shape
    colours, scale = matplotlib.colormaps["cividis"], Normalize(0, 1)
    mean, corridor = relevance.mean, world.maze.is_letter(CORRIDOR)
    for state in np.flatnonzero(relevance.visits).tolist():
        row, column = divmod(state, columns)
        fill = {"facecolor": colours(scale(mean[state])), "edgecolor": "#BBBBBB", "lw": 0.5}
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **fill))
        if corridor[state]:
            axis.plot(column, row, **DOT)
    for state in np.flatnonzero(decisive(world)).tolist():
        row, column = divmod(state, columns)
        axis.plot(column, row, **STAR)
    axis.set(xlim=(0, columns - 1), ylim=(rows - 1, 0), aspect="equal")  # half the outer wall
    axis.set_anchor("N")
    axis.set_axis_off()
    axis.set_title(parts.title_of(world.name), fontsize=parts.TITLE)
    star, dot = Line2D([], [], **STAR), Line2D([], [], **DOT)
    ground = Line2D([], [], marker="s", ms=6, mfc=colours(0.1), mec="none", lw=0)
    axis.legend(
        [star, (ground, dot)],
        ["the paper's example", "corridor"],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.02),
        ncols=2,
        fontsize=parts.LABEL,
        frameon=False,
        handletextpad=0.3,
    )
    place = axis.inset_axes((0.1, -0.3, 0.8, 0.07))
    bar = figure.colorbar(ScalarMappable(scale, colours), cax=place, orientation="horizontal")
    bar.set_label("mean of estimated relevance", fontsize=parts.LABEL)
    bar.ax.tick_params(labelsize=parts.LABEL)


def decisive(world: GridWorld) -> np.ndarray:
    """[state] the cell that the paper marks: east ends in a loss, and south is the policy's way."""
    entering = world.maze.successor[:, EAST]
    loses = world.maze.terminal[entering] & (world.maze.reward[:, EAST] < 0)
    open_floor = world.maze.reachable & ~world.maze.terminal
    return open_floor & loses & (world.greedy == SOUTH)


def draw_dimension(
    axis: Axes, relevance: MeanRelevance, edges: np.ndarray, borders: Sequence[float]
) -> None:
    """Mean of theta over one dimension, a band of one standard error, and where visits are.

    Args:
      relevance: without rows, by the bins between the edges.
      borders: of the cells in which relevance was tested.
    """
    middle = (edges[1:] + edges[:-1]) / 2
    mean, error = relevance.mean, relevance.standard_error
    good = np.isfinite(error)
    seen, few = middle[good], good.sum() <= 2
    axis.xaxis.set_major_locator(MaxNLocator(4))
    if few:
        axis.errorbar(seen, mean[good], error[good], fmt="o", ms=3, color=plots.BLUE)
        axis.set_xticks(seen, [f"{round(x)}" for x in seen])
    else:
        low, high = (np.where(good, mean + side * error, np.nan) for side in (-1, 1))
        axis.fill_between(middle, low, high, color=plots.BLUE, alpha=0.25, lw=0)
        axis.plot(middle, np.where(good, mean, np.nan), color=plots.BLUE, lw=1, marker=".", ms=2)
    heights = relevance.visits / max(relevance.visits.max(), 1)
    axis.fill_between(middle, -0.2, -0.2 + 0.14 * heights, step="mid", color="#AAAAAA", lw=0)
    margin = (edges[1] - edges[0]) * (4 if few else 1)
    left, right = (seen.min() - margin, seen.max() + margin) if len(seen) else edges[[0, -1]]
    for border in borders:
        if left < border < right and not few:
            axis.axvline(border, color=plots.GREY, lw=0.6, ls=":", zorder=0)
    axis.set(xlim=(left, right), ylim=(-0.2, 1.03))
    axis.set_yticks([0, 0.5, 1])
    tidy(axis)
