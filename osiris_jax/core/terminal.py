"""Progress bars, lines and tables for the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box, progress
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from osiris_jax.core.text import encodable, printable

PLAIN_WIDTH = 110


@contextmanager
def stages(shown: bool = True, rate: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A function `(stage, done, total)` that shows a bar for each stage, on standard error."""
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        *((progress.TextColumn("{task.fields[rate]}"),) if rate else ()),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    bars = progress.Progress(*columns, console=Console(stderr=True), disable=not shown)
    tasks = {}

    def show(stage: str, done: int, total: int) -> None:
        bars.start()
        if stage not in tasks:
            tasks[stage] = bars.add_task(stage, total=total, completed=done, rate="")
        task = bars.tasks[tasks[stage]]
        speed = f"{task.speed:.3g}/s" if task.speed else ""
        bars.update(tasks[stage], completed=done, total=total, rate=speed)

    try:
        yield show
    finally:
        if tasks:
            bars.stop()


def say(*words: Any) -> None:
    """A line on standard output, harmless and in characters that it can carry."""
    print(_encodable(" ".join(map(str, words))), flush=True)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> None:
    """The table on standard output, the first `words` columns to the left, numbers to the right.

    Where it is too wide, it is shown in parts that each begin with the first column: words are
    not broken.
    """
    plain = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if plain else PLAIN_WIDTH)
    lines = [[_encodable(cell) for cell in line] for line in (header, *rows)]
    for number, part in enumerate(_parts(lines, words, console.width)):
        table = RichTable(
            title=escape(_encodable(title)) if not number else None,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for column, width in part.items():
            side = "left" if column < words else "right"
            name = escape(lines[0][column])
            table.add_column(name, justify=side, overflow="fold", width=width)
        for line in lines[1:]:
            table.add_row(*(escape(line[column]) for column in part))
        console.print(table)


def _encodable(text: str) -> str:
    return encodable(printable(text), sys.stdout.encoding)


def _parts(lines: Sequence[Sequence[str]], words: int, width: int) -> Iterator[dict[int, int]]:
    """Columns side by side, each with its width, so that no word is broken.

    Numbers stay whole too, unless the table fits into one part only if they are divided between
    their words.
    """
    columns = range(len(lines[0]))
    cells = [[line[column] for line in lines] for column in columns]
    least = {column: _least_width(cells[column], column < words) for column in columns}
    narrow = {column: _least_width(cells[column], True) for column in columns}
    if _total(least) > width >= _total(narrow):
        least = narrow
    part: dict[int, int] = {}
    for column in columns:
        if len(part) > 1 and _total({**part, column: least[column]}) > width:
            yield _widened(part, cells, width)
            part = {0: least[0]}
        part[column] = least[column]
    yield _widened(part, cells, width)


def _total(widths: Mapping[int, int]) -> int:
    """What the table takes: each column has a space and a line beside it."""
    return sum(widths.values()) + 2 * len(widths) + 1


def _least_width(cells: Sequence[str], of_words: bool) -> int:
    """Of a column: its longest word; of one with numbers, its longest number with all its words."""
    header, *others = cells
    wholes = [word for cell in others for word in (cell.split() if of_words else [cell])]
    return max(map(cell_len, [*header.split(), *wholes, " "]))


def _widened(part: dict[int, int], cells: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The room that is left shared by the columns that lack some, none given more than it lacks."""
    widths = dict(part)
    lacking = {column: max(map(cell_len, cells[column])) - part[column] for column in part}
    for number, column in enumerate(sorted(part, key=lambda column: lacking[column])):
        share = max(0, width - _total(widths)) // (len(part) - number)
        widths[column] += min(share, max(0, lacking[column]))
    return widths
