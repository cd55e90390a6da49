"""Regret: how much larger an estimator's error is than the least in a world, and over worlds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.study.plan import Cell
from osiris_jax.study.summary import Truth, cell_moments, rows_of

MOST_UNDEFINED = 0.01
EXACT = 1e-6  # of the error of the baseline: an error as small is rounding
WELCH = "welch"


class Field(NamedTuple):
    """A world as far as comparisons need it.

    Attributes:
      truth: the target's value.
      behavior: the behaviour's value; None where it is not known exactly.
      spread: size -> exact standard deviation of the behaviour's mean return; empty likewise.
      half, kind: see its card.
    """

    world: Any
    trials: int
    truth: Truth
    behavior: float | None
    spread: Mapping[int, float]
    half: str | None
    kind: str


class Standing(NamedTuple):
    """How an estimator fares over all cells in which it was computed.

    Attributes:
      label: its name, with its level where that is not the usual one.
      cells: how many there are.
      regret: geometric mean over cells, and its standard error from the trials.
      worst: the largest regret, with its world and size.
      wins: cells in which its error is the least of the comparison set.
      undefined: share of data sets without an estimate.
    """

    label: str
    cells: int
    regret: float
    regret_se: float
    worst: float
    worst_world: str
    worst_size: int
    wins: int
    undefined: float


def rows_of_world(
    field: Field,
    found: Mapping[Cell, np.ndarray],
    compared: Sequence[str],
    usual_alpha: float,
    baseline: str,
) -> list[dict[str, Any]]:
    """The rows of a world, size by size.

    Args:
      found: [trial] the values of every cell.
      compared: estimators of the comparison set, those after omission at `usual_alpha`.
      baseline: the estimator whose value counts where another has none.
    """
    rows = []
    for size in dict.fromkeys(cell.size for cell in found):
        of_size = {cell: values for cell, values in found.items() if cell.size == size}
        usual = next(x for cell, x in of_size.items() if cell.estimator == baseline)
        filled = [np.where(np.isfinite(x), x, usual) for x in of_size.values()]
        cells, missing = list(of_size), [float((~np.isfinite(x)).mean()) for x in of_size.values()]
        values = np.stack(filled, 1)
        squares = (values - field.truth.value) ** 2
        in_set = [
            cell.estimator in compared and (cell.relevance is None or _is_usual(cell, usual_alpha))
            for cell in cells
        ]
        may_win = np.array(in_set) & (np.array(missing) <= MOST_UNDEFINED)
        error = squares.mean(0)
        least = int(np.argmin(np.where(may_win, error, np.inf)))
        rounding = EXACT**2 * float(((usual - field.truth.value) ** 2).mean())
        moments = cell_moments(lambda values=values: [values], field.truth.value)
        plain = rows_of(field.world.name, field.trials, cells, moments, field.truth)
        signal = _signal(field, size, usual)
        for place, row in enumerate(plain):
            distance = np.abs(values[:, place] - field.truth.value)
            row |= {
                "nan_trials": round(missing[place] * len(values)),
                "half": field.half,
                "kind": field.kind,
                "abs_error_median": float(np.median(distance)),
                "abs_error_q90": float(np.quantile(distance, 0.9)),
                "undefined": missing[place],
                "signal": signal,
                "regret": math.sqrt(_over(error[place], error[least], rounding)),
                "regret_se": _regret_error(squares[:, place], squares[:, least]),
            }
        rows += plain
    return rows


def _is_usual(cell: Cell, alpha: float) -> bool:
    return cell.alpha == alpha and cell.relevance == WELCH


def _signal(field: Field, size: int, usual: np.ndarray) -> float:
    """|V_e - V_b| in standard errors of the behaviour's mean; by simulation where not exact."""
    if field.behavior is None:
        gap, spread = float(usual.mean()) - field.truth.value, float(usual.std())
    else:
        gap, spread = field.behavior - field.truth.value, field.spread[size]
    return _over(abs(gap), spread)


def _over(x: float, least: float, rounding: float = 0.0) -> float:
    """The ratio; what is no larger than rounding is 0, and the ratio to that is 1 or has no end."""
    if least > rounding:
        return float(x / least)
    return 1.0 if x <= rounding else math.inf


def _regret_error(squares: np.ndarray, least: np.ndarray) -> float:
    """Standard error of the root of a ratio of means, both from the same data sets."""
    mean, smallest = squares.mean(), least.mean()
    if not (mean > 0 and smallest > 0):
        return 0.0
    influence = (squares / mean - least / smallest) / 2
    return float(math.sqrt(mean / smallest) * influence.std() / math.sqrt(len(squares)))


def label_of(row: Mapping[str, Any]) -> str:
    """The estimator, with its test and level where these are not the usual ones."""
    usual = row["relevance"] is None or (row["relevance"] == WELCH and row["alpha"] == 0.05)
    if usual:
        return row["estimator"]
    level = row["alpha"] if row["threshold"] is None else row["threshold"]
    how = str(row["relevance"]).removeprefix(f"{WELCH}:alpha=")
    words = [row["estimator"], how, "" if level is None else f"{level:g}"]
    return " ".join(word for word in words if word)


def _place_of(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["world"], row["size"]


def standings(rows: Sequence[Mapping[str, Any]]) -> list[Standing]:
    """Of all estimators, the least geometric mean of regret first.

    Where one is exact, the others' regret has no end: such cells are left out, if others are left.
    """
    endless = {_place_of(row) for row in rows if math.isinf(row["regret"])}
    found = []
    for label in dict.fromkeys(map(label_of, rows)):
        everywhere = [row for row in rows if label_of(row) == label]
        own = [row for row in everywhere if _place_of(row) not in endless] or everywhere
        logs = np.log([row["regret"] for row in own])
        relative = np.array([row["regret_se"] / row["regret"] for row in own])
        worst = max(own, key=lambda row: row["regret"])
        mean = float(np.exp(logs.mean()))
        found.append(
            Standing(
                label=label,
                cells=len(own),
                regret=mean,
                regret_se=mean * float(np.sqrt((relative**2).sum())) / len(own),
                worst=worst["regret"],
                worst_world=worst["world"],
                worst_size=worst["size"],
                wins=sum(row["regret"] == 1 for row in own),
                undefined=float(np.mean([row["undefined"] for row in own])),
            )
        )
    return sorted(found, key=lambda standing: standing.regret)
