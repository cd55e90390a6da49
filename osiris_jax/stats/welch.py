"""Welch's two-sample t-test with SciPy's conventions for degenerate samples."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from osiris_jax.stats.moments import Moments, from_segment_origin, segment_moments
from osiris_jax.stats.student import student_two_sided


class WelchResult(NamedTuple):
    """Named as SciPy's result; NaN where the test is undefined."""

    statistic: Array
    pvalue: Array
    df: Array


def welch_from_moments(first: Moments, second: Moments, *, ddof=1) -> WelchResult:
    """Tests whether the means differ, for every sample of `first` against that of `second`.

    Two constant samples give p = 0 if they differ and NaN if they do not; an empty sample, or
    with ddof = 1 one of a single value, gives NaN; a NaN df becomes 1, as in SciPy.
    """
    error_first = first.variance(ddof) / first.size
    error_second = second.variance(ddof) / second.size
    error = error_first + error_second
    share = error_first / error
    inverse_df = share**2 / (first.size - 1) + (1 - share) ** 2 / (second.size - 1)
    df = jnp.where(jnp.isnan(inverse_df), 1, 1 / inverse_df)
    statistic = (first.mean - second.mean) / jnp.sqrt(error)
    return WelchResult(statistic, student_two_sided(statistic, df), df)


def welch(first: Float[Array, " first"], second: Float[Array, " second"], *, ddof=1) -> WelchResult:
    """Tests whether the means of two samples differ."""
    both = jnp.concatenate([first, second])
    value = from_segment_origin(both, jnp.zeros(len(both), jnp.int32), 1)
    sample = (jnp.arange(len(value)) >= len(first)).astype(jnp.int32)
    moments = segment_moments(value, sample, 2)
    return welch_from_moments(*(Moments(*(x[i] for x in moments)) for i in (0, 1)), ddof=ddof)
