"""Return-conditioned importance sampling: the weight that a return predicts."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators.headroom import with_headroom

FOLDS = 5


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
    fold = jnp.arange(number) % FOLDS

    def without(k: Int[Array, ""]) -> Float[Array, " traj"]:
        return _expected_log_weight(log_weight, value, fold != k, math.ceil(math.sqrt(number)))

    expected = jax.vmap(without)(jnp.arange(min(FOLDS, number)))[fold, jnp.arange(number)]
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
