"""The samples that a relevance test compares: what followed each visit to a state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch

WEIGHTINGS = ("to-go", "future", "none")


class Visits(NamedTuple):
    """One sample x per visit (i, t), in two groups by whether the action's ratio exceeds 1.

    `value` is x divided by a scale of its state's own: the tests do not see scales.
    """

    value: Float[Array, "traj time"]
    above: Bool[Array, "traj time"]
    state: Int[Array, "traj time"]
    used: Bool[Array, "traj time"]


def visits(batch: TrajectoryBatch, *, weighting: str, discount, first_visit: bool) -> Visits:
    """x = g_{t:T} times rho_{t:T} ("to-go"), rho_{t+1:T} ("future") or 1 ("none")."""
    if weighting not in WEIGHTINGS:
        names = ", ".join(f'"{name}"' for name in WEIGHTINGS)
        raise ValueError(f"weighting: {weighting!r} is not one of {names}")
    purpose = "relevance by state"
    state = masked.fill(batch.mask, batch.require("state", purpose))
    log_ratio = batch.require("log_ratio", purpose)
    to_go = scale_to_unit(masked.returns_to_go(batch.reward, batch.mask, discount))
    used = first_visits(state, batch.mask, batch.num_states) if first_visit else batch.mask
    if weighting == "none":
        value = to_go
    else:
        log_weight = masked.running_log_weights(log_ratio, batch.mask, reverse=True)
        if weighting == "future":
            log_weight = jnp.pad(log_weight[:, 1:], ((0, 0), (0, 1)))
        value = weigh_by_state(to_go, log_weight, state, used, batch.num_states)
    above = masked.fill(batch.mask, log_ratio) > 0
    return Visits(masked.fill(used, value), above, state, used)


def first_visits(
    state: Int[Array, "traj time"], mask: Bool[Array, "traj time"], num_states: int
) -> Bool[Array, "traj time"]:
    """Steps at which a trajectory is in a state for the first time."""
    num_trajectories, num_steps = state.shape
    time = jnp.broadcast_to(jnp.arange(num_steps)[None], state.shape)
    visited = jnp.full((num_trajectories, num_states), num_steps)
    row = jnp.arange(num_trajectories)[:, None]
    earliest = visited.at[row, state].min(jnp.where(mask, time, num_steps))
    return mask & (jnp.take_along_axis(earliest, state, axis=1) == time)


def scale_to_unit(x: Float[Array, "traj time"]) -> Float[Array, "traj time"]:
    """x over a power of two near its largest size, which is exact: squares cannot overflow."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(x)))
    return jnp.ldexp(x, -exponent)


def weigh_by_state(
    value: Float[Array, "traj time"],
    log_weight: Float[Array, "traj time"],
    state: Int[Array, "traj time"],
    used: Bool[Array, "traj time"],
    num_states: int,
) -> Float[Array, "traj time"]:
    """value * exp(log_weight) over the largest such product of the state."""
    counts = used & (value != 0) & (log_weight > -jnp.inf)
    log_size = jnp.where(
        counts, log_weight + jnp.log(jnp.abs(jnp.where(counts, value, 1))), -jnp.inf
    )
    peak = jax.ops.segment_max(log_size.ravel(), state.ravel(), num_states)
    shift = jnp.where(jnp.isfinite(peak), peak, 0)[state]
    return jnp.where(counts, value * jnp.exp(jnp.where(counts, log_weight - shift, 0)), 0)
