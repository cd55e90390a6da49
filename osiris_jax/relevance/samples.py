"""The samples that a relevance test compares: what followed each visit to a state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import check_word
from osiris_jax.core.segments import look_up, segment_max
from osiris_jax.models.neural import WEIGHTINGS

CLASSES = ("ratio", "return")


class Visits(NamedTuple):
    """One sample x per visit (i, t), in two groups by the class of the action taken.

    `value` is x divided by a scale of its state's own: the tests do not see scales. Where a ratio
    of the data is `unknown`, neither classes nor weights are known, and no test can be made.
    """

    value: Float[Array, "traj time"]
    above: Bool[Array, "traj time"]
    state: Int[Array, "traj time"]
    used: Bool[Array, "traj time"]
    log_scale: Float[Array, " state"]
    unknown: Bool[Array, ""] | bool = False


def visits(
    batch: TrajectoryBatch,
    *,
    weighting: str = "none",
    discount=1.0,
    first_visit: bool = False,
    classes: str = "ratio",
) -> Visits:
    """x = g_{t:T} times rho_{t:T} ("to-go"), rho_{t+1:T} ("future") or 1 ("none").

    The classes of actions: "ratio", whether rho_t > 1; "return", whether more than half of the
    action's visits to the state exceed the median x there.
    """
    check_word("weighting", weighting, WEIGHTINGS)
    check_word("classes", classes, CLASSES)
    purpose = "relevance by state"
    state = masked.fill(batch.mask, batch.require("state", purpose))
    log_ratio = batch.require("log_ratio", purpose)
    to_go, exponent = scale_to_unit(masked.returns_to_go(batch.reward, batch.mask, discount))
    log_scale = jnp.full(batch.num_states, exponent * jnp.log(2.0), to_go.dtype)
    used = first_visits(state, batch.mask, batch.num_states) if first_visit else batch.mask
    if weighting == "none":
        value = to_go
    else:
        log_weight = log_weights_of(batch, weighting)
        value, peak = weigh_by_state(to_go, log_weight, state, used, batch.num_states)
        log_scale = log_scale + peak
    above = masked.fill(batch.mask, log_ratio) > 0
    unknown = masked.unknown(log_ratio, batch.mask)
    visit = Visits(masked.fill(used, value), above, state, used, log_scale, unknown)
    return visit if classes == "ratio" else _class_by_return(visit, batch)


def visits_of(
    visit: Visits, batch: TrajectoryBatch, chosen: Bool[Array, " traj"], *, classes: str
) -> Visits:
    """The visits of the chosen trajectories, in the classes that these alone make."""
    visit = visit._replace(used=visit.used & chosen[:, None])
    return visit if classes == "ratio" else _class_by_return(visit, batch)


def log_weights_of(batch: TrajectoryBatch, weighting: str) -> Float[Array, "traj time"]:
    """The log of what a return to go is weighed by: rho_{t:T}, rho_{t+1:T} or 1."""
    if weighting == "none":
        return jnp.zeros_like(batch.reward)
    log_ratio = batch.require("log_ratio", "a weighted return to go")
    log_weight = masked.running_log_weights(log_ratio, batch.mask, reverse=True)
    if weighting == "future":
        log_weight = jnp.pad(log_weight[:, 1:], ((0, 0), (0, 1)))
    return log_weight


def _class_by_return(visit: Visits, batch: TrajectoryBatch) -> Visits:
    """Above are actions most of whose visits to the state exceed the state's median."""
    action = masked.fill(batch.mask, batch.require("action", "classes of actions by return"))
    num_pairs = batch.num_states * batch.num_actions
    median = stats.segment_median(
        visit.value.ravel(),
        jnp.where(visit.used, visit.state, batch.num_states).ravel(),
        batch.num_states,
    )
    votes = jnp.where(visit.value > median[visit.state], 1, -1)
    pair = visit.state * batch.num_actions + action
    balance = jax.ops.segment_sum(
        votes.ravel(), jnp.where(visit.used, pair, num_pairs).ravel(), num_pairs
    )
    return visit._replace(above=balance[pair] > 0)


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


def scale_to_unit(
    x: Float[Array, "traj time"],
) -> tuple[Float[Array, "traj time"], Int[Array, ""]]:
    """x over a power of two near its largest size, which is exact, and the power's exponent."""
    size = jnp.max(jnp.abs(x))
    size = jnp.where((size > 0) & jnp.isfinite(size), size, jnp.asarray(0.5, x.dtype))
    exponent, rest = jnp.ones((), jnp.int32), jnp.asarray(0.5, x.dtype)
    first, *others = (jnp.finfo(x.dtype).maxexp >> k for k in range(1, 11))
    scale = jnp.ones((), x.dtype)
    for power in (first, *others):
        if not power:
            break
        up, down = 2.0**power, 2.0**-power
        factor = jnp.where(size >= up, down, jnp.where(size < 2 * down, up, 1)).astype(x.dtype)
        size = size * factor
        exponent = exponent + jnp.where(factor < 1, power, jnp.where(factor > 1, -power, 0))
        scale, rest = (factor, rest) if power == first else (scale, rest * factor)
    return x * scale * rest, exponent


def weigh_by_state(
    value: Float[Array, "traj time"],
    log_weight: Float[Array, "traj time"],
    state: Int[Array, "traj time"],
    used: Bool[Array, "traj time"],
    num_states: int,
) -> tuple[Float[Array, "traj time"], Float[Array, " state"]]:
    """value * exp(log_weight) over the largest such product of the state, and that one's log."""
    counts = used & (value != 0) & ~jnp.isneginf(log_weight)
    log_size = jnp.where(
        counts, log_weight + jnp.log(jnp.abs(jnp.where(counts, value, 1))), -jnp.inf
    )
    place = jnp.where(counts, state, num_states).ravel()
    peak = segment_max(log_size.ravel(), place, num_states)
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    of_state = look_up(peak, place).reshape(state.shape)
    relative = jnp.exp(jnp.where(counts, log_weight - of_state, 0))
    return jnp.where(counts, value * relative, 0), peak
