"""The paper's figures by name: data, numbers, picture and what the paper says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax import plots
from osiris_jax.paper.consistency import consistency_figure
from osiris_jax.paper.figure_parts import WIDE, Drawn, FigureInputs
from osiris_jax.paper.numbers import GRIDWORLDS
from osiris_jax.paper.protocol import INDEPENDENT, Protocol
from osiris_jax.paper.relevance import all_relevance_figure, relevance_figure
from osiris_jax.paper.weights import weights_figure
from osiris_jax.study.chunks import Progress, silent
from osiris_jax.worlds import make
from osiris_jax.worlds.gridworld import CORRIDOR, GridWorld


def worlds_figure(inputs: FigureInputs) -> Drawn:
    """Figure 1: gridworlds, their policies and rewards."""
    rows = []
    for world in inputs.worlds:
        if not isinstance(world, GridWorld):
            raise ValueError(f"worlds: fig1 draws gridworlds, and {world.name!r} is none")
        corridor, actions = world.maze.is_letter(CORRIDOR), world.num_actions
        for policy, probs in (("behavior", world.behavior_probs), ("target", world.target_probs)):
            for where, states in (("corridor", corridor), ("elsewhere", ~corridor)):
                greedy = probs[np.arange(len(probs)), world.greedy][states & world.maze.reachable]
                epsilon = float((1 - greedy.max()) * actions / (actions - 1))
                row = {"world": world.name, "policy": policy, "where": where}
                rows.append(row | {"epsilon": round(epsilon, 6)})
    caption = (
        "Gridworlds: greedy actions, rewards for entering, and how often each policy is random."
    )
    return Drawn(plots.gridworld(list(inputs.worlds), width=WIDE), caption, rows, [])


class PaperFigure(NamedTuple):
    """How a figure is made, and of which worlds unless others are asked for."""

    make: Callable[[FigureInputs], Drawn]
    worlds: tuple[str, ...]
    all_worlds: tuple[str, ...]


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
    inputs = FigureInputs(made, protocol, trials, tuple(sizes or ()), seed, progress)
    return plan.make(inputs)
