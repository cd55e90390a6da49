"""Estimates of many resamples at once, where a resample is how often each trajectory came.

What does not depend on the resample is computed once, and nothing is gathered. Products of matrices
serve where they lose nothing; a resample whose weights vanish beside the heaviest of all is
computed by itself.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators.entry import Counted
from osiris_jax.estimators.per_decision import log_discounts
from osiris_jax.estimators.trajectory import log_weights, mix_lengths


class Parts(NamedTuple):
    """Log-weight and value of every trajectory, or of every step and all before it.

    A weight that omission changes is before omission.
    """

    log_weight: Float[Array, "traj ..."]
    value: Float[Array, "traj ..."]


def _trajectories(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount, clip=None, **_: Any
) -> Parts:
    value = masked.returns(batch.reward, batch.mask, discount)
    return Parts(log_weights(batch, log_ratio, clip), value)


def _steps(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, clip=None, **_: Any
) -> Parts:
    log_weight = masked.clip_weights(masked.running_log_weights(log_ratio, batch.mask), clip)
    return Parts(log_weight, masked.fill(batch.mask, batch.reward))


def _summed_steps(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount, **options: Any
) -> Parts:
    """sum_t gamma^(t-1) r_t rho_{1:t} of each trajectory, as the log of a weight and a value."""
    log_weight, reward = _steps(batch, log_ratio, **options)
    log_weight = log_weight + log_discounts(batch, discount)[None]
    counts = (reward != 0) & ~jnp.isneginf(log_weight)
    peak = jnp.where(counts, log_weight, -jnp.inf).max(1)
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    relative = jnp.exp(jnp.where(counts, log_weight - peak[:, None], 0))
    summed = masked.total(jnp.where(counts, reward * relative, 0))
    return Parts(jnp.where(jnp.isnan(log_weight).any(1), jnp.nan, peak), summed)


def _present(count: Array, log_weight: Array) -> Array:
    """The log-weights, those of trajectories that the resample lacks being of no weight."""
    return jnp.where(count > 0, log_weight, -jnp.inf)


def _mean_return(count: Array, log_weight: Array, parts: Parts, **_: Any) -> Array:
    del log_weight
    return jnp.sum(parts.value * (count / count.sum()))


def _weighted_sum(count: Array, log_weight: Array, parts: Parts, **_: Any) -> Array:
    return masked.scaled_sum(_present(count, log_weight), parts.value * (count / count.sum()))


def _weighted_mean(count: Array, log_weight: Array, parts: Parts, **_: Any) -> Array:
    return masked.weighted_mean(_present(count, log_weight) + jnp.log(count), parts.value)


def _by_length(
    count: Array, log_weight: Array, parts: Parts, *, mask: Array, length_probs=None, **_: Any
) -> Array:
    log_weight = _present(count, log_weight) + jnp.log(count)
    length, num_lengths = masked.lengths(mask), mask.shape[1] + 1
    share = jax.ops.segment_sum(count / count.sum(), length, num_lengths)
    return mix_lengths(log_weight, parts.value, length, share, length_probs)


def _weighted_sums(
    counts: Float[Array, "resample traj"], parts: Parts, **_: Any
) -> Float[Array, " resample"]:
    """`_weighted_sum` of every resample as one product, or each by itself where weights vanish."""
    log_weight, value = parts.log_weight, parts.value
    adds = (value != 0) & ~jnp.isneginf(log_weight)
    peak = jnp.max(jnp.where(adds, log_weight, -jnp.inf))
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    weight = jnp.where(adds, jnp.exp(jnp.where(adds, log_weight, 0) - peak), 0)
    columns = jnp.stack([weight * value, weight, adds.astype(value.dtype)], axis=1)
    total, norm, adding = _product(counts / counts.sum(1)[:, None], columns).T
    root = jnp.exp(peak / 2)

    def each() -> Array:
        return lax.map(lambda count: _weighted_sum(count, log_weight, parts), counts)

    trusted = jnp.all((adding == 0) | (norm > _least_sum(value.dtype)))
    trusted = trusted & ~jnp.isnan(log_weight).any()
    return lax.cond(trusted, lambda: total * root * root, each)


def _weighted_means_of_trajectories(
    counts: Float[Array, "resample traj"], parts: Parts, **_: Any
) -> Float[Array, " resample"]:
    return _weighted_means(counts, parts.log_weight[:, None], parts.value[:, None])[:, 0]


def _weighted_means(
    counts: Float[Array, "resample traj"],
    log_weight: Float[Array, "traj column"],
    value: Float[Array, "traj column"],
    asked: Bool[Array, "resample column"] | bool = True,
) -> Float[Array, "resample column"]:
    """`masked.weighted_mean` of every column in every resample, where asked, as products.

    Each by itself where the weights of a resample vanish beside the heaviest of all.
    """
    heaviest = jnp.argmax(log_weight, axis=0)[None]
    peak = jnp.take_along_axis(log_weight, heaviest, 0)
    reference = jnp.take_along_axis(value, heaviest, 0)
    weight = jnp.exp(log_weight - jnp.where(jnp.isfinite(peak), peak, 0))
    weighs = ~jnp.isneginf(log_weight)
    columns = (weight, weight * (value - reference), weighs.astype(value.dtype))
    norm, excess, weighing = jnp.split(_product(counts, jnp.concatenate(columns, 1)), 3, axis=1)
    needed = asked & (weighing > 0)

    def products() -> Array:
        mean = reference + excess / jnp.where(needed, norm, 1)
        return jnp.where(weighing > 0, mean, jnp.nan)

    def one(count: Float[Array, " traj"]) -> Float[Array, " column"]:
        by_count = _present(count[:, None], log_weight) + jnp.log(count)[:, None]
        return jax.vmap(masked.weighted_mean, in_axes=1)(by_count, value)

    trusted = jnp.all(~needed | (norm > _least_sum(value.dtype)))
    return lax.cond(trusted, products, lambda: lax.map(one, counts))


def _weighted_means_by_step(
    counts: Float[Array, "resample traj"],
    parts: Parts,
    *,
    mask: Bool[Array, "traj time"],
    discount,
    finished: str,
    **_: Any,
) -> Float[Array, " resample"]:
    log_weight, reward = parts
    if finished != "keep":
        log_weight = masked.fill(mask, log_weight, -jnp.inf)
    alive = _product(counts, mask.astype(reward.dtype))
    mean = _weighted_means(counts, log_weight, reward, alive > 0)
    share = alive / counts.sum(1)[:, None] if finished == "share" else jnp.ones_like(alive)
    scale = masked.discounts(reward.shape[1], discount, reward.dtype)
    return masked.total(jnp.where(alive > 0, mean * share, 0) * scale[None])


def _product(counts: Array, columns: Array) -> Array:
    return jnp.matmul(counts, columns, precision=lax.Precision.HIGHEST)


def _least_sum(dtype) -> float:
    """A sum of relative weights below which some of them may have vanished."""
    return 1e-200 if dtype == jnp.float64 else 1e-18


def _returns(parts: Parts) -> tuple[Array, Array]:
    return parts.value, jnp.ones_like(parts.value)


def _weighted_returns(parts: Parts) -> tuple[Array, Array]:
    weight = jnp.exp(parts.log_weight)
    return weight * parts.value, weight


def _linear_part(parts: Parts) -> tuple[Array, Array]:
    """Of a weighted mean: what it is the mean of, to first order."""
    centre = masked.weighted_mean(parts.log_weight, parts.value)
    share = len(parts.value) * jax.nn.softmax(parts.log_weight)
    return centre + share * (parts.value - centre), share


MC = Counted(_trajectories, None, _mean_return, _returns)
IS = Counted(_trajectories, _weighted_sums, _weighted_sum, _weighted_returns)
WIS = Counted(_trajectories, _weighted_means_of_trajectories, _weighted_mean, _linear_part)
PHWIS = Counted(_trajectories, None, _by_length)
PDIS = Counted(_summed_steps, _weighted_sums, terms=_weighted_returns)
CWPDIS = Counted(_steps, _weighted_means_by_step)
