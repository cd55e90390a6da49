"""The Markov check: given the state, does the return depend on what was done some steps before?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import erfc
from jaxtyping import Bool, Float, Int

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import default
from osiris_jax.core.segments import look_up, segment_max, segment_min, segment_sum
from osiris_jax.relevance.samples import scale_to_unit

LEAST_TRAJECTORIES = default(20)


def markov_pvalues(
    batch: TrajectoryBatch,
    lags: Int[Array, " lag"],
    *,
    first_visit: bool = False,
    by_step: bool = False,
    discount=1.0,
    least_trajectories: int = LEAST_TRAJECTORIES,
) -> Float[Array, " lag"]:
    """P-values of all lags, each by itself: those of `markov_check` before they are adjusted.

    Args:
      by_step: given the state and the step, in place of the state alone, so that a cap on steps
        does no harm. Clusters measure returns from the mean of the visits to the state at that
        step; for the first visits stand those at the step at which most are in the state.
    """
    steps = _steps(batch, discount)
    if first_visit:
        of_lag = partial(_by_single_visits, at=_most_visited if by_step else _first_visited)
    else:
        value = _above_their_step(batch, steps.value) if by_step else steps.value
        steps = steps._replace(value=value)
        of_lag = partial(_by_clusters, least=least_trajectories)
    pvalue = lax.map(lambda lag: of_lag(batch, steps, lag), lags)
    return jnp.where(steps.unknown, jnp.nan, pvalue)


def of_both(
    clustered: Float[Array, "*shape"], first_visit: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Twice the smaller p-value of the two forms, or the one that is decided."""
    decided = jnp.where(jnp.isnan(clustered) | jnp.isnan(first_visit), 1, 2)
    return jnp.minimum(decided * jnp.fmin(clustered, first_visit), 1)


def holm(pvalue: Float[Array, " lag"]) -> Float[Array, " lag"]:
    """P-values adjusted as by Holm (1979) for all that are decided; NaN stays NaN."""
    number_left = (pvalue[None] >= pvalue[:, None]).sum(1)
    stepwise = jnp.minimum(number_left * pvalue, 1)
    adjusted = jnp.where(pvalue[None] <= pvalue[:, None], stepwise[None], 0).max(1)
    return jnp.where(jnp.isnan(pvalue), jnp.nan, adjusted)


class _Steps(NamedTuple):
    """What all lags share. `value` is the return to go, measured from one of the state's own."""

    value: Float[Array, "traj time"]
    likelier: Bool[Array, "traj time"]
    place: Int[Array, "traj time"]
    unknown: Bool[Array, ""]


def _steps(batch: TrajectoryBatch, discount) -> _Steps:
    purpose = "the Markov check"
    state = masked.fill(batch.mask, batch.require("state", purpose))
    log_ratio = batch.require("log_ratio", purpose)
    reward, _ = scale_to_unit(masked.fill(batch.mask, batch.reward))
    value = masked.returns_to_go(reward, batch.mask, discount)
    unknown = masked.unknown(log_ratio, batch.mask) | ~jnp.isfinite(value).all()
    value = value - _of_last_visits(value, state, batch.mask, batch.num_states)
    place = jnp.arange(len(state), dtype=state.dtype)[:, None] * batch.num_states + state
    return _Steps(value, masked.fill(batch.mask, log_ratio) > 0, place, unknown)


def _above_their_step(
    batch: TrajectoryBatch, value: Float[Array, "traj time"]
) -> Float[Array, "traj time"]:
    """Values less the mean of their state and step; what rounding leaves of equal ones is 0."""
    cell, num_steps = _cells(batch, batch.mask), value.shape[1]
    columns = jnp.stack([masked.fill(batch.mask, value), batch.mask.astype(value.dtype)], -1)
    total, number = segment_sum(columns.reshape(-1, 2), cell, batch.num_states * num_steps).T
    mean = look_up(total / jnp.maximum(number, 1), cell).reshape(value.shape)
    above = masked.fill(batch.mask, value - mean)
    rounding = 16 * jnp.finfo(value.dtype).eps * (jnp.abs(value) + jnp.abs(mean))
    return jnp.where(jnp.abs(above) > rounding, above, 0)


def _of_last_visits(
    value: Float[Array, "traj time"],
    state: Int[Array, "traj time"],
    mask: Bool[Array, "traj time"],
    num_states: int,
) -> Float[Array, "traj time"]:
    """The value of a visit to the same state of which there is none at a later time.

    It is a visit at every lag at which the state has any: where values are equal differences are 0.
    """
    number = jnp.arange(value.size, dtype=jnp.int32).reshape(value.shape[::-1]).T
    place = jnp.where(mask, state, num_states).ravel()
    last = look_up(segment_max(number.ravel(), place, num_states), place)
    return value.T.ravel()[jnp.clip(last, 0, value.size - 1)].reshape(value.shape)


def _seen(
    batch: TrajectoryBatch, steps: _Steps, lag: Int[Array, ""]
) -> tuple[Bool[Array, "traj time"], Bool[Array, "traj time"]]:
    """Visits at times t > lag, and which of them come that long after an action of ratio > 1."""
    num_steps = batch.reward.shape[1]
    padded = jnp.pad(steps.likelier, ((0, 0), (num_steps, 0)))
    earlier = lax.dynamic_slice_in_dim(
        padded, num_steps - jnp.minimum(lag, num_steps), num_steps, 1
    )
    used = batch.mask & (jnp.arange(num_steps) >= lag)[None]
    return used, used & earlier


def _by_clusters(
    batch: TrajectoryBatch, steps: _Steps, lag: Int[Array, ""], *, least: int
) -> Float[Array, ""]:
    """From all visits, a trajectory's visits to a state taken together."""
    used, likelier = _seen(batch, steps, lag)
    value = masked.fill(used, steps.value)
    columns = (used, likelier, value, masked.fill(likelier, value))
    of_visits = jnp.stack([x.astype(value.dtype) for x in columns], -1).reshape(-1, len(columns))
    shape = len(value), batch.num_states
    sums = segment_sum(of_visits, steps.place.ravel(), shape[0] * shape[1])
    visits, labels, values, products = jnp.moveaxis(sums.reshape(*shape, len(columns)), -1, 0)
    number = jnp.maximum(visits.sum(0), 1)
    mean_label, mean_value = (x.sum(0)[None] / number[None] for x in (labels, values))
    excess = (products - mean_label * values) - mean_value * (labels - mean_label * visits)
    size = jnp.abs(products) + jnp.abs(values) + jnp.abs(mean_value) * visits
    excess = jnp.where(jnp.abs(excess) > 16 * jnp.finfo(size.dtype).eps * size, excess, 0)
    largest = jnp.abs(excess).max(0)
    varies = largest > 0
    relative = excess / jnp.where(varies, largest, 1)[None]
    z = relative.sum(0) / jnp.sqrt(jnp.where(varies, (relative**2).sum(0), 1))
    pvalue = jnp.where(varies, erfc(jnp.abs(z) / jnp.sqrt(jnp.asarray(2, z.dtype))), 1)
    fewer = jnp.minimum((labels > 0).sum(0), (labels < visits).sum(0))
    return _bonferroni(pvalue, fewer >= max(least, 1))


def _by_single_visits(
    batch: TrajectoryBatch, steps: _Steps, lag: Int[Array, ""], *, at: Callable[..., Any]
) -> Float[Array, ""]:
    """From one visit of a trajectory to a state, at a time that `at` finds, by an exact test."""
    used, likelier = _seen(batch, steps, lag)
    time, found = at(batch, steps, used)
    value = jnp.take_along_axis(steps.value, time, axis=1)
    above = found & jnp.take_along_axis(likelier, time, axis=1)
    result = stats.quarters(value, above, found)
    tested = above.any(0) & (found & ~above).any(0)
    return _bonferroni(result.pvalue, tested, result.least)


def _first_visited(
    batch: TrajectoryBatch, steps: _Steps, used: Bool[Array, "traj time"]
) -> tuple[Int[Array, "traj state"], Bool[Array, "traj state"]]:
    """When a trajectory first comes to a state, and whether it does."""
    shape, num_steps = (len(used), batch.num_states), used.shape[1]
    nowhere = shape[0] * shape[1]
    time = jnp.broadcast_to(jnp.arange(num_steps, dtype=jnp.int32), used.shape)
    place = jnp.where(used, steps.place, nowhere).ravel()
    first = segment_min(time.ravel(), place, nowhere).reshape(shape)
    found = first < num_steps
    return jnp.where(found, first, 0), found


def _most_visited(
    batch: TrajectoryBatch, steps: _Steps, used: Bool[Array, "traj time"]
) -> tuple[Int[Array, "traj state"], Bool[Array, "traj state"]]:
    """The step at which most trajectories are in a state, and which of them are."""
    shape, num_steps = (len(used), batch.num_states), used.shape[1]
    state = batch.require("state", "the Markov check")
    cell = _cells(batch, used)
    number = segment_sum(used.astype(jnp.int32).ravel(), cell, shape[1] * num_steps)
    step = number.reshape(shape[1], num_steps).argmax(1)
    found = used[:, step] & (state[:, step] == jnp.arange(shape[1])[None])
    return jnp.broadcast_to(step[None], shape), found


def _cells(batch: TrajectoryBatch, used: Bool[Array, "traj time"]) -> Int[Array, " step"]:
    """The pair of state and step of every visit, -1 for what is not used."""
    num_steps, state = used.shape[1], batch.require("state", "the Markov check")
    return jnp.where(used, state * num_steps + jnp.arange(num_steps)[None], -1).ravel()


def _bonferroni(
    pvalue: Float[Array, " state"], tested: Bool[Array, " state"], least: Array | int = 0
) -> Float[Array, ""]:
    """The least p-value times the number of tests that could have been as small (Tarone 1990).

    Args:
      least: what each p-value could have been at least.
    """
    smallest = jnp.where(tested, pvalue, jnp.inf).min()
    could = tested & (least <= smallest * (1 + stats.TIE))
    adjusted = jnp.minimum(could.sum() * smallest, 1)
    return jnp.where(tested.any(), adjusted, jnp.nan)
