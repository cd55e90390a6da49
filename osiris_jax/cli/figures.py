"""The paper's figures for `osiris-jax reproduce`: pictures, numbers, and claims about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from osiris_jax import plots
from osiris_jax.cli.pages import Section
from osiris_jax.core.faces import Table, markdown_sections, to_json, with_error
from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import stages
from osiris_jax.paper.figure_parts import Drawn
from osiris_jax.paper.figures import figure
from osiris_jax.paper.protocol import PUBLISHED, Protocol

if TYPE_CHECKING:
    from osiris_jax.cli.reproduction import Reproduction

OVERLAP = "Standard errors are those of independent trials; these overlap, so they are too small."
CLAIM_HEADER = ("claim", "world", "numbers", "holds")


def reproduce_figure(request: Reproduction) -> list[Section]:
    """A figure under each protocol, written as PNG and PDF, and its numbers."""
    sections, rows, claims = [], [], []
    for protocol in request.protocols:
        drawn = _draw(request, protocol)
        sections.append(_write(request, protocol, drawn))
        rows += [{"protocol": protocol.name, **row} for row in drawn.rows]
        claims += [{"protocol": protocol.name, **claim} for claim in drawn.claims]
    write_text(request.out / "summary.json", to_json(rows))
    write_text(request.out / "findings.json", to_json(claims))
    return sections


def _draw(request: Reproduction, protocol: Protocol) -> Drawn:
    with stages() as progress:
        return figure(
            request.target,
            list(request.worlds),
            protocol=protocol,
            trials=request.trials,
            seed=request.seed,
            progress=lambda stage, done, total: progress(
                f"{request.target}, {protocol.name}, {stage}", done, total
            ),
        )


def _write(request: Reproduction, protocol: Protocol, drawn: Drawn) -> Section:
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
