"""From evidence of relevance to the log-ratios that are kept: the whole of OSIRIS."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.segments import segment_sum

PART = 32


class AtSteps(NamedTuple):
    """Evidence, or a map, given for every step instead of every state."""

    value: Shaped[Array, "*rows traj time"]


def relevant(pvalue: Float[Array, "*shape"], alpha) -> Bool[Array, "*shape"]:
    """theta = [p <= alpha]: nothing at alpha = 0, everything at alpha = 1.

    The level is widened by a rounding error, for exact p-values hit round levels.
    """
    alpha = jnp.asarray(alpha, pvalue.dtype)
    widened = alpha * (1 + (1e-12 if pvalue.dtype == jnp.float64 else 1e-6))
    return (pvalue <= widened) & (alpha > 0)


def above(statistic: Any, threshold) -> Any:
    """theta = [statistic > threshold], for evidence that is not a p-value."""
    return jax.tree.map(lambda x: x > jnp.asarray(threshold, x.dtype), statistic)


def at_steps(by_state: Any, batch: TrajectoryBatch) -> Shaped[Array, "traj time"]:
    """The value at every step of what is given by [state], by [traj, state], or by step."""
    if isinstance(by_state, AtSteps):
        return by_state.value
    state = masked.fill(batch.mask, batch.require("state", "omission by state"))
    if by_state.ndim == 1:
        return by_state[state]
    return jnp.take_along_axis(by_state, state, axis=1)


def keep_steps(keep: Any, batch: TrajectoryBatch) -> Bool[Array, "traj time"]:
    """The map's value at every step."""
    return at_steps(keep, batch)


def most_relevant(
    keep: Bool[Array, "traj time"], evidence: Float[Array, "traj time"], max_kept
) -> Bool[Array, "traj time"]:
    """Of the steps kept, the `max_kept` of each trajectory with the least evidence value.

    Ties go to the earlier step. For a statistic that is large where a state is relevant, give
    its negative.
    """
    order = jnp.argsort(jnp.where(keep, evidence, jnp.inf), axis=1, stable=True)
    rank = jnp.argsort(order, axis=1)
    return keep & (rank < max_kept)


def omit(
    log_ratio: Float[Array, "*shape"], keep: Shaped[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """The log-ratios with those not kept set to 0, that is, their ratios to 1."""
    return jnp.where(keep, log_ratio, 0)


def kept_ratios(
    batch: TrajectoryBatch, keep: Bool[Array, "traj time"]
) -> Float[Array, "traj time"]:
    """The log-ratios after omission at all steps that are not kept."""
    return omit(batch.require("log_ratio", "omission"), keep)


def log_weights_of_levels(
    log_ratio: Float[Array, "traj time"],
    mask: Bool[Array, "traj time"],
    omissions: Int[Array, "traj time"],
    num_levels: int,
) -> Float[Array, "level traj"]:
    """Log-weights of the trajectories after omission at every level of a rising sequence.

    A step that the first `omissions` levels omit is kept by all others. So each log-ratio is added
    once, to what its first level adds, and not once for every level. Long trajectories are added
    in parts, and these by `masked.total`, so that errors do not grow with the number of steps.
    """
    num_trajectories, num_steps = mask.shape
    num_parts = -(-num_steps // PART)
    part = jnp.arange(num_steps) // PART
    row = jnp.arange(num_trajectories)[:, None] * num_parts + part[None]
    shape = (num_trajectories, num_parts, num_levels + 1)
    nowhere = math.prod(shape)
    place = jnp.where(mask, row * (num_levels + 1) + omissions, nowhere)
    added = segment_sum(masked.fill(mask, masked.known(log_ratio)).ravel(), place.ravel(), nowhere)
    by_level = jnp.moveaxis(added.reshape(shape), -1, 0)[:num_levels]
    return masked.total(jnp.stack(list(itertools.accumulate(by_level))))


def composite(batch: TrajectoryBatch, keep: Bool[Array, "traj time"]) -> TrajectoryBatch:
    """The batch as data of the composite policy: the target's where kept, else the behaviour's.

    Omission is evaluation of that policy (Shen et al. 2021, lemma on composite policies). Where
    the behaviour's probabilities are not known, the action taken stands for them.
    """
    if batch.target_probs is None:
        return batch
    behavior = batch.behavior_probs
    if behavior is None:
        action = masked.fill(batch.mask, batch.require("action", "a composite policy"))
        behavior = jax.nn.one_hot(action, batch.target_probs.shape[-1], dtype=batch.dtype)
    return batch.replace(target_probs=jnp.where(keep[..., None], batch.target_probs, behavior))
