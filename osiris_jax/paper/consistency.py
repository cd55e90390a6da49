"""Figures 2 and S2 of the paper: OSIRWIS over |D| and the level, under any protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from osiris_jax import plots
from osiris_jax.paper import figure_parts as parts
from osiris_jax.paper.figure_parts import Drawn, FigureInputs, Measured, claim
from osiris_jax.paper.numbers import Column
from osiris_jax.paper.protocol import INDEPENDENT, Protocol
from osiris_jax.paper.run import Reproduction
from osiris_jax.study.chunks import Progress
from osiris_jax.study.plan import ON_POLICY, TRUTH_EPISODES, Study
from osiris_jax.study.run import compute
from osiris_jax.study.summary import cell_moments, rows_of, truth_of
from osiris_jax.worlds.world import World

SIZES = (25, 50, 100, 250, 500)
SHORT_SIZES, SHORT_HORIZON = (25, 50, 100), 100
PLAYED_TRUTH_EPISODES = 2000
Rows = Sequence[Mapping[str, Any]]


def consistency_figure(inputs: FigureInputs) -> Drawn:
    """Figures 2 and S2: OSIRWIS over |D| and the level."""
    rows_by_world, claims = {}, []
    for world in inputs.worlds:
        study = consistency_study(world, inputs.trials_in(world), inputs.seed, inputs.sizes)
        progress = partial(_tell, inputs.progress, world.name)
        if inputs.protocol == INDEPENDENT:
            rows = study.run(progress=progress).rows
        else:
            rows = consistency_rows(study, inputs.protocol, progress)
        rows_by_world[world.name] = rows
        claims += consistency_claims(rows)
    caption = (
        "OSIRWIS over data sizes |D| and levels: means (dots) and standard deviations (bars) over "
        f"{inputs.trials_text()}; level 1 is ordinary WIS."
    )
    rows = [row for rows in rows_by_world.values() for row in rows]
    return Drawn(draw(rows_by_world), caption, rows, claims)


def _tell(progress: Progress, world: str, stage: str, done: int, total: int) -> None:
    progress(f"{world}: {stage}", done, total)


def consistency_study(world: Any, trials: int, seed: int = 0, sizes: Sequence[int] = ()) -> Study:
    """OSIRWIS over sizes and levels, to be run.

    Args:
      sizes: |D|; by default up to 500 in worlds of at most `SHORT_HORIZON` steps, else up to 100.
    """
    usual = SIZES if world.horizon <= SHORT_HORIZON else SHORT_SIZES
    return Study(
        world=world,
        trials=trials,
        seed=seed,
        sizes=tuple(sizes or usual),
        alphas=parts.ALPHAS,
        estimators=("osirwis", ON_POLICY),
        weighting=INDEPENDENT.weighting,
        truth_episodes=TRUTH_EPISODES if isinstance(world, World) else PLAYED_TRUTH_EPISODES,
    )


def consistency_rows(
    study: Study, protocol: Protocol, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """The rows of a study's OSIRWIS under another protocol, its errors from the true value."""
    columns = tuple(Column("osirwis", "welch", alpha) for alpha in study.levels)
    values = []
    for size in study.sizes:
        plan = Reproduction(study.world, (protocol,), columns, study.trials, size, study.seed)
        values.append(compute(plan, plan, progress=progress).values())
    truth = truth_of(study)
    moments = cell_moments(lambda: [np.concatenate(values, axis=1)], truth.value)
    osirwis = dataclasses.replace(study, estimators=("osirwis",))
    cells, world = osirwis.cells(), osirwis.world.name
    return rows_of(world, osirwis.trials, cells, moments, truth, protocol.name)


def consistency_claims(rows: Rows) -> list[dict[str, Any]]:
    """The bias of OSIRWIS falls as the data or the level grows."""
    kept = {(row["alpha"], row["size"]): row for row in rows if row["relevance"] is not None}
    alphas, sizes = (sorted({key[place] for key in kept}) for place in (0, 1))

    def bias_at(alpha: float, size: int) -> tuple[str, Measured]:
        row = kept[alpha, size]
        size_of_bias = Measured(abs(row["bias"]), row["bias_se"])
        return f"|bias| at alpha {alpha:g}, |D| {size}", size_of_bias

    pairs = [("|D|", (alpha, sizes[0]), (alpha, sizes[-1])) for alpha in alphas]
    pairs += [("alpha", (alphas[0], size), (alphas[-1], size)) for size in sizes]
    return [
        claim(rows[0]["world"], f"bias falls with {grows}", bias_at(*first), bias_at(*second))
        for grows, first, second in pairs
    ]


def draw(rows_by_world: Mapping[str, Rows]) -> Figure:
    """Means, standard deviations and the truth, a panel for each world."""
    number = len(rows_by_world)
    figure, axes = plots.canvas(parts.COLUMN if number == 1 else parts.WIDE, 2.5, columns=number)
    levels = {r["alpha"] for rows in rows_by_world.values() for r in rows if r["relevance"]}
    colours = parts.level_colours(list(levels))
    offsets = np.linspace(-0.3, 0.3, len(colours)) if len(colours) > 1 else [0.0]
    lines = [Line2D([], [], color="black", lw=0.9, label="true value")]
    for axis, (world, rows) in zip(axes, rows_by_world.items(), strict=True):
        sizes = sorted({row["size"] for row in rows})
        for (alpha, colour), offset in zip(colours.items(), offsets, strict=True):
            line = [row for row in rows if row["relevance"] and row["alpha"] == alpha]
            places = [sizes.index(row["size"]) + offset for row in line]
            means, spreads = ([row[name] for row in line] for name in ("mean", "std"))
            style = {"fmt": "o", "color": colour, "ms": 2.8, "lw": 0.9, "capsize": 1.5}
            axis.errorbar(places, means, spreads, **style)
        axis.axhline(rows[0]["truth"], color="black", lw=0.9, zorder=0)
        axis.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        axis.set_title(parts.title_of(world), fontsize=parts.TITLE)
        axis.set_xlabel("trajectories |D|", fontsize=parts.LABEL)
        on_policy = [row for row in rows if row["estimator"] == ON_POLICY]
        if on_policy:
            best = max(on_policy, key=lambda row: row["size"])
            line = axis.axhline(best["mean"], color=plots.RED, lw=0.9, ls=(0, (4, 3)))
            line.set_label("on-policy" if number == 1 else "on-policy mean")
            lines = [*lines[:1], line]
    axes[0].set_ylabel("OSIRWIS (mean \N{PLUS-MINUS SIGN} std)", fontsize=parts.LABEL)
    parts.levels_legend(figure, colours, lines)
    return figure
