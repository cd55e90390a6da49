"""Estimators that weigh whole trajectories."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators.headroom import with_headroom


@with_headroom
def mc(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """Monte Carlo: mean of g, ratios ignored (on-policy, or the naive behaviour value)."""
    del log_ratio
    return masked.returns(batch.reward, batch.mask, discount).mean()


def importance_sampling(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """Importance sampling: mean of g rho (Precup, Sutton & Singh 2000).

    Args:
      clip: weights above it are cut to it (Ionides 2008); None cuts nothing.
    """
    log_weight = masked.log_weights(log_ratio, batch.mask)
    return is_of_weights(batch, log_weight, discount=discount, clip=clip)


def wis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """Weighted importance sampling: sum g rho / sum rho (Precup, Sutton & Singh 2000).

    Args:
      clip: as for `importance_sampling`.
    """
    log_weight = masked.log_weights(log_ratio, batch.mask)
    return wis_of_weights(batch, log_weight, discount=discount, clip=clip)


def phwis(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    length_probs: Float[Array, " length"] | None = None,
    clip=None,
) -> Float[Array, ""]:
    """Per-horizon WIS: WIS among equal lengths, averaged (Doroudi, Thomas & Brunskill 2017).

    Args:
      length_probs: probability of each length 0, 1, 2, ..., in place of the share of each
        length in the data. A length that can happen but was not seen makes the estimate NaN.
      clip: as for `importance_sampling`.
    """
    log_weight = masked.log_weights(log_ratio, batch.mask)
    return phwis_of_weights(
        batch, log_weight, discount=discount, length_probs=length_probs, clip=clip
    )


@with_headroom
def is_of_weights(
    batch: TrajectoryBatch, log_weight: Float[Array, " traj"], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """`importance_sampling` where the log-weights of the trajectories are known."""
    value = masked.returns(batch.reward, batch.mask, discount)
    return masked.scaled_sum(masked.clip_weights(log_weight, clip), value / len(value))


@with_headroom
def wis_of_weights(
    batch: TrajectoryBatch, log_weight: Float[Array, " traj"], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """`wis` where the log-weights are known."""
    value = masked.returns(batch.reward, batch.mask, discount)
    return masked.weighted_mean(masked.clip_weights(log_weight, clip), value)


@with_headroom
def phwis_of_weights(
    batch: TrajectoryBatch,
    log_weight: Float[Array, " traj"],
    *,
    discount=1.0,
    length_probs: Float[Array, " length"] | None = None,
    clip=None,
) -> Float[Array, ""]:
    """`phwis` where the log-weights are known."""
    num_lengths = batch.mask.shape[1] + 1
    length = masked.lengths(batch.mask)
    value = masked.returns(batch.reward, batch.mask, discount)
    log_weight = masked.clip_weights(log_weight, clip)
    wis_by_length = masked.segment_weighted_mean(log_weight, value, length, num_lengths)
    # also of a length whose probability is 0, a weight that is NaN must show
    wis_by_length = jnp.where(jnp.isnan(log_weight).any(), jnp.nan, wis_by_length)
    if length_probs is None:
        share = jax.ops.segment_sum(jnp.ones_like(value), length, num_lengths) / len(value)
        return _mix(share, wis_by_length)
    share = jnp.asarray(length_probs, value.dtype)
    num_probs = max(num_lengths, len(share))
    return _mix(
        jnp.pad(share, (0, num_probs - len(share))),
        jnp.pad(wis_by_length, (0, num_probs - num_lengths), constant_values=jnp.nan),
    )


def _mix(share: Float[Array, " length"], value: Float[Array, " length"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(share > 0, share * value, 0))
