"""Results as sections of one page: printed, written, and shown together in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import Table, print_table, say


class Section(NamedTuple):
    """What one target gave.

    Attributes:
      name: of the target.
      title: in words.
      tables: to be shown.
      notes: what a reader should know.
      pictures: PNG and PDF files.
      files: tables as files.
    """

    name: str
    title: str
    tables: Sequence[Table]
    notes: Sequence[str]
    pictures: Sequence[Path]
    files: Sequence[Path]


def print_section(section: Section) -> None:
    """The section in the terminal, and where its files are."""
    for table in section.tables:
        print_table(table.caption, table.header, table.lines, words=table.words)
    for note in section.notes:
        say("-", note)
    for label, paths in (("tables", section.files), ("pictures", section.pictures)):
        if paths:
            say(f"{label}:", *paths)


def write_index(title: str, sections: Sequence[Section], path: Path) -> None:
    """One HTML page that shows all sections; pictures and files are linked from its folder."""
    from importlib.resources import files

    from jinja2 import Environment

    def within(file: Path) -> str:
        return file.relative_to(path.parent).as_posix()

    def linked(section: Section) -> dict[str, Any]:
        shown = [picture for picture in section.pictures if picture.suffix == ".png"]
        return section._asdict() | {
            "pictures": [within(picture) for picture in shown],
            "files": [within(file) for file in (*section.files, *section.pictures)],
        }

    source = files("osiris_jax.evaluation").joinpath("templates/index.html").read_text("utf-8")
    page = Environment(autoescape=True, trim_blocks=True).from_string(source)
    write_text(path, page.render(title=title, sections=[linked(s) for s in sections]))
