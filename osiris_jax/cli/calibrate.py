"""`osiris-jax calibrate`: size and power of the relevance tests, as a table and a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from osiris_jax.cli import options
from osiris_jax.cli.options import Integers, Numbers, Seed, Words, option, passed_on
from osiris_jax.cli.pages import write_results
from osiris_jax.core.faces import gap_label, level_of, markdown, rate, to_json
from osiris_jax.core.files import check_folder
from osiris_jax.core.terminal import print_table, stages

HEADER = ["test", "weighting", "variant", "N", "level", "Q gap", "tests", "called relevant"]


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """Size and power of the relevance tests against exact relevance.

    Example: osiris-jax calibrate --world waiting-room --trials 2000 --sizes 25,100
    --alphas 0.05,0.25 --out runs/calibration
    """

    world: str = options.tabular_world("waiting-room")
    trials: int = options.trials(1000)
    sizes: Integers = options.sizes()
    alphas: Numbers | None = option("Levels: 0.01,0.05,0.25.", usual="0.05")
    thresholds: Numbers | None = options.thresholds(usual="0.1,0.2,0.4")
    tests: Words = option("welch,smirnov,effect,nn-q", ("welch", "smirnov", "effect"))
    weightings: Words = option("to-go,future,none", ("to-go", "future", "none"))
    variants: Words = option("all, or of: plain,first visit,leave one out", ("all",))
    seed: Seed = options.seed()
    out: Path = options.out(Path("runs/calibration"))

    def run(self) -> None:
        """Runs, prints, writes the table and the picture."""
        from osiris_jax import plots
        from osiris_jax.study.calibration import VARIANTS, Calibration

        named = tuple("" if name == "plain" else name for name in self.variants)
        variants = tuple(VARIANTS) if self.variants == ("all",) else named
        fields: dict[str, Any] = passed_on(self, Calibration) | {"variants": variants}
        calibration = Calibration(**fields)
        check_folder(self.out)
        with stages() as progress:
            rows = calibration.run(progress)
        lines, name = [table_row(row) for row in rows], calibration.world.name
        title = f"{name}: how often a state is called relevant, by its true gap in Q"
        print_table(title, HEADER, lines, words=3)
        page = f"# {title}\n\n{markdown(HEADER, lines)}"
        texts = {"calibration.md": page, "summary.json": to_json(rows)}
        write_results(self.out, texts, {"calibration": plots.calibration(rows, name)})


def table_row(row: Mapping[str, Any]) -> list[str]:
    """A row as text, the rate in percent with its standard error."""
    words = [row["test"], row["weighting"], row["variant"], str(row["size"])]
    share, gap = rate(row["rate"], row["rate_se"]), gap_label(row["gap_above"], row["gap_up_to"])
    return [*words, f"{level_of(row):g}", gap, str(row["tests"]), share]
