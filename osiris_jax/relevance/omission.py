"""From p-values to the log-ratios that are kept: the whole of OSIRIS."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Shaped

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch


class AtSteps(NamedTuple):
    """What is known of every step, [traj, time], where a state id cannot look it up."""

    value: Shaped[Array, "traj time"]


Statistic = TypeVar("Statistic", Array, AtSteps)


def relevant(pvalue: Float[Array, "*shape"], alpha) -> Bool[Array, "*shape"]:
    """theta = [p <= alpha]: nothing at alpha = 0, everything at alpha = 1.

    The level is widened by a rounding error, for exact p-values hit round levels.
    """
    alpha = jnp.asarray(alpha, pvalue.dtype)
    widened = alpha * (1 + (1e-12 if pvalue.dtype == jnp.float64 else 1e-6))
    return (pvalue <= widened) & (alpha > 0)


def above(statistic: Statistic, threshold) -> Statistic:
    """theta = [statistic > threshold]; a statistic that is NaN is not above anything."""
    return jax.tree.map(lambda x: x > jnp.asarray(threshold, x.dtype), statistic)


def keep_steps(
    keep: Bool[Array, "*rows state"], batch: TrajectoryBatch
) -> Bool[Array, "traj time"]:
    """The map's value at every step; the map is [state], or [traj, state] with one row for each."""
    state = masked.fill(batch.mask, batch.require("state", "omission by state"))
    return keep[state] if keep.ndim == 1 else jnp.take_along_axis(keep, state, axis=1)


def omit(
    log_ratio: Float[Array, "*shape"], keep: Shaped[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The log-ratios with those not kept set to 0, that is, their ratios to 1."""
    return jnp.where(keep, log_ratio, 0)
