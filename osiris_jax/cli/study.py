"""`osiris-jax study`: runs a study, shows its table and draws it."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import jax

from osiris_jax.cli.ending import resumable
from osiris_jax.core.files import write_text
from osiris_jax.core.memory import read_size
from osiris_jax.core.terminal import markdown, print_table, say, stages
from osiris_jax.study import Study, StudyResult
from osiris_jax.study.run import run
from osiris_jax.study.summary import to_json

HEADER = ["estimator", "relevance", "level", "N", "mean", "bias", "std", "RMSE", "undefined"]


def read_memory(text: str | None) -> int | None:
    """Bytes of a text such as 512M or 2GB."""
    return None if text is None else read_size(text, "memory")


def make_study(toml: Path | None, given: dict[str, Any]) -> Study:
    """The study of a TOML file, of the options, or of both, options going before."""
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        if value == ():
            raise ValueError(f"{name}: none given")
    if toml is not None:
        return Study.from_toml(toml, **changes)
    if "world" not in changes:
        raise ValueError("world: missing; give --world or a TOML file")
    return Study(**changes)


def run_study(study: Study, out: Path, memory: int | None, chunk_size: int | None) -> None:
    """Runs or resumes, then writes tables and pictures."""
    with resumable(out), stages(rate=True) as progress:
        result = run(study, out=out, memory=memory, chunk_size=chunk_size, progress=progress)
    if jax.process_index() == 0:
        report(result, out)


def report(result: StudyResult, out: Path) -> None:
    """The table in the terminal, as Markdown and JSON, and the pictures."""
    study = result.study
    rows = [table_row(row) for row in result.rows]
    title = f"{study.world.name}: {study.trials} trials, truth {result.truth}"
    print_table(title, HEADER, rows, words=2)
    notes = "".join(f"- {note}\n" for note in result.notes)
    for note in result.notes:
        say("-", note)
    text = f"# {title}\n\n{markdown(HEADER, rows)}\n{notes}"
    write_text(out / "summary.md", text)
    write_text(out / "summary.json", to_json(result.rows))
    from osiris_jax import plots  # costly, so after the table

    pictures = plots.save(plots.rmse_bars(result.rows, study.world.name), out, "rmse")
    with contextlib.suppress(ValueError):
        figure = plots.consistency(result.rows, study.world.name)
        pictures += plots.save(figure, out, "consistency")
    say("tables:", out / "summary.md", out / "summary.json")
    say("pictures:", *pictures)


def table_row(row: dict[str, Any]) -> list[str]:
    """A row of the summary as text, values with their standard errors."""
    level = row["alpha"] if row["threshold"] is None else row["threshold"]
    shown = "" if level is None else f"{level:g}"
    values = [with_error(row[name], row[f"{name}_se"]) for name in ("mean", "bias", "std", "rmse")]
    undefined = str(row["nan_trials"] or "")
    return [row["estimator"], row["relevance"] or "", shown, str(row["size"]), *values, undefined]


def with_error(value: float, error: float) -> str:
    """The value and its standard error, to the digit that the error decides."""
    if not math.isfinite(value):
        return "undefined"
    if not math.isfinite(error) or error <= 0:
        return f"{value:.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f}±{error:.{digits}f}"
