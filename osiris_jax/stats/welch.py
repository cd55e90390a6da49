"""Welch's two-sample t-test with SciPy's conventions for degenerate samples; Student's tail."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erfc, gammaln
from jaxtyping import Float

from osiris_jax.core.platforms import scan
from osiris_jax.stats.moments import Moments, from_segment_origin, segment_moments


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


def student_two_sided(
    statistic: Float[Array, "*shape"], df: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """P(|T| >= |statistic|) for df >= 1; NaN where either is NaN.

    Hill's normal expansion for many degrees of freedom, the series of the incomplete beta
    function for few: each is used where it was measured to err by less than 1e-5 (float32) or
    1e-9 (float64).
    """
    double = statistic.dtype == jnp.float64
    square = jnp.where(jnp.isfinite(statistic), statistic, 0) ** 2
    expansion_from = 20.0 if double else 5.0
    tail = _tail(square, jnp.maximum(df, 1), expansion_from, num_terms=60 if double else 24)
    tail = jnp.where(jnp.isinf(statistic) | jnp.isinf(square), 0, tail)
    return jnp.where(jnp.isnan(statistic) | jnp.isnan(df), jnp.nan, tail)


def _tail(square: Array, df: Array, expansion_from: float, num_terms: int) -> Array:
    """For few degrees I_{df/(df+t^2)}(df/2, 1/2), or one minus its complement where that is larger.

    The argument is then at most 1/2, so that a power series of fixed length does, without the
    branches and the loop until all have converged of the general incomplete beta function. It is
    a loop all the same: XLA cannot compute a loop anew for each of those who read its result.
    """
    few = df < expansion_from
    many = _by_expansion(square, jnp.maximum(df, expansion_from))
    df = jnp.minimum(df, expansion_from)
    centre = square < df
    a = jnp.where(centre, 0.5, df / 2)
    b = jnp.where(centre, df / 2, 0.5)
    x = jnp.minimum(square, df) / (df + square)
    log_beta = 0.5 * math.log(math.pi) + gammaln(df / 2) - gammaln((df + 1) / 2)
    first = jnp.where(few, jnp.exp(a * jnp.log(x) - log_beta), 0)

    def add(carry: tuple[Array, Array], order: Array) -> tuple[tuple[Array, Array], None]:
        coefficient, total = carry
        coefficient = coefficient * x * (1 - b / order)
        return (coefficient, total + coefficient / (a + order)), None

    start = first, jnp.where(few, first / a, many)
    (_, total), _ = scan(add, start, jnp.arange(1, num_terms, dtype=x.dtype))
    return jnp.where(few & centre, 1 - total, total)


def _by_expansion(square: Array, df: Array) -> Array:
    """G. W. Hill, Algorithm 395 (Communications of the ACM 13, 1970)."""
    a = df - 0.5
    b = 48 * a**2
    y = a * jnp.log1p(square / df)
    correction = (((-0.4 * y - 3.3) * y - 24.0) * y - 85.5) / (0.8 * y**2 + 100.0 + b)
    normal = ((correction + y + 3.0) / b + 1.0) * jnp.sqrt(y)
    return erfc(normal / jnp.sqrt(jnp.asarray(2, y.dtype)))
