"""What the trials say: mean, bias, standard deviation and RMSE, each with its standard error."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from osiris_jax.core.random_streams import TRUTH_STREAM
from osiris_jax.study.plan import Cell, Study
from osiris_jax.study.store import Store
from osiris_jax.worlds.tabular import TabularWorld

if TYPE_CHECKING:
    import pandas

HEAVY_KURTOSIS, FEWEST_TRIALS = 10, 200
COLUMNS = (
    *("protocol", "world", "estimator", "relevance", "alpha", "threshold", "size"),
    *("trials", "nan_trials", "truth", "truth_se", "mean", "mean_se", "bias", "bias_se"),
    *("std", "std_se", "rmse", "rmse_se"),
)


@dataclasses.dataclass(frozen=True)
class Truth:
    """The value of the target policy and its standard error; 0 where it is exact."""

    value: float
    standard_error: float
    episodes: int

    def __str__(self) -> str:
        if not self.episodes:
            return f"{self.value:.6g} (exact)"
        return f"{self.value:.6g} +- {self.standard_error:.2g} ({self.episodes} on-policy episodes)"


def truth_of(study: Study) -> Truth:
    """Exact where the world is tabular, else from on-policy episodes that no trial uses."""
    world = study.world
    if isinstance(world, TabularWorld):
        return Truth(world.exact(study.discount).value, 0.0, 0)
    key = jax.random.fold_in(jax.random.key(study.seed), TRUTH_STREAM)
    played = world.returns(key, study.truth_episodes, policy="target", discount=study.discount)
    returns = np.asarray(played.returns, np.float64)
    error = returns.std(ddof=1) / math.sqrt(len(returns))
    return Truth(float(returns.mean()), float(error), len(returns))


class CellMoments(NamedTuple):
    """Moments of each cell's values over the trials where they are finite, [cell].

    Attributes:
      finite, undefined: numbers of trials.
      mean: of the finite values.
      second, fourth: central moments.
      error_second, error_fourth: moments about the truth.
      largest_share: of the sum of squared deviations, the share of the largest.
    """

    finite: Any
    undefined: Any
    mean: Any
    second: Any
    fourth: Any
    error_second: Any
    error_fourth: Any
    largest_share: Any


def cell_moments(parts: Any, truth: float) -> CellMoments:
    """Two passes over the chunks, so that memory does not grow with the trials.

    Args:
      parts: a function that gives the chunks' values, [trial, cell] each, anew at every call.
      truth: what errors are measured from.
    """
    count, trials, total = 0, 0, 0.0
    for values in parts():
        finite = np.isfinite(values)
        count, trials = count + finite.sum(0), trials + len(values)
        total = total + np.where(finite, values, 0).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.asarray(total / count)
        sums = [0.0] * 4
        largest = np.zeros_like(mean)
        for values in parts():
            finite = np.isfinite(values)
            spread = np.where(finite, values - mean, 0) ** 2
            error = np.where(finite, values - truth, 0) ** 2
            parts_of_sums = (spread, spread**2, error, error**2)
            sums = [old + new.sum(0) for old, new in zip(sums, parts_of_sums, strict=True)]
            largest = np.maximum(largest, spread.max(0, initial=0))
        second, fourth, error_second, error_fourth = (x / count for x in sums)
        share = np.where(second > 0, largest / (second * count), 0)
    moments = (second, fourth, error_second, error_fourth, share)
    return CellMoments(*map(np.asarray, (count, trials - count, mean, *moments)))


def rows_of(
    world: str,
    trials: int,
    cells: Sequence[Cell],
    moments: CellMoments,
    truth: Truth,
    protocol: str = "independent",
) -> list[dict[str, Any]]:
    """The rows of the summary of a world, one per cell."""
    rows = []
    for number, cell in enumerate(cells):
        m = CellMoments(*(float(moment[number]) for moment in moments))
        count = m.finite or math.nan
        std, rmse = math.sqrt(m.second), math.sqrt(m.error_second)
        mean_se = std / math.sqrt(count) if count > 1 else math.nan
        std_se = _root_error(m.second, m.fourth, count)
        rmse_se = _root_error(m.error_second, m.error_fourth, count)
        bias = m.mean - truth.value
        truth_part = truth.standard_error * abs(bias) / rmse if rmse else 0.0
        rows.append(
            {
                "protocol": protocol,
                "world": world,
                **cell._asdict(),
                "trials": trials,
                "nan_trials": int(m.undefined),
                "truth": truth.value,
                "truth_se": truth.standard_error,
                "mean": m.mean,
                "mean_se": mean_se,
                "bias": bias,
                "bias_se": math.hypot(mean_se, truth.standard_error),
                "std": std,
                "std_se": std_se,
                "rmse": rmse,
                "rmse_se": math.hypot(rmse_se, truth_part),
            }
        )
    return rows


def _root_error(square: float, fourth: float, count: float) -> float:
    """Standard error of the root of a mean of squares, by the delta method."""
    if not count > 1:
        return math.nan
    excess = fourth - square**2
    if not square > 0 or excess <= 1e-12 * fourth:
        return 0.0 * square
    return math.sqrt(excess / count) / (2 * math.sqrt(square))


@dataclasses.dataclass(frozen=True)
class StudyResult:
    """The finished trials of a study.

    Attributes:
      study: what was computed.
      truth: the target's value.
      rows: the summary as a list of dicts, see `summary`.
      notes: what a reader of the table should know.
      folder: where files are, or None.
    """

    study: Study
    truth: Truth
    rows: list[dict[str, Any]]
    notes: list[str]
    store: Store = dataclasses.field(repr=False)
    folder: Path | None = None

    def summary(self) -> pandas.DataFrame:
        """One row per estimator, test, level and size: mean, bias, std, rmse and their errors."""
        import pandas

        return pandas.DataFrame(self.rows, columns=list(COLUMNS))

    def trials(self) -> pandas.DataFrame:
        """One row per trial and cell: estimator, relevance, alpha, size, trial, value."""
        import pandas

        values = self.store.values()
        frames = []
        for number, cell in enumerate(self.study.cells()):
            fields = {"world": self.study.world.name, **cell._asdict()}
            columns = {"trial": np.arange(len(values)), "value": values[:, number]}
            frames.append(pandas.DataFrame({**fields, **columns}))
        return pandas.concat(frames, ignore_index=True)


def notes_of(study: Study, moments: CellMoments, rows: list[dict[str, Any]]) -> list[str]:
    """Undefined trials, heavy tails, and exact values beside the estimated ones."""
    notes = []
    undefined = [_label(row) + f" {row['nan_trials']}" for row in rows if row["nan_trials"]]
    if undefined:
        notes.append(f"undefined trials, left out of the moments: {_some(undefined)}")
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = moments.fourth / moments.second**2
    heavy = [
        f"{_label(row)} {tail:.0f}, {100 * share:.1f} %"
        for row, tail, share in zip(rows, kurtosis, moments.largest_share, strict=True)
        if tail > HEAVY_KURTOSIS and row["trials"] >= FEWEST_TRIALS
    ]
    if heavy:
        notes.append(
            "heavy tails (kurtosis, 3 if normal; share of the variance that one trial makes), so "
            "std and RMSE are rough and their standard errors mostly too small: " + _some(heavy)
        )
    if isinstance(study.world, TabularWorld):
        exact = study.world.exact(study.discount)
        for row in rows:
            if row["estimator"] in ("is", "pdis", "mc"):
                true = exact.moments(row["estimator"], n=row["size"])
                notes.append(
                    f"exact for {_label(row)}: mean {true.mean:.5g}, std {true.std:.5g}, "
                    f"RMSE {true.rmse:.5g}"
                )
    return notes


def _label(row: dict[str, Any]) -> str:
    parts = [row["estimator"], row["relevance"]]
    for level in ("alpha", "threshold"):
        parts += [f"{level} {row[level]:g}"] if row[level] is not None else []
    return " ".join(part for part in parts if part) + f" (N = {row['size']})"


def _some(entries: list[str], most: int = 6) -> str:
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return ", ".join(entries[:most]) + more
