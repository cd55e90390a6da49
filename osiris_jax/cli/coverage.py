"""`osiris-jax coverage`: how often intervals contain the truth, as a table and a picture."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from osiris_jax.core.files import check_folder, write_text
from osiris_jax.core.terminal import markdown, print_table, say, stages
from osiris_jax.study.coverage import Coverage

HEADER = [
    "estimator",
    "method",
    "N",
    "coverage",
    "mean low",
    "mean width",
    "below",
    "above",
    "undefined",
]


def coverage(study: Coverage, out: Path) -> None:
    """Runs, prints, writes the table and the picture."""
    from osiris_jax import plots

    check_folder(out)
    with stages() as progress:
        rows = study.run(progress)
    shown = [table_row(row) for row in rows]
    title = f"{study.world.name}: coverage of {100 * study.confidence:g} % intervals"
    truths = dict.fromkeys(f"{row['truth']:.6g}" for row in rows)
    subtitle = f"{title}, {study.trials} data sets, truth {' and '.join(truths)}"
    print_table(subtitle, HEADER, shown, words=2)
    note = "Below and above: intervals that lie wholly below or above the truth.\n"
    tables = f"{markdown(*by_size(rows))}\n{markdown(HEADER, shown)}"
    write_text(out / "coverage.md", f"# {subtitle}\n\n{tables}\n{note}")
    write_text(out / "summary.json", json.dumps(rows_as_json(rows), indent=2))
    pictures = plots.save(plots.coverage(rows, title), out, "coverage")
    say("tables:", out / "coverage.md", out / "summary.json")
    say("pictures:", *pictures)


def by_size(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the coverage alone: a line for each method, a column for each size."""
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    rates = {(estimator_label(row), row["method"], row["size"]): rate_of(row) for row in rows}
    lines = dict.fromkeys(key[:2] for key in rates)
    shown = [[*line, *(rates[*line, size] for size in sizes)] for line in lines]
    return ["estimator", "method", *(f"N = {size}" for size in sizes)], shown


def rate_of(row: dict[str, Any]) -> str:
    """The coverage in percent with its standard error."""
    return f"{100 * row['coverage']:.1f}±{100 * row['coverage_se']:.1f} %"


def table_row(row: dict[str, Any]) -> list[str]:
    """A row as text."""
    rate = rate_of(row)
    numbers = [str(row[name]) for name in ("missed_below", "missed_above", "undefined")]
    words = [estimator_label(row), row["method"], str(row["size"])]
    ends = [f"{row[name]:.4g}" for name in ("mean_low", "mean_width")]
    return [*words, rate, *ends, *numbers]


def estimator_label(row: dict[str, Any]) -> str:
    """The estimator with its test and level, if it omits."""
    if row["relevance"] is None:
        return row["estimator"]
    level = row["alpha"] if row["threshold"] is None else row["threshold"]
    return f"{row['estimator']} ({row['relevance']}, {level})"


def rows_as_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose numbers are all finite, or null."""

    def known(x: Any) -> Any:
        return None if isinstance(x, float) and not math.isfinite(x) else x

    return [{name: known(x) for name, x in row.items()} for row in rows]
