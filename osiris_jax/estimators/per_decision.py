"""Estimators that weigh each reward by the ratios before it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import xlogy
from jaxtyping import Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import check_word
from osiris_jax.estimators.headroom import with_headroom


@with_headroom
def pdis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """Per-decision IS: mean of sum_t gamma^(t-1) r_t rho_{1:t} (Precup, Sutton & Singh 2000).

    Args:
      clip: weights rho_{1:t} above it are cut to it (Ionides 2008); None cuts nothing.
    """
    log_weight = masked.clip_weights(masked.running_log_weights(log_ratio, batch.mask), clip)
    return mean_of_sums(batch, log_weight, discount)


@with_headroom
def cwpdis(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    finished: str = "keep",
    clip=None,
) -> Float[Array, ""]:
    """Consistent weighted per-decision IS: rho_{1:t} normalised at each t (Thomas 2015).

    Args:
      finished: what a trajectory that has ended does in the normaliser of later steps.
        "keep": it counts with its final weight; "drop": only those alive count; "share": as
        "drop", times the share of trajectories alive.
      clip: as for `pdis`.
    """
    check_word("finished", finished, ("keep", "drop", "share"))
    log_weight = masked.clip_weights(masked.running_log_weights(log_ratio, batch.mask), clip)
    if finished != "keep":
        log_weight = masked.fill(batch.mask, log_weight, -jnp.inf)
    share = batch.mask.mean(0, dtype=batch.dtype) if finished == "share" else None
    return sum_of_means(batch, log_weight, discount, share)


def log_discounts(batch: TrajectoryBatch, discount) -> Float[Array, " time"]:
    """log gamma^(t-1)."""
    age = jnp.arange(batch.reward.shape[1], dtype=batch.dtype)
    return xlogy(age, jnp.asarray(discount, batch.dtype))


def mean_of_sums(
    batch: TrajectoryBatch, log_weight: Float[Array, "traj time"], discount
) -> Float[Array, ""]:
    """The mean over trajectories of sum_t gamma^(t-1) r_t times the weight of that step."""
    reward = masked.fill(batch.mask, batch.reward) / len(batch.reward)
    return masked.scaled_sum(log_weight + log_discounts(batch, discount)[None], reward)


def sum_of_means(
    batch: TrajectoryBatch,
    log_weight: Float[Array, "traj time"],
    discount,
    share: Float[Array, " time"] | None = None,
) -> Float[Array, ""]:
    """sum_t gamma^(t-1) times the weighted mean of r_t, and a share; of steps that exist."""
    reward = masked.fill(batch.mask, batch.reward)
    mean_reward = jax.vmap(masked.weighted_mean, in_axes=1)(log_weight, reward)
    if share is not None:
        mean_reward = mean_reward * share
    mean_reward = masked.fill(masked.alive(batch.mask), mean_reward)
    return masked.total(mean_reward * masked.discounts(len(mean_reward), discount, reward.dtype))
