"""The two-sided tail of Student's t, accurate in both float types."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc, erfc
from jaxtyping import Float


def student_two_sided(
    statistic: Float[Array, "*shape"], df: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """P(|T| >= |statistic|) for df >= 1; NaN where either is NaN.

    Hill's normal expansion for many degrees of freedom, the incomplete beta function for few:
    each is used where it was measured to err by less than 1e-5 (float32) or 1e-9 (float64).
    """
    expansion_from = 20.0 if statistic.dtype == jnp.float64 else 5.0
    square = jnp.where(jnp.isfinite(statistic), statistic, 0) ** 2
    few = _by_beta(square, jnp.clip(df, 1, expansion_from))
    many = _by_expansion(square, jnp.maximum(df, expansion_from))
    tail = jnp.where(df < expansion_from, few, many)
    tail = jnp.where(jnp.isinf(statistic) | jnp.isinf(square), 0, tail)
    return jnp.where(jnp.isnan(statistic) | jnp.isnan(df), jnp.nan, tail)


def _by_beta(square: Array, df: Array) -> Array:
    """I_{df/(df+t^2)}(df/2, 1/2), or one minus its complement where that is the larger part."""
    centre = square < df
    a = jnp.where(centre, 0.5, df / 2)
    b = jnp.where(centre, df / 2, 0.5)
    part = betainc(a, b, jnp.minimum(square, df) / (df + square))
    return jnp.where(centre, 1 - part, part)


def _by_expansion(square: Array, df: Array) -> Array:
    """G. W. Hill, Algorithm 395 (Communications of the ACM 13, 1970)."""
    a = df - 0.5
    b = 48 * a**2
    y = a * jnp.log1p(square / df)
    correction = (((-0.4 * y - 3.3) * y - 24.0) * y - 85.5) / (0.8 * y**2 + 100.0 + b)
    normal = ((correction + y + 3.0) / b + 1.0) * jnp.sqrt(y)
    return erfc(normal / jnp.sqrt(jnp.asarray(2, y.dtype)))
