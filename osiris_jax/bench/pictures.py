"""Pictures of a benchmark: ratios to rivals, scaling curves, the roofline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from osiris_jax.bench.report import number as number_text
from osiris_jax.bench.scaling import AXES, Curve, curves
from osiris_jax.bench.suite import Results, Row
from osiris_jax.plots import BLUE, COLUMN, GREEN, GREY, ORANGE, RED, canvas

PALETTE = (BLUE, ORANGE, GREEN, RED, GREY, "#CC79A7")
PANEL = 2.4


def draw(results: Results) -> dict[str, Figure]:
    """Name -> picture, those that these results have."""
    figures = {}
    if compared := [row for row in results.rows if row.ratio is not None]:
        figures["ratios"] = ratios(compared)
    if found := curves(results.rows):
        figures["scaling"] = scaling(found)
    if shared := [row for row in results.rows if row.share is not None and row.axis is None]:
        figures["roofline"] = roofline(shared, results.bandwidth.best)
    return figures


def ratios(rows: Sequence[Row]) -> Figure:
    """How many times longer each rival takes: right of 1 ours is faster, left of it slower."""
    figure, (axis,) = canvas(COLUMN + 1, 0.8 + 0.2 * len(rows))
    libraries = dict.fromkeys((row.rival or "").split(",")[0] for row in rows)
    colours = dict(zip(libraries, itertools.cycle(PALETTE), strict=False))
    for number, row in enumerate(reversed(rows)):
        ratio, colour = row.ratio or 1.0, colours[(row.rival or "").split(",")[0]]
        axis.barh(number, ratio - 1, left=1, color=colour, height=0.7)
        side, shift = ("left", 3) if ratio >= 1 else ("right", -3)
        where = {"xytext": (shift, 0), "textcoords": "offset points", "ha": side, "va": "center"}
        axis.annotate(number_text(ratio), (ratio, number), fontsize=6, **where)
    for library, colour in colours.items():
        axis.barh(0, 0, left=1, color=colour, label=library)
    axis.axvline(1, color="black", lw=0.8)
    axis.set_xscale("log")
    axis.margins(x=0.12)
    axis.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], fontsize=7)
    axis.set_xlabel("time of the rival over ours", fontsize=8)
    axis.legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def scaling(found: Sequence[Curve]) -> Figure:
    """Seconds over every axis that was varied, both logarithmic, exponents in the legend."""
    axes_found = [axis for axis in AXES if any(curve.axis == axis for curve in found)]
    names = dict.fromkeys(curve.name for curve in found)
    colours = dict(zip(names, itertools.cycle(PALETTE), strict=False))
    marks = dict(zip(names, itertools.cycle("osD^vx"), strict=False))
    figure, panels = canvas(max(COLUMN, PANEL * len(axes_found)), 3.2, columns=len(axes_found))
    for panel, axis in zip(panels, axes_found, strict=True):
        for curve in found:
            if curve.axis == axis:
                colour, mark = colours[curve.name], marks[curve.name]
                label = f"{curve.name}: {curve.exponent:.2f}"
                line = {"color": colour, "marker": mark, "ms": 3, "lw": 1, "label": label}
                panel.errorbar(curve.sizes, curve.seconds, **line)
        panel.set(xscale="log", yscale="log")
        sizes = sorted({size for curve in found if curve.axis == axis for size in curve.sizes})
        panel.set_xticks(sizes, [f"{size:g}" for size in sizes], rotation=45)
        seconds = [spent for curve in found if curve.axis == axis for spent in curve.seconds]
        decades = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
        panel.set_ylim(10.0 ** decades[0], 10.0 ** max(decades[1], decades[0] + 1))
        panel.minorticks_off()
        panel.set_xlabel(axis, fontsize=8)
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
        panel.legend(fontsize=6, frameon=False, title="exponent", title_fontsize=6, **above)
    panels[0].set_ylabel("seconds", fontsize=8)
    return figure


def roofline(rows: Sequence[Row], roof: float) -> Figure:
    """Bytes that had to be moved, per second, beside the measured bandwidth."""
    figure, (axis,) = canvas(COLUMN + 1, 0.8 + 0.16 * len(rows))
    groups = dict.fromkeys(row.group for row in rows)
    colours = dict(zip(groups, itertools.cycle(PALETTE), strict=False))
    for number, row in enumerate(reversed(rows)):
        reached = (row.share or 0) * roof / 1e9
        axis.plot([reached], [number], "o", color=colours[row.group], ms=4)
    for group, colour in colours.items():
        axis.plot([], [], "o", color=colour, ms=4, label=group)
    axis.set_ylim(-1, len(rows))
    axis.grid(axis="x", lw=0.3)
    axis.axvline(roof / 1e9, color="black", lw=0.8, ls="--", label="measured bandwidth")
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], fontsize=7)
    axis.set_xlabel("GB/s of what must be moved at least", fontsize=8)
    axis.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
