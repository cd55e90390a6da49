"""The paper's tables, its ablation and its figures: computed, printed and written."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from osiris_jax import plots
from osiris_jax.cli.ending import resumable
from osiris_jax.cli.pages import Section, print_section, write_index
from osiris_jax.cli.reproduce import Reproduce
from osiris_jax.core.faces import Table, markdown, markdown_sections, to_json, with_error
from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import say, stages
from osiris_jax.data.columns import suggest
from osiris_jax.paper import tables
from osiris_jax.paper.figure_parts import Drawn
from osiris_jax.paper.figures import FIGURES, figure
from osiris_jax.paper.findings import finding_lines, findings
from osiris_jax.paper.numbers import GRIDWORLDS, TABLES
from osiris_jax.paper.protocol import INDEPENDENT, PROTOCOLS, PUBLISHED, Protocol, ablation
from osiris_jax.paper.run import Result, rows_together
from osiris_jax.study.checks import MOST_TRIALS, integer
from osiris_jax.worlds import make

BOTH, ALL = "both", "all"
USUAL_WORLDS = (*GRIDWORLDS, "cartpole")
PUBLISHED_TRIALS, INDEPENDENT_TRIALS, NETWORK_TRIALS = 200, 10_000, 50
FITTED_TRIALS, FITTED_NETWORK_TRIALS = 1000, 20  # where a network is fitted to each data set
ABLATION_TRIALS = 1000
OVERLAP = "Standard errors are those of independent trials; these overlap, so they are too small."
CLAIM_HEADER = ("claim", "world", "numbers", "holds")


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """What to reproduce.

    Attributes:
      target: a name in `TARGETS`.
      protocols: in the order in which they are shown.
      worlds: names.
      trials: data sets; None for each world's and protocol's usual number.
      seed: of all that is random.
      out: folder.
    """

    target: str
    protocols: tuple[Protocol, ...]
    worlds: tuple[str, ...]
    trials: int | None
    seed: int
    out: Path

    def trials_of(self, world: str, protocol: Protocol) -> int:
        """The number of data sets, asked for or usual."""
        if self.trials is not None:
            return self.trials
        fitted = self.target == "tableS1"
        if world not in GRIDWORLDS:
            return FITTED_NETWORK_TRIALS if fitted else NETWORK_TRIALS
        if protocol.seeds == "overlapping":
            return PUBLISHED_TRIALS
        return FITTED_TRIALS if fitted else INDEPENDENT_TRIALS


def checked(asked: Reproduce) -> Reproduction:
    """Checks all that can be checked before anything is computed.

    Raises:
      ValueError: names the option.
      ModuleNotFoundError: names the extra that a world needs.
    """
    target, protocol, trials = asked.target, asked.protocol, asked.trials
    if target not in (*TARGETS, ALL):
        raise ValueError(f"target: {target!r} is unknown; {suggest(target, [*TARGETS, ALL])}")
    if protocol not in (None, *PROTOCOLS, BOTH):
        choices = ", ".join((*PROTOCOLS, BOTH))
        raise ValueError(f"protocol: {protocol!r} is not one of {choices}")
    if trials is not None:
        integer("trials", trials, 2, MOST_TRIALS)
    if protocol is None:
        protocol = INDEPENDENT.name if target in FIGURES else BOTH
    return Reproduction(
        target=target,
        protocols=tuple(PROTOCOLS.values()) if protocol == BOTH else (PROTOCOLS[protocol],),
        worlds=_worlds(target, asked.worlds),
        trials=trials,
        seed=asked.seed,
        out=Path("runs") / target if asked.out is None else asked.out,
    )


def _worlds(target: str, worlds: Sequence[str] | None) -> tuple[str, ...]:
    allowed = WORLDS["table1" if target == ALL else target]
    if worlds is None:
        return tuple(world for world in allowed if world in USUAL_WORLDS)
    chosen = allowed if tuple(worlds) == (ALL,) else tuple(dict.fromkeys(worlds))
    if not chosen:
        raise ValueError("worlds: none given")
    for world in chosen:
        if world not in allowed:
            raise ValueError(f"worlds: {target} has {', '.join(allowed)}, or {ALL}; got {world!r}")
    if "lunar-lander" in chosen:
        from osiris_jax.worlds.lunar_lander import require_extra

        require_extra()
    return chosen


def reproduce(request: Reproduction) -> None:
    """Computes, prints and writes the target."""
    with resumable(request.out):
        if request.target == ALL:
            reproduce_all(request)
        else:
            for section in TARGETS[request.target](request):
                print_section(section)


def reproduce_all(request: Reproduction) -> None:
    """Every target in a folder of its own, and a page that shows them all."""
    sections: list[Section] = []
    for target in EVERYTHING:
        worlds = tuple(world for world in request.worlds if world in WORLDS[target])
        if not worlds:
            continue
        part = dataclasses.replace(request, target=target, worlds=worlds, out=request.out / target)
        if target in FIGURES and request.protocols == tuple(PROTOCOLS.values()):
            part = dataclasses.replace(part, protocols=(INDEPENDENT,))
        for section in TARGETS[target](part):
            print_section(section)
            sections.append(section)
        write_index("OSIRIS, reproduced and corrected", sections, request.out / "index.html")
    say("page:", request.out / "index.html")


def reproduce_table(request: Reproduction) -> list[Section]:
    """A table of the paper under each protocol, beside what is printed."""
    out, table = request.out, request.target
    results: dict[tuple[str, str], Result] = {}
    with stages() as tell:
        for name, protocol in itertools.product(request.worlds, request.protocols):
            trials = request.trials_of(name, protocol)
            together = _results(request, make(name), [protocol], protocol.name, trials, tell)
            results[name, protocol.name] = together[protocol.name]
    summary = [row for result in results.values() for row in result.rows]
    blocks = tables.blocks_of(summary, table)
    notes = _notes(blocks, table)
    for place, result in results.items():
        notes += [f"{', '.join(place)}: {note}" for note in result.notes]
    answers = findings(summary)
    claims = finding_lines(answers)
    page = tables.as_markdown(blocks, table, notes)
    page += f"\n## What the paper finds\n\n{markdown(*claims)}"
    page += f"\n## What the published protocol does otherwise\n\n{tables.deviations_markdown()}"
    texts = {
        f"{table}.md": page,
        f"{table}.tex": tables.as_latex(blocks, table),
        "summary.json": to_json(summary),
    }
    files = [write_text(out / name, text) for name, text in texts.items()]
    write_text(out / "findings.json", to_json(answers))
    to_print = []
    for world in request.worlds:
        mine = [block for block in blocks if block.world == world]
        to_print.append(Table(f"{world} (* best)", *tables.upright(mine, table)))
    to_print.append(Table("What the paper finds, and what is found here", *claims, words=4))
    pictures = plots.save(tables.rmse_dots(blocks, table), out, table)
    return [Section(table, TABLES[table].title, to_print, notes, pictures, files)]


def _results(
    request: Reproduction,
    world: Any,
    protocols: Sequence[Protocol],
    folder: str,
    trials: int,
    tell: Callable[[str, int, int], None],
) -> dict[str, Result]:
    """A table's columns in a world, by protocol; kept in a folder of their own."""
    label = f"{world.name}, {folder}"

    def progress(stage: str, done: int, total: int) -> None:
        tell(label if stage == "trials" else f"{label}: {stage}", done, total)

    return rows_together(
        world,
        protocols,
        request.target if request.target in TABLES else "table1",
        trials=trials,
        seed=request.seed,
        out=request.out / folder / world.name,
        progress=progress,
    )


def _notes(blocks: Sequence[tables.Block], table: str) -> list[str]:
    notes = []
    for block in blocks:
        row = block.rows[0]
        source = "mean of the on-policy trials" if block.protocol == "published" else "truth"
        error = f"±{row['truth_se']:.2g}" if row["truth_se"] > 0 else ""
        text = f"{block.world}, {block.protocol}: {row['trials']} trials of {row['size']}, "
        text += f"{source} {row['truth']:.5g}{error}"
        if block.protocol == "published" and block.world in GRIDWORLDS:
            text += f"; {tables.digits(block, table)}"
            if (random := tables.digits(block, table, random=True)).compared:
                text += f"; where the paper's own code was random, {random}"
        notes.append(text)
        undefined = [f"{r['estimator']} {r['nan_trials']}" for r in block.rows if r["nan_trials"]]
        if undefined:
            notes.append(f"{block.world}: undefined trials, left out: {', '.join(undefined)}")
    names = {block.protocol for block in blocks}
    used = [f"{PROTOCOLS[name].weighting} ({name})" for name in PROTOCOLS if name in names]
    notes.append(f"weighting of the relevance tests: {', '.join(used)}; to-go is Algorithm 1")
    if "published" in names:
        notes.append("no standard errors under the published protocol: its trials overlap")
    return notes


def reproduce_ablation(request: Reproduction) -> list[Section]:
    """Table 1 from the published protocol to the definitions, one deviation after another."""
    first, *others = ablation()
    out, summary, to_print = request.out, [], []
    with stages() as tell:
        for name in request.worlds:
            world, by_step = make(name), {}
            for steps, usual, folder in (
                ([first], PUBLISHED_TRIALS, first.name),
                (others, ABLATION_TRIALS, "mended"),
            ):
                usual = usual if name in GRIDWORLDS else NETWORK_TRIALS
                results = _results(request, world, steps, folder, request.trials or usual, tell)
                by_step |= {step: result.rows for step, result in results.items()}
            summary += [row for step in by_step.values() for row in step]
            caption = f"{name}: each step keeps those before it"
            to_print.append(Table(caption, *tables.ablation_lines(by_step), words=2))
    title = "From the published protocol to the definitions"
    page = f"# {title}\n{markdown_sections(to_print)}"
    page += f"\n## The deviations\n\n{tables.deviations_markdown()}"
    texts = {"ablation.md": page, "summary.json": to_json(summary)}
    files = [write_text(out / name, text) for name, text in texts.items()]
    return [Section("ablation", title, to_print, (), (), files)]


def reproduce_figure(request: Reproduction) -> list[Section]:
    """A figure under each protocol, written as PNG and PDF, and its numbers."""
    sections, rows, claims = [], [], []
    for protocol in request.protocols:
        with stages() as tell:
            drawn = figure(
                request.target,
                list(request.worlds),
                protocol=protocol,
                trials=request.trials,
                seed=request.seed,
                progress=lambda stage, *steps, name=f"{request.target}, {protocol.name}": tell(
                    f"{name}, {stage}", *steps
                ),
            )
        sections.append(_figure_section(request, protocol, drawn))
        rows += [{"protocol": protocol.name, **row} for row in drawn.rows]
        claims += [{"protocol": protocol.name, **claim} for claim in drawn.claims]
    write_text(request.out / "summary.json", to_json(rows))
    write_text(request.out / "findings.json", to_json(claims))
    return sections


def _figure_section(request: Reproduction, protocol: Protocol, drawn: Drawn) -> Section:
    name, out = request.target, request.out
    file_name = f"{name}-published" if protocol is PUBLISHED else name
    tables = [numbers_table(drawn.rows)] if drawn.rows else []
    claims = [claim_line(claim) for claim in drawn.claims]
    if claims:
        tables.append(Table("What the paper says of it", CLAIM_HEADER, claims, words=4))
    notes = [drawn.caption, *([OVERLAP] if protocol is PUBLISHED and claims else [])]
    title = f"Figure {name.removeprefix('fig')}, {protocol.name} protocol"
    page = f"# {title}\n\n" + "\n\n".join(notes) + "\n" + markdown_sections(tables)
    files = [write_text(out / f"{file_name}.md", page), out / "summary.json"]
    pictures = plots.save(drawn.figure, out, file_name)
    return Section(file_name, title, tables[-1:], notes, pictures, files)


def numbers_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The numbers of a figure, as they are."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    lines = [[_as_text(row.get(key)) for key in header] for row in rows]
    return Table("Numbers", header, lines, words=2)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def claim_line(claim: Mapping[str, Any]) -> list[str]:
    """A claim with its numbers and a yes or no."""
    numbers = "; ".join(
        f"{claim[side]} {with_error(claim[f'{side}_value'], claim[f'{side}_se'])}"
        for side in ("larger", "smaller")
    )
    difference = with_error(claim["difference"], claim["difference_se"])
    holds = "yes" if claim["holds"] else "no"
    return [claim["claim"], claim["world"], f"{numbers}; difference {difference}", holds]


TARGETS: dict[str, Callable[[Reproduction], list[Section]]] = {
    **dict.fromkeys(TABLES, reproduce_table),
    "ablation": reproduce_ablation,
    **dict.fromkeys(FIGURES, reproduce_figure),
}
WORLDS = {
    **{name: tuple(table.numbers) for name, table in TABLES.items()},
    "ablation": tuple(TABLES["table1"].numbers),
    **{name: plan.all_worlds for name, plan in FIGURES.items()},
}
EVERYTHING = tuple(TARGETS)
