"""The paper's tables beside ours, as Markdown, LaTeX, lines for the terminal and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from osiris_jax.core.faces import markdown, with_error
from osiris_jax.paper.numbers import (
    ALGORITHM_1,
    GRIDWORLDS,
    STATISTICS,
    TABLES,
    Column,
    Printed,
)
from osiris_jax.paper.protocol import DEVIATIONS
from osiris_jax.plots import BLUE, GREY, ORANGE, WIDE, canvas
from osiris_jax.study.plan import ON_POLICY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
LABELS = {"mean": "Mean", "std": "Std", "rmse": "RMSE"}
BAD = "≠"
STYLES = {
    "published": {"color": BLUE, "marker": "s", "label": "published protocol, here"},
    "independent": {"color": ORANGE, "marker": "o", "label": "independent trials, here"},
}
PRINTED = {"color": GREY, "marker": "|", "ls": "none", "ms": 12, "mew": 1.5}


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
    for statistic, numbers in paper.numbers.get(block.world, {}).items():
        for printed, column, row in zip(numbers, paper.columns, block.rows, strict=True):
            if column.is_random != random:
                continue
            compared += 1
            if not printed.is_matched_by(row[statistic]):
                ours = f"{row[statistic]:.{printed.decimals}f}"
                missed.append(f"{column_label(column)} {statistic} {ours} for {printed.text}")
    return Digits(compared, tuple(missed))


def column_label(column: Column) -> str:
    """The estimator, and its way to find relevance where that is not Algorithm 1."""
    other = column.heading not in ("", ALGORITHM_1)
    return column.estimator + (f" ({column.heading})" if other else "")


def number(value: float, error: float = math.nan) -> str:
    """To one decimal as the paper prints it, or to the first digit of the standard error."""
    return with_error(value, error, digits=1, alone="z.1f")


def header_of(table: str) -> list[str]:
    """Names of the columns of `lines_of`."""
    return ["world", "protocol", "", *map(column_label, TABLES[table].columns)]


def lines_of(blocks: Sequence[Block], table: str, bold: tuple[str, str]) -> list[list[str]]:
    """The table as text: ours by world and protocol, below it what is printed in the paper.

    Args:
      bold: what stands before and after the best number.
    """
    lines = []
    for place, block in enumerate(blocks):
        printed = TABLES[table].numbers.get(block.world, {})
        for statistic in STATISTICS:
            names = [block.world, block.protocol] if statistic == "mean" else ["", ""]
            texts = _our_numbers(block, printed.get(statistic, ()), statistic, bold)
            lines.append([*names, LABELS[statistic], *texts])
        if place + 1 == len(blocks) or blocks[place + 1].world != block.world:
            for statistic, row in printed.items():
                source = "in the paper" if statistic == "mean" else ""
                texts = [p.text.join(bold) if p.bold else p.text for p in row]
                lines.append(["", source, LABELS[statistic], *texts])
    return lines


def _our_numbers(
    block: Block, printed: Sequence[Printed], statistic: str, bold: tuple[str, str]
) -> list[str]:
    best = best_of(block.rows, statistic) if len(block.rows) > 2 else set()
    is_compared = block.protocol == "published" and block.world in GRIDWORLDS
    texts = []
    for place, row in enumerate(block.rows):
        text = number(row[statistic], row[f"{statistic}_se"])
        text = text.join(bold) if place in best else text
        is_missed = is_compared and not printed[place].is_matched_by(row[statistic])
        texts.append(text + BAD if is_missed else text)
    return texts


def upright(blocks: Sequence[Block], table: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one world's table for the terminal, a line for each estimator."""
    sources = [*(block.protocol for block in blocks), "in the paper"]
    lines, header = lines_of(blocks, table, ("*", "")), ["estimator"]
    for place, line in enumerate(lines):
        source, statistic = divmod(place, len(STATISTICS))
        header.append(line[2] if statistic else f"{sources[source]} {line[2]}")
    names = map(column_label, TABLES[table].columns)
    return header, [list(row) for row in zip(names, *(line[3:] for line in lines), strict=True)]


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
    lines = []
    for step, rows in by_step.items():
        for statistic in STATISTICS:
            texts = [number(row[statistic], row[f"{statistic}_se"]) for row in rows]
            lines.append([step if statistic == "mean" else "", LABELS[statistic], *texts])
    return header_of("table1")[1:], lines


def deviations_markdown() -> str:
    """The deviations of the published protocol, a line for each."""
    return "".join(f"- `{field}`: {sentence}\n" for field, sentence in DEVIATIONS.items())


def rmse_dots(blocks: Sequence[Block], table: str) -> Figure:
    """RMSE of every column, one panel for each world: printed in the paper, and ours."""
    columns, numbers = TABLES[table].columns, TABLES[table].numbers
    worlds = list(dict.fromkeys(block.world for block in blocks))
    figure, axes = canvas(WIDE, 1.0 + 0.2 * len(columns), columns=len(worlds))
    for axis, world in zip(axes, worlds, strict=True):
        printed = [float(entry.text) for entry in numbers.get(world, {}).get("rmse", ())]
        axis.plot(printed, range(len(printed)), label="in the paper", **PRINTED)
        for block in blocks:
            if block.world == world:
                _draw_block(axis, block)
        axis.set_xscale("log")
        axis.set_yticks(range(len(columns)))
        axis.set_ylim(len(columns) - 0.5, -0.5)
        axis.grid(axis="y", color="#DDDDDD", lw=0.5)
        axis.set_title(world, fontsize=9)
        axis.set_xlabel("RMSE", fontsize=8)
        _plain_ticks(axis)
    for axis in axes[1:]:
        axis.set_yticklabels([])
    axes[0].set_yticklabels([column_label(column) for column in columns], fontsize=7)
    style = {"ncols": 3, "fontsize": 7, "frameon": False, "markerscale": 0.7}
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", **style)
    return figure


def _draw_block(axis: Axes, block: Block) -> None:
    finite = {k: row for k, row in enumerate(block.rows) if math.isfinite(row["rmse"])}
    values = [row["rmse"] for row in finite.values()]
    errors = [row["rmse_se"] if math.isfinite(row["rmse_se"]) else 0.0 for row in finite.values()]
    style = {"ls": "none", "ms": 4, "elinewidth": 1, **STYLES.get(block.protocol, {})}
    axis.errorbar(values, list(finite), xerr=errors, **style)


def _plain_ticks(axis: Axes) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, written as numbers."""
    low, high = axis.get_xlim()
    steps = (1, 2, 5) if high / low < 100 else (1,)
    axis.xaxis.set_major_locator(LogLocator(subs=steps))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
