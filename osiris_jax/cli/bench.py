"""`osiris-jax bench`: how fast everything is here, as tables, sentences and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osiris_jax.bench.case import Settings
from osiris_jax.bench.suite import Results, run
from osiris_jax.core.terminal import print_table, say, stages


def bench(settings: Settings, only: Sequence[str] | None, out: Path) -> Results:
    """Runs, prints, writes `bench.md`, `bench.json` and the pictures."""
    from osiris_jax import plots
    from osiris_jax.bench import pictures, report

    if only is not None and not only:
        raise ValueError("only: none given")
    with stages() as progress:
        results = run(settings, only, progress)
    for table in report.tables(results, report.BRIEF):
        print_table(table.caption, table.header, table.lines, words=table.words)
    for line in report.findings(results):
        say("-", line)
    say("tables:", *report.write(results, out))
    drawn = pictures.draw(results)
    saved = [path for name, figure in drawn.items() for path in plots.save(figure, out, name)]
    say("pictures:", *saved)
    return results
