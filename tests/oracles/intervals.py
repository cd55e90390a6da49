"""Slow, plain oracles for intervals: loops over resamples that repeat whole trajectories.

A method is a function of plain lists of numbers.
"""

import math

import numpy as np
from scipy import stats

from oracles import core, estimators, relevance

MOST_GROUPS = 200


def estimate(data, name, num_states, *, alpha=0.05, discount=1.0, test=None, **options):
    """The estimate of a data set; names that begin with "osiris-" omit by Welch's test first."""
    plain = name.removeprefix("osiris-")
    own = {k: options[k] for k in ("clip", "finished") if k in options}
    if name != plain:
        p = relevance.pvalues(data, num_states, "welch", discount=discount, **(test or {}))
        data = relevance.omit(data, relevance.keep_map(p, alpha))
    return estimators.ESTIMATORS[plain](data, discount=discount, **own)


def resampled(data, rows, name, num_states, **options):
    """The estimate of every list of rows."""
    return [estimate([data[i] for i in row], name, num_states, **options) for row in rows]


def without_groups(number):
    """The rows left when each group is out; group of i is i mod the number of groups."""
    groups = min(MOST_GROUPS, number)
    return [[i for i in range(number) if i % groups != group] for group in range(groups)]


def percentile(values, confidence):
    """Quantiles of those values that are defined."""
    known = [x for x in values if not math.isnan(x)]
    tail = (1 - confidence) / 2
    return tuple(np.quantile(known, [tail, 1 - tail]))


def bca(value, values, left_out, confidence):
    """Efron (1987), equations 2.3 and 6.6, with jackknife values for the acceleration."""
    known = [x for x in values if not math.isnan(x)]
    close = [abs(x - value) <= 1e-12 * max(abs(y) for y in [*known, value]) for x in known]
    below = sum(x < value and not tie for x, tie in zip(known, close, strict=True))
    share = (below + sum(close) / 2) / len(known)
    share = min(max(share, 0.5 / len(known)), 1 - 0.5 / len(known))
    bias = stats.norm.ppf(share)
    finite = [x for x in left_out if math.isfinite(x)]
    centre = np.mean(finite)
    third, second = sum((centre - x) ** 3 for x in finite), sum((centre - x) ** 2 for x in finite)
    acceleration = third / (6 * second**1.5) if second > 0 else 0.0
    ends = []
    for z in (stats.norm.ppf((1 - confidence) / 2), stats.norm.ppf((1 + confidence) / 2)):
        shrink = 1 - acceleration * (bias + z)
        level = stats.norm.cdf(bias + (bias + z) / shrink) if shrink > 0 else float(bias + z > 0)
        ends.append(np.quantile(known, level))
    return tuple(ends)


def terms(data, name, discount=1.0):
    """What `is`, `pdis` or `mc` is the mean of."""
    return [estimators.ESTIMATORS[name]([traj], discount=discount) for traj in data]


def linear_terms_of_wis(data, discount=1.0):
    """v + w (g - v) / mean(w), v the estimate."""
    value = estimators.wis(data, discount=discount)
    weights = [float(np.prod(core.ratios(traj))) for traj in data]
    returns = [float(core.returns(traj, discount)) for traj in data]
    centre = np.mean(weights)
    return [value + w * (g - value) / centre for w, g in zip(weights, returns, strict=True)]


def student(values, confidence):
    """The textbook's interval of a mean."""
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return stats.t.interval(confidence, len(values) - 1, loc=np.mean(values), scale=error)


def hoeffding(values, low, high, confidence):
    """P(|mean - mu| >= r) <= 2 exp(-2 n r^2 / (high - low)^2), solved for r."""
    error = 1 - confidence
    radius = math.sqrt((high - low) ** 2 * math.log(2 / error) / (2 * len(values)))
    return np.mean(values) - radius, np.mean(values) + radius


def bernstein(values, low, high, confidence):
    """Maurer & Pontil's Theorem 4 for (x - low) / (high - low), and for its mirror image."""
    n, delta = len(values), (1 - confidence) / 2
    unit = [(x - low) / (high - low) for x in values]
    pairs = sum((x - y) ** 2 for x in unit for y in unit) / (2 * n * (n - 1))
    radius = math.sqrt(2 * pairs * math.log(2 / delta) / n)
    radius += 7 * math.log(2 / delta) / (3 * (n - 1))
    centre = np.mean(unit)
    return tuple(low + (high - low) * end for end in (centre - radius, centre + radius))


def hcope_bound(values, cut, confidence):
    """Thomas et al. (2015), Theorem 1, with thresholds c_i = cut, as it is printed."""
    n, delta = len(values), 1 - confidence
    inverse = sum(1 / cut for _ in values)
    ratio = [min(x, cut) / cut for x in values]
    pairs = sum((x - y) ** 2 for x in ratio for y in ratio)
    first = sum(ratio) / inverse
    second = 7 * n * math.log(2 / delta) / (3 * (n - 1)) / inverse
    third = math.sqrt(math.log(2 / delta) / (n - 1) * pairs) / inverse
    return first - second - third


def hcope(values, confidence):
    """The bound of the trajectories that did not choose the threshold; terms are not negative."""
    every = min(20, len(values) // 2)
    chosen = [x for i, x in enumerate(values) if i % every == 0]
    rest = [x for i, x in enumerate(values) if i % every != 0]
    scale = np.mean(chosen) if np.mean(chosen) > 0 else 1.0
    promises = {}
    for quarter in range(-80, 81):
        cut = scale * 2 ** (quarter / 4)
        kept = [min(x, cut) for x in chosen]
        log = math.log(2 / (1 - confidence))
        promises[cut] = np.mean(kept) - 7 * cut * log / (3 * (len(rest) - 1))
        promises[cut] -= math.sqrt(2 * np.var(kept, ddof=1) * log / len(rest))
    return hcope_bound(rest, max(promises, key=promises.__getitem__), confidence)
