"""How the cost grows: cases along an axis, and the exponents fitted to their times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.bench.case import Case, Settings
from osiris_jax.bench.kernels import GRIDWORLD, estimator, on_log, osirwis
from osiris_jax.bench.studies import study_case, study_of

AXES = ("trials", "trajectories", "steps", "states", "alphas")
EXPECTED = {("incris", "steps"): 2.0, "trials": 1.0, "trajectories": 1.0, "steps": 1.0}
BASE = {"trajectories": 1000, "steps": 100, "states": 25, "alphas": 1}
QUICK_BASE = {"trajectories": 20, "steps": 8, "states": 4, "alphas": 1}
POINTS = {
    "trajectories": (250, 500, 1000, 2000, 4000),
    "steps": (25, 50, 100, 200, 400),
    "states": (25, 100, 400, 1600),
    "alphas": (1, 5, 20, 80),
}
LONG = {("incris", "steps"): (100, 200, 400, 800, 1600)}  # where its square outweighs the rest
QUICK_POINTS = {"trajectories": (10, 20)}
OSIRWIS = "welch + osirwis"
KERNELS = {
    "trajectories": ("wis", "mis", "incris", OSIRWIS),
    "steps": ("wis", "mis", "incris", OSIRWIS),
    "states": ("mis", OSIRWIS),
    "alphas": (OSIRWIS,),
}
CONSTANT_WITHIN, BUDGET = 0.2, 10.0


class Curve(NamedTuple):
    """Seconds along one axis, everything else fixed."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """Of the power law through all points."""
        return exponent(self.sizes, self.seconds)

    @property
    def tail(self) -> float:
        """Of the power law through the last two, where what is fixed per call weighs least."""
        return exponent(self.sizes[-2:], self.seconds[-2:])

    @property
    def expected(self) -> float | None:
        """What the algorithm should have; None where other work hides it."""
        return EXPECTED.get((self.name, self.axis), EXPECTED.get(self.axis))

    @property
    def spread(self) -> float:
        """How much more the dearest unit of the axis costs than the cheapest, as a share."""
        each = np.asarray(self.seconds) / np.asarray(self.sizes)
        return float(each.max() / each.min() - 1)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """b of seconds = a size^b, by least squares in logarithms."""
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise ValueError("sizes: an exponent needs two different sizes, and a time for each")
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(seconds, float))
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def scaling(settings: Settings) -> list[Case]:
    """Cases along every axis: of kernels on one log, and of the whole pipeline over trials."""
    points = settings.size(POINTS, QUICK_POINTS)
    cases = [
        _along(settings, name, axis, size)
        for axis, names in KERNELS.items()
        for name in settings.size(names, names[:1])
        for size in settings.size(LONG.get((name, axis)), None) or points.get(axis, ())
    ]
    fields = settings.size({}, {"estimators": ("wis",)})
    usual = settings.pipeline_trials
    for trials in settings.size((max(1, usual // 10), usual, 10 * usual), (4, 8)):
        study = study_of(settings, trials=trials, **fields)
        cases.append(study_case("scaling", GRIDWORLD, study, axis="trials", budget=BUDGET))
    return cases


def _along(settings: Settings, name: str, axis: str, size: int) -> Case:
    """The kernel on a log of the usual shape, this size of the axis apart; without its rival."""
    sizes = settings.size(BASE, QUICK_BASE) | {axis: size}
    levels = np.linspace(0, 1, sizes["alphas"] + 1)[1:].tolist()
    kernel = osirwis(levels, name) if name == OSIRWIS else estimator(name)
    shape = sizes["trajectories"], sizes["steps"], sizes["states"]
    return on_log(settings, "scaling", kernel._replace(rival=None), shape, axis)


def curves(rows: Iterable[Any]) -> list[Curve]:
    """The curves that rows with an axis make, in their order."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if row.axis is not None:
            points.setdefault((row.name, row.axis), []).append((row.shape[row.axis], row.least))
    lines = [
        Curve(*name_and_axis, *zip(*sorted(line), strict=True))
        for name_and_axis, line in points.items()
    ]
    return [curve for curve in lines if len(set(curve.sizes)) > 1]
