"""What `evaluate` returns: rows, differences, a curve over levels, and all of it as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

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
MEANINGS = {
    FINE: "nothing found against this number",
    CAREFUL: "read the reasons before using this number",
    NO_TRUST: "this log cannot support this number",
    NOT_JUDGED: "there are no weights of whole trajectories to judge",
}
MAIN_METHOD = "percentile"
ROUNDING = 1e-6
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
        known = self._asdict()
        ends = {
            f"{method}_{end}": getattr(interval, end)
            for method, interval in known.pop("intervals").items()
            for end in ("low", "high")
        }
        weights = known.pop("weights")
        of_weights = {
            name: None if weights is None else getattr(weights, field)
            for name, field in OF_WEIGHTS.items()
        }
        verdict = {"verdict": known.pop("verdict")}
        verdict["reasons"] = "; ".join(found.reason for found in known.pop("reasons"))
        return known | ends | of_weights | verdict


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
        """The headline, fixed before any result is seen: osirwis if asked for, else the first."""
        return next((row for row in self.rows if row.estimator == "osirwis"), self.rows[0])

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
        return [row_text(row) for row in self.rows]

    def difference_lines(self) -> list[list[str]]:
        """The differences as text, under `DIFFERENCE_HEADER`."""
        return [difference_text(difference) for difference in self.differences]

    def doubts(self) -> list[str]:
        """A line for each verdict that is not fine, with its reasons; alike ones share a line."""
        alike: dict[str, list[str]] = {}
        for row in self.rows:
            if row.verdict != FINE:
                text = f"{row.verdict}: {'; '.join(reasons(row))}"
                alike.setdefault(text, []).append(row.estimator)
        return [f"{', '.join(names)}: {text}" for text, names in alike.items()]

    def summary(self) -> dict[str, Any]:
        """Everything but the arrays by trajectory, of plain types; what is not finite is None."""
        curve = self.curve
        return plain(
            {
                "main": self.main.estimator,
                "rows": [row.flat() for row in self.rows],
                "compared": [row.flat() for row in self.compared],
                "differences": [difference._asdict() for difference in self.differences],
                "verdicts": {
                    name: [verdict._asdict() for verdict in found]
                    for name, found in self.verdicts.items()
                },
                "curve": None if curve is None else curve._asdict(),
                "omissions": {
                    name: {
                        "share_kept": found.share_kept,
                        "covariance": found.covariance,
                        "interval": found.interval,
                        "warnings": found.warnings(),
                    }
                    for name, found in self.omissions.items()
                },
                "support": None if self.support is None else self.support._asdict(),
                "propensities": None if self.propensities is None else self.propensities._asdict(),
                "notes": self.notes,
                "settings": dict(self.settings),
            }
        )

    def __str__(self) -> str:
        parts = [aligned(HEADER, self.lines())]
        parts += self.doubts()
        if self.differences:
            parts += ["", aligned(DIFFERENCE_HEADER, self.difference_lines())]
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])


def reasons(row: Row) -> list[str]:
    """The reasons for the verdict itself, without the milder ones."""
    return [found.reason for found in row.reasons if found.level == row.verdict]


def row_text(row: Row) -> list[str]:
    """A row as text, under `HEADER`."""
    _, (low, high) = row.interval
    cells = [row.label, number(row.value), span(low, high), number(row.standard_error, 3)]
    if row.weights is None:
        return [*cells, "-", "-", row.verdict]
    mean = with_error(row.weights.mean, row.weights.mean_error)
    return [*cells, f"{row.weights.effective_size:,.4g}", mean, row.verdict]


def difference_text(found: Difference) -> list[str]:
    """A difference as text, under `DIFFERENCE_HEADER`."""
    values = [number(x) for x in (found.value, found.compared, found.difference)]
    return [found.estimator, *values, span(found.low, found.high), found.verdict]


def number(x: float | None, digits: int = 5) -> str:
    """A number to so many digits; a dash where there is none."""
    return "-" if x is None or math.isnan(x) else f"{x:.{digits}g}"


def is_point(low: float, high: float) -> bool:
    """Whether an interval has no width but by rounding."""
    return low == high or high - low <= ROUNDING * max(abs(low), abs(high)) < math.inf


def span(low: float, high: float) -> str:
    """The two ends; a dash where they are not known, or where they are one."""
    if is_point(low, high):
        return "-"
    return "-" if math.isnan(low) or math.isnan(high) else f"{number(low)} to {number(high)}"


def aligned(header: list[str], lines: list[list[str]]) -> str:
    """A table in plain text, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]

    def line(cells: list[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])

    return "\n".join(line(cells).rstrip() for cells in (header, *lines))


def plain(x: Any) -> Any:
    """Dictionaries, lists and numbers that JSON knows."""
    if isinstance(x, Mapping):
        return {str(name): plain(value) for name, value in x.items()}
    if isinstance(x, np.ndarray | list | tuple):
        return [plain(value) for value in x]
    if isinstance(x, np.generic):
        return plain(x.item())
    return None if isinstance(x, float) and not math.isfinite(x) else x
