"""What all pictures share: sizes of letters, legends, lines with errors; and files of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from osiris_jax.core.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}


def as_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as "png" or "pdf", without the time of day."""
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}}[kind]
    picture = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(picture, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
    return picture.getvalue()


def in_both_forms(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG and as PDF, by the ending of their names."""
    return {kind: as_bytes(figure, kind) for kind in ("png", "pdf")}


def write(forms: Mapping[str, bytes], folder: str | Path, name: str) -> list[Path]:
    """Writes the forms of one picture, each whole or not at all."""
    return [
        write_whole(Path(folder) / f"{name}.{kind}", lambda file, form=form: file.write(form))
        for kind, form in forms.items()
    ]


def save_all(figures: Mapping[str, Figure], folder: str | Path) -> list[Path]:
    """Writes every figure under its name, as PNG and PDF."""
    forms = ((name, in_both_forms(figure)) for name, figure in figures.items())
    return [path for name, both in forms for path in write(both, folder, name)]


def tidy(axis: Axes) -> None:
    """Small numbers, and no lines where there is nothing to read."""
    axis.tick_params(labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)


def describe(axis: Axes, x: str = "", y: str = "", title: str = "", title_size: int = 9) -> None:
    """What an axis shows, in the sizes of letters that all pictures share."""
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.set_title(title, fontsize=title_size)


def legend(axis: Axes, size: int = 7, **place: Any) -> None:
    """The legend without a frame."""
    axis.legend(fontsize=size, frameon=False, **place)


def shades(number: int) -> Any:
    """[number, 4] colours from dark to light."""
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.9, number))


def over_sizes(axis: Axes, sizes: Sequence[int]) -> None:
    """Data-set sizes along the axis, each with its own tick."""
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()


def error_line(axis: Axes, rows: Sequence[Row], x: str, y: str, **style: Any) -> None:
    """A field of rows against another, with its standard errors."""
    places, values, errors = ([row[field] for row in rows] for field in (x, y, f"{y}_se"))
    axis.errorbar(
        places, values, errors, **{"marker": "o", "ms": 3, "lw": 1, "capsize": 2, **style}
    )
