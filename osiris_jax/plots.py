"""Pictures: readable in a paper's column, colour-blind safe, as PNG and PDF."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from osiris_jax.core.faces import gap_label
from osiris_jax.core.pictures import (
    BESIDE,
    Row,
    describe,
    error_line,
    legend,
    over_sizes,
    save_all,
    shades,
    tidy,
)
from osiris_jax.core.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from osiris_jax.worlds.gridworld import GridWorld

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"
COLUMN, WIDE = 3.5, 7.0
MOST_MAPPED, WORST_SHOWN = 10, 1e4
FLOORS = {"#": "#555555", ",": "#CFE0F0", "o": "#FFF2AA"}
EDGE: dict[str, Any] = {"edgecolor": "#BBBBBB", "linewidth": 0.5}
ARROW: dict[str, Any] = {"arrowstyle": "-|>", "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
DIRECTIONS = ((0, -1), (0, 1), (1, 0), (-1, 0))  # north, south, east, west


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Writes the figure as PNG and PDF, each whole or not at all."""
    return save_all({name: figure}, folder)


def canvas(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side, drawn without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, number + 1) for number in range(columns)]
    for axis in axes:
        tidy(axis)
    return figure, axes


def gridworld(worlds: Sequence[GridWorld], *, width: float = WIDE) -> Figure:
    """Each world with its greedy actions, and with how often each policy leaves them (Figure 1)."""
    rows, columns = worlds[0].maze.shape
    figure, axes = canvas(width, 0.62 * width / len(worlds) + 0.5, columns=len(worlds))
    for axis, world in zip(axes, worlds, strict=True):
        draw_cells(axis, world)
        walkable = np.flatnonzero(~world.dynamics.terminal & world.maze.reachable)
        rate = _random_rate(world, world.behavior_probs)
        rates = np.unique(rate[walkable])[::-1].tolist()
        colours = dict(zip(rates, itertools.cycle((BLUE, ORANGE)), strict=False))
        for state in walkable.tolist():
            row, column = divmod(state, columns)
            right, down = DIRECTIONS[world.greedy[state]]
            start = (column - 0.3 * right, row - 0.3 * down)
            end = (column + 0.34 * right, row + 0.34 * down)
            style = ARROW | {"color": colours[rate[state]]}
            axis.annotate("", xy=end, xytext=start, arrowprops=style)
        for value, colour in colours.items():
            label = f"behaviour: random with probability {value:g}"
            axis.plot([], [], color=colour, marker=">", lw=1.5, label=label)
        of_target = _random_rate(world, world.target_probs)[walkable[0]]
        label = f"target: random with probability {of_target:g} everywhere"
        axis.plot([], [], color="none", label=label)
        for label, letter in (("start", "o"), ("corridor", ",")):
            if world.maze.is_letter(letter).any():
                axis.add_patch(
                    Rectangle((0, 0), 0, 0, facecolor=FLOORS[letter], **EDGE, label=label)
                )
        axis.set_title(world.name, fontsize=9)
        legend(axis, loc="upper center", bbox_to_anchor=(0.5, -0.02))
        axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal")
        axis.set_axis_off()
    return figure


def _random_rate(world: GridWorld, probs: np.ndarray) -> np.ndarray:
    """[state] how often a policy [state, action] that is else greedy takes a random action."""
    greedy = probs[np.arange(len(world.greedy)), world.greedy]
    return np.round((1 - greedy) * world.num_actions / (world.num_actions - 1), 6)


def draw_cells(axis: Axes, world: GridWorld) -> None:
    """Walls, floor, start, corridor and the rewards for entering terminal cells."""
    maze, (_, columns) = world.maze, world.maze.shape
    rewards = dict(maze.rewards)
    for state, letter in enumerate(maze.letters):
        row, column = divmod(state, columns)
        fill = FLOORS.get(letter, "white")
        if letter in rewards:
            fill = "#CFE8DF" if rewards[letter] > 0 else "#F6D8C8"
            text = f"{rewards[letter]:+g}"
            axis.text(column, row, text, ha="center", va="center", fontsize=7)
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, **EDGE))


def learning_curve(curve: Sequence[tuple[int, float]], title: str, chosen: int | None) -> Figure:
    """Mean return of training episodes over the updates, the selected snapshot marked."""
    figure, (axis,) = canvas(COLUMN, 2.4)
    updates, means = np.asarray(curve, float).T
    axis.plot(updates, means, color=BLUE, lw=1)
    if chosen is not None:
        axis.axvline(chosen, color=ORANGE, lw=1, ls="--", label="selected")
        legend(axis)
    describe(axis, "gradient updates", "mean return while exploring", title)
    return figure


def lengths(by_policy: Mapping[str, Any], title: str) -> Figure:
    """Histogram of the number of steps under each policy, with its mean."""
    figure, (axis,) = canvas(COLUMN, 2.4)
    longest = max(float(np.quantile(values, 0.995)) for values in by_policy.values())
    width = max(1, round(longest / 40))
    edges = np.arange(0.5, longest + width + 1, width)
    for (policy, values), colour in zip(by_policy.items(), (BLUE, ORANGE), strict=False):
        values = np.asarray(values, float)
        weights = np.full(len(values), 1 / len(values))
        name = "behaviour" if policy == "behavior" else policy
        label = f"{name}, mean {values.mean():.4g}"
        axis.hist(values, list(edges), weights=weights, histtype="step", color=colour, label=label)
        axis.axvline(values.mean(), color=colour, lw=0.8, ls=":")
    describe(axis, "steps", "share of episodes", title)
    legend(axis)
    return figure


def _row_label(row: Row) -> str:
    parts = [part for part in (row["relevance"], level_label(row)) if part]
    return row["estimator"] + (f" ({', '.join(parts)})" if parts else "")


def level_label(row: Row) -> str:
    """The level of a row of a summary, "" where it has none."""
    names = (name for name in ("alpha", "threshold") if row[name] is not None)
    return "".join(f"{name} {row[name]:g}" for name in names)


def rmse_bars(rows: Sequence[Row], title: str, most: int = 30) -> Figure:
    """RMSE of every row of a summary at its largest size, with standard errors; best marked."""
    size = max(row["size"] for row in rows)
    of_size = [row for row in rows if row["size"] == size and np.isfinite(row["rmse"])]
    least = sorted(of_size, key=lambda row: row["rmse"])[:most]
    figure, (axis,) = canvas(COLUMN + 1, 0.6 + 0.2 * max(len(least), 3))
    best = min((row["rmse"] for row in least if row["estimator"] != "on-policy"), default=None)
    for place, row in enumerate(reversed(least)):
        colour = GREEN if row["rmse"] == best else BLUE if row["relevance"] else GREY
        axis.barh(place, row["rmse"], xerr=row["rmse_se"], color=colour, height=0.7)
    axis.set_yticks(range(len(least)), [_row_label(row) for row in reversed(least)], fontsize=7)
    describe(axis, "RMSE (with standard error)", title=f"{title}, N = {size}")
    return figure


def consistency(rows: Sequence[Row], title: str) -> Figure:
    """Mean and spread of the first estimator after omission over sizes, a line for each level.

    Raises:
      ValueError: fewer than two sizes, or no estimator after omission.
    """
    kept = [row for row in rows if row["relevance"] is not None]
    sizes = sorted({row["size"] for row in rows})
    if not kept or len(sizes) < 2:
        raise ValueError("rows: a picture over sizes needs an osiris estimator at two sizes")
    estimator, test = kept[0]["estimator"], kept[0]["relevance"]
    kept = [row for row in kept if (row["estimator"], row["relevance"]) == (estimator, test)]
    kept.sort(key=lambda row: row["size"])
    figure, (left, right) = canvas(WIDE, 2.6, columns=2)
    levels = list(dict.fromkeys(level_label(row) for row in kept))
    for level, colour in zip(levels, shades(len(levels)), strict=True):
        line = [row for row in kept if level_label(row) == level]
        for axis, field in ((left, "mean"), (right, "rmse")):
            error_line(axis, line, "size", field, color=colour, label=level or test)
    left.axhline(kept[0]["truth"], color="black", lw=0.8, ls="--", label="truth")
    for axis in (left, right):
        over_sizes(axis, sizes)
    describe(left, "trajectories N", f"mean of {estimator}", f"{title}: {test}")
    describe(right, "trajectories N", f"RMSE of {estimator}")
    legend(left, 6)
    return figure


def calibration(rows: Sequence[Row], title: str) -> Figure:
    """Rate at which states are called relevant over the level, by their true gap in Q.

    A panel for each weighting; the dashed line is the level itself, which states of gap 0 should
    not exceed. At the largest size; plain tests, or the first variant where there are none. Tests
    with thresholds only where there are no others.
    """
    level = "threshold" if all(row["alpha"] is None for row in rows) else "alpha"
    rows = [row for row in rows if row[level] is not None]
    tests = dict(zip(dict.fromkeys(row["test"] for row in rows), ("-", ":", "-."), strict=False))
    size = max(row["size"] for row in rows)
    variants = [row["variant"] for row in rows]
    variant = "" if "" in variants else variants[0]
    rows = [row for row in rows if (row["size"], row["variant"]) == (size, variant)]
    weightings = list(dict.fromkeys(row["weighting"] for row in rows))
    gaps = sorted({_gap(row) for row in rows})
    figure, axes = canvas(WIDE, 2.6, columns=len(weightings))
    for axis, weighting in zip(axes, weightings, strict=True):
        for (gap, colour), (test, style) in itertools.product(
            zip(gaps, shades(len(gaps)), strict=True), tests.items()
        ):
            wanted = (weighting, test, gap)
            line = [row for row in rows if (row["weighting"], row["test"], _gap(row)) == wanted]
            if line:
                label = f"{test}, gap {gap_label(*gap)}"
                error_line(axis, line, level, "rate", color=colour, ls=style, label=label)
        if level == "alpha":
            levels = sorted({row["alpha"] for row in rows})
            axis.plot(levels, levels, color="black", lw=0.8, ls="--", label="the level itself")
        of_variant = f", {variant}" if variant else ""
        y = f"called relevant, N = {size}{of_variant}" if axis is axes[0] else ""
        describe(axis, level, y, f'weighting "{weighting}"', 8)
        axis.set_ylim(-0.03, 1.03)
    legend(axes[-1], 6, **BESIDE)
    figure.suptitle(title, fontsize=9)
    return figure


def markov_calibration(rows: Sequence[Row]) -> Figure:
    """Rate at which the Markov check rejects, by world and form, at the least level and largest N.

    The worlds whose states are Markov to the left, where the dashed level should not be exceeded.
    """
    alpha, size = min(row["alpha"] for row in rows), max(row["size"] for row in rows)
    wanted = (None, alpha, size)
    rows = [row for row in rows if (row["lag"], row["alpha"], row["size"]) == wanted]
    forms = list(dict.fromkeys(row["form"] for row in rows))
    kinds = [kind for kind in (True, False) if any(row["markov"] is kind for row in rows)]
    most = max(sum(row["markov"] is kind for row in rows) for kind in kinds) // len(forms)
    figure, axes = canvas(WIDE, 1.2 + 0.16 * most, columns=len(kinds))
    for axis, kind in zip(axes, kinds, strict=True):
        of_kind = [row for row in rows if row["markov"] is kind]
        worlds = list(dict.fromkeys(row["world"] for row in of_kind))
        for number, (form, colour) in enumerate(zip(forms, shades(len(forms)), strict=True)):
            line = [row for row in of_kind if row["form"] == form]
            places = [worlds.index(row["world"]) + 0.2 * (number - 1) for row in line]
            rates, errors = ([row[field] for row in line] for field in ("rate", "rate_se"))
            axis.errorbar(rates, places, xerr=errors, fmt="o", ms=3, color=colour, label=form)
        axis.axvline(alpha, color="black", lw=0.8, ls="--", label="the level")
        axis.set_yticks(range(len(worlds)), [printable(world) for world in worlds])
        axis.invert_yaxis()
        describe(axis, f"rejects, N = {size}", "", "Markov" if kind else "not Markov")
    legend(axes[-1], 6, **BESIDE)
    return figure


def coverage(rows: Sequence[Row], title: str) -> Figure:
    """Coverage over the size with standard errors: a panel for each estimator, a line by method.

    The dashed line is the confidence that the intervals claim.
    """
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    palette = itertools.cycle((BLUE, ORANGE, GREEN, RED, GREY, "#CC79A7"))
    styles = dict(zip(methods, zip(palette, itertools.cycle("osD^vx"), strict=False), strict=False))
    sizes = sorted({row["size"] for row in rows})
    figure, axes = canvas(max(COLUMN, 1.9 * len(estimators) + 1), 2.6, columns=len(estimators))
    rising = sorted(rows, key=lambda row: row["size"])
    lowest = min((row["coverage"] for row in rows if np.isfinite(row["coverage"])), default=0.0)
    for axis, estimator in zip(axes, estimators, strict=True):
        for method, (colour, mark) in styles.items():
            wanted = (estimator, method)
            line = [row for row in rising if (row["estimator"], row["method"]) == wanted]
            error_line(axis, line, "size", "coverage", color=colour, marker=mark, label=method)
        axis.axhline(rows[0]["confidence"], color="black", lw=0.8, ls="--", label="claimed")
        over_sizes(axis, sizes)
        axis.set_ylim(min(0.8, lowest - 0.03), 1.01)
        y = "share of intervals with the truth" if axis is axes[0] else ""
        describe(axis, "trajectories N", y, estimator, 8)
    legend(axes[-1], 6, **BESIDE)
    figure.suptitle(title, fontsize=9)
    return figure


def regrets(standings: Sequence[Any]) -> Figure:
    """Geometric mean of every estimator's regret with its standard error, and the worst of all."""
    figure, (axis,) = canvas(COLUMN, 0.7 + 0.16 * len(standings))
    places = np.arange(len(standings))[::-1]
    means = [standing.regret for standing in standings]
    errors = [standing.regret_se for standing in standings]
    axis.errorbar(means, places, xerr=errors, fmt="o", ms=3.5, lw=1, color=BLUE, label="mean")
    worst = [min(standing.worst, WORST_SHOWN) for standing in standings]
    axis.plot(worst, places, ls="", marker="|", ms=6, color=RED, label="worst world")
    axis.axvline(1, color="black", lw=0.8, ls="--")
    axis.set_xscale("log")
    axis.set_yticks(places, [standing.label for standing in standings], fontsize=6)
    describe(axis, "regret (RMSE over the least)", title="all worlds and sizes", title_size=8)
    legend(axis, 6, loc="upper right")
    return figure


def regret_map(rows: Sequence[Row], standings: Sequence[Any]) -> Figure:
    """Regret of every estimator in every world, a panel for each size; the least is ringed."""
    from osiris_jax.study.regret import label_of

    labels = [standing.label for standing in standings]
    sizes = sorted({row["size"] for row in rows})
    worlds = list(dict.fromkeys(row["world"] for row in sorted(rows, key=lambda r: r["kind"])))
    width = 1.6 + 0.17 * len(worlds)
    figure, axes = canvas(width * len(sizes), 1.6 + 0.15 * len(labels), columns=len(sizes))
    colours: dict[str, Any] = {"cmap": "cividis", "vmin": 0, "vmax": np.log10(MOST_MAPPED)}
    for axis, size in zip(axes, sizes, strict=True):
        table = np.full((len(labels), len(worlds)), np.nan)
        for row in rows:
            if row["size"] == size:
                table[labels.index(label_of(row)), worlds.index(row["world"])] = row["regret"]
        axis.imshow(np.log10(table), aspect="auto", **colours)
        for place in np.argwhere(table == 1):
            axis.plot(*place[::-1], "o", ms=3, mfc="none", mec="white", mew=0.8)
        axis.set_xticks(range(len(worlds)), worlds, rotation=90, fontsize=5.5)
        axis.set_yticks(range(len(labels)), labels if axis is axes[0] else [], fontsize=5.5)
        describe(axis, title=f"N = {size}", title_size=8)
    ticks = [1, 2, 5, MOST_MAPPED]
    bar = figure.colorbar(axes[0].images[0], ax=axes, shrink=0.6, ticks=np.log10(ticks))
    bar.ax.set_yticklabels([*map(str, ticks[:-1]), f"{MOST_MAPPED} and more"], fontsize=6)
    bar.set_label("regret", fontsize=7)
    return figure


def _gap(row: Row) -> tuple[float, float]:
    return row["gap_above"], row["gap_up_to"]
