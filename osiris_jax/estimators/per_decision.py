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
    age = jnp.arange(batch.reward.shape[1], dtype=batch.reward.dtype)
    log_discount = xlogy(age, jnp.asarray(discount, age.dtype))
    reward = masked.fill(batch.mask, batch.reward) / len(batch.reward)
    return masked.scaled_sum(log_weight + log_discount[None], reward)


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
    reward = masked.fill(batch.mask, batch.reward)
    mean_reward = jax.vmap(masked.weighted_mean, in_axes=1)(log_weight, reward)
    if finished == "share":
        mean_reward = mean_reward * batch.mask.mean(0, dtype=reward.dtype)
    mean_reward = masked.fill(masked.alive(batch.mask), mean_reward)
    return masked.total(mean_reward * masked.discounts(len(mean_reward), discount, reward.dtype))
