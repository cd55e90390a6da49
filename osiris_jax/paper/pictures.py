"""Pictures of the paper's tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from osiris_jax.paper.numbers import TABLES
from osiris_jax.paper.tables import Block, column_label
from osiris_jax.plots import BLUE, GREY, ORANGE, WIDE, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES = {
    "published": {"color": BLUE, "marker": "s", "label": "published protocol, here"},
    "independent": {"color": ORANGE, "marker": "o", "label": "independent trials, here"},
}
PRINTED = {"color": GREY, "marker": "|", "ls": "none", "ms": 12, "mew": 1.5}


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
