"""Pictures of a benchmark: ratios to rivals, scaling curves, the roofline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from osiris_jax.bench.report import number as number_text
from osiris_jax.bench.scaling import AXES, Curve, curves
from osiris_jax.bench.suite import Results, Timing
from osiris_jax.plots import BLUE, COLUMN, GREEN, GREY, ORANGE, RED, canvas

PALETTE = (BLUE, ORANGE, GREEN, RED, GREY, "#CC79A7")
PANEL = 2.4


def draw(results: Results) -> dict[str, Figure]:
    """Name -> picture, those that these results have."""
    figures = {}
    if compared := [row for row in results.rows if row.ratio is not None]:
        figures["ratios"] = ratios(compared)
    if lines := curves(results.rows):
        figures["scaling"] = scaling(lines)
    if shared := [row for row in results.rows if row.share is not None and row.axis is None]:
        figures["roofline"] = roofline(shared, results.bandwidth.best)
    return figures


def _colours(kinds: Iterable[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(kinds), itertools.cycle(PALETTE), strict=False))


def _list_rows(axis: Axes, rows: Sequence[Timing], label: str) -> None:
    """A line for each row, the first on top, over a logarithmic axis."""
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], fontsize=7)
    axis.set_xlabel(label, fontsize=8)


def ratios(rows: Sequence[Timing]) -> Figure:
    """How many times longer each rival takes: right of 1 ours is faster, left of it slower."""
    figure, (axis,) = canvas(COLUMN + 1, 0.8 + 0.2 * len(rows))
    libraries = [(row.rival or "").split(",")[0] for row in rows]
    colours = _colours(libraries)
    for number, (row, library) in enumerate(zip(rows[::-1], libraries[::-1], strict=True)):
        ratio = row.ratio or 1.0
        axis.barh(number, ratio - 1, left=1, color=colours[library], height=0.7)
        side, shift = ("left", 3) if ratio >= 1 else ("right", -3)
        where = {"xytext": (shift, 0), "textcoords": "offset points", "ha": side, "va": "center"}
        axis.annotate(number_text(ratio), (ratio, number), fontsize=6, **where)
    for library, colour in colours.items():
        axis.barh(0, 0, left=1, color=colour, label=library)
    axis.axvline(1, color="black", lw=0.8)
    _list_rows(axis, rows, "time of the rival over ours")
    axis.margins(x=0.12)
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def scaling(lines: Sequence[Curve]) -> Figure:
    """Seconds over every axis that was varied, both logarithmic, exponents in the legend."""
    varied = [axis for axis in AXES if any(curve.axis == axis for curve in lines)]
    colours = _colours(curve.name for curve in lines)
    marks = dict(zip(colours, itertools.cycle("osD^vx"), strict=False))
    figure, panels = canvas(max(COLUMN, PANEL * len(varied)), 3.2, columns=len(varied))
    for panel, axis in zip(panels, varied, strict=True):
        here = [curve for curve in lines if curve.axis == axis]
        for curve in here:
            style = {"color": colours[curve.name], "marker": marks[curve.name], "ms": 3, "lw": 1}
            label = f"{curve.name}: {curve.exponent:.2f}"
            panel.errorbar(curve.sizes, curve.seconds, **style, label=label)
        panel.set(xscale="log", yscale="log")
        sizes = sorted({size for curve in here for size in curve.sizes})
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes], rotation=45)
        decades = [math.log10(spent) for curve in here for spent in curve.seconds]
        lowest, highest = math.floor(min(decades)), math.ceil(max(decades))
        panel.set_ylim(10.0**lowest, 10.0 ** max(highest, lowest + 1))
        panel.minorticks_off()
        panel.set_xlabel(axis, fontsize=8)
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
        panel.legend(fontsize=6, frameon=False, title="exponent", title_fontsize=6, **above)
    panels[0].set_ylabel("seconds", fontsize=8)
    return figure


def roofline(rows: Sequence[Timing], roof: float) -> Figure:
    """Bytes that had to be moved, per second, beside the measured bandwidth."""
    figure, (axis,) = canvas(COLUMN + 1, 0.8 + 0.16 * len(rows))
    for group, colour in _colours(row.group for row in rows).items():
        places = [number for number, row in enumerate(rows[::-1]) if row.group == group]
        reached = [(rows[::-1][number].share or 0) * roof / 1e9 for number in places]
        axis.plot(reached, places, "o", color=colour, ms=4, label=group)
    axis.set_ylim(-1, len(rows))
    axis.grid(axis="x", lw=0.3)
    axis.axvline(roof / 1e9, color="black", lw=0.8, ls="--", label="measured bandwidth")
    _list_rows(axis, rows, "GB/s of what must be moved at least")
    axis.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
