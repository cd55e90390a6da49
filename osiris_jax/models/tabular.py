"""Q-hat from tables: a model fitted to the counts of the data, or a table that is supplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked

PURPOSE = "Q-hat by state"
BLOCK = 512


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
    pair = jnp.where(batch.mask, pair, batch.num_states * batch.num_actions).ravel()

    model_of, learns = cross_fitting(len(state), folds)
    counts = jnp.repeat(learns.T.astype(batch.dtype), state.shape[1], axis=0)
    visits, followed, reward = _sums_by_pair(batch, pair, counts)
    after = _dense if _fits_dense(batch) else _linked
    sum_after = after(pair, successor.ravel(), counts, visits.shape)
    policy = _mean_policy(batch, state, probs)[None]
    discount, smoothing = (jnp.asarray(x, batch.dtype) for x in (discount, smoothing))
    reward = _shrink(reward, visits, smoothing)

    def step_back(following: Float[Array, "model state"], inputs):
        runs, state, action, probs = inputs
        ahead = _shrink(sum_after(following), followed, smoothing)
        by_action = reward + discount * ahead
        logged = by_action[model_of, state]
        q = jnp.take_along_axis(logged, action[:, None], axis=1)[:, 0]
        value = jnp.where(runs, (policy * by_action).sum(-1), 0)
        return value, (q, (probs * logged).sum(-1))

    by_time = [jnp.moveaxis(x, 1, 0) for x in (state, action, probs)]
    end = jnp.zeros(visits.shape[:2], batch.dtype)
    inputs = (masked.alive(batch.mask), *by_time)
    _, (q, v) = lax.scan(step_back, end, inputs, reverse=True)
    return StepValues(masked.fill(batch.mask, q.T), masked.fill(batch.mask, v.T))


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


def _sums_by_pair(
    batch: TrajectoryBatch, pair: Int[Array, " visit"], counts: Float[Array, "visit model"]
) -> Float[Array, "3 model state action"]:
    """Of the visits to every (s, a) their number, those whose successor is known, the rewards."""
    followed = jnp.broadcast_to(masked.followed(batch.mask)[None], batch.mask.shape)
    reward = masked.fill(batch.mask, batch.reward)
    columns = jnp.stack([batch.mask, followed, reward], -1).astype(batch.dtype)
    by_visit = counts[:, :, None] * columns.reshape(-1, 1, 3)
    sums = jax.ops.segment_sum(by_visit, pair, batch.num_states * batch.num_actions)
    return jnp.transpose(sums, (2, 1, 0)).reshape(3, -1, batch.num_states, batch.num_actions)


def _fits_dense(batch: TrajectoryBatch) -> bool:
    """Whether the counts of (s, a, s') take no more room than the data."""
    return batch.num_states**2 * batch.num_actions <= batch.mask.size


def _dense(
    pair: Int[Array, " visit"],
    successor: Int[Array, " visit"],
    counts: Float[Array, "visit model"],
    shape: tuple[int, int, int],
) -> Callable[[Array], Array]:
    """The sum over successors, as a product with the matrix of counts."""
    num_states = shape[1]
    num_cells = num_states * shape[1] * shape[2]
    cell = jnp.where(successor < num_states, pair * num_states + successor, num_cells)
    by_cell = jax.ops.segment_sum(counts, jnp.minimum(cell, num_cells), num_cells)
    matrix = by_cell.T.reshape(shape[0], -1, num_states)

    def sum_after(following: Float[Array, "model state"]) -> Float[Array, "model state action"]:
        total = jnp.einsum("mps,ms->mp", matrix, following, precision=lax.Precision.HIGHEST)
        return total.reshape(shape)

    return sum_after


def _linked(
    pair: Int[Array, " visit"],
    successor: Int[Array, " visit"],
    counts: Float[Array, "visit model"],
    shape: tuple[int, int, int],
) -> Callable[[Array], Array]:
    """The sum over successors, from the observed transitions, equal ones counted together."""
    num_pairs = shape[1] * shape[2]
    links = masked.group_pairs(pair, successor, num_pairs, block=BLOCK)
    weight = jax.ops.segment_sum(counts, links.of_item, len(links.first))

    def sum_after(following: Float[Array, "model state"]) -> Float[Array, "model state action"]:
        values = jnp.pad(following, ((0, 0), (0, 1))).T

        def add_block(number: Int[Array, ""] | int, total: Array) -> Array:
            place, after, share = (
                lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK)
                for x in (links.first, links.second, weight)
            )
            return total.at[place].add(share * values[after], mode="drop")

        blank = jnp.zeros((num_pairs, shape[0]), following.dtype)
        total = lax.fori_loop(0, -(-links.number // BLOCK), add_block, blank)
        return total.T.reshape(shape)

    return sum_after


def _mean_policy(
    batch: TrajectoryBatch, state: Int[Array, "traj time"], probs: Float[Array, "traj time action"]
) -> Float[Array, "state action"]:
    """The mean of the target's probabilities over the visits to a state, 0 where there are none."""
    place = jnp.where(batch.mask, state, batch.num_states).ravel()
    count = jax.ops.segment_sum(jnp.ones_like(place), place, batch.num_states)
    total = jax.ops.segment_sum(probs.reshape(len(place), -1), place, batch.num_states)
    return total / jnp.maximum(count, 1)[:, None]


def _shrink(total: Array, count: Array, smoothing: Array) -> Float[Array, "model state action"]:
    """(total + smoothing * pooled) / (count + smoothing), `pooled` being the state's mean.

    Written as a step from the pooled mean, which is 0 for a pair never seen.
    """
    pooled = total.sum(-1, keepdims=True) / jnp.maximum(count.sum(-1, keepdims=True), 1)
    return pooled + (total - count * pooled) / jnp.maximum(count + smoothing, 1)
