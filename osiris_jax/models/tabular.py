"""Q-hat from tables: a model fitted to the counts of the data, or a table that is supplied."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.platforms import by_platform
from osiris_jax.core.segments import segment_sum
from osiris_jax.models.tabular_parts import (
    Sizes,
    StepValues,
    Visited,
    cross_fitting,
    mean_policy,
    mean_where_seen,
    shrink,
)
from osiris_jax.models.tabular_rows import values_from_rows

PURPOSE = "Q-hat by state"
MOST_CELLS = 2**18  # of a matrix of counts on an accelerator
AT_ONCE_ON_TPU = {4: 16, 8: 1}  # for how many data sets it has them, by the size of a float
AT_ONCE_ON_GPU = 512


def tabular(batch: TrajectoryBatch, *, discount, folds: int, smoothing) -> StepValues:
    """Q-hat of the target policy in the MDP whose dynamics are the data's own frequencies.

    Transitions are pooled over time. With V = 0 after the longest trajectory of the data, backwards
    over t,

      Q_t(s, a) = mean(r | s, a) + gamma mean(V_{t+1}(s') | s, a),
      V_t(s) = sum_a pi_e(a|s) Q_t(s, a),

    where each mean of x is (sum of x + smoothing * xbar(s)) / (n(s, a) + smoothing), xbar(s) being
    the mean over all visits to s, or over all the data for a state never seen, and pi_e(.|s) is the
    mean of `target_probs` over the visits to s. A trajectory's last step leads to an end of value
    0, but at the time when the longest ends it may have been cut: visits at that time have a
    reward, and no successor in the second mean.

    Args:
      discount: gamma in [0, 1].
      folds: from 2 on, the values of trajectory i come from the trajectories j with j mod folds
        other than i mod folds, which keeps the doubly robust estimator unbiased; 0 or 1: all data.
      smoothing: how many transitions the state's mean counts for; 0 for none, when an action never
        seen in a state still has the state's mean.
    """
    if folds < 0:
        raise ValueError(f"folds: expected 0 for none, or a number of folds, got {folds}")
    state, action, probs = (
        batch.require(field, PURPOSE) for field in ("state", "action", "target_probs")
    )
    sizes = Sizes(batch.num_states, batch.num_actions, folds)
    arrived = masked.fill(batch.mask, state, sizes.states)[:, 1:]
    successor = jnp.pad(arrived, ((0, 0), (0, 1)), constant_values=sizes.states)
    state, action = masked.fill(batch.mask, state), masked.fill(batch.mask, action)
    probs = jnp.where(batch.mask[..., None], probs, 0)
    pair = jnp.where(batch.mask, state * sizes.actions + action, sizes.pairs)
    reward = masked.fill(batch.mask, batch.reward)
    visited = Visited(batch.mask, reward, state, action, pair, successor, probs)
    numbers = (jnp.asarray(x, batch.dtype) for x in (discount, smoothing))
    cells = sizes.pairs * sizes.states
    fits = cells <= batch.mask.size
    usual = partial(values_from_tables, sizes=sizes) if fits else values_from_rows(sizes)
    forms = {}
    if cells <= MOST_CELLS:
        at_once = AT_ONCE_ON_TPU[batch.dtype.itemsize]
        forms = {"tpu": few_tables(sizes, at_once), "gpu": few_tables(sizes, AT_ONCE_ON_GPU)}
    return by_platform(visited, *numbers, default=usual, **forms)


@partial(jax.jit, static_argnames="sizes")
def values_from_tables(
    visited: Visited, discount: Float[Array, ""], smoothing: Float[Array, ""], sizes: Sizes
) -> StepValues:
    """Q-hat along the data from tables of all pairs, and a matrix of what follows each."""
    mask = visited.mask
    model_of, learns = cross_fitting(len(mask), sizes.folds)
    by_pair = partial(_sums_by_pair, visited.pair, learns, sizes)
    followed = jnp.broadcast_to(masked.followed(mask)[None], mask.shape)
    visits, followed, paid = (
        by_pair(x.astype(visited.reward.dtype)) for x in (mask, followed, visited.reward)
    )
    matrix = _counts_of_successors(visited, learns, sizes)
    policy = mean_policy(visited, sizes.states)[None]

    def drawn_together(total: Array, count: Array) -> Float[Array, "model state action"]:
        usual = mean_where_seen(total.sum(-1), count.sum(-1), axis=1)
        return shrink(total, count, usual[..., None], smoothing)

    reward = drawn_together(paid, visits)

    def step_back(following: Float[Array, "model state"], inputs):
        runs, state, action, probs = inputs
        total = jnp.einsum("mps,ms->mp", matrix, following, precision=lax.Precision.HIGHEST)
        ahead = drawn_together(total.reshape(reward.shape), followed)
        by_action = reward + discount * ahead
        logged = by_action[model_of, state]
        q = jnp.take_along_axis(logged, action[:, None], axis=1)[:, 0]
        value = jnp.where(runs, (policy * by_action).sum(-1), 0)
        return value, (q, (probs * logged).sum(-1))

    by_time = [jnp.moveaxis(x, 1, 0) for x in (visited.state, visited.action, visited.probs)]
    end = jnp.zeros(visits.shape[:2], visits.dtype)
    _, (q, v) = lax.scan(step_back, end, (masked.alive(mask), *by_time), reverse=True)
    return StepValues(masked.fill(mask, q.T), masked.fill(mask, v.T))


@cache
def few_tables(sizes: Sizes, at_once: int) -> Any:
    """`values_from_tables`, which take memory: of few data sets at a time under `vmap`."""
    dense = partial(values_from_tables, sizes=sizes)
    few = custom_vmap(dense)

    @few.def_vmap
    def of_many(number: int, batched: Any, *operands: Any):
        every = jax.tree.map(
            lambda x, is_batched: (
                x if is_batched else jnp.broadcast_to(x[None], (number, *x.shape))
            ),
            operands,
            tuple(batched),
        )
        values = lax.map(lambda one: dense(*one), every, batch_size=min(number, at_once))
        return values, jax.tree.map(lambda _: True, values)

    return few


def _by_fold(x: Shaped[Array, "traj time"], folds: int, value: int) -> Shaped[Array, "fold visit"]:
    """The visits of each fold, i mod folds; the value where one has fewer trajectories."""
    padded = jnp.pad(x, ((0, -len(x) % folds), (0, 0)), constant_values=value)
    return jnp.swapaxes(padded.reshape(-1, folds, x.shape[1]), 0, 1).reshape(folds, -1)


def _learnt(by_fold: Float[Array, "fold cell"]) -> Float[Array, "model cell"]:
    """What each model learns, from sums of the folds: those of the others, or all of one."""
    folds = len(by_fold)
    if folds == 1:
        return by_fold
    others = (~jnp.eye(folds, dtype=bool)).astype(by_fold.dtype)
    return jnp.tensordot(others, by_fold, 1, precision=lax.Precision.HIGHEST)


def _sums_by_pair(
    pair: Int[Array, "traj time"],
    learns: Bool[Array, "model traj"],
    sizes: Sizes,
    value: Float[Array, "traj time"],
) -> Float[Array, "model state action"]:
    """The sum of a value over the visits to every (s, a) from which a model learns."""
    folds, num_pairs = len(learns), sizes.pairs
    of_folds = jax.vmap(partial(segment_sum, num_segments=num_pairs))(
        _by_fold(value, folds, 0), _by_fold(pair, folds, num_pairs)
    )
    return _learnt(of_folds).reshape(folds, sizes.states, sizes.actions)


def _counts_of_successors(
    visited: Visited, learns: Bool[Array, "model traj"], sizes: Sizes
) -> Float[Array, "model pair state"]:
    """How often each state follows each pair in what a model learns from."""
    folds, num_cells = len(learns), sizes.pairs * sizes.states
    cell = visited.pair * sizes.states + visited.successor
    cell = jnp.where(visited.successor < sizes.states, cell, num_cells)
    cell = _by_fold(jnp.minimum(cell, num_cells), folds, num_cells)
    ones = jnp.ones(cell.shape, visited.reward.dtype)
    counts = jax.vmap(partial(segment_sum, num_segments=num_cells))(ones, cell)
    return _learnt(counts).reshape(folds, -1, sizes.states)


def supplied(batch: TrajectoryBatch, *, q: Any = None, q_steps: Any = None) -> StepValues:
    """Q-hat as given, in one of two forms.

    Args:
      q: [state, action], or [time, state, action] with at least as many times as the batch.
      q_steps: [traj, time, action], the values of all actions at every step; needs no states.
    """
    if (q is None) == (q_steps is None):
        raise ValueError("q: give either `q` or `q_steps`")
    if q is None:
        values = jnp.asarray(q_steps, batch.dtype)
        if values.shape != (expected := (*batch.reward.shape, batch.num_actions)):
            raise ValueError(
                f"q_steps: expected [traj, time, action] = {expected}, got shape {values.shape}"
            )
        return at_steps(batch, values)
    state = masked.fill(batch.mask, batch.require("state", PURPOSE))
    table, by_state = jnp.asarray(q, batch.dtype), (batch.num_states, batch.num_actions)
    long_enough = table.ndim == 2 or (table.ndim == 3 and len(table) >= state.shape[1])
    if table.shape[-2:] != by_state or not long_enough:
        raise ValueError(
            f"q: expected [state, action] = {by_state}, or [time, state, action] with at least the "
            f"batch's {state.shape[1]} steps, got shape {table.shape}"
        )
    if table.ndim == 2:
        return at_steps(batch, table[state])
    time = jnp.broadcast_to(jnp.arange(state.shape[1])[None], state.shape)
    return at_steps(batch, table[time, state])


def at_steps(
    batch: TrajectoryBatch, values: Float[Array, "traj time action"], purpose: str = PURPOSE
) -> StepValues:
    """Q-hat from its values of all actions at every step."""
    chex.assert_shape(values, (*batch.mask.shape, None))
    action = masked.fill(batch.mask, batch.require("action", purpose))
    probs = batch.require("target_probs", purpose)
    real = batch.mask[..., None]
    v = jnp.where(real, probs, 0) * jnp.where(real, values, 0)
    q = jnp.take_along_axis(values, action[..., None], axis=2)[..., 0]
    return StepValues(masked.fill(batch.mask, q), v.sum(-1))


__all__ = ["StepValues", "at_steps", "cross_fitting", "supplied", "tabular"]
