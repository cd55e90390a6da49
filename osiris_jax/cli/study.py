"""`osiris-jax study`: runs a study, shows its table and draws it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osiris_jax.cli import options
from osiris_jax.cli.ending import resumable
from osiris_jax.cli.options import Bytes, Integers, Levels, Numbers, Words, option, passed_on
from osiris_jax.cli.pages import write_results
from osiris_jax.core.faces import bullets, level_of, markdown, to_json, with_error
from osiris_jax.core.terminal import print_table, say, stages

if TYPE_CHECKING:
    from osiris_jax.study import Study, StudyResult

HEADER = ["estimator", "relevance", "level", "N", "mean", "bias", "std", "RMSE", "undefined"]


@dataclasses.dataclass(frozen=True)
class RunStudy:
    """Bias, variance and RMSE of estimators over many data sets. Run again, it resumes.

    Example: osiris-jax study --world dilly-dallying --trials 10000 --sizes 25,50
    --alphas 0.05,0.1,1 --estimators is,wis,osirwis --out runs/dd
    """

    toml: Path | None = options.argument(
        "A study as a TOML file; options replace its fields.", default=None
    )
    world: str | None = option("A world, see `osiris-jax list`.")
    trials: int | None = options.trials()
    sizes: Integers | None = option("Trajectories in a data set: 25,50.")
    alphas: Levels | None = option("Levels of relevance: 0.05,0.1,1,auto.")
    thresholds: Numbers | None = options.thresholds()
    estimators: Words | None = option("is,wis,osirwis,cwpdis:finished=drop,on-policy")
    relevance: Words | None = option("welch,smirnov,welch:weighting=none,oracle,true")
    weighting: str | None = option("none, future or to-go.")
    ddof: int | None = option("1 or 0.")
    discount: float | None = options.discount()
    dtype: str | None = option("float32 or float64.")
    seed: int | None = option("Seed of all data.")
    truth_episodes: int | None = option("On-policy episodes where the truth is not exact.")
    out: Path = options.out(Path("runs/study"))
    memory: Bytes | None = option("What a chunk of trials may take, such as 512M.")
    chunk_size: int | None = option("Trials in a chunk.")
    cpu_devices: int | None = option("Divide the CPU into so many devices.")
    coordinator: str | None = option("host:port of process 0, for several processes.")
    num_processes: int | None = option("How many processes.")
    process_id: int | None = option("The number of this one.")
    distributed: bool | None = option(
        "Join the cluster's other processes; by default where one is found."
    )

    def run(self) -> None:
        """Runs or resumes, then writes tables and pictures."""
        import jax

        from osiris_jax.study.run import run, start_devices

        start_devices(**passed_on(self, start_devices))
        study = self.study()
        with resumable(self.out), stages(rate=True) as progress:
            result = run(study, progress=progress, **passed_on(self, run))
        if jax.process_index() == 0:
            report(result, self.out)

    def study(self) -> Study:
        """The study of a TOML file, of the options, or of both, options going before."""
        from osiris_jax.study import Study

        fields = passed_on(self, Study)
        for name, value in fields.items():
            if value == ():
                raise ValueError(f"{name}: none given")
        if self.toml is not None:
            return Study.from_toml(self.toml, **fields)
        if self.world is None:
            raise ValueError("world: missing; give --world or a TOML file")
        return Study(**fields)


def report(result: StudyResult, out: Path) -> None:
    """The table in the terminal, as Markdown and JSON, and the pictures."""
    study = result.study
    lines = [table_row(row) for row in result.rows]
    title = f"{study.world.name}: {study.trials} trials, truth {result.truth}"
    print_table(title, HEADER, lines, words=2)
    for note in result.notes:
        say("-", note)
    from osiris_jax import plots  # costly, so after the table

    figures = {"rmse": plots.rmse_bars(result.rows, study.world.name)}
    with contextlib.suppress(ValueError):
        figures["consistency"] = plots.consistency(result.rows, study.world.name)
    page = f"# {title}\n\n{markdown(HEADER, lines)}\n{bullets(result.notes)}"
    write_results(out, {"summary.md": page, "summary.json": to_json(result.rows)}, figures)


def table_row(row: Mapping[str, Any]) -> list[str]:
    """A row of the summary as text, values with their standard errors."""
    level = level_of(row)
    words = [row["estimator"], row["relevance"] or "", "" if level is None else f"{level:g}"]
    values = [with_error(row[name], row[f"{name}_se"]) for name in ("mean", "bias", "std", "rmse")]
    return [*words, str(row["size"]), *values, str(row["nan_trials"] or "")]
