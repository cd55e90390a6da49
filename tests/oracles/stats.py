"""Two-sample tests of plain lists of numbers."""

import warnings

import numpy as np
from scipy import stats

from oracles.core import LD

EXACT_SMIRNOV_LIMIT = 250_000  # where n+ n- exceeds this the asymptotic p-value is used


def constant(group):
    """Whether all values of a group are equal."""
    return bool(np.all(group == group[0]))


def welch(plus, minus, ddof=1):
    """Two-sided Welch p-value, NaN for a group of at most `ddof` values and for t = 0/0.

    With v = var/n: t = (m+ - m-) / sqrt(v+ + v-), df = (v+ + v-)^2 / sum v^2/(n - 1), and 1 where
    that holds a 0/0 (as for n = 1). The variance of equal values is exactly 0.
    """
    groups = (plus, minus)
    if min(len(g) for g in groups) <= ddof:
        return np.nan
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if ddof == 1 and not any(constant(g) for g in groups):
            return float(stats.ttest_ind(plus, minus, equal_var=False).pvalue)
        n = np.array([len(g) for g in groups])
        m = np.array([g[0] if constant(g) else np.mean(g) for g in groups])
        v = np.array([0.0 if constant(g) else np.var(g, ddof=ddof) for g in groups]) / n
        df = np.sum(v) ** 2 / np.sum(v**2 / (n - 1))
        t = (m[0] - m[1]) / np.sqrt(np.sum(v))
        return float(2 * stats.t.sf(abs(t), 1.0 if np.isnan(df) else df))


def smirnov(plus, minus):
    """Two-sided two-sample Kolmogorov-Smirnov p-value, exact while n+ n- is within the limit."""
    if len(plus) * len(minus) > EXACT_SMIRNOV_LIMIT:
        return float(stats.ks_2samp(plus, minus, method="asymp").pvalue)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(stats.ks_2samp(plus, minus, method="exact").pvalue)
        except RuntimeWarning:  # SciPy gives up exactness where p = 1 rounds to 1 + 2e-16
            return 1.0


def two_sample(test, plus, minus, ddof):
    """The p-value of one state, its x divided by the largest |x| before they become float64."""
    scale = max(abs(x) for x in plus + minus)
    scale = scale if scale > 0 else LD(1)
    plus, minus = (np.array([float(x / scale) for x in group]) for group in (plus, minus))
    if test not in ("welch", "smirnov"):
        raise ValueError(f"test={test!r}")
    return welch(plus, minus, ddof) if test == "welch" else smirnov(plus, minus)
