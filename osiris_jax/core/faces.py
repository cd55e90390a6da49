"""How results look wherever they are shown: numbers, tables, Markdown and JSON as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from osiris_jax.core.text import printable

ROUNDING = 1e-6


class Table(NamedTuple):
    """A table as text; the first `words` columns are words, the others numbers."""

    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: int = 1


def number(x: float | None, digits: int = 5) -> str:
    """A number to so many digits; a dash where there is none."""
    return "-" if x is None or math.isnan(x) else f"{x:.{digits}g}"


def percent(share: float) -> str:
    """A share to three digits."""
    return f"{100 * share:.3g} %"


def rate(share: float, error: float) -> str:
    """A share in percent with its standard error."""
    return f"{100 * share:.1f}±{100 * error:.1f} %"


def with_error(value: float, error: float, *, digits: int = 2, alone: str = ".4g") -> str:
    """The value and its standard error, to so many digits of the error.

    Args:
      alone: the format of a value without one.
    """
    if not math.isfinite(value):
        return "undefined"
    if not math.isfinite(error) or error <= 0:
        return f"{value:{alone}}"
    decimals = max(0, digits - 1 - math.floor(math.log10(error)))
    return f"{value:.{decimals}f}±{error:.{decimals}f}"


def is_point(low: float, high: float) -> bool:
    """Whether an interval has no width but by rounding."""
    return low == high or high - low <= ROUNDING * max(abs(low), abs(high)) < math.inf


def span(low: float, high: float) -> str:
    """The two ends; a dash where they are not known, or where they are one."""
    if is_point(low, high):
        return "-"
    return "-" if math.isnan(low) or math.isnan(high) else f"{number(low)} to {number(high)}"


def level_of(row: Mapping[str, Any]) -> Any:
    """The level of relevance of a row of a summary: its alpha, or its threshold if it has one."""
    return row["alpha"] if row["threshold"] is None else row["threshold"]


def gap_label(above: float, up_to: float) -> str:
    """A class of states by their gap in Q: "0", "up to 0.1", "above 1"."""
    if up_to <= 1e-6:
        return "0"
    return f"above {above:g}" if up_to == math.inf else f"up to {up_to:g}"


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The table as Markdown, bars inside cells escaped."""
    rows = [header, ["---"] * len(header), *lines]
    escaped = [[printable(cell).replace("|", r"\|") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in escaped) + "\n"


def markdown_sections(tables: Iterable[Table]) -> str:
    """The tables one below the other, each under its caption."""
    return "".join(f"\n## {t.caption}\n\n{markdown(t.header, t.lines)}" for t in tables)


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "".join(f"- {printable(line)}\n" for line in lines)


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in plain text, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]

    def row(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])

    return "\n".join(row(cells).rstrip() for cells in (header, *lines))


def plain(x: Any) -> Any:
    """Dictionaries, lists and numbers that JSON knows; what is not finite is None."""
    if hasattr(x, "_asdict"):  # a tuple with names
        x = x._asdict()
    if isinstance(x, Mapping):
        return {str(name): plain(value) for name, value in x.items()}
    if hasattr(x, "tolist"):  # an array, or one of its numbers
        return plain(x.tolist())
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def to_json(x: Any) -> str:
    """The data as JSON; NaN and infinities are null."""
    return json.dumps(plain(x), indent=2)
