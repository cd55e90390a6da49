"""What the paper says about its figures, each claim with its numbers and a yes or no."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.paper.figure_data import WeightsAndLengths
from osiris_jax.paper.relevance_data import MeanRelevance, Measured
from osiris_jax.worlds.gridworld import CORRIDOR, GridWorld

CLEAR = 2  # standard errors


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


def of_consistency(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Figure 2: the bias of OSIRWIS falls as the data or the level grows."""
    kept = {(row["alpha"], row["size"]): row for row in rows if row["relevance"] is not None}
    alphas, sizes = (sorted({key[place] for key in kept}) for place in (0, 1))
    world = rows[0]["world"]

    def size_of_bias(alpha: float, size: int) -> Measured:
        row = kept[alpha, size]
        return Measured(abs(row["bias"]), row["bias_se"])

    def compare(text: str, first: tuple[float, int], second: tuple[float, int]) -> dict[str, Any]:
        names = [f"|bias| at alpha {alpha:g}, |D| {size}" for alpha, size in (first, second)]
        larger, smaller = size_of_bias(*first), size_of_bias(*second)
        return claim(world, text, (names[0], larger), (names[1], smaller))

    more_data, higher_level = "bias falls with |D|", "bias falls with alpha"
    return [
        *(compare(more_data, (alpha, sizes[0]), (alpha, sizes[-1])) for alpha in alphas),
        *(compare(higher_level, (alphas[0], size), (alphas[-1], size)) for size in sizes),
    ]


def weight_table(
    world: str, weights: WeightsAndLengths, alphas: Sequence[float]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Figure 3: rows of a table by level, and the claims. Errors are jackknifed over trials.

    Trajectories of weight 0 are counted and left out of logarithms.
    """
    statistics = [
        _jackknife(log_weight, length.astype(np.float64))
        for log_weight, length in zip(weights.log_weight, weights.length, strict=True)
    ]
    rows = []
    for alpha, log_weight, values in zip(alphas, weights.log_weight, statistics, strict=True):
        row = {"world": world, "alpha": alpha, "trajectories": log_weight.size}
        row["zero_weights"] = int(np.isneginf(log_weight).sum())
        for name, replicates in values.items():
            row[name], row[f"{name}_se"] = _measured(replicates)
        rows.append(row)
    low, high = int(np.argmin(alphas)), int(np.argmax(alphas))
    claims = [
        _compare_levels(world, text, name, statistics, (high, low), alphas)
        for text, name in (
            ("omission reduces the variance of weights", "log_weight_variance"),
            ("omission shortens effective lengths", "length_mean"),
            ("omission evens effective lengths", "length_variance"),
        )
    ]
    correlation = _measured(statistics[high]["correlation"])
    size = correlation._replace(value=abs(correlation.value))
    larger = (f"|correlation| at alpha {alphas[high]:g}", size)
    text = "weights correlate with effective lengths"
    claims.append(claim(world, text, larger, ("none", Measured(0.0, 0.0))))
    return rows, claims


def _compare_levels(world, text, name, statistics, places, alphas) -> dict[str, Any]:
    first, second = (statistics[place][name] for place in places)
    labels = [f"{name.replace('_', ' ')} at alpha {alphas[place]:g}" for place in places]
    larger, smaller = (labels[0], _measured(first)), (labels[1], _measured(second))
    return claim(world, text, larger, smaller, _measured(first - second))


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


def of_map(world: GridWorld, relevance: MeanRelevance) -> dict[str, Any]:
    """Figure 4: corridor states are less relevant than the others."""
    corridor, others = corridor_and_others(world)
    return claim(
        world.name,
        "corridor states are less relevant",
        ("elsewhere", relevance.pooled(others)),
        ("corridor", relevance.pooled(corridor)),
        relevance.difference(others, corridor),
    )


def corridor_and_others(world: GridWorld) -> tuple[np.ndarray, np.ndarray]:
    """[state] true in the corridor; true in all other cells."""
    corridor = world.maze.is_letter(CORRIDOR)
    return corridor, ~corridor


def of_corridors(
    express: tuple[GridWorld, MeanRelevance], dallying: tuple[GridWorld, MeanRelevance]
) -> dict[str, Any]:
    """Figure S4: Express's corridor is called relevant more often than Dilly-Dallying's."""
    shares = []
    for world, relevance in (express, dallying):
        corridor, _ = corridor_and_others(world)
        shares.append((f"corridor of {world.name}", relevance.pooled(corridor)))
    text = "the corridor is relevant more often than in dilly-dallying"
    return claim(express[0].name, text, *shares)


class Range(NamedTuple):
    """Bins whose distance from 0 is in [low, high)."""

    low: float
    high: float

    def of(self, edges: np.ndarray) -> np.ndarray:
        middle = np.abs((edges[1:] + edges[:-1]) / 2)
        return (self.low <= middle) & (middle < self.high)

    def __str__(self) -> str:
        return (
            f"{self.low:g} and more" if self.high == math.inf else f"{self.low:g} to {self.high:g}"
        )


SLOW, MIDDLING, FAST = Range(0, 0.5), Range(0.5, 1), Range(1, math.inf)
LEVEL, TILTED, FAR = Range(0, 0.1), Range(0.2, 0.5), Range(1, math.inf)
CLAIMS_BY_DIMENSION = {
    "cartpole": (
        (3, "relevance rises with |angular velocity|", MIDDLING, SLOW),
        (3, "relevance rises with |angular velocity|", FAST, MIDDLING),
        (3, "relevance rises with |angular velocity|", FAST, SLOW),
    ),
    "lunar-lander": (
        (4, "relevance is larger when tilted", TILTED, LEVEL),
        (4, "relevance falls again when rotated far", TILTED, FAR),
    ),
}


def of_dimensions(world: str, relevance: MeanRelevance, edges: np.ndarray) -> list[dict[str, Any]]:
    """Figure 4: where in CartPole and Lunar Lander states are relevant; relevance by [dim]."""
    claims = []
    for dimension, text, larger, smaller in CLAIMS_BY_DIMENSION.get(world, ()):
        of_one, groups = relevance[dimension], [x.of(edges[dimension]) for x in (larger, smaller)]
        first, second = map(of_one.pooled, groups)
        names = [
            f"mean theta at {x} ({of_one.visits[group].sum():.0f} visits)"
            for x, group in zip((larger, smaller), groups, strict=True)
        ]
        claims.append(
            claim(world, text, (names[0], first), (names[1], second), of_one.difference(*groups))
        )
    return claims
