"""`osiris-jax calibrate`: size and power of the relevance tests, as a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from osiris_jax.core.files import check_folder, write_text
from osiris_jax.core.terminal import markdown, print_table, say, stages
from osiris_jax.study.calibration import Calibration

HEADER = ["test", "weighting", "variant", "N", "level", "Q gap", "tests", "called relevant"]


def calibrate(calibration: Calibration, out: Path) -> None:
    """Runs, prints, writes the table and the picture."""
    from osiris_jax import plots

    check_folder(out)
    with stages() as progress:
        rows = calibration.run(progress)
    shown = [table_row(row) for row in rows]
    title = f"{calibration.world.name}: how often a state is called relevant, by its true gap in Q"
    print_table(title, HEADER, shown, words=3)
    write_text(out / "calibration.md", f"# {title}\n\n{markdown(HEADER, shown)}")
    write_text(out / "summary.json", json.dumps(rows_as_json(rows), indent=2))
    pictures = plots.save(plots.calibration(rows, calibration.world.name), out, "calibration")
    say("tables:", out / "calibration.md", out / "summary.json")
    say("pictures:", *pictures)


def table_row(row: dict[str, Any]) -> list[str]:
    """A row as text, the rate in percent with its standard error."""
    rate = f"{100 * row['rate']:.1f}±{100 * row['rate_se']:.1f} %"
    words = [row["test"], row["weighting"], row["variant"]]
    level = row["alpha"] if row["threshold"] is None else row["threshold"]
    return [*words, str(row["size"]), f"{level:g}", gap_label(row), str(row["tests"]), rate]


def gap_label(row: dict[str, Any]) -> str:
    """The class of states: "0", "up to 0.1", "above 1"."""
    if row["gap_up_to"] <= 1e-6:
        return "0"
    if row["gap_up_to"] == float("inf"):
        return f"above {row['gap_above']:g}"
    return f"up to {row['gap_up_to']:g}"


def rows_as_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: None if v == float("inf") else v for k, v in row.items()} for row in rows]
