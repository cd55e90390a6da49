"""Estimators that weigh whole trajectories.

Where trajectories have one weight each, their log-weights may be given in place of log-ratios.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators.headroom import with_headroom

RCIS_FOLDS = 5


@with_headroom
def mc(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """Monte Carlo: mean of g, ratios ignored (on-policy, or the naive behaviour value)."""
    del log_ratio
    return masked.returns(batch.reward, batch.mask, discount).mean()


@with_headroom
def importance_sampling(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj ..."], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """Importance sampling: mean of g rho (Precup, Sutton & Singh 2000).

    Args:
      clip: weights above it are cut to it (Ionides 2008); None cuts nothing.
    """
    value = masked.returns(batch.reward, batch.mask, discount)
    return masked.scaled_sum(log_weights(batch, log_ratio, clip), value / len(value))


@with_headroom
def wis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj ..."], *, discount=1.0, clip=None
) -> Float[Array, ""]:
    """Weighted importance sampling: sum g rho / sum rho (Precup, Sutton & Singh 2000).

    Args:
      clip: as for `importance_sampling`.
    """
    value = masked.returns(batch.reward, batch.mask, discount)
    return masked.weighted_mean(log_weights(batch, log_ratio, clip), value)


def is_variance(
    log_weight: Float[Array, " traj"], returns: Float[Array, " traj"]
) -> Float[Array, ""]:
    """The sample's variance of IS."""
    return jnp.var(jnp.exp(log_weight) * returns) / len(returns)


def wis_variance(
    log_weight: Float[Array, " traj"], returns: Float[Array, " traj"]
) -> Float[Array, ""]:
    """The sample's variance of WIS, by the delta method."""
    share = jax.nn.softmax(log_weight)
    return jnp.sum(share**2 * (returns - masked.weighted_mean(log_weight, returns)) ** 2)


@with_headroom
def phwis(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj ..."],
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
    length = masked.lengths(batch.mask)
    value = masked.returns(batch.reward, batch.mask, discount)
    number = jax.ops.segment_sum(jnp.ones_like(value), length, batch.mask.shape[1] + 1)
    log_weight = log_weights(batch, log_ratio, clip)
    return mix_lengths(log_weight, value, length, number / len(value), length_probs)


@with_headroom
def rcis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """Return-conditioned IS: mean of g times the weight expected at g (Rowland et al. 2020).

    E[rho | g] is a step function on ceil(sqrt(N)) quantile bins of g. That of trajectory i is
    fitted on those j with j mod 5 != i mod 5, for in-sample least squares would be IS itself.
    NaN where there are none, as for a single trajectory.
    """
    log_weight = masked.log_weights(log_ratio, batch.mask)
    value = masked.returns(batch.reward, batch.mask, discount)
    number = len(value)
    fold = jnp.arange(number) % RCIS_FOLDS

    def without(k: Int[Array, ""]) -> Float[Array, " traj"]:
        return _expected_log_weight(log_weight, value, fold != k, math.ceil(math.sqrt(number)))

    expected = jax.vmap(without)(jnp.arange(min(RCIS_FOLDS, number)))[fold, jnp.arange(number)]
    estimate = masked.scaled_sum(expected, value / number)
    undefined = jnp.isnan(expected).any() | jnp.isnan(log_weight).any()
    return jnp.where(undefined, jnp.nan, estimate)


def _expected_log_weight(
    log_weight: Float[Array, " traj"], value: Float[Array, " traj"], used: Array, num_bins: int
) -> Float[Array, " traj"]:
    """The log of the mean weight of those used whose return falls into the same bin; else NaN.

    The b-th edge is the ceil(b n / B)-th smallest return of the n used; a bin holds what is above
    one edge and not above the next. A return above all of those used counts as the largest.
    """
    size = used.sum()
    ordered = jnp.sort(jnp.where(used, value, jnp.inf))
    rank = (jnp.arange(1, num_bins) * size + num_bins - 1) // num_bins
    edges = ordered[jnp.maximum(rank - 1, 0)]
    bin_of = jnp.searchsorted(edges, jnp.minimum(value, ordered[jnp.maximum(size - 1, 0)]))
    place = jnp.where(used, bin_of, num_bins)
    peak = masked.segment_peak(log_weight, place, num_bins + 1)
    weight = jnp.exp(log_weight - peak[place])
    total = jax.ops.segment_sum(weight, place, num_bins + 1)
    count = jax.ops.segment_sum(jnp.ones_like(weight), place, num_bins + 1)
    return (jnp.log(total / count) + peak)[bin_of]


def log_weights(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj ..."], clip
) -> Float[Array, " traj"]:
    """The log-weights of the trajectories, which may be what is given, cut to `clip`."""
    log_weight = log_ratio if log_ratio.ndim == 1 else masked.log_weights(log_ratio, batch.mask)
    return masked.clip_weights(log_weight, clip)


def mix_lengths(
    log_weight: Float[Array, " traj"],
    value: Float[Array, " traj"],
    length: Int[Array, " traj"],
    share: Float[Array, " length"],
    length_probs: Float[Array, " prob"] | None,
) -> Float[Array, ""]:
    """WIS of each length, averaged by the share of each or by known probabilities."""
    means = masked.segment_weighted_mean(log_weight, value, length, len(share))
    # also of a length whose probability is 0, a weight that is NaN must show
    means = jnp.where(jnp.isnan(log_weight).any(), jnp.nan, means)
    if length_probs is not None:
        unseen = len(length_probs) - len(share)
        share = jnp.pad(jnp.asarray(length_probs, value.dtype), (0, max(-unseen, 0)))
        means = jnp.pad(means, (0, max(unseen, 0)), constant_values=jnp.nan)
    return jnp.sum(jnp.where(share > 0, share * means, 0))
