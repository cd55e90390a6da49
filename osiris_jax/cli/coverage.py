"""`osiris-jax coverage`: how often intervals contain the truth, as a table and a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osiris_jax.cli import options
from osiris_jax.cli.options import Integers, Level, Seed, Words, option, passed_on
from osiris_jax.cli.pages import write_results
from osiris_jax.core.faces import level_of, markdown, rate, to_json
from osiris_jax.core.files import check_folder
from osiris_jax.core.terminal import print_table, stages

HEADER = ["estimator", "method", "N", "coverage", "mean low", "mean width", "below", "above"]
HEADER += ["undefined"]
NOTE = "Below and above: intervals that lie wholly below or above the truth.\n"


@dataclasses.dataclass(frozen=True)
class MeasureCoverage:
    """How often intervals contain the truth, over many data sets of a tabular world.

    Example: osiris-jax coverage --world dilly-dallying --trials 2000 --sizes 25,100
    --estimators is,wis,osirwis --methods percentile,bca,t --out runs/coverage
    """

    world: str = options.tabular_world("dilly-dallying")
    trials: int = options.trials(2000)
    sizes: Integers = options.sizes()
    estimators: Words = option("is,wis,osirwis", ("is", "wis", "osirwis"))
    methods: Words = option("all, or of: percentile,bca,t,bernstein,hoeffding,hcope", ("all",))
    relevance: str | None = options.relevance()
    alpha: Level | None = options.alpha()
    threshold: float | None = options.threshold()
    weighting: str | None = options.weighting()
    discount: float = options.discount(1.0)
    confidence: float = options.confidence()
    resamples: int | None = options.resamples()
    seed: Seed = options.seed()
    out: Path = options.out(Path("runs/coverage"))

    def run(self) -> None:
        """Runs, prints, writes the table and the picture."""
        from osiris_jax import plots
        from osiris_jax.inference import INTERVALS
        from osiris_jax.study.coverage import Coverage

        methods = tuple(INTERVALS) if self.methods == ("all",) else self.methods
        fields: dict[str, Any] = passed_on(self, Coverage) | {"methods": methods}
        study = Coverage(**fields)
        check_folder(self.out)
        with stages() as progress:
            rows = study.run(progress)
        lines = [table_row(row) for row in rows]
        title = f"{study.world.name}: coverage of {100 * study.confidence:g} % intervals"
        truths = dict.fromkeys(f"{row['truth']:.6g}" for row in rows)
        subtitle = f"{title}, {study.trials} data sets, truth {' and '.join(truths)}"
        print_table(subtitle, HEADER, lines, words=2)
        tables = f"{markdown(*by_size(rows))}\n{markdown(HEADER, lines)}"
        texts = {"coverage.md": f"# {subtitle}\n\n{tables}\n{NOTE}", "summary.json": to_json(rows)}
        write_results(self.out, texts, {"coverage": plots.coverage(rows, title)})


def by_size(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the coverage alone: a line for each method, a column for each size."""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    rates = {(estimator_label(row), row["method"], row["size"]): rate_of(row) for row in rows}
    pairs = dict.fromkeys(key[:2] for key in rates)
    lines = [[*pair, *(rates[*pair, size] for size in sizes)] for pair in pairs]
    return ["estimator", "method", *(f"N = {size}" for size in sizes)], lines


def rate_of(row: Mapping[str, Any]) -> str:
    """The coverage in percent with its standard error."""
    return rate(row["coverage"], row["coverage_se"])


def table_row(row: Mapping[str, Any]) -> list[str]:
    """A row as text."""
    counts = [str(row[name]) for name in ("missed_below", "missed_above", "undefined")]
    ends = [f"{row[name]:.4g}" for name in ("mean_low", "mean_width")]
    words = [estimator_label(row), row["method"], str(row["size"])]
    return [*words, rate_of(row), *ends, *counts]


def estimator_label(row: Mapping[str, Any]) -> str:
    """The estimator with its test and level, if it omits."""
    if row["relevance"] is None:
        return row["estimator"]
    return f"{row['estimator']} ({row['relevance']}, {level_of(row)})"
