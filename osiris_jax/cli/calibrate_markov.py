"""`osiris-jax calibrate-markov`: level and power of the Markov check, as tables and a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osiris_jax.cli import options
from osiris_jax.cli.options import Integers, Numbers, Seed, Words, option, passed_on
from osiris_jax.cli.pages import write_results
from osiris_jax.core.faces import Table, markdown_sections, percent, rate, to_json
from osiris_jax.core.files import check_folder
from osiris_jax.core.terminal import print_table, stages

HEADER = ["world", "Markov", "N", "level"]


@dataclasses.dataclass(frozen=True)
class CalibrateMarkov:
    """Level and power of the Markov check, where it is known whether states are Markov.

    Example: osiris-jax calibrate-markov --worlds waiting-room,first-look --sizes 25,100
    --alphas 0.05,0.25 --out runs/markov
    """

    worlds: Words = option(
        "design, report, all, or worlds: express,graph.", ("first-look", "waiting-room")
    )
    trials: int = options.trials(1000)
    sizes: Integers = options.sizes()
    alphas: Numbers = option("Levels: 0.01,0.05,0.25.", (0.05,))
    lags: Integers = option("How many steps before: 1,2,4,8.", (1, 2, 4, 8))
    discount: float | None = options.discount(usual="1.0")
    seed: Seed = options.seed()
    out: Path = options.out(Path("runs/markov"))

    def run(self) -> None:
        """Runs, prints, writes the tables and the picture."""
        from osiris_jax.study.markov_calibration import MarkovCalibration

        calibration = MarkovCalibration(**passed_on(self, MarkovCalibration))
        check_folder(self.out)
        with stages() as progress:
            rows = calibration.run(progress)
        report(rows, self.out)


def report(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """The check in the terminal; tables, also by lag, and the picture in the folder."""
    from osiris_jax import plots

    tables = [check_table(rows), *lag_tables(rows)]
    print_table(*tables[0])
    page = f"# The Markov check, calibrated\n{markdown_sections(tables)}"
    texts = {"markov.md": page, "summary.json": to_json(rows)}
    write_results(out, texts, {"markov": plots.markov_calibration(rows)})


def check_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """How often any lag is rejected after Holm, by form; data sets in which no lag is decided."""
    caption = "In how many data sets the check rejects (undecided)"
    return Table(caption, *_pivot([row for row in rows if row["lag"] is None], "form"), words=2)


def lag_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """For each form how often a lag by itself is rejected."""
    by_lag = [row for row in rows if row["lag"] is not None]
    return [
        Table(
            f"{form}: in how many data sets a lag alone rejects (undecided)",
            *_pivot([row for row in by_lag if row["form"] == form], "lag"),
            words=2,
        )
        for form in dict.fromkeys(row["form"] for row in by_lag)
    ]


def _pivot(rows: Sequence[Mapping[str, Any]], by: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table with a column for each value of a field."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        words = (row["world"], "yes" if row["markov"] else "no")
        place = (*words, str(row["size"]), f"{row['alpha']:g}")
        undecided = f" ({percent(row['undecided'])})" if row["undecided"] else ""
        lines.setdefault(place, []).append(rate(row["rate"], row["rate_se"]) + undecided)
    columns = dict.fromkeys(f"lag {row[by]}" if by == "lag" else row[by] for row in rows)
    return [*HEADER, *columns], [[*place, *cells] for place, cells in lines.items()]
