"""Progress bars and tables for the terminal, and tables as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

PLAIN_WIDTH = 110


class Table(NamedTuple):
    """A table as text; the first `words` columns are words, the others numbers."""

    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: int = 1


@contextmanager
def stages(shown: bool = True, rate: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A function `(stage, done, total)` that shows a bar for each stage, on standard error."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *((TextColumn("{task.fields[rate]}"),) if rate else ()),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    bars = Progress(*columns, console=Console(stderr=True), disable=not shown)
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


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as Markdown, bars inside cells escaped."""
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped) + "\n"


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1
) -> None:
    """The table on standard output, the first `words` columns to the left, numbers to the right."""
    table = RichTable(
        title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(table)
