"""The table of docs/choosing-alpha.md, from finished studies: RMSE at fixed and at chosen levels.

    osiris-jax study --world dilly-dallying --trials 10000 --sizes 25,50,100,250 \\
        --alphas 0,0.01,0.05,0.1,0.2,0.35,0.6,1,auto --relevance welch:weighting=none \\
        --estimators is,wis,cwpdis,phwis,incris,mis,dr,wdr,osiris,osirwis --seed 100 --out runs/dd
    python benchmarks/choosing_alpha.py runs/dd
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from osiris_jax.core.faces import markdown, with_error

OMITTING = ("osiris", "osirwis")
Row = dict[str, Any]


def rmse(row: Row) -> str:
    if row["rmse"] is None:
        return "undefined"
    undefined = f" ({row['nan_trials']} undefined)" if row["nan_trials"] else ""
    return with_error(row["rmse"], row["rmse_se"] or math.nan) + undefined


def cells(rows: list[Row]) -> Iterator[tuple[str, str]]:
    """Label and RMSE of all that is told of one size: plain, at 0.05, at the best level, chosen."""
    for row in rows:
        if row["relevance"] is None:
            yield row["estimator"], rmse(row)
    tests = dict.fromkeys(row["relevance"] for row in rows if row["alpha"] is not None)
    for test, estimator in itertools.product(tests, OMITTING):
        of_test = f", {test}" if len(tests) > 1 else ""
        same = [row for row in rows if row["estimator"] == estimator and row["relevance"]]
        fixed = [row for row in same if row["relevance"] == test and row["rmse"] is not None]
        best = min(fixed, key=lambda row: row["rmse"])
        usual = next(row for row in fixed if row["alpha"] == 0.05)
        yield f"{estimator}, alpha 0.05{of_test}", rmse(usual)
        yield f"{estimator}, best alpha{of_test}", f"{rmse(best)} at {best['alpha']:g}"
        for row in same:
            if row["relevance"].startswith(f"{test}:alpha="):
                method = row["relevance"].rsplit("=", 1)[1]
                more = 100 * (row["rmse"] / best["rmse"] - 1)
                yield f"{estimator}, {method}{of_test}", f"{rmse(row)} ({more:+.0f} %)"


def table(rows: list[Row]) -> str:
    """One column for each size, one line for each estimator."""
    sizes = sorted({row["size"] for row in rows})
    lines: dict[str, list[str]] = {}
    for size in sizes:
        for label, text in cells([row for row in rows if row["size"] == size]):
            lines.setdefault(label, []).append(text)
    header = ["RMSE", *(f"N = {size}" for size in sizes)]
    return markdown(header, [[label, *texts] for label, texts in lines.items()])


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        rows = json.loads((folder / "summary.json").read_text())
        first = rows[0]
        print(f"**{first['world']}**, {first['trials']} trials, truth {first['truth']:.4g}\n")
        print(table(rows))


if __name__ == "__main__":
    main()
