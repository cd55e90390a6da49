"""The table of docs/choosing-alpha.md, from finished studies: RMSE at fixed and at chosen levels.

    osiris-jax study --world dilly-dallying --trials 10000 --sizes 25,50,100,250 \\
        --alphas 0,0.01,0.05,0.1,0.2,0.35,0.6,1,auto --relevance welch:weighting=none \\
        --estimators is,wis,cwpdis,phwis,incris,mis,dr,wdr,osiris,osirwis --seed 100 --out runs/dd
    python benchmarks/choosing_alpha.py runs/dd
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from osiris_jax.core.faces import markdown, with_error

OMITTING = ("osiris", "osirwis")


def of_size(rows: list[dict[str, Any]], size: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["size"] == size]


def rmse(row: dict[str, Any]) -> str:
    if row["rmse"] is None:
        return "undefined"
    undefined = f" ({row['nan_trials']} undefined)" if row["nan_trials"] else ""
    return with_error(row["rmse"], row["rmse_se"] or math.nan) + undefined


def chosen(rows: list[dict[str, Any]], estimator: str, test: str) -> dict[str, dict[str, Any]]:
    """What to show of one estimator under one test: at 0.05, at the best level, and chosen."""
    same = [row for row in rows if row["estimator"] == estimator and row["relevance"]]
    fixed = [row for row in same if row["relevance"] == test and row["rmse"] is not None]
    best = min(fixed, key=lambda row: row["rmse"])
    found = {f"{estimator}, alpha 0.05": next(r for r in fixed if r["alpha"] == 0.05)}
    found[f"{estimator}, best alpha"] = best
    for row in same:
        if row["relevance"].startswith(f"{test}:alpha="):
            found[f"{estimator}, {row['relevance'].rsplit('=', 1)[1]}"] = row
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """One column for each size, one line for each estimator."""
    sizes = sorted({row["size"] for row in rows})
    tests = dict.fromkeys(r["relevance"] for r in rows if r["alpha"] is not None)
    lines: dict[str, list[str]] = {}
    for size in sizes:
        here = of_size(rows, size)
        for row in here:
            if row["relevance"] is None:
                lines.setdefault(row["estimator"], []).append(rmse(row))
        for test in tests:
            for estimator in OMITTING:
                cells = chosen(here, estimator, test)
                best = cells[f"{estimator}, best alpha"]
                for label, row in cells.items():
                    text = rmse(row)
                    if label.endswith("best alpha"):
                        text += f" at {row['alpha']:g}"
                    elif "alpha" not in label:
                        text += f" ({100 * (row['rmse'] / best['rmse'] - 1):+.0f} %)"
                    name = label if len(tests) == 1 else f"{label}, {test}"
                    lines.setdefault(name, []).append(text)
    header = ["RMSE", *(f"N = {size}" for size in sizes)]
    return markdown(header, [[name, *cells] for name, cells in lines.items()])


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        rows = json.loads((folder / "summary.json").read_text())
        first = rows[0]
        print(f"**{first['world']}**, {first['trials']} trials, truth {first['truth']:.4g}\n")
        print(table(rows))


if __name__ == "__main__":
    main()
