"""`osiris-jax arena`: estimators compared over many worlds of known truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osiris_jax.cli import options
from osiris_jax.cli.ending import resumable
from osiris_jax.cli.options import Bytes, Integers, Levels, Words, option, passed_on
from osiris_jax.cli.pages import write_results
from osiris_jax.core.faces import Table, markdown_sections, number, percent, to_json
from osiris_jax.core.faces import with_error as valued
from osiris_jax.core.files import check_folder
from osiris_jax.core.terminal import print_table, say, stages

if TYPE_CHECKING:
    from osiris_jax.study.arena import ArenaResult
    from osiris_jax.study.regret import Standing

STANDING = ["estimator", "regret", "worst", "where", "least in", "undefined"]
WORLD = ["world", "N", "half", "kind", "signal", "least RMSE", "of", "mc"]
NOTES = (
    "Regret: RMSE over the least of the comparison set in a world at a size; the geometric mean "
    "over all of these, its standard error from the data sets.",
    "Signal: |V_e - V_b| in standard errors of the mean return of as many trajectories.",
    "A data set without an estimate counts with the value of mc; an estimator without one in over "
    "1 % of them is never the least.",
    "Where the least RMSE is rounding, below a millionth of that of mc, regret has no end: such a "
    "world and size is left out of the means.",
)


@dataclasses.dataclass(frozen=True)
class RunArena:
    """Estimators compared over many worlds of known truth. Run again, it resumes.

    More worlds or estimators in the same folder compute only what is missing.

    Example: osiris-jax arena --worlds design --sizes 25,100 --trials 1000
    --estimators all,-incris,-osiris-incris --out runs/arena
    """

    worlds: Words = option("design, report, all, or worlds: express,lift-9.", ("design",))
    sizes: Integers = options.sizes()
    trials: int = options.trials(1000)
    estimators: Words = option("all, names, or all but some: all,-incris", ("all",))
    alphas: Levels | None = option("Levels of relevance: 0.05,auto.", usual="0.05")
    seed: int = option("Seed of all data.", 0)
    out: Path = options.out(Path("runs/arena"))
    memory: Bytes | None = option("What a chunk of trials may take, such as 512M.")
    cpu_devices: int | None = option("Divide the CPU into so many devices.")

    def run(self) -> None:
        """Runs or resumes, then writes tables and pictures."""
        from osiris_jax.study.arena import Arena
        from osiris_jax.study.run import start_devices

        start_devices(**passed_on(self, start_devices))
        arena = Arena(**passed_on(self, Arena))
        check_folder(self.out)
        more = {} if self.memory is None else {"memory": self.memory}
        with resumable(self.out), stages() as progress:
            result = arena.run(out=self.out, progress=progress, **more)
        report(result, self.out)


def report(result: ArenaResult, out: Path) -> None:
    """Standings in the terminal; tables and pictures in the folder."""
    tables = [standings_table(result), worlds_table(result.rows), *kind_tables(result)]
    for table in tables[:2]:
        print_table(*table)
    for note in NOTES:
        say("-", note)
    from osiris_jax import plots  # costly, so after the tables

    figures = {
        "regret": plots.regrets(result.standings),
        "heatmap": plots.regret_map(result.rows, result.standings),
    }
    page = f"# The arena\n\n{facts(result)}\n{markdown_sections(tables)}"
    texts = {
        "arena.md": page + "\n" + "\n".join(f"- {note}" for note in NOTES) + "\n",
        "arena.tex": latex(result.standings),
        "summary.json": to_json(result.rows),
        "arena.json": to_json(made_by(result)),
    }
    write_results(out, texts, figures)


def facts(result: ArenaResult) -> str:
    """What was compared, and by which versions."""
    made = made_by(result)
    worlds = ", ".join(made["worlds"])
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    commit = f", commit {made['commit']}" if made["commit"] else ""
    return (
        f"{len(made['worlds'])} worlds, {made['trials']:,} data sets of each size, seed "
        f"{made['seed']}. {versions}{commit}.\n\nWorlds: {worlds}.\n"
    )


def made_by(result: ArenaResult) -> dict[str, Any]:
    """The plan, and the versions and the commit of what computed it."""
    from osiris_jax.core.files import commit_of_package
    from osiris_jax.study.store import versions

    arena = result.arena
    worlds = [world if isinstance(world, str) else world.name for world in arena.worlds]
    plan = {name: getattr(arena, name) for name in ("sizes", "trials", "estimators", "alphas")}
    return {
        "worlds": worlds,
        **plan,
        "seed": arena.seed,
        "versions": versions(),
        "commit": commit_of_package(),
    }


def standings_table(result: ArenaResult, title: str = "", rows: Any = None) -> Table:
    """Over all cells, the least regret first."""
    standings = result.standings if rows is None else rows
    title = title or f"Regret over {len({row['world'] for row in result.rows})} worlds"
    return Table(title, STANDING, [standing_line(standing) for standing in standings])


def standing_line(standing: Standing) -> list[str]:
    """A standing as text."""
    return [
        standing.label,
        valued(standing.regret, standing.regret_se),
        number(standing.worst, 3),
        f"{standing.worst_world}, N = {standing.worst_size}",
        f"{standing.wins} of {standing.cells}",
        percent(standing.undefined) if standing.undefined else "",
    ]


def kind_tables(result: ArenaResult) -> list[Table]:
    """The same for each kind of world alone."""
    return [
        standings_table(result, f"Regret where worlds are {kind}", standings)
        for kind, standings in result.kinds.items()
    ]


def worlds_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """For each world and size the estimator of least RMSE, and what `mc` would do."""
    lines = []
    for world, size in dict.fromkeys((row["world"], row["size"]) for row in rows):
        own = [row for row in rows if (row["world"], row["size"]) == (world, size)]
        best = next(row for row in own if row["regret"] == 1)
        baseline = next(row for row in own if row["estimator"] == "mc")
        least = valued(best["rmse"], best["rmse_se"])
        words = [world, str(size), best["half"] or "", best["kind"], number(best["signal"], 3)]
        lines.append([*words, least, best["estimator"], number(baseline["regret"], 3)])
    return Table("World by world: the least RMSE, and the regret of mc", WORLD, lines)


def latex(standings: Sequence[Standing]) -> str:
    """The standings as a LaTeX table, for the package booktabs."""
    head = ["estimator", "regret", "worst", "least in"]
    lines = [
        (standing.label, f"{standing.regret:.3g}", f"{standing.worst:.3g}", str(standing.wins))
        for standing in standings
    ]
    body = "".join(" & ".join(line).replace("_", r"\_") + r" \\" + "\n" for line in (head, *lines))
    head_line, _, rest = body.partition("\n")
    return (
        "\\begin{tabular}{lrrr}\n\\toprule\n"
        f"{head_line}\n\\midrule\n{rest}\\bottomrule\n\\end{{tabular}}\n"
    )
