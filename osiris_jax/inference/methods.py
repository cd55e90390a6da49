"""Intervals from resamples, or from the terms of a mean, and the registry of their names.

Every method takes a `Sample` and the confidence and returns an `Interval`; all work on any leading
axes, in float64. An estimate that is NaN has an interval of NaN; one that is defined never has.
To add a method, write the function, say in `NEEDS` what it uses, and add its line to `INTERVALS`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.estimators import ESTIMATORS

PRE_SHARE = 20
GRID = 2.0 ** (np.arange(-80, 81) / 4)
# of sums of up to 2^30 numbers in float64, pairwise; and a radius a little larger than computed
ROUNDING, ROOM = 2.0**-48, 1 + 2.0**-40


class Interval(NamedTuple):
    """The lower and the upper end; -inf or inf where a method says nothing about a side."""

    low: Any
    high: Any


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a method may look at.

    Attributes:
      estimator: name in `ESTIMATORS`.
      value: [...] the estimate.
      resampled: [..., resample] that of each resample, NaN where undefined.
      left_out: [..., group] that of the data without each group.
      terms: [..., traj] independent terms of which the estimate is the mean.
      weights: [..., traj] the weight of the return in each term.
      error, weight_error: [..., traj] how far rounding may have moved each term and each weight;
        None where it is not known.
      weight_bound: the largest weight that there can be.
      return_bounds: the smallest and the largest return that there can be.
      rounding: relative error of the values.
    """

    estimator: str
    value: np.ndarray
    resampled: np.ndarray | None = None
    left_out: np.ndarray | None = None
    terms: np.ndarray | None = None
    weights: np.ndarray | None = None
    error: np.ndarray | None = None
    weight_error: np.ndarray | None = None
    weight_bound: float | None = None
    return_bounds: tuple[float, float] | None = None
    rounding: float = 2.0**-52

    def range_of_terms(self) -> tuple[float, float]:
        """Between which numbers every term must lie."""
        low, high = _given(self.return_bounds)
        if not ESTIMATORS[self.estimator].reads_ratios:
            return low, high
        most = _given(self.weight_bound)
        return min(0.0, low * most), max(0.0, high * most)


def _given(x: Any) -> Any:
    assert x is not None, "checked at the border"
    return x


def percentile(sample: Sample, confidence: float) -> Interval:
    """Quantiles of the estimates of resamples (Efron 1979)."""
    tail = (1 - confidence) / 2
    ordered, number = _defined(sample)
    ends = (_quantile(ordered, number, np.full(number.shape, q)) for q in (tail, 1 - tail))
    return _where_defined(sample, *ends)


def bca(sample: Sample, confidence: float) -> Interval:
    """Bias-corrected and accelerated quantiles, by a grouped jackknife (Efron 1987)."""
    from scipy.special import ndtr, ndtri

    ordered, number = _defined(sample)
    bias = ndtri(_share_below(sample, ordered, number))
    acceleration = _acceleration(_given(sample.left_out))
    tail = (1 - confidence) / 2
    ends = []
    for side in (tail, 1 - tail):
        reach = bias + ndtri(side)
        shrink = 1 - acceleration * reach
        with np.errstate(divide="ignore", invalid="ignore"):
            level = ndtr(bias + reach / shrink)
        # beyond the pole the formula turns back; the quantile stays at its end
        level = np.where(shrink > 0, level, np.where(reach > 0, 1.0, 0.0))
        ends.append(_quantile(ordered, number, level))
    return _where_defined(sample, *ends)


def _defined(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """The estimates that are defined in rising order, NaN after them, and how many they are."""
    ordered = np.sort(np.asarray(_given(sample.resampled), np.float64), axis=-1)
    return ordered, (~np.isnan(ordered)).sum(-1)


def _quantile(ordered: np.ndarray, number: np.ndarray, level: np.ndarray) -> np.ndarray:
    """NumPy's linear quantile of the first `number`; NaN if there are none."""
    place = np.maximum(number - 1, 0) * level
    below = np.floor(place).astype(int)
    above = np.minimum(below + 1, np.maximum(number - 1, 0))
    low, high = (np.take_along_axis(ordered, k[..., None], -1)[..., 0] for k in (below, above))
    share = place - below
    with np.errstate(invalid="ignore"):
        between = low + share * (high - low)
    return np.where((low == high) | (share == 0), low, between)


def _share_below(sample: Sample, ordered: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Share of resamples below the estimate, ties as half, never 0 or 1 but by half a resample."""
    value = np.asarray(sample.value, np.float64)[..., None]
    with np.errstate(invalid="ignore"):
        size = np.nanmax(np.abs(ordered), axis=-1, keepdims=True, initial=0)
        size = np.maximum(np.where(np.isfinite(size), size, 0), np.abs(value))
        slack = 8 * sample.rounding * size
        below, above = ordered < value - slack, ordered > value + slack
    number = np.maximum(number, 1)
    share = (below.sum(-1) + (number - below.sum(-1) - above.sum(-1)) / 2) / number
    return np.clip(share, 0.5 / number, 1 - 0.5 / number)


def _acceleration(left_out: np.ndarray) -> np.ndarray:
    """A sixth of the skewness of the jackknife's influence; 0 where there is no spread."""
    defined = np.isfinite(left_out)
    number = np.maximum(defined.sum(-1, keepdims=True), 1)
    values = np.where(defined, left_out, 0.0)
    influence = np.where(defined, values.sum(-1, keepdims=True) / number - values, 0.0)
    largest = np.abs(influence).max(-1, keepdims=True, initial=0)
    influence = influence / np.where(largest > 0, largest, 1)
    spread = (influence**2).sum(-1) ** 1.5
    return (influence**3).sum(-1) / (6 * np.where(spread > 0, spread, 1))


def student(sample: Sample, confidence: float) -> Interval:
    """Student's t of the terms of a mean; for `wis` of its linear part (Owen 2013, chapter 9)."""
    from scipy.special import stdtrit

    terms = _given(sample.terms)
    number = terms.shape[-1]
    radius = np.inf
    if number > 1:
        with np.errstate(invalid="ignore"):
            error = terms.std(-1, ddof=1) / np.sqrt(number)
        radius = stdtrit(number - 1, (1 + confidence) / 2) * error
    value = np.asarray(sample.value, np.float64)
    return _where_defined(sample, value - radius, value + radius)


def hoeffding(sample: Sample, confidence: float) -> Interval:
    """Hoeffding's inequality for terms of known range (Hoeffding 1963); a guarantee."""
    low, high = sample.range_of_terms()
    number = _given(sample.terms).shape[-1]
    radius = (high - low) * np.sqrt(np.log(2 / (1 - confidence)) / (2 * number))
    return _guaranteed(sample, radius)


def bernstein(sample: Sample, confidence: float) -> Interval:
    """Empirical Bernstein, for terms of known range (Maurer & Pontil 2009); a guarantee.

    Their Theorem 4 on both sides, each with half of the error: with L = ln(4 / (1 - confidence)),
    sample variance V and range R, the radius is sqrt(2 V L / n) + 7 R L / (3 (n - 1)).
    """
    terms, bounds, error = _given(sample.terms), sample.range_of_terms(), (1 - confidence) / 2
    several = terms.shape[-1] > 1
    radius = _radius(terms, bounds, error, moved=_moved(sample)) if several else np.inf
    return _guaranteed(sample, radius)


def _radius(
    terms: np.ndarray, bounds: tuple[Any, Any], error: float, number=None, moved: Any = 0.0
) -> np.ndarray:
    """Maurer & Pontil's one-sided radius of the mean of `number` terms like these.

    Terms that rounding moved by so much each have a spread that is larger by at most its root mean
    square, as norms add up.
    """
    number = terms.shape[-1] if number is None else number
    log = np.log(2 / error)
    least, most = bounds
    with np.errstate(over="ignore", invalid="ignore"):
        extra = np.sqrt(np.sum(np.square(moved) * np.ones_like(terms), -1) / (terms.shape[-1] - 1))
        spread = np.sqrt(2 * log / number) * (terms.std(-1, ddof=1) + extra)
    return spread + 7 * (most - least) * log / (3 * (number - 1))


def hcope(sample: Sample, confidence: float) -> Interval:
    """Lower bound by truncated terms (Thomas, Theocharous & Ghavamzadeh 2015); a guarantee.

    Their Theorem 1 with one threshold c for all: for terms X >= 0 cut to Y = min(X, c),
    mean(Y) - sqrt(2 V(Y) L / n) - 7 c L / (3 (n - 1)) with L = ln(2 / (1 - confidence)). A term is
    the return above the smallest possible one, times the weight, which needs no bound. Every
    twentieth trajectory, and at least two, serve to choose c and nothing else.
    """
    by_step = ESTIMATORS[sample.estimator].per_decision
    least = 0.0 if by_step else _given(sample.return_bounds)[0]
    terms = _given(sample.terms) - least * _given(sample.weights)
    terms = np.maximum(terms, 0)  # rounding alone makes them negative
    nothing = least if np.isfinite(least) else -np.inf
    number = terms.shape[-1]
    every = min(PRE_SHARE, max(number // 2, 1))
    chosen = np.arange(number) % every == 0
    rest = number - int(chosen.sum())
    if number < 4 or rest < 2:
        return _where_defined(sample, nothing, np.inf)
    cut = _threshold(terms[..., chosen], rest, 1 - confidence)
    kept = np.minimum(terms[..., ~chosen], cut[..., None])
    moved = _moved_above(sample, least)[..., ~chosen]
    radius = _radius(kept, (0, cut), 1 - confidence, moved=moved)
    low = _outward(least + kept.mean(-1), kept, moved) - ROOM * radius
    return _where_defined(sample, np.maximum(low, nothing), np.inf)


def _threshold(terms: np.ndarray, number: int, error: float) -> np.ndarray:
    """The threshold on a grid that promises the largest bound from `number` terms like these."""
    mean = terms.mean(-1)
    scale = np.where((mean > 0) & np.isfinite(mean), mean, 1.0)
    best, promise = scale, np.full(scale.shape, -np.inf)
    for step in GRID:
        cut = np.minimum(terms, (scale * step)[..., None])
        promised = cut.mean(-1) - _radius(cut, (0, scale * step), error, number)
        better = promised > promise
        best, promise = np.where(better, scale * step, best), np.where(better, promised, promise)
    return best


def _guaranteed(sample: Sample, radius: Any) -> Interval:
    """Around the mean of the terms, widened by all that rounding may have moved it.

    The value is a mean of returns, so what is beyond their bounds is cut off.
    """
    terms = _given(sample.terms)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = terms.mean(-1) if sample.error is not None else np.asarray(sample.value, np.float64)
        low, high = (
            sign * _outward(sign * mean, terms, _moved(sample)) - sign * ROOM * radius
            for sign in (1, -1)
        )
    interval = _where_defined(sample, low, high)
    return Interval(*(np.clip(end, *_given(sample.return_bounds)) for end in interval))


def _outward(mean: np.ndarray, terms: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The mean lowered by what rounding may have added to the terms, and then to their sum."""
    return mean - moved.mean(-1) - ROUNDING * (np.abs(terms).mean(-1) + np.abs(mean))


def _moved(sample: Sample) -> np.ndarray:
    """[..., traj] how far rounding may have moved each term, at most."""
    if sample.error is not None:
        return sample.error
    return 8 * sample.rounding * np.abs(_given(sample.terms))


def _moved_above(sample: Sample, least: float) -> np.ndarray:
    """The same for terms measured from the smallest return, times weights that are rounded too."""
    if sample.weight_error is None:
        return _moved(sample) + abs(least) * 8 * sample.rounding * _given(sample.weights)
    return _moved(sample) + abs(least) * sample.weight_error


def _where_defined(sample: Sample, low: Any, high: Any) -> Interval:
    """NaN where the estimate is; the whole line where nothing else is known."""
    undefined = np.isnan(np.asarray(sample.value, np.float64))
    low = np.where(np.isnan(low), -np.inf, low)
    high = np.where(np.isnan(high), np.inf, high)
    return Interval(np.where(undefined, np.nan, low), np.where(undefined, np.nan, high))


INTERVALS = {
    "percentile": percentile,
    "bca": bca,
    "t": student,
    "bernstein": bernstein,
    "hoeffding": hoeffding,
    "hcope": hcope,
}
NEEDS: dict[str, frozenset[str]] = {
    "percentile": frozenset({"resampled"}),
    "bca": frozenset({"resampled", "left_out"}),
    "t": frozenset({"terms"}),
    "bernstein": frozenset({"terms", "weight_bound", "return_bounds"}),
    "hoeffding": frozenset({"terms", "weight_bound", "return_bounds"}),
    "hcope": frozenset({"terms", "return_bounds"}),
}
