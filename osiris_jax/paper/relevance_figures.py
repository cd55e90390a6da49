"""Figures 4 and S4 of the paper: where states are called relevant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from osiris_jax.paper import claims, drawing
from osiris_jax.paper.drawing import Dimension
from osiris_jax.paper.figure_request import Drawn, FigureInputs
from osiris_jax.paper.relevance_data import (
    MeanRelevance,
    mean_relevance_by_dimension,
    mean_relevance_by_state,
)
from osiris_jax.worlds import make
from osiris_jax.worlds.gridworld import GridWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL, NUM_BINS = 0.05, 40
ACROSS = 4
DIMENSIONS = {
    "cartpole": (
        Dimension("cart position (m)", -2.4, 2.4),
        Dimension("cart velocity (m/s)", -4, 4),
        Dimension("pole angle (rad)", -0.21, 0.21),
        Dimension("pole angular\nvelocity (rad/s)", -4, 4),
    ),
    "lunar-lander": (
        Dimension("horizontal position\n(half widths)", -1, 1),
        Dimension("height\n(half heights)", -0.5, 1.7),
        Dimension("horizontal velocity\n(scaled)", -1.5, 1.5),
        Dimension("vertical velocity\n(scaled)", -1.5, 1),
        Dimension("angle (rad)", -2, 2),
        Dimension("angular velocity\n(scaled)", -4, 4),
        Dimension("left leg on ground\n(0 no, 1 yes)", -0.5, 1.5),
        Dimension("right leg on ground\n(0 no, 1 yes)", -0.5, 1.5),
    ),
}
MAIN_DIMENSION = {"cartpole": 3, "lunar-lander": 4}


def relevance_figure(inputs: FigureInputs) -> Drawn:
    """Figure 4: a map of relevance, or relevance over the dimension the paper shows."""
    ratios = [2 if isinstance(world, GridWorld) else 1 for world in inputs.worlds]
    width = drawing.COLUMN if sum(ratios) <= 2 else drawing.WIDE
    figure = Figure(figsize=(width, 2.25), layout="constrained")
    grid = figure.add_gridspec(1, len(ratios), width_ratios=ratios)
    panels = []
    for place, world in enumerate(inputs.worlds):
        axis = figure.add_subplot(grid[0, place])
        panels.append({MAIN_DIMENSION.get(world.name, 0): axis})
    return _drawn(inputs, figure, panels, "center")


def all_relevance_figure(inputs: FigureInputs) -> Drawn:
    """Figure S4: maps of relevance, and relevance over all dimensions."""
    heights = [2.6 if isinstance(world, GridWorld) else 1.55 for world in inputs.worlds]
    lines = [1 if isinstance(w, GridWorld) else -(-_num_dims(w) // ACROSS) for w in inputs.worlds]
    size = drawing.WIDE, sum(h * n for h, n in zip(heights, lines, strict=True))
    figure = Figure(figsize=size, layout="constrained")
    spread = [h for h, n in zip(heights, lines, strict=True) for _ in range(n)]
    grid = figure.add_gridspec(sum(lines), ACROSS, height_ratios=spread)
    panels, line = [], 0
    for world, number in zip(inputs.worlds, lines, strict=True):
        if isinstance(world, GridWorld):
            places = {0: grid[line, 1:3]}
        else:
            places = {d: grid[line + d // ACROSS, d % ACROSS] for d in range(_num_dims(world))}
        panels.append({dim: figure.add_subplot(place) for dim, place in places.items()})
        line += number
    return _drawn(inputs, figure, panels, "left")


def _drawn(
    inputs: FigureInputs,
    figure: Figure,
    panels: Sequence[Mapping[int, Axes]],
    title_at: Literal["left", "center"],
) -> Drawn:
    """The figure with each world drawn in its panels, which are by dimension."""
    rows, answers = [], []
    for world, axes in zip(inputs.worlds, panels, strict=True):
        first = next(iter(axes.values()))
        if isinstance(world, GridWorld):
            part = _map_numbers(inputs, world)
            drawing.draw_map(figure, first, world, part.relevance)
        else:
            part = _dimension_numbers(inputs, world)
            _draw_dimensions(axes, world, part)
            first.set_title(drawing.title_of(world.name), fontsize=drawing.TITLE, loc=title_at)
        rows, answers = rows + part.rows, answers + part.claims
    caption = (
        f"Mean of estimated relevance over the visits to a state, level {LEVEL:g}, "
        f"{inputs.trials_text()}. Bands: one standard error. Grey: where the visits are. Dotted: "
        "borders of the cells in which relevance is tested. Star: the state of the paper's example."
    )
    return Drawn(figure, caption, rows, answers)


class _Part(NamedTuple):
    relevance: MeanRelevance
    edges: Any
    rows: list[dict[str, Any]]
    claims: list[dict[str, Any]]


def _map_of(inputs: FigureInputs, world: GridWorld) -> MeanRelevance:
    return mean_relevance_by_state(inputs.chunks(world), LEVEL, inputs.protocol)


def _map_numbers(inputs: FigureInputs, world: GridWorld) -> _Part:
    relevance = _map_of(inputs, world)
    columns = world.maze.shape[1]
    rows = []
    for state in np.flatnonzero(relevance.visits).tolist():
        row, column = divmod(state, columns)
        place = {"world": world.name, "row": row, "column": column}
        rows.append(place | _numbers(relevance, state))
    answers = [claims.of_map(world, relevance)]
    if world.name == "express":
        dallying = make("dilly-dallying")
        pair = (world, relevance), (dallying, _map_of(inputs, dallying))
        answers.insert(0, claims.of_corridors(*pair))
    return _Part(relevance, None, rows, answers)


def _num_dims(world: Any) -> int:
    if world.name not in DIMENSIONS:
        raise ValueError(
            f"worlds: {world.name!r} is neither a gridworld nor one of {', '.join(DIMENSIONS)}"
        )
    return len(DIMENSIONS[world.name])


def _dimension_numbers(inputs: FigureInputs, world: Any) -> _Part:
    _num_dims(world)
    dimensions = DIMENSIONS[world.name]
    edges = np.stack([np.linspace(d.low, d.high, NUM_BINS + 1) for d in dimensions])
    chunks = inputs.chunks(world)
    relevance = mean_relevance_by_dimension(chunks, edges, LEVEL, inputs.protocol)
    rows = []
    for number, dimension in enumerate(dimensions):
        of_one = relevance[number]
        for place in np.flatnonzero(of_one.visits).tolist():
            low, high = edges[number, place : place + 2].tolist()
            label = dimension.label.replace("\n", " ")
            where = {"world": world.name, "dimension": label, "low": low, "high": high}
            rows.append(where | _numbers(of_one, place))
    return _Part(relevance, edges, rows, claims.of_dimensions(world.name, relevance, edges))


def _numbers(relevance: MeanRelevance, place: int) -> dict[str, Any]:
    return {
        "alpha": LEVEL,
        "mean": float(relevance.mean[place]),
        "mean_se": float(relevance.standard_error[place]),
        "visits": int(relevance.visits[place]),
    }


def _draw_dimensions(axes: Mapping[int, Axes], world: Any, part: _Part) -> None:
    bins = getattr(world, "bins", None) or world.dynamics.bins
    for number, (dim, axis) in enumerate(axes.items()):
        dimension = DIMENSIONS[world.name][dim]
        edges, borders = part.edges[dim], bins.edges[dim]
        drawing.draw_dimension(
            axis, dimension, part.relevance[dim], edges, borders, leftmost=number % ACROSS == 0
        )
