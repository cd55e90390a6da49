"""`osiris-jax reproduce`: the paper's tables, as published and as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from osiris_jax.envs import make
from osiris_jax.files import Stopped, write_text
from osiris_jax.io.columns import suggest
from osiris_jax.paper import tables
from osiris_jax.paper.findings import finding_lines, findings
from osiris_jax.paper.numbers import GRIDWORLDS, TABLES
from osiris_jax.paper.protocol import PROTOCOLS, Protocol, ablation
from osiris_jax.paper.run import Result, rows, rows_together
from osiris_jax.study.plan import MOST_TRIALS
from osiris_jax.study.summary import to_json
from osiris_jax.terminal import markdown, print_table, stages

BOTH, ALL = "both", "all"
USUAL_WORLDS = (*GRIDWORLDS, "cartpole")
PUBLISHED_TRIALS, INDEPENDENT_TRIALS, NETWORK_TRIALS = 200, 10_000, 50
FITTED_TRIALS, FITTED_NETWORK_TRIALS = 1000, 20  # where a network is fitted to each data set
ABLATION_TRIALS = 1000


@dataclasses.dataclass(frozen=True)
class Request:
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


def read_request(
    target: str,
    protocol: str,
    worlds: Sequence[str] | None,
    trials: int | None,
    seed: int,
    out: Path | None,
) -> Request:
    """Checks all that can be checked before anything is computed.

    Raises:
      ValueError: names the option.
      ModuleNotFoundError: names the extra that a world needs.
    """
    if target not in TARGETS:
        raise ValueError(f"target: {target!r} is unknown; {suggest(target, list(TARGETS))}")
    if protocol not in (*PROTOCOLS, BOTH):
        known = ", ".join((*PROTOCOLS, BOTH))
        raise ValueError(f"protocol: {protocol!r} is not one of {known}")
    if trials is not None and not 2 <= trials <= MOST_TRIALS:
        raise ValueError(f"trials: expected an integer from 2 to {MOST_TRIALS}, got {trials}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed: expected an integer that is not negative, got {seed}")
    return Request(
        target,
        tuple(PROTOCOLS.values()) if protocol == BOTH else (PROTOCOLS[protocol],),
        _read_worlds(target, worlds),
        trials,
        seed,
        Path("runs") / target if out is None else out,
    )


def _read_worlds(target: str, worlds: Sequence[str] | None) -> tuple[str, ...]:
    known = WORLDS.get(target, tuple(TABLES["table1"].numbers))
    if worlds is None:
        return tuple(world for world in known if world in USUAL_WORLDS)
    chosen = known if tuple(worlds) == (ALL,) else tuple(dict.fromkeys(worlds))
    if not chosen:
        raise ValueError("worlds: none given")
    for world in chosen:
        if world not in known:
            raise ValueError(f"worlds: {target} has {', '.join(known)}, or {ALL}; got {world!r}")
    if "lunar-lander" in chosen:
        from osiris_jax.envs.lunar_lander import require_extra

        require_extra()
    return chosen


def reproduce(request: Request) -> None:
    """Computes, prints and writes the target."""
    try:
        TARGETS[request.target](request)
    except KeyboardInterrupt:
        raise Stopped(f"what is finished is in {request.out}; the same command goes on") from None


def reproduce_table(request: Request) -> None:
    """A table of the paper under each protocol, beside what is printed."""
    from osiris_jax import plots
    from osiris_jax.paper.pictures import rmse_dots

    out, table = request.out, request.target
    results = _table_results(request)
    found = [row for result in results.values() for row in result.rows]
    blocks = tables.blocks_of(found, table)
    notes = _notes(blocks, table)
    for place, result in results.items():
        notes += [f"{', '.join(place)}: {note}" for note in result.notes]
    answers = findings(found)
    for world in request.worlds:
        mine = [block for block in blocks if block.world == world]
        print_table(f"{TABLES[table].title}: {world} (* best)", *tables.upright(mine, table))
    claims = finding_lines(answers)
    print_table("What the paper finds, and what is found here", *claims, words=4)
    print("".join(f"- {note}\n" for note in notes), end="")
    page = tables.as_markdown(blocks, table, notes)
    page += f"\n## What the paper finds\n\n{markdown(*claims)}"
    page += f"\n## What the published protocol does otherwise\n\n{tables.deviations_markdown()}"
    write_text(out / f"{table}.md", page)
    write_text(out / f"{table}.tex", tables.as_latex(blocks, table))
    write_text(out / "summary.json", to_json(found))
    write_text(out / "findings.json", to_json(answer._asdict() for answer in answers))
    pictures = plots.save(rmse_dots(blocks, table), out, table)
    print("tables:", out / f"{table}.md", out / f"{table}.tex", out / "summary.json")
    print("pictures:", *pictures)


def _table_results(request: Request) -> dict[tuple[str, str], Result]:
    found = {}
    with stages() as progress:
        for name in request.worlds:
            for protocol in request.protocols:
                found[name, protocol.name] = rows(
                    make(name),
                    protocol,
                    request.target,
                    trials=request.trials_of(name, protocol),
                    seed=request.seed,
                    out=request.out / protocol.name / name,
                    progress=_labelled(progress, f"{name}, {protocol.name}"),
                )
    return found


def _labelled(progress: Any, label: str) -> Callable[[str, int, int], None]:
    def show(stage: str, done: int, total: int) -> None:
        progress(label if stage == "trials" else f"{label}: {stage}", done, total)

    return show


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
    if any(block.protocol == "published" for block in blocks):
        notes.append("no standard errors under the published protocol: its trials overlap")
    return notes


def reproduce_ablation(request: Request) -> None:
    """Table 1 from the published protocol to the definitions, one deviation after another."""
    first, *others = ablation()
    out, found, pages = request.out, [], []
    with stages() as progress:
        for name in request.worlds:
            world, by_step = make(name), {}
            for steps, trials, folder in (
                ([first], request.trials or PUBLISHED_TRIALS, first.name),
                (others, request.trials or ABLATION_TRIALS, "mended"),
            ):
                results = rows_together(
                    world,
                    steps,
                    "table1",
                    trials=trials if name in GRIDWORLDS or request.trials else NETWORK_TRIALS,
                    seed=request.seed,
                    out=out / folder / name,
                    progress=_labelled(progress, f"{name}, {folder}"),
                )
                by_step |= {step: result.rows for step, result in results.items()}
            found += [row for step in by_step.values() for row in step]
            pages.append((name, *tables.ablation_lines(by_step)))
    page = "# From the published protocol to the definitions\n\nEach step keeps those before it.\n"
    for name, header, lines in pages:
        print_table(f"{name}: each step keeps those before it", header, lines, words=2)
        page += f"\n## {name}\n\n{markdown(header, lines)}"
    page += f"\n## The deviations\n\n{tables.deviations_markdown()}"
    write_text(out / "ablation.md", page)
    write_text(out / "summary.json", to_json(found))
    print("tables:", out / "ablation.md", out / "summary.json")


TARGETS: dict[str, Callable[[Request], None]] = {
    **dict.fromkeys(TABLES, reproduce_table),
    "ablation": reproduce_ablation,
}
WORLDS = {name: tuple(table.numbers) for name, table in TABLES.items()}
