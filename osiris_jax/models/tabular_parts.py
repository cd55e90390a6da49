"""What both forms of a tabular Q-hat share: what was visited, folds, means drawn together."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from osiris_jax.core.segments import segment_sum


class StepValues(NamedTuple):
    """What Q-hat says at every logged step; 0 in the padding.

    Attributes:
      q: [traj, time] Q-hat of the logged action.
      v: [traj, time] sum over actions of pi_e(a|s) Q-hat(s, a).
    """

    q: Float[Array, "traj time"]
    v: Float[Array, "traj time"]


class Sizes(NamedTuple):
    """Numbers of states, actions and folds."""

    states: int
    actions: int
    folds: int

    @property
    def pairs(self) -> int:
        return self.states * self.actions

    @property
    def models(self) -> int:
        return max(self.folds, 1)


class Visited(NamedTuple):
    """Visits to states, with 0 and beyond the last pair or state in the padding.

    A trajectory's last visit is followed by what is beyond the last state.
    """

    mask: Bool[Array, "traj time"]
    reward: Float[Array, "traj time"]
    state: Int[Array, "traj time"]
    action: Int[Array, "traj time"]
    pair: Int[Array, "traj time"]
    successor: Int[Array, "traj time"]
    probs: Float[Array, "traj time action"]


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


def mean_policy(visited: Visited, num_states: int) -> Float[Array, "state action"]:
    """The mean of the target's probabilities over the visits to a state, 0 where there are none."""
    place = jnp.where(visited.mask, visited.state, num_states).ravel()
    count = segment_sum(visited.mask.ravel().astype(visited.probs.dtype), place, num_states)
    by_action = jnp.moveaxis(visited.probs, -1, 0).reshape(visited.probs.shape[-1], -1)
    total = jax.vmap(partial(segment_sum, num_segments=num_states), (0, None))(by_action, place)
    return (total / jnp.maximum(count, 1)[None]).T


def mean_where_seen(total: Array, count: Array, axis: int = 0) -> Array:
    """The mean of each state, and of all the data where a state was never seen.

    Args:
      axis: of the states.
    """
    every = total.sum(axis, keepdims=True) / jnp.maximum(count.sum(axis, keepdims=True), 1)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), every)


def shrink(total: Array, count: Array, usual: Array, smoothing: Array) -> Array:
    """(total + smoothing * usual) / (count + smoothing), `usual` being the state's mean.

    Written as a step from the usual mean, which is 0 for a pair never seen.
    """
    return usual + (total - count * usual) / jnp.maximum(count + smoothing, 1)
