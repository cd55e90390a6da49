"""Pictures of an evaluation: intervals, the estimate against the level, weights by length."""

from __future__ import annotations

import itertools

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from osiris_jax.core.pictures import describe, legend, tidy
from osiris_jax.evaluation.choosing import Chosen
from osiris_jax.evaluation.result import NOT_JUDGED, Curve, Evaluation
from osiris_jax.inference.weights import CAREFUL, FINE, NO_TRUST
from osiris_jax.plots import BLUE, COLUMN, GREEN, GREY, ORANGE, RED, canvas

MARKS = {FINE: ("o", GREEN), CAREFUL: ("D", ORANGE), NO_TRUST: ("X", RED), NOT_JUDGED: ("s", GREY)}
STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))
MOST_DOTS = 2000


def draw(evaluation: Evaluation) -> dict[str, Figure]:
    """Name -> picture, those that this evaluation has."""
    figures = {"intervals": intervals(evaluation)}
    if evaluation.curve is not None:
        figures["levels"] = levels(evaluation.curve)
    figures["weights"] = weights(evaluation)
    return figures


def intervals(evaluation: Evaluation) -> Figure:
    """Every estimate with its intervals; the mark and its colour are the verdict."""
    rows = evaluation.rows[::-1]
    methods = list(dict.fromkeys(name for row in rows for name in row.intervals))
    styles = dict(zip(methods, itertools.cycle(STYLES), strict=False))
    shifts = np.linspace(0.18, -0.18, len(methods)) if len(methods) > 1 else [0.0]
    figure, (axis,) = canvas(COLUMN + 0.8, 1.0 + 0.36 * len(rows))
    for place, row in enumerate(rows):
        mark, colour = MARKS[row.verdict]
        for (method, style), shift in zip(styles.items(), shifts, strict=True):
            if method in row.intervals and np.isfinite(row.intervals[method].low):
                low, high = row.intervals[method]
                end = high if np.isfinite(high) else max(row.value, low)
                axis.plot([low, end], [place + shift] * 2, color=colour, ls=style, lw=1.6)
        axis.plot([row.value], [place], mark, color=colour, ms=6, mec="black", mew=0.5)
    for verdict in dict.fromkeys(row.verdict for row in evaluation.rows):
        mark, colour = MARKS[verdict]
        axis.plot([], [], mark, color=colour, mec="black", mew=0.5, ms=6, label=verdict)
    for method, style in styles.items():
        axis.plot([], [], color=GREY, ls=style, lw=1.6, label=method)
    axis.set_yticks(range(len(rows)), [row.estimator for row in rows])
    axis.set_ylim(-0.6, len(rows) - 0.4)
    describe(axis, "value of the target policy")
    legend(axis, loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncols=3)
    return figure


def levels(curve: Curve) -> Figure:
    """The estimate and the share of ratios kept against the level, the automatic choice marked."""
    figure = Figure(figsize=(COLUMN + 0.5, 3.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    places = np.arange(len(curve.levels))
    above.plot(places, curve.values, color=BLUE, marker="o", ms=3.5, lw=1)
    below.plot(places, 100 * curve.share_kept, color=GREY, marker="o", ms=3.5, lw=1)
    used = int(np.flatnonzero(curve.levels == curve.used)[0])
    above.axvline(used, color=ORANGE, lw=1, ls="--", label=f"used: {curve.used:g}")
    below.axvline(used, color=ORANGE, lw=1, ls="--")
    if curve.automatic is not None:
        place = int(np.argmin(np.abs(curve.levels - curve.automatic)))
        star = {"marker": "*", "ms": 12, "color": RED, "mec": "black", "mew": 0.5, "lw": 0}
        label = f"chosen from the data: {curve.automatic:g}"
        above.plot([place], [curve.values[place]], label=label, **star)
    describe(above, y=curve.estimator)
    describe(below, curve.parameter, "ratios kept, %")
    below.set_ylim(-5, 105)
    below.set_xticks(places, [f"{level:g}" for level in curve.levels])
    for axis in (above, below):
        tidy(axis)
    legend(above, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


def plane(choice: Chosen) -> Figure:
    """The plane of levels and pasts, and all else that was compared; what the answer is made of."""
    on_plane = [row for row in choice.rows if row.past is not None and row.alpha is not None]
    others = [row for row in choice.rows if row not in on_plane]
    figure = Figure(figsize=(COLUMN * 2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    pasts = list(dict.fromkeys(row.past for row in on_plane))
    alphas = list(dict.fromkeys(row.alpha for row in on_plane))
    colours = itertools.cycle((BLUE, GREEN, ORANGE, GREY))
    for shift, (alpha, colour) in enumerate(zip(alphas, colours, strict=False)):
        line = [row for row in on_plane if row.alpha == alpha]
        places = np.arange(len(line)) + 0.1 * (shift - (len(alphas) - 1) / 2)
        values, errors = ([getattr(row, x) for row in line] for x in ("value", "standard_error"))
        left.errorbar(
            places, values, errors, fmt="o-", ms=3, lw=1, color=colour, label=f"{alpha:g}"
        )
    left.set_xticks(range(len(pasts)), ["all" if past == 0 else str(past) for past in pasts])
    for place, row in enumerate(others):
        mark = ("*", 11, RED) if row.weight > 0.005 else ("o", 4, GREY)
        style = {"fmt": mark[0], "ms": mark[1], "color": mark[2], "lw": 1}
        right.errorbar([place], [row.value], [row.standard_error], **style)
    names = [f"{x.name} {x.alpha:g}" if x.alpha is not None else x.name for x in others]
    right.set_xticks(range(len(others)), names, rotation=60, ha="right", fontsize=7)
    for axis in (left, right):
        tidy(axis)
        axis.axhline(choice.value, color=RED, lw=1, ls="--")
    describe(
        left, "past: recent ratios of a visit", "value of the target policy", "osiris-star by level"
    )
    describe(right, title=f"answer {choice.value:.4g}: of what has a star")
    if on_plane:
        legend(left, 6, ncols=3, loc="best")
    return figure


def weights(evaluation: Evaluation) -> Figure:
    """Each trajectory's weight against its effective length, as Figure 3 of Shen et al. (2021)."""
    groups = [("all ratios", GREY, "o", evaluation.lengths, evaluation.log_weights)]
    name = next(iter(evaluation.omissions), None)
    name = "osirwis" if "osirwis" in evaluation.omissions else name
    if name is not None:
        kept = evaluation.omissions[name]
        pair = (kept.effective_lengths, np.asarray(kept.log_weights, np.float64))
        groups.append((f"kept by {name}", BLUE, "D", *pair))
    figure, (axis,) = canvas(COLUMN + 0.5, 3.0)
    for label, colour, mark, length, log_weight in groups:
        positive = np.flatnonzero(np.isfinite(log_weight))
        lost = len(log_weight) - len(positive)
        dots = positive
        if len(positive) > MOST_DOTS:
            dots = np.random.default_rng(0).choice(positive, MOST_DOTS, replace=False)
        label += f" ({lost:,} of weight 0 not shown)" if lost else ""
        style = {"color": colour, "marker": mark, "s": 9, "alpha": 0.5, "lw": 0}
        axis.scatter(length[dots], log_weight[dots] / np.log(10), label=label, **style)
    axis.axhline(0, color="black", lw=0.8, ls=":")
    axis.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"$10^{{{power:.0f}}}$"))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    describe(axis, "effective length (ratios in the weight)", "weight")
    legend(axis, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure
