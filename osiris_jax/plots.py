"""Pictures: readable in a paper's column, colour-blind safe, as PNG and PDF."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from osiris_jax.core.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from osiris_jax.worlds.gridworld import GridWorld

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"
COLUMN, WIDE = 3.5, 7.0
FLOORS = {"#": "#555555", ",": "#CFE0F0", "o": "#FFF2AA"}
DIRECTIONS = {"N": (0, -1), "S": (0, 1), "E": (1, 0), "W": (-1, 0)}


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Writes the figure as PNG and PDF, each whole or not at all."""
    paths = []
    for kind, metadata in (("png", {}), ("pdf", {"CreationDate": None})):
        picture = io.BytesIO()
        with matplotlib.rc_context({"pdf.fonttype": 42}):
            figure.savefig(picture, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
        path = Path(folder) / f"{name}.{kind}"
        paths.append(
            write_whole(path, lambda file, picture=picture: file.write(picture.getvalue()))
        )
    return paths


def canvas(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side, drawn without a display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = [figure.add_subplot(1, columns, number + 1) for number in range(columns)]
    for axis in axes:
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def gridworld(worlds: Sequence[GridWorld], *, width: float = WIDE) -> Figure:
    """Each world with its greedy actions, and with how often each policy leaves them (Figure 1)."""
    rows, columns = worlds[0].maze.shape
    figure, axes = canvas(width, 0.62 * width / len(worlds) + 0.5, columns=len(worlds))
    for axis, world in zip(axes, worlds, strict=True):
        draw_cells(axis, world)
        rates = _random_rates(world)
        for state in np.flatnonzero(_walkable(world)).tolist():
            row, column = divmod(state, columns)
            _draw_arrow(axis, row, column, world.greedy[state], _rate_colour(rates, state))
        for number, rate in enumerate(rates):
            label = f"behaviour: random with probability {rate:g}"
            axis.plot([], [], color=(BLUE, ORANGE)[number % 2], marker=">", lw=1.5, label=label)
        target = f"target: random with probability {_target_rate(world):g} everywhere"
        axis.plot([], [], color="none", label=target)
        for label, letter in (("start", "o"), ("corridor", ",")):
            if world.maze.is_letter(letter).any():
                edge = {"facecolor": FLOORS[letter], "edgecolor": "#BBBBBB", "linewidth": 0.5}
                axis.add_patch(Rectangle((0, 0), 0, 0, **edge, label=label))
        axis.set_title(world.name, fontsize=9)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), fontsize=7, frameon=False)
        axis.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal")
        axis.set_axis_off()
    return figure


def _walkable(world: GridWorld) -> np.ndarray:
    return ~world.dynamics.terminal & world.maze.reachable


def _random_rates(world: GridWorld) -> dict[float, np.ndarray]:
    """Probability of a random action under the behaviour policy -> [state] where it holds."""
    actions = np.arange(len(world.greedy))
    greedy = world.behavior_probs[actions, world.greedy]
    rate = np.round((1 - greedy) * world.num_actions / (world.num_actions - 1), 6)
    shown = _walkable(world)
    return {value: (rate == value) & shown for value in np.unique(rate[shown])[::-1]}


def _rate_colour(rates: Mapping[float, np.ndarray], state: int) -> str:
    number = next(number for number, where in enumerate(rates.values()) if where[state])
    return (BLUE, ORANGE)[number % 2]


def _target_rate(world: GridWorld) -> float:
    state = int(np.flatnonzero(_walkable(world))[0])
    greedy = world.target_probs[state, world.greedy[state]]
    return round(float((1 - greedy) * world.num_actions / (world.num_actions - 1)), 6)


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
        edge = {"facecolor": fill, "edgecolor": "#BBBBBB", "linewidth": 0.5}
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **edge))


def _draw_arrow(axis: Axes, row: int, column: int, action: int, colour: str) -> None:
    right, down = DIRECTIONS["NSEW"[action]]
    start = (column - 0.3 * right, row - 0.3 * down)
    end = (column + 0.34 * right, row + 0.34 * down)
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)


def learning_curve(curve: Sequence[tuple[int, float]], title: str, chosen: int | None) -> Figure:
    """Mean return of training episodes over the updates, the selected snapshot marked."""
    figure, (axis,) = canvas(COLUMN, 2.4)
    updates, means = np.asarray(curve, float).T
    axis.plot(updates, means, color=BLUE, lw=1)
    if chosen is not None:
        axis.axvline(chosen, color=ORANGE, lw=1, ls="--", label="selected")
        axis.legend(fontsize=7, frameon=False)
    axis.set_xlabel("gradient updates", fontsize=8)
    axis.set_ylabel("mean return while exploring", fontsize=8)
    axis.set_title(title, fontsize=9)
    return figure


POLICY_LABELS = {"behavior": "behaviour", "target": "target"}


def lengths(by_policy: Mapping[str, Any], title: str) -> Figure:
    """Histogram of the number of steps under each policy, with its mean."""
    figure, (axis,) = canvas(COLUMN, 2.4)
    longest = max(float(np.quantile(values, 0.995)) for values in by_policy.values())
    width = max(1, round(longest / 40))
    edges = np.arange(0.5, longest + width + 1, width)
    for (policy, values), colour in zip(by_policy.items(), (BLUE, ORANGE), strict=False):
        values = np.asarray(values, float)
        weights = np.full(len(values), 1 / len(values))
        label = f"{POLICY_LABELS.get(policy, policy)}, mean {values.mean():.4g}"
        axis.hist(values, list(edges), weights=weights, histtype="step", color=colour, label=label)
        axis.axvline(values.mean(), color=colour, lw=0.8, ls=":")
    axis.set_xlabel("steps", fontsize=8)
    axis.set_ylabel("share of episodes", fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.legend(fontsize=7, frameon=False)
    return figure


def _row_label(row: Mapping[str, Any]) -> str:
    level = level_label(row)
    parts = [part for part in (row["relevance"], level) if part]
    return row["estimator"] + (f" ({', '.join(parts)})" if parts else "")


def level_label(row: Mapping[str, Any]) -> str:
    """The level of a row of a summary, "" where it has none."""
    names = (name for name in ("alpha", "threshold") if row[name] is not None)
    return "".join(f"{name} {row[name]:g}" for name in names)


def rmse_bars(rows: Sequence[Mapping[str, Any]], title: str, most: int = 30) -> Figure:
    """RMSE of every row of a summary at its largest size, with standard errors; best marked."""
    size = max(row["size"] for row in rows)
    shown = [row for row in rows if row["size"] == size and np.isfinite(row["rmse"])]
    shown = sorted(shown, key=lambda row: row["rmse"])[:most]
    figure, (axis,) = canvas(COLUMN + 1, 0.6 + 0.2 * max(len(shown), 3))
    best = min((row["rmse"] for row in shown if row["estimator"] != "on-policy"), default=None)
    for number, row in enumerate(reversed(shown)):
        colour = GREEN if row["rmse"] == best else BLUE if row["relevance"] else GREY
        axis.barh(number, row["rmse"], xerr=row["rmse_se"], color=colour, height=0.7)
    axis.set_yticks(range(len(shown)), [_row_label(row) for row in reversed(shown)], fontsize=7)
    axis.set_xlabel("RMSE (with standard error)", fontsize=8)
    axis.set_title(f"{title}, N = {size}", fontsize=9)
    return figure


def consistency(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Mean and spread of the first estimator after omission over sizes, a line for each level.

    Raises:
      ValueError: fewer than two sizes, or no estimator after omission.
    """
    kept = [row for row in rows if row["relevance"] is not None]
    sizes = sorted({row["size"] for row in rows})
    if not kept or len(sizes) < 2:
        raise ValueError("rows: a picture over sizes needs an osiris estimator at two sizes")
    name, test = kept[0]["estimator"], kept[0]["relevance"]
    kept = [row for row in kept if (row["estimator"], row["relevance"]) == (name, test)]
    figure, (left, right) = canvas(WIDE, 2.6, columns=2)
    levels = list(dict.fromkeys(level_label(row) for row in kept))
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(levels)))
    for level, colour in zip(levels, colours, strict=True):
        same = (row for row in kept if level_label(row) == level)
        line = sorted(same, key=lambda row: row["size"])
        label = level or test
        for axis, field in ((left, "mean"), (right, "rmse")):
            values, errors = [row[field] for row in line], [row[f"{field}_se"] for row in line]
            axis.errorbar(
                sizes, values, errors, color=colour, marker="o", ms=3, lw=1, capsize=2, label=label
            )
    left.axhline(kept[0]["truth"], color="black", lw=0.8, ls="--", label="truth")
    for axis, label in ((left, f"mean of {name}"), (right, f"RMSE of {name}")):
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("trajectories N", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
    left.set_title(f"{title}: {test}", fontsize=9)
    left.legend(fontsize=6, frameon=False)
    return figure


def calibration(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
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
    gaps = sorted({(row["gap_above"], row["gap_up_to"]) for row in rows})
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(gaps)))
    figure, axes = canvas(WIDE, 2.6, columns=len(weightings))
    for axis, weighting in zip(axes, weightings, strict=True):
        for (gap, colour), (test, style) in itertools.product(
            zip(gaps, colours, strict=True), tests.items()
        ):
            line = [
                row
                for row in rows
                if (row["weighting"], row["test"]) == (weighting, test)
                and (row["gap_above"], row["gap_up_to"]) == gap
            ]
            if line:
                levels, rates, errors = (
                    [row[name] for row in line] for name in (level, "rate", "rate_se")
                )
                label = f"{test}, gap {_gap_label(gap)}"
                style_of_line = {"color": colour, "ls": style, "lw": 1, "marker": "o", "ms": 3}
                axis.errorbar(levels, rates, errors, capsize=2, label=label, **style_of_line)
        if level == "alpha":
            levels = sorted({row["alpha"] for row in rows})
            axis.plot(levels, levels, color="black", lw=0.8, ls="--", label="the level itself")
        axis.set_title(f'weighting "{weighting}"', fontsize=8)
        axis.set_xlabel(level, fontsize=8)
        axis.set_ylim(-0.03, 1.03)
    of_variant = f", {variant}" if variant else ""
    axes[0].set_ylabel(f"called relevant, N = {size}{of_variant}", fontsize=8)
    axes[-1].legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(title, fontsize=9)
    return figure


def coverage(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Coverage over the size with standard errors: a panel for each estimator, a line by method.

    The dashed line is the confidence that the intervals claim.
    """
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    palette = itertools.cycle((BLUE, ORANGE, GREEN, RED, GREY, "#CC79A7"))
    colours = dict(zip(methods, palette, strict=False))
    marks = dict(zip(methods, itertools.cycle("osD^vx"), strict=False))
    sizes = sorted({row["size"] for row in rows})
    figure, axes = canvas(max(COLUMN, 1.9 * len(estimators) + 1), 2.6, columns=len(estimators))
    lowest = min((row["coverage"] for row in rows if np.isfinite(row["coverage"])), default=0.0)
    for axis, estimator in zip(axes, estimators, strict=True):
        for method in methods:
            same = [r for r in rows if (r["estimator"], r["method"]) == (estimator, method)]
            line = sorted(same, key=lambda row: row["size"])
            x, y, error = ([row[k] for row in line] for k in ("size", "coverage", "coverage_se"))
            style = {"color": colours[method], "marker": marks[method], "ms": 3, "lw": 1}
            axis.errorbar(x, y, error, capsize=2, label=method, **style)
        axis.axhline(rows[0]["confidence"], color="black", lw=0.8, ls="--", label="claimed")
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
        axis.set_ylim(min(0.8, lowest - 0.03), 1.01)
        axis.set_title(estimator, fontsize=8)
        axis.set_xlabel("trajectories N", fontsize=8)
    axes[0].set_ylabel("share of intervals with the truth", fontsize=8)
    axes[-1].legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(title, fontsize=9)
    return figure


def _gap_label(gap: tuple[float, float]) -> str:
    above, up_to = gap
    if up_to <= 1e-6:
        return "0"
    return f"above {above:g}" if up_to == np.inf else f"to {up_to:g}"
