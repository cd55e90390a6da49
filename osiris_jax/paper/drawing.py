"""The paper's figures as pictures: they take numbers and compute none. See `figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from osiris_jax import plots
from osiris_jax.paper.figure_data import WeightsAndLengths
from osiris_jax.paper.relevance_data import MeanRelevance
from osiris_jax.worlds.gridworld import CORRIDOR, GridWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec

COLUMN, WIDE = 3.05, 6.55  # saving adds a tenth of an inch on every side
LABEL, TITLE = 7, 8
DOTS = 400
TITLES = {
    "dilly-dallying": "Dilly-Dallying Gridworld",
    "express": "Express Gridworld",
    "cartpole": "CartPole",
    "lunar-lander": "Lunar Lander",
}
EAST, SOUTH = 2, 1
STAR = {"marker": "*", "ms": 9, "mfc": "#00D08A", "mec": "black", "mew": 0.6, "lw": 0}
DOT = {"marker": "o", "ms": 2.2, "mfc": "white", "mec": "black", "mew": 0.3, "lw": 0}


def title_of(world: str) -> str:
    return TITLES.get(world, world)


def level_colours(levels: Sequence[float]) -> dict[float, Any]:
    """A colour for each level, dark for small ones."""
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(levels)))
    return dict(zip(sorted(levels), colours, strict=True))


def _width(panels: int) -> float:
    return COLUMN if panels == 1 else WIDE


def _levels_legend(figure: Figure, colours: Mapping[float, Any], more: Sequence[Line2D]) -> None:
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


def consistency(rows_by_world: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """OSIRWIS over |D| and the level: means, standard deviations, the truth (Figure 2)."""
    figure, axes = plots.canvas(_width(len(rows_by_world)), 2.5, columns=len(rows_by_world))
    levels = {r["alpha"] for rows in rows_by_world.values() for r in rows if r["relevance"]}
    colours = level_colours(list(levels))
    lines = [Line2D([], [], color="black", lw=0.9, label="true value")]
    for axis, (world, rows) in zip(axes, rows_by_world.items(), strict=True):
        _draw_consistency(axis, rows, colours)
        axis.set_title(title_of(world), fontsize=TITLE)
        axis.set_xlabel("trajectories |D|", fontsize=LABEL)
        on_policy = [row for row in rows if row["estimator"] == "on-policy"]
        if on_policy:
            best = max(on_policy, key=lambda row: row["size"])
            line = axis.axhline(best["mean"], color=plots.RED, lw=0.9, ls=(0, (4, 3)))
            line.set_label("on-policy" if len(axes) == 1 else "on-policy mean")
            lines = [*lines[:1], line]
    axes[0].set_ylabel("OSIRWIS (mean \N{PLUS-MINUS SIGN} std)", fontsize=LABEL)
    _levels_legend(figure, colours, lines)
    return figure


def _draw_consistency(axis: Axes, rows: Sequence[Mapping[str, Any]], colours: Mapping) -> None:
    sizes = sorted({row["size"] for row in rows})
    offsets = np.linspace(-0.3, 0.3, len(colours)) if len(colours) > 1 else [0.0]
    for (alpha, colour), offset in zip(colours.items(), offsets, strict=True):
        line = [row for row in rows if row["relevance"] and row["alpha"] == alpha]
        places = [sizes.index(row["size"]) + offset for row in line]
        means, spreads = ([row[name] for row in line] for name in ("mean", "std"))
        axis.errorbar(places, means, spreads, fmt="o", color=colour, ms=2.8, lw=0.9, capsize=1.5)
    axis.axhline(rows[0]["truth"], color="black", lw=0.9, zorder=0)
    axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])


def weights(
    weights_by_world: Mapping[str, WeightsAndLengths],
    alphas: Sequence[float],
    seed: int,
) -> Figure:
    """OSIRIS weight against effective length, with box plots on the margins (Figure 3).

    Args:
      weights_by_world: weights and lengths by the world's name.
      alphas: the levels, rising.
      seed: of the dots, `DOTS` of each level, drawn from all trajectories without replacement;
        boxes are of all of them.
    """
    number = len(weights_by_world)
    figure = Figure(figsize=(_width(number), 3.0), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.0, hspace=0.0)  # pyright: ignore
    grid = figure.add_gridspec(1, number)
    colours = level_colours(alphas)
    for place, (world, of_world) in enumerate(weights_by_world.items()):
        scatter, top = _draw_weights(figure, grid[0, place], of_world, colours, seed)
        top.set_title(title_of(world), fontsize=TITLE)
        scatter.set_xlabel("effective length (steps)", fontsize=LABEL)
        if not place:
            scatter.set_ylabel("OSIRIS weight", fontsize=LABEL)
    _levels_legend(figure, colours, ())
    return figure


def _draw_weights(
    figure: Figure, place: SubplotSpec, weights: WeightsAndLengths, colours: Mapping, seed: int
) -> tuple[Axes, Axes]:
    inner = place.subgridspec(2, 2, width_ratios=(3.4, 1), height_ratios=(1, 3.4))
    scatter = figure.add_subplot(inner[1, 0])
    top = figure.add_subplot(inner[0, 0], sharex=scatter)
    right = figure.add_subplot(inner[1, 1], sharey=scatter)
    for rank, colour in enumerate(colours.values()):
        log_weight = weights.log_weight[rank].ravel() / np.log(10)
        finite = np.isfinite(log_weight)
        x, y = weights.length[rank].ravel()[finite], log_weight[finite]
        dots = subsample(len(x), DOTS, seed)
        scatter.scatter(
            x[dots], y[dots], s=2.5, color=colour, alpha=0.55, lw=0, rasterized=True, zorder=-rank
        )
        _draw_box(top, x, rank, colour, "horizontal")
        _draw_box(right, y, rank, colour, "vertical")
    scatter.set_rasterization_zorder(0)
    scatter.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    scatter.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"$10^{{{power:.0f}}}$"))
    scatter.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    for axis in (scatter, top, right):
        axis.tick_params(labelsize=LABEL)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in (top, right):
        axis.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        axis.spines[["left", "bottom"]].set_visible(False)
    return scatter, top


def subsample(number: int, most: int, seed: int) -> np.ndarray:
    """Which of so many things are drawn: all, or `most` of them chosen by the seed."""
    if number <= most:
        return np.arange(number)
    return np.sort(np.random.default_rng(seed).choice(number, most, replace=False))


def _draw_box(axis: Axes, values: np.ndarray, place: int, colour: Any, way: Any) -> None:
    """Quartiles and median; whiskers from the 5th to the 95th percentile."""
    axis.boxplot(
        values,
        positions=[place],
        widths=0.65,
        orientation=way,
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.6, "linewidth": 0.8},
        medianprops={"color": "black", "linewidth": 1.0},
        whiskerprops={"color": colour, "linewidth": 0.9},
        capprops={"color": colour, "linewidth": 0.9},
    )


class Dimension(NamedTuple):
    """A column of the observations: what it is called, and the range that is drawn."""

    label: str
    low: float
    high: float


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
    axis.set_title(title_of(world.name), fontsize=TITLE)
    star, dot = Line2D([], [], **STAR), Line2D([], [], **DOT)
    ground = Line2D([], [], marker="s", ms=6, mfc=colours(0.1), mec="none", lw=0)
    axis.legend(
        [star, (ground, dot)],
        ["the paper's example", "corridor"],
        loc="upper center",
        bbox_to_anchor=(0.5, 0.02),
        ncols=2,
        fontsize=LABEL,
        frameon=False,
        handletextpad=0.3,
    )
    place = axis.inset_axes((0.1, -0.3, 0.8, 0.07))
    bar = figure.colorbar(ScalarMappable(scale, colours), cax=place, orientation="horizontal")
    bar.set_label("mean of estimated relevance", fontsize=LABEL)
    bar.ax.tick_params(labelsize=LABEL)


def decisive(world: GridWorld) -> np.ndarray:
    """[state] the cell that the paper marks: east ends in a loss, and south is the policy's way."""
    entering = world.maze.successor[:, EAST]
    loses = world.maze.terminal[entering] & (world.maze.reward[:, EAST] < 0)
    open_floor = world.maze.reachable & ~world.maze.terminal
    return open_floor & loses & (world.greedy == SOUTH)


def draw_dimension(
    axis: Axes,
    dimension: Dimension,
    relevance: MeanRelevance,
    edges: np.ndarray,
    borders: Sequence[float] = (),
    *,
    leftmost: bool = True,
) -> None:
    """Mean of theta over one dimension, a band of one standard error, and where visits are.

    Args:
      relevance: without rows, by the bins between the edges.
      borders: of the cells in which relevance was tested.
      leftmost: whether to label the vertical axis.
    """
    middle = (edges[1:] + edges[:-1]) / 2
    mean, error = relevance.mean, relevance.standard_error
    good = np.isfinite(error)
    few = good.sum() <= 2
    if few:
        axis.errorbar(middle[good], mean[good], error[good], fmt="o", ms=3, color=plots.BLUE)
    else:
        low, high = (np.where(good, mean + side * error, np.nan) for side in (-1, 1))
        axis.fill_between(middle, low, high, color=plots.BLUE, alpha=0.25, lw=0)
        axis.plot(middle, np.where(good, mean, np.nan), color=plots.BLUE, lw=1, marker=".", ms=2)
    heights = relevance.visits / max(relevance.visits.max(), 1)
    axis.fill_between(middle, -0.2, -0.2 + 0.14 * heights, step="mid", color="#AAAAAA", lw=0)
    seen = middle[good]
    margin = (edges[1] - edges[0]) * (4 if few else 1)
    left, right = (seen.min() - margin, seen.max() + margin) if len(seen) else edges[[0, -1]]
    for border in borders:
        if left < border < right and not few:
            axis.axvline(border, color=plots.GREY, lw=0.6, ls=":", zorder=0)
    axis.set(xlim=(left, right), ylim=(-0.2, 1.03))
    axis.set_yticks([0, 0.5, 1])
    if leftmost:
        axis.set_ylabel("mean relevance", fontsize=LABEL)
        axis.set_yticks([-0.13, 0, 0.5, 1], ["visits", "0.0", "0.5", "1.0"])
        axis.yaxis.get_major_ticks()[0].tick1line.set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(4))
    if few:
        axis.set_xticks(middle[good], [f"{round(x)}" for x in middle[good]])
    axis.set_xlabel(dimension.label, fontsize=LABEL)
    axis.tick_params(labelsize=LABEL)
    axis.spines[["top", "right"]].set_visible(False)
