"""The paper's figures by name: data, numbers, picture and what the paper says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax import plots
from osiris_jax.paper import claims, drawing
from osiris_jax.paper.figure_data import (
    ALPHAS,
    consistency_rows,
    consistency_study,
    weights_and_lengths,
)
from osiris_jax.paper.figure_request import Drawn, FigureInputs
from osiris_jax.paper.protocol import INDEPENDENT, Protocol
from osiris_jax.paper.relevance_figures import all_relevance_figure, relevance_figure
from osiris_jax.study.chunks import Progress, silent
from osiris_jax.study.run import run
from osiris_jax.worlds import make
from osiris_jax.worlds.gridworld import GridWorld


def worlds_figure(inputs: FigureInputs) -> Drawn:
    """Figure 1: gridworlds, their policies and rewards."""
    _only_gridworlds("fig1", inputs.worlds)
    rows = []
    for world in inputs.worlds:
        for policy, probs in (("behavior", world.behavior_probs), ("target", world.target_probs)):
            for place, states in zip(
                ("corridor", "elsewhere"), claims.corridor_and_others(world), strict=True
            ):
                greedy = probs[np.arange(len(probs)), world.greedy][states & world.maze.reachable]
                actions = probs.shape[1]
                epsilon = float((1 - greedy.max()) * actions / (actions - 1))
                row = {"world": world.name, "policy": policy, "where": place}
                rows.append(row | {"epsilon": round(epsilon, 6)})
    caption = (
        "Gridworlds: greedy actions, rewards for entering, and how often each policy is random."
    )
    return Drawn(plots.gridworld(list(inputs.worlds), width=drawing.WIDE), caption, rows, [])


def consistency_figure(inputs: FigureInputs) -> Drawn:
    """Figures 2 and S2: OSIRWIS over |D| and the level."""
    rows_by_world, answers = {}, []
    for world in inputs.worlds:
        study = consistency_study(world, inputs.trials_in(world), inputs.seed, sizes=inputs.sizes)
        progress = _named(inputs.progress, world.name)
        if inputs.protocol == INDEPENDENT:
            rows = run(study, progress=progress).rows
        else:
            rows = consistency_rows(study, inputs.protocol, progress)
        rows_by_world[world.name] = rows
        answers += claims.of_consistency(rows)
    caption = (
        "OSIRWIS over data sizes |D| and levels: means (dots) and standard deviations (bars) over "
        f"{inputs.trials_text()}; level 1 is ordinary WIS."
    )
    rows = [row for rows in rows_by_world.values() for row in rows]
    return Drawn(drawing.consistency(rows_by_world), caption, rows, answers)


def weights_figure(inputs: FigureInputs) -> Drawn:
    """Figures 3 and S3: OSIRIS weights against effective lengths."""
    weights_by_world, rows, answers = {}, [], []
    for world in inputs.worlds:
        weights = weights_and_lengths(inputs.chunks(world), ALPHAS, inputs.protocol)
        weights_by_world[world.name] = weights
        table, of_world = claims.weight_table(world.name, weights, ALPHAS)
        rows += table
        answers += of_world
    figure = drawing.weights(weights_by_world, ALPHAS, inputs.seed)
    caption = (
        "OSIRIS weight against effective length, a dot for a trajectory; at most "
        f"{drawing.DOTS} of each level are shown. Boxes (quartiles; whiskers from 5 % to 95 %) are "
        f"of all trajectories of {inputs.trials_text()}; level 1 is ordinary IS."
    )
    return Drawn(figure, caption, rows, answers)


def _named(progress: Progress, world: str) -> Progress:
    return lambda stage, done, total: progress(f"{world}: {stage}", done, total)


def _only_gridworlds(name: str, worlds: Sequence[Any]) -> None:
    for world in worlds:
        if not isinstance(world, GridWorld):
            raise ValueError(f"worlds: {name} draws gridworlds, and {world.name!r} is none")


class PaperFigure(NamedTuple):
    """How a figure is made, and of which worlds unless others are asked for."""

    make: Callable[[FigureInputs], Drawn]
    worlds: tuple[str, ...]
    all_worlds: tuple[str, ...]


GRIDWORLDS = ("dilly-dallying", "express")
MAIN, EXTRA = ("dilly-dallying", "cartpole"), ("lunar-lander",)
FIGURES: Mapping[str, PaperFigure] = {
    "fig1": PaperFigure(worlds_figure, GRIDWORLDS, GRIDWORLDS),
    "fig2": PaperFigure(consistency_figure, MAIN, MAIN + EXTRA),
    "fig3": PaperFigure(weights_figure, MAIN, MAIN + EXTRA),
    "fig4": PaperFigure(relevance_figure, MAIN, MAIN + EXTRA),
    "figS2": PaperFigure(consistency_figure, ("express",), ("express",)),
    "figS3": PaperFigure(weights_figure, ("express",), ("express",)),
    "figS4": PaperFigure(
        all_relevance_figure, ("express", "cartpole"), ("express", "cartpole", *EXTRA)
    ),
}


def figure(
    name: str,
    worlds: Sequence[Any] | None = None,
    *,
    protocol: Protocol = INDEPENDENT,
    trials: int | None = None,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Drawn:
    """Makes a figure of the paper.

    Args:
      name: in `FIGURES`.
      worlds: names or worlds; by default those of the plan without extras.
      protocol: how data are drawn, and by which test states are kept.
      trials: data sets of each world; by default `TRIALS`.
      sizes: |D|; figures 3 and 4 use the first, by default the world's own.
      seed: of the data, and of the dots that are shown.
      progress: called with (stage, done, total).

    Raises:
      ValueError: names the argument.
    """
    if name not in FIGURES:
        raise ValueError(f"name: {name!r} is unknown; there are {', '.join(FIGURES)}")
    if trials is not None and trials < 2:
        raise ValueError(f"trials: expected at least 2, got {trials}")
    plan = FIGURES[name]
    chosen = plan.worlds if worlds is None else worlds
    if not chosen:
        raise ValueError("worlds: none given")
    made = [make(world) if isinstance(world, str) else world for world in chosen]
    sizes = tuple(sizes) if sizes else None
    return plan.make(FigureInputs(made, protocol, trials, sizes, seed, progress))
