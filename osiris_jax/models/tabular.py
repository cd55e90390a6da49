"""Q-hat from tables: a model fitted to the counts of the data, or a table that is supplied."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

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

PURPOSE = "Q-hat by state"
BLOCK = 512
MOST_CELLS = 2**18  # counts of a TPU
AT_ONCE = {4: 16, 8: 1}  # for how many data sets it has them, by the size of a float


class StepValues(NamedTuple):
    """What Q-hat says at every logged step; 0 in the padding.

    Attributes:
      q: [traj, time] Q-hat of the logged action.
      v: [traj, time] sum over actions of pi_e(a|s) Q-hat(s, a).
    """

    q: Float[Array, "traj time"]
    v: Float[Array, "traj time"]


def tabular(batch: TrajectoryBatch, *, discount, folds: int, smoothing) -> StepValues:
    """Q-hat of the target policy in the MDP whose dynamics are the data's own frequencies.

    Transitions are pooled over time. With V = 0 after the longest trajectory of the data, backwards
    over t,

      Q_t(s, a) = mean(r | s, a) + gamma mean(V_{t+1}(s') | s, a),
      V_t(s) = sum_a pi_e(a|s) Q_t(s, a),

    where each mean of x is (sum of x + smoothing * xbar(s)) / (n(s, a) + smoothing), xbar(s) being
    the mean over all visits to s (0 without any), and pi_e(.|s) is the mean of `target_probs` over
    the visits to s. A trajectory's last step leads to an end of value 0, but at the time when the
    longest ends it may have been cut: visits at that time have a reward, and no successor in the
    second mean.

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
    arrived = masked.fill(batch.mask, state, batch.num_states)[:, 1:]
    successor = jnp.pad(arrived, ((0, 0), (0, 1)), constant_values=batch.num_states)
    state, action = masked.fill(batch.mask, state), masked.fill(batch.mask, action)
    probs = jnp.where(batch.mask[..., None], probs, 0)
    pair = state * batch.num_actions + action
    pair = jnp.where(batch.mask, pair, batch.num_states * batch.num_actions)

    visited = _Visited(
        batch.mask, masked.fill(batch.mask, batch.reward), state, action, pair, successor, probs
    )
    discount, smoothing = (jnp.asarray(x, batch.dtype) for x in (discount, smoothing))
    sizes = {"num_states": batch.num_states, "num_actions": batch.num_actions, "folds": folds}
    usual = partial(_step_values, after=_dense if _fits_dense(batch) else _linked, **sizes)
    at_once = AT_ONCE[batch.dtype.itemsize]
    on_tpu = _few_dense(at_once, **sizes) if _num_cells(batch) <= MOST_CELLS else usual
    return by_platform(visited, discount, smoothing, default=usual, tpu=on_tpu)


def _num_cells(batch: TrajectoryBatch) -> int:
    """How many (s, a, s') there are."""
    return batch.num_states**2 * batch.num_actions


def _fits_dense(batch: TrajectoryBatch) -> bool:
    """Whether their counts take no more room than the data."""
    return _num_cells(batch) <= batch.mask.size


class _Visited(NamedTuple):
    """Visits to states, with 0 and beyond the last pair or state in the padding."""

    mask: Bool[Array, "traj time"]
    reward: Float[Array, "traj time"]
    state: Int[Array, "traj time"]
    action: Int[Array, "traj time"]
    pair: Int[Array, "traj time"]
    successor: Int[Array, "traj time"]
    probs: Float[Array, "traj time action"]


@partial(jax.jit, static_argnames=("after", "num_states", "num_actions", "folds"))
def _step_values(
    visited: _Visited,
    discount: Float[Array, ""],
    smoothing: Float[Array, ""],
    *,
    after: Callable[..., Callable[[Array], Array]],
    num_states: int,
    num_actions: int,
    folds: int,
) -> StepValues:
    """`tabular` of what was visited, successors summed by `after`."""
    mask = visited.mask
    model_of, learns = cross_fitting(len(mask), folds)
    by_pair = partial(_sums_by_pair, visited.pair, learns, (num_states, num_actions))
    followed = jnp.broadcast_to(masked.followed(mask)[None], mask.shape)
    visits, followed, reward = (
        by_pair(x.astype(visited.reward.dtype)) for x in (mask, followed, visited.reward)
    )
    sum_after = after(visited.pair, visited.successor, learns, visits.shape)
    policy = _mean_policy(visited, num_states)[None]
    reward = _shrink(reward, visits, smoothing)

    def step_back(following: Float[Array, "model state"], inputs):
        runs, state, action, probs = inputs
        ahead = _shrink(sum_after(following), followed, smoothing)
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
def _few_dense(at_once: int, **sizes: int) -> Callable[..., Any]:
    """`_step_values` by matrices, which take memory: of few data sets at a time under `vmap`."""
    dense = partial(_step_values, after=_dense, **sizes)
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


def cross_fitting(
    num_trajectories: int, folds: int
) -> tuple[Int[Array, " traj"], Bool[Array, "model traj"]]:
    """Which model answers for each trajectory, and which trajectories each model learns from.

    Trajectory i is answered for by model i mod folds, which learns from those of the other folds;
    with 0 or 1 folds by the one model that learns from all.
    """
    model_of = jnp.arange(num_trajectories) % max(folds, 1)
    serves = jnp.arange(max(folds, 1))[:, None] == model_of[None]
    return model_of, ~serves if folds > 1 else serves


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
    shape: tuple[int, int],
    value: Float[Array, "traj time"],
) -> Float[Array, "model state action"]:
    """The sum of a value over the visits to every (s, a) from which a model learns."""
    folds, num_pairs = len(learns), math.prod(shape)
    of_folds = jax.vmap(partial(segment_sum, num_segments=num_pairs))(
        _by_fold(value, folds, 0), _by_fold(pair, folds, num_pairs)
    )
    return _learnt(of_folds).reshape(folds, *shape)


def _dense(
    pair: Int[Array, "traj time"],
    successor: Int[Array, "traj time"],
    learns: Bool[Array, "model traj"],
    shape: tuple[int, int, int],
) -> Callable[[Array], Array]:
    """The sum over successors, as a product with the matrix of counts."""
    folds, num_states, _ = shape
    num_cells = num_states * num_states * shape[2]
    cell = jnp.where(successor < num_states, pair * num_states + successor, num_cells)
    cell = _by_fold(jnp.minimum(cell, num_cells), folds, num_cells)
    ones = jnp.ones(cell.shape, jnp.result_type(float))
    counts = jax.vmap(partial(segment_sum, num_segments=num_cells))(ones, cell)
    matrix = _learnt(counts).reshape(folds, -1, num_states)

    def sum_after(following: Float[Array, "model state"]) -> Float[Array, "model state action"]:
        weights = matrix.astype(following.dtype)
        total = jnp.einsum("mps,ms->mp", weights, following, precision=lax.Precision.HIGHEST)
        return total.reshape(shape)

    return sum_after


def _linked(
    pair: Int[Array, "traj time"],
    successor: Int[Array, "traj time"],
    learns: Bool[Array, "model traj"],
    shape: tuple[int, int, int],
) -> Callable[[Array], Array]:
    """The sum over successors, from the observed transitions, equal ones counted together."""
    num_pairs = shape[1] * shape[2]
    links = masked.group_pairs(pair.ravel(), successor.ravel(), num_pairs, block=BLOCK)
    counts = jnp.repeat(learns.T, pair.shape[1], axis=0).astype(jnp.result_type(float))
    weight = jax.ops.segment_sum(counts, links.of_item, len(links.first))

    def sum_after(following: Float[Array, "model state"]) -> Float[Array, "model state action"]:
        values = jnp.pad(following, ((0, 0), (0, 1))).T

        def add_block(number: Int[Array, ""] | int, total: Array) -> Array:
            place, after, share = (
                lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK)
                for x in (links.first, links.second, weight.astype(following.dtype))
            )
            return total.at[place].add(share * values[after], mode="drop")

        blank = jnp.zeros((num_pairs, shape[0]), following.dtype)
        total = lax.fori_loop(0, -(-links.number // BLOCK), add_block, blank)
        return total.T.reshape(shape)

    return sum_after


def _mean_policy(visited: _Visited, num_states: int) -> Float[Array, "state action"]:
    """The mean of the target's probabilities over the visits to a state, 0 where there are none."""
    place = jnp.where(visited.mask, visited.state, num_states).ravel()
    count = segment_sum(visited.mask.ravel().astype(visited.probs.dtype), place, num_states)
    by_action = jnp.moveaxis(visited.probs, -1, 0).reshape(visited.probs.shape[-1], -1)
    total = jax.vmap(partial(segment_sum, num_segments=num_states), (0, None))(by_action, place)
    return (total / jnp.maximum(count, 1)[None]).T


def _shrink(total: Array, count: Array, smoothing: Array) -> Float[Array, "model state action"]:
    """(total + smoothing * pooled) / (count + smoothing), `pooled` being the state's mean.

    Written as a step from the pooled mean, which is 0 for a pair never seen.
    """
    pooled = total.sum(-1, keepdims=True) / jnp.maximum(count.sum(-1, keepdims=True), 1)
    return pooled + (total - count * pooled) / jnp.maximum(count + smoothing, 1)
