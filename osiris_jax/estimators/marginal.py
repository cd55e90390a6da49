"""Marginalised importance sampling: weights of states instead of paths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch


def mis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """Marginalised IS for tabular states (Xie, Ma & Wang 2019).

    d_{t+1}(s') = sum_i d_t(s_t^i) rho_t^i / n_t(s_t^i) [s_{t+1}^i = s'], renormalised, and the
    value is sum_t gamma^(t-1) sum_i d_t(s_t^i) rho_t^i r_t^i / n_t(s_t^i). Since d_t / n_t is one
    number for all trajectories in the same state, it is carried per trajectory: a step multiplies
    by the ratio, and arriving together in a state averages. A finished trajectory waits in an
    absorbing state with ratio 1 and reward 0.
    """
    state = batch.require("state", "the estimator `mis`")
    absorbing = batch.num_states
    place = masked.fill(batch.mask, state, absorbing)
    next_place = jnp.pad(place[:, 1:], ((0, 0), (0, 1)), constant_values=absorbing)
    steps = (
        masked.fill(batch.mask, log_ratio).T,
        masked.fill(batch.mask, batch.reward).T,
        next_place.T,
    )

    def step(log_share, inputs):
        log_ratio_t, reward_t, next_place_t = inputs
        log_weight = log_share + log_ratio_t
        reward_mean = jnp.sum(jnp.exp(log_weight) * reward_t)
        log_total = jax.nn.logsumexp(log_weight)
        log_share = _log_mean_by_place(log_weight, next_place_t, absorbing + 1) - log_total
        return jnp.where(log_total > -jnp.inf, log_share, jnp.nan), reward_mean

    uniform = jnp.full(len(state), -jnp.log(len(state)), batch.dtype)
    _, reward_means = lax.scan(step, uniform, steps)
    reward_means = masked.fill(masked.alive(batch.mask), reward_means)
    return masked.total(reward_means * masked.discounts(len(reward_means), discount, batch.dtype))


def _log_mean_by_place(
    log_weight: Float[Array, " traj"], place: Int[Array, " traj"], num_places: int
) -> Float[Array, " traj"]:
    """For each trajectory, the log of the mean weight of all that are in the same place."""
    peak = masked.segment_peak(log_weight, place, num_places)[place]
    weight_and_count = jnp.stack([jnp.exp(log_weight - peak), jnp.ones_like(log_weight)], -1)
    weight, count = jax.ops.segment_sum(weight_and_count, place, num_places)[place].T
    return jnp.log(weight / count) + peak
