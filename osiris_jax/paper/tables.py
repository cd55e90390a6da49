"""The paper's tables beside ours, as Markdown, LaTeX and lines for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from osiris_jax.core.faces import markdown, with_error
from osiris_jax.paper.numbers import (
    ALGORITHM_1,
    GRIDWORLDS,
    STATISTICS,
    TABLES,
    Column,
    PaperTable,
    Printed,
)
from osiris_jax.paper.protocol import DEVIATIONS
from osiris_jax.study.plan import ON_POLICY

Row = Mapping[str, Any]
LABELS = {"mean": "Mean", "std": "Std", "rmse": "RMSE"}
BAD = "≠"


class Block(NamedTuple):
    """A world under a protocol: its rows, one for each column of the table."""

    world: str
    protocol: str
    rows: Sequence[Row]


def blocks_of(rows: Sequence[Row], table: str) -> list[Block]:
    """The rows of a summary, in the order of the table's columns."""
    rows_by_block = {}
    for row in rows:
        rows_by_block.setdefault((row["world"], row["protocol"]), {})[_key(row)] = row
    columns = TABLES[table].columns
    return [
        Block(world, protocol, [by_key[_key(column._asdict())] for column in columns])
        for (world, protocol), by_key in rows_by_block.items()
    ]


def _key(row: Row) -> tuple:
    return row["estimator"], row["relevance"], row["alpha"], row["threshold"]


def best_of(rows: Sequence[Row], statistic: str) -> set[int]:
    """Places of the best: mean nearest to the truth, least std, least RMSE; not on-policy."""

    def badness(row: Row) -> float:
        return abs(row["mean"] - row["truth"]) if statistic == "mean" else row[statistic]

    places = [k for k, row in enumerate(rows) if row["estimator"] != ON_POLICY]
    places = [k for k in places if math.isfinite(badness(rows[k]))]
    least = min((badness(rows[k]) for k in places), default=math.nan)
    return {k for k in places if badness(rows[k]) == least}


class Digits(NamedTuple):
    """How many printed numbers are met to their last digit, and which are not."""

    compared: int
    missed: tuple[str, ...]

    def __str__(self) -> str:
        met = self.compared - len(self.missed)
        text = f"{met} of {self.compared} published numbers to the printed digit"
        return text + (f"; not: {', '.join(self.missed)}" if self.missed else "")


def digits(block: Block, table: str, *, random: bool = False) -> Digits:
    """Compares a block with what is printed, digit by digit.

    Args:
      random: whether to compare the columns that were random in the paper, or the others.
    """
    paper, compared, missed = TABLES[table], 0, []
    for statistic in STATISTICS:
        for printed, column, row in _beside(paper, block, statistic):
            if column.is_random != random:
                continue
            compared += 1
            if not printed.is_matched_by(row[statistic]):
                ours = f"{row[statistic]:.{printed.decimals}f}"
                missed.append(f"{column_label(column)} {statistic} {ours} for {printed.text}")
    return Digits(compared, tuple(missed))


def _beside(paper: PaperTable, block: Block, statistic: str) -> list[tuple[Printed, Column, Row]]:
    printed = paper.numbers.get(block.world, {}).get(statistic, ())
    return list(zip(printed, paper.columns, block.rows, strict=True)) if printed else []


def column_label(column: Column) -> str:
    """The estimator, and its way to find relevance where that is not Algorithm 1."""
    other = column.heading not in ("", ALGORITHM_1)
    return column.estimator + (f" ({column.heading})" if other else "")


def number(value: float, error: float = math.nan) -> str:
    """To one decimal as the paper prints it, or to the first digit of the standard error."""
    return with_error(value, error, digits=1, alone="z.1f")


HEADER_WORDS = ["world", "protocol", ""]


def header_of(table: str) -> list[str]:
    """Names of the columns of `lines_of`."""
    return [*HEADER_WORDS, *(column_label(column) for column in TABLES[table].columns)]


def lines_of(blocks: Sequence[Block], table: str, bold: tuple[str, str]) -> list[list[str]]:
    """The table as text: ours by world and protocol, below it what is printed in the paper.

    Args:
      bold: what stands before and after the best number.
    """
    lines, paper = [], TABLES[table]
    for place, block in enumerate(blocks):
        for statistic in STATISTICS:
            names = [block.world, block.protocol] if statistic == "mean" else ["", ""]
            lines.append([*names, LABELS[statistic], *_our_numbers(block, table, statistic, bold)])
        last = place + 1 == len(blocks) or blocks[place + 1].world != block.world
        if last and block.world in paper.numbers:
            for statistic, row in paper.numbers[block.world].items():
                names = ["", "in the paper"] if statistic == "mean" else ["", ""]
                printed = [_marked(p.text, p.bold, bold) for p in row]
                lines.append([*names, LABELS[statistic], *printed])
    return lines


def _our_numbers(block: Block, table: str, statistic: str, bold: tuple[str, str]) -> list[str]:
    best = best_of(block.rows, statistic) if len(block.rows) > 2 else set()
    compared = {}
    if block.protocol == "published" and block.world in GRIDWORLDS:
        for place, (printed, _, row) in enumerate(_beside(TABLES[table], block, statistic)):
            compared[place] = printed.is_matched_by(row[statistic])
    texts = []
    for place, row in enumerate(block.rows):
        text = _marked(number(row[statistic], row[f"{statistic}_se"]), place in best, bold)
        texts.append(text + (BAD if compared.get(place) is False else ""))
    return texts


def upright(blocks: Sequence[Block], table: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one world's table for the terminal, a line for each estimator."""
    lines_by_column = [[column_label(column)] for column in TABLES[table].columns]
    header = ["estimator"]
    sources = [*(block.protocol for block in blocks), "in the paper"]
    lines = lines_of(blocks, table, ("*", ""))
    for source, first in zip(sources, range(0, len(lines), len(STATISTICS)), strict=False):
        for number, line in enumerate(lines[first : first + len(STATISTICS)]):
            header.append(f"{source} {line[2]}" if number == 0 else line[2])
            for column, text in zip(lines_by_column, line[3:], strict=True):
                column.append(text)
    return header, lines_by_column


def _marked(text: str, is_best: bool, bold: tuple[str, str]) -> str:
    return text.join(bold) if is_best else text


def as_markdown(blocks: Sequence[Block], table: str, notes: Sequence[str]) -> str:
    """The table and its notes as a Markdown page."""
    lines = lines_of(blocks, table, ("**", "**"))
    page = f"# {TABLES[table].title}\n\n{markdown(header_of(table), lines)}\n"
    return page + "".join(f"- {note}\n" for note in notes)


def as_latex(blocks: Sequence[Block], table: str) -> str:
    """The table for a LaTeX document that uses the package booktabs."""
    columns = TABLES[table].columns
    header = " & ".join(_latex(name) for name in header_of(table))
    text = [
        "% needs \\usepackage{booktabs}",
        "\\begin{tabular}{lll" + "r" * len(columns) + "}",
        "\\toprule",
        f"{header} \\\\",
    ]
    for line in lines_of(blocks, table, ("\\mathbf{", "}")):
        if line[0]:
            text.append("\\midrule")
        cells = [*map(_latex, line[:3]), *(_latex_number(cell) for cell in line[3:])]
        text.append(" & ".join(cells) + " \\\\")
    return "\n".join([*text, "\\bottomrule", "\\end{tabular}", ""])


def _latex(text: str) -> str:
    return text.replace("_", "\\_").replace("%", "\\%").replace("&", "\\&")


def _latex_number(text: str) -> str:
    if text == "undefined":
        return text
    return "$" + text.replace("±", " \\pm ").replace(BAD, "^{\\neq}") + "$"


def ablation_lines(by_step: Mapping[str, Sequence[Row]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines: every column of table 1 in one world, three lines for each step."""
    names = [column_label(column) for column in TABLES["table1"].columns]
    lines = []
    for step, rows in by_step.items():
        for statistic in STATISTICS:
            texts = [number(row[statistic], row[f"{statistic}_se"]) for row in rows]
            lines.append([step if statistic == "mean" else "", LABELS[statistic], *texts])
    return ["protocol", "", *names], lines


def deviations_markdown() -> str:
    """The deviations of the published protocol, a line for each."""
    return "".join(f"- `{field}`: {sentence}\n" for field, sentence in DEVIATIONS.items())
