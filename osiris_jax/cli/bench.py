"""`osiris-jax bench`: how fast everything is here, as tables, sentences and pictures."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from osiris_jax.cli import options
from osiris_jax.cli.options import Words, option, passed_on
from osiris_jax.core.terminal import print_table, say, stages


@dataclasses.dataclass(frozen=True)
class Bench:
    """How fast everything is on this machine, beside plain NumPy and the memory's speed.

    Compilation and steady state apart. Exit code 1 if a rival gives other numbers than ours.

    Example: osiris-jax bench --only pipeline,scaling --dtype float32 --out runs/bench
    """

    quick: bool = option("Tiny shapes: does everything run? Not for figures.", False)
    only: Words | None = option("Groups: pipeline,estimators,relevance,scaling,cores,...")
    trials: int | None = option("Data sets of the whole pipeline; default 10000.")
    dtype: str = option("float32 or float64.", "float32")
    out: Path = options.out(Path("runs/bench"))

    def run(self) -> None:
        """Runs, prints, writes `bench.md`, `bench.json` and the pictures."""
        from osiris_jax.bench import pictures, report
        from osiris_jax.bench.case import Settings
        from osiris_jax.bench.suite import run
        from osiris_jax.core.pictures import save_all

        settings = Settings(**passed_on(self, Settings))
        if self.only is not None and not self.only:
            raise ValueError("only: none given")
        with stages() as progress:
            results = run(settings, self.only, progress)
        for table in report.tables(results, report.BRIEF):
            print_table(*table)
        for line in report.findings(results):
            say("-", line)
        say("tables:", *report.write(results, self.out))
        say("pictures:", *save_all(pictures.draw(results), self.out))
        if results.disagreements:
            raise typer.Exit(1)
