"""Results as sections of one page: printed, written, and shown together in HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from osiris_jax.core.faces import Table
from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import print_table, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        print_table(*table)
    for note in section.notes:
        say("-", note)
    for label, paths in (("tables", section.files), ("pictures", section.pictures)):
        if paths:
            say(f"{label}:", *paths)


def write_results(out: Path, texts: Mapping[str, str], figures: Mapping[str, Figure]) -> None:
    """Writes tables and pictures into a folder, and says where they are."""
    from osiris_jax.core.pictures import save_all

    say("tables:", *[write_text(out / name, text) for name, text in texts.items()])
    say("pictures:", *save_all(figures, out))


def write_index(title: str, sections: Sequence[Section], path: Path) -> None:
    """One HTML page that shows all sections; pictures and files are linked from its folder."""
    from osiris_jax.evaluation.report import from_template

    def within(file: Path) -> str:
        return file.relative_to(path.parent).as_posix()

    linked = [
        section._asdict()
        | {
            "pictures": [within(file) for file in section.pictures if file.suffix == ".png"],
            "files": [within(file) for file in (*section.files, *section.pictures)],
        }
        for section in sections
    ]
    write_text(path, from_template("index.html", {"title": title, "sections": linked}))
