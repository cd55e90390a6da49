"""What `evaluate` returns: rows, differences, a curve over levels, and all of it as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.core.faces import aligned, number, plain, span
from osiris_jax.inference import Interval
from osiris_jax.inference.diagnostics import Omission
from osiris_jax.inference.propensities import Propensities
from osiris_jax.inference.weights import (
    CAREFUL,
    FINE,
    NO_TRUST,
    Support,
    Verdict,
    Weights,
    with_error,
)

NOT_JUDGED = "not judged"
HEADLINES = ("auto", "osirwis")
MEANINGS = {
    FINE: "nothing found against this number",
    CAREFUL: "read the reasons before using this number",
    NO_TRUST: "this log cannot support this number",
    NOT_JUDGED: "there are no weights of whole trajectories to judge",
}
MAIN_METHOD = "percentile"
HEADER = ["estimator", "value", "interval", "error", "eff. size", "mean weight", "verdict"]
OF_WEIGHTS = {
    "effective_size": "effective_size",
    "largest_share": "largest_share",
    "mean_weight": "mean",
    "mean_weight_error": "mean_error",
    "tail_index": "tail_index",
    "length_correlation": "length_correlation",
}
DIFFERENCE_HEADER = ["estimator", "target", "compared", "difference", "interval", "verdict"]


class Row(NamedTuple):
    """One estimator's line.

    Attributes:
      estimator: as asked for.
      relevance: the test whose omission comes first; None without omission.
      alpha: level of the test, if it has one.
      threshold: the same for tests with a statistic.
      level_chosen: whether the level was chosen from the data.
      value: the estimate.
      standard_error: of the resamples.
      intervals: method -> (low, high).
      undefined: resamples without an estimate.
      weights: what its weights are like; None where it has none of whole trajectories.
      verdict: "fine", "careful", "do not trust" or "not judged".
      reasons: for the verdict, the gravest first.
    """

    estimator: str
    relevance: str | None
    alpha: float | None
    threshold: float | None
    level_chosen: bool
    value: float
    standard_error: float
    intervals: Mapping[str, Interval]
    undefined: int
    weights: Weights | None
    verdict: str
    reasons: tuple[Verdict, ...]

    @property
    def label(self) -> str:
        """The estimator with its test and level, if it omits."""
        level = self.alpha if self.threshold is None else self.threshold
        if self.relevance is None or level is None:
            return self.estimator
        return f"{self.estimator} ({self.relevance}, {level:g}{' auto' * self.level_chosen})"

    @property
    def interval(self) -> tuple[str, Interval]:
        """The main one and its method: percentile, or the first that there is."""
        names = [MAIN_METHOD, *self.intervals]
        name = next((name for name in names if name in self.intervals), "")
        return name, self.intervals.get(name, Interval(math.nan, math.nan))

    def flat(self) -> dict[str, Any]:
        """The row without nesting, ends as `<method>_low` and `<method>_high`."""
        nested = ("intervals", "weights", "verdict", "reasons")
        fields = {name: value for name, value in self._asdict().items() if name not in nested}
        for method, interval in self.intervals.items():
            fields |= {f"{method}_{end}": value for end, value in interval._asdict().items()}
        for name, field in OF_WEIGHTS.items():
            fields[name] = None if self.weights is None else getattr(self.weights, field)
        reasons = "; ".join(doubt.reason for doubt in self.reasons)
        return fields | {"verdict": self.verdict, "reasons": reasons}


class Difference(NamedTuple):
    """The target's value less that of the target compared, both from the same resamples.

    Attributes:
      estimator: as asked for.
      value: of the target.
      compared: of the target compared.
      difference: value - compared.
      standard_error: of the resampled differences.
      low, high: percentile interval of the difference.
      undefined: resamples without a difference.
      verdict: the graver of the two.
    """

    estimator: str
    value: float
    compared: float
    difference: float
    standard_error: float
    low: float
    high: float
    undefined: int
    verdict: str


class Curve(NamedTuple):
    """The estimate against the level of relevance.

    Attributes:
      estimator: whose.
      parameter: "alpha" or "threshold".
      levels: [level] from the one that keeps least.
      values: [level] estimates.
      share_kept: [level] of all ratios, those kept.
      used: the level of the table.
      automatic: the level that `choose_level` chooses; None where it cannot.
    """

    estimator: str
    parameter: str
    levels: np.ndarray
    values: np.ndarray
    share_kept: np.ndarray
    used: float
    automatic: float | None


class States(NamedTuple):
    """What the test found of every state: evidence, number of visits, whether its ratio is kept."""

    parameter: str
    evidence: np.ndarray
    visits: np.ndarray
    kept: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Estimates with intervals, and how far to trust them.

    Attributes:
      rows: a line for each estimator.
      compared: the same lines for the target compared with; empty without.
      differences: a line for each estimator; empty without a comparison.
      curve: the main estimator against its level; None if it does not omit.
      omissions: estimator -> what its omission does.
      states: relevance of states; None where it is not decided by state.
      support: actions of the target that the behaviour never takes; None where unknown.
      propensities: whether they fit the log; None for a log without ratios.
      log_weights: [traj] with all ratios.
      lengths: [traj] steps.
      settings: all that is needed to repeat it.
      notes: what a reader should know.
    """

    rows: tuple[Row, ...]
    compared: tuple[Row, ...]
    differences: tuple[Difference, ...]
    curve: Curve | None
    omissions: Mapping[str, Omission]
    states: States | None
    support: Support | None
    propensities: Propensities | None
    log_weights: np.ndarray
    lengths: np.ndarray
    settings: Mapping[str, Any]
    notes: tuple[str, ...]

    def __getitem__(self, estimator: str) -> Row:
        for row in self.rows:
            if row.estimator == estimator:
                return row
        there = ", ".join(row.estimator for row in self.rows)
        raise KeyError(f"{estimator}: not evaluated; there are {there}")

    @property
    def main(self) -> Row:
        """The headline, fixed before any result is seen: auto, else osirwis, else the first."""
        by_name = {row.estimator: row for row in self.rows}
        return next((by_name[name] for name in HEADLINES if name in by_name), self.rows[0])

    @property
    def verdicts(self) -> dict[str, tuple[Verdict, ...]]:
        """Estimator -> reasons for trust and doubt, the gravest first."""
        return {row.estimator: row.reasons for row in self.rows}

    def table(self) -> Any:
        """The rows as a DataFrame, one line for each estimator."""
        import pandas as pd

        return pd.DataFrame([row.flat() for row in self.rows])

    def lines(self) -> list[list[str]]:
        """The rows as text, under `HEADER`."""
        lines = []
        for row in self.rows:
            _, (low, high) = row.interval
            size, mean = "-", "-"
            if row.weights is not None:
                size = f"{row.weights.effective_size:,.4g}"
                mean = with_error(row.weights.mean, row.weights.mean_error)
            cells = [row.label, number(row.value), span(low, high), number(row.standard_error, 3)]
            lines.append([*cells, size, mean, row.verdict])
        return lines

    def difference_lines(self) -> list[list[str]]:
        """The differences as text, under `DIFFERENCE_HEADER`."""
        lines = []
        for of in self.differences:
            values = [number(x) for x in (of.value, of.compared, of.difference)]
            lines.append([of.estimator, *values, span(of.low, of.high), of.verdict])
        return lines

    def doubts(self) -> list[str]:
        """A line for each verdict that is not fine, with its reasons; alike ones share a line."""
        alike: dict[str, list[str]] = {}
        for row in self.rows:
            if row.verdict != FINE:
                reasons = [doubt.reason for doubt in row.reasons if doubt.level == row.verdict]
                text = f"{row.verdict}: {'; '.join(reasons)}"
                alike.setdefault(text, []).append(row.estimator)
        return [f"{', '.join(names)}: {text}" for text, names in alike.items()]

    def summary(self) -> dict[str, Any]:
        """Everything but the arrays by trajectory, of plain types; what is not finite is None."""
        return plain(
            {
                "main": self.main.estimator,
                "rows": [row.flat() for row in self.rows],
                "compared": [row.flat() for row in self.compared],
                "differences": self.differences,
                "verdicts": self.verdicts,
                "curve": self.curve,
                "omissions": {
                    name: {
                        "share_kept": omission.share_kept,
                        "covariance": omission.covariance,
                        "interval": [*omission.interval],
                        "warnings": omission.warnings(),
                    }
                    for name, omission in self.omissions.items()
                },
                "support": self.support,
                "propensities": self.propensities,
                "notes": self.notes,
                "settings": self.settings,
            }
        )

    def __str__(self) -> str:
        parts = [aligned(HEADER, self.lines())]
        parts += self.doubts()
        if self.differences:
            parts += ["", aligned(DIFFERENCE_HEADER, self.difference_lines())]
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])
