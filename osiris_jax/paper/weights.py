"""Figures 3 and S3 of the paper: OSIRIS weights against effective lengths."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.pictures import tidy
from osiris_jax.paper import figure_parts as parts
from osiris_jax.paper.figure_parts import Drawn, FigureInputs, Measured, claim
from osiris_jax.paper.kernel import keep_map
from osiris_jax.paper.protocol import Protocol
from osiris_jax.pipeline import compose
from osiris_jax.relevance.omission import keep_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.gridspec import SubplotSpec

DOTS = 400
CLAIMS = {
    "log_weight_variance": "omission reduces the variance of weights",
    "length_mean": "omission shortens effective lengths",
    "length_variance": "omission evens effective lengths",
}


def weights_figure(inputs: FigureInputs) -> Drawn:
    """Figures 3 and S3: OSIRIS weights against effective lengths."""
    weights_by_world, rows, claims = {}, [], []
    for world in inputs.worlds:
        weights = weights_and_lengths(inputs.chunks(world), parts.ALPHAS, inputs.protocol)
        weights_by_world[world.name] = weights
        table, of_world = weight_table(world.name, weights, parts.ALPHAS)
        rows += table
        claims += of_world
    caption = (
        "OSIRIS weight against effective length, a dot for a trajectory; at most "
        f"{DOTS} of each level are shown. Boxes (quartiles; whiskers from 5 % to 95 %) are "
        f"of all trajectories of {inputs.trials_text()}; level 1 is ordinary IS."
    )
    return Drawn(draw(weights_by_world, parts.ALPHAS, inputs.seed), caption, rows, claims)


class WeightsAndLengths(NamedTuple):
    """OSIRIS weights and what is left of each trajectory, at every level.

    Attributes:
      log_weight: [alpha, trial, traj] log of the product of the kept ratios.
      length: [alpha, trial, traj] effective length, the sum of theta(s_t).
    """

    log_weight: np.ndarray
    length: np.ndarray


def weights_and_lengths(
    batches: Iterable[TrajectoryBatch], alphas: Sequence[float], protocol: Protocol
) -> WeightsAndLengths:
    """OSIRIS weights and effective lengths of all trajectories in chunks [trial, traj, time]."""
    chunks = [_weights(batch, jnp.asarray(alphas, batch.dtype), protocol) for batch in batches]
    log_weight, length = (np.concatenate(x, axis=1) for x in zip(*chunks, strict=True))
    return WeightsAndLengths(log_weight.astype(np.float64), length)


@partial(jax.jit, static_argnames="protocol")
def _weights(
    batches: TrajectoryBatch, alphas: Float[Array, " alpha"], protocol: Protocol
) -> tuple[Array, Array]:
    """[alpha, trial, traj] log-weights and effective lengths."""

    def at_level(batch: TrajectoryBatch, alpha: Float[Array, ""]) -> tuple[Array, Array]:
        kept = keep_steps(keep_map(protocol, batch, alpha), batch)
        return compose.kept_weights(batch, kept), masked.lengths(kept & batch.mask)

    at_levels = jax.vmap(at_level, (None, 0))
    return jax.vmap(at_levels, (0, None), out_axes=1)(batches, alphas)


def weight_table(
    world: str, weights: WeightsAndLengths, alphas: Sequence[float]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of a table by level, and the claims. Errors are jackknifed over trials.

    Trajectories of weight 0 are counted and left out of logarithms.
    """
    rows, statistics = [], []
    for alpha, log_weight, length in zip(alphas, *weights, strict=True):
        replicates = _jackknife(log_weight, length.astype(np.float64))
        row = {"world": world, "alpha": alpha, "trajectories": log_weight.size}
        row["zero_weights"] = int(np.isneginf(log_weight).sum())
        for name, values in replicates.items():
            row[name], row[f"{name}_se"] = _measured(values)
        rows.append(row)
        statistics.append(replicates)
    low, high = int(np.argmin(alphas)), int(np.argmax(alphas))
    claims = []
    for name, text in CLAIMS.items():
        label = f"{name.replace('_', ' ')} at alpha"
        larger, smaller = (
            (f"{label} {alphas[place]:g}", _measured(statistics[place][name]))
            for place in (high, low)
        )
        difference = _measured(statistics[high][name] - statistics[low][name])
        claims.append(claim(world, text, larger, smaller, difference))
    value, error = _measured(statistics[high]["correlation"])
    larger = (f"|correlation| at alpha {alphas[high]:g}", Measured(abs(value), error))
    text = "weights correlate with effective lengths"
    claims.append(claim(world, text, larger, ("none", Measured(0.0, 0.0))))
    return rows, claims


def _jackknife(log_weight: np.ndarray, length: np.ndarray) -> dict[str, np.ndarray]:
    """[1 + trial] statistics of all trajectories, then without each trial in turn."""
    finite = np.isfinite(log_weight)
    centre = (np.mean(x[finite]) if finite.any() else 0.0 for x in (log_weight, length))
    x, y = (np.where(finite, z - c, 0) for z, c in zip((log_weight, length), centre, strict=True))
    length_centre = length.mean()
    z = length - length_centre
    columns = (finite, x, y, x * x, y * y, x * y, np.ones_like(z), z, z * z)
    by_trial = np.stack([column.sum(1) for column in columns]).astype(np.float64)
    total = by_trial.sum(1, keepdims=True)
    sums = np.concatenate([total, total - by_trial], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_x, mean_y, xx, yy, xy = sums[1:6] / sums[0]
        mean_z, zz = sums[7:] / sums[6]
        variance_x, variance_y = xx - mean_x**2, yy - mean_y**2
        spread = np.sqrt(np.maximum(variance_x, 0) * np.maximum(variance_y, 0))
        correlation = (xy - mean_x * mean_y) / np.where(spread > 0, spread, np.nan)
    return {
        "correlation": correlation,
        "log_weight_variance": variance_x,
        "length_mean": length_centre + mean_z,
        "length_variance": zz - mean_z**2,
    }


def _measured(replicates: np.ndarray) -> Measured:
    value, without = replicates[0], replicates[1:]
    number = len(without)
    error = math.sqrt((number - 1) / number * ((without - without.mean()) ** 2).sum())
    return Measured(float(value), error if number > 1 else math.nan)


def draw(
    weights_by_world: Mapping[str, WeightsAndLengths], alphas: Sequence[float], seed: int
) -> Figure:
    """Weights against lengths: `DOTS` of each level by the seed; in the margins, boxes of all."""
    number = len(weights_by_world)
    width = parts.COLUMN if number == 1 else parts.WIDE
    figure = Figure(figsize=(width, 3.0), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.0, hspace=0.0)  # pyright: ignore
    grid = figure.add_gridspec(1, number)
    colours = parts.level_colours(alphas)
    for place, (world, weights) in enumerate(weights_by_world.items()):
        scatter, top = _draw_world(figure, grid[0, place], weights, colours, seed)
        top.set_title(parts.title_of(world), fontsize=parts.TITLE)
        scatter.set_xlabel("effective length (steps)", fontsize=parts.LABEL)
        if not place:
            scatter.set_ylabel("OSIRIS weight", fontsize=parts.LABEL)
    parts.levels_legend(figure, colours)
    return figure


def _draw_world(
    figure: Figure, place: SubplotSpec, weights: WeightsAndLengths, colours: Mapping, seed: int
) -> tuple[Axes, Axes]:
    """The dots, and above and beside them boxes: quartiles, whiskers from 5 % to 95 %."""
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
        thin = {"color": colour, "linewidth": 0.9}
        style: dict[str, Any] = {
            "positions": [rank],
            "widths": 0.65,
            "whis": (5, 95),
            "showfliers": False,
            "patch_artist": True,
            "manage_ticks": False,
            "boxprops": {"facecolor": colour, "edgecolor": colour, "alpha": 0.6, "linewidth": 0.8},
            "medianprops": {"color": "black", "linewidth": 1.0},
            "whiskerprops": thin,
            "capprops": thin,
        }
        top.boxplot(x, orientation="horizontal", **style)
        right.boxplot(y, orientation="vertical", **style)
    scatter.set_rasterization_zorder(0)
    scatter.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    scatter.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"$10^{{{power:.0f}}}$"))
    scatter.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    for axis in (scatter, top, right):
        tidy(axis)
    for axis in (top, right):
        axis.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        axis.spines[["left", "bottom"]].set_visible(False)
    return scatter, top


def subsample(number: int, most: int, seed: int) -> np.ndarray:
    """Which of so many things are drawn: all, or `most` of them chosen by the seed."""
    if number <= most:
        return np.arange(number)
    return np.sort(np.random.default_rng(seed).choice(number, most, replace=False))
