"""Marginalised importance sampling: weights of states instead of paths."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch


class _Steps(NamedTuple):
    """What happens at each step; a finished trajectory waits where nothing happens."""

    log_ratio: Float[Array, "time traj"]
    reward: Float[Array, "time traj"]
    next_place: Int[Array, "time traj"]


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
    steps = _Steps(
        masked.fill(batch.mask, log_ratio).T,
        masked.fill(batch.mask, batch.reward).T,
        next_place.T,
    )
    means = _mean_rewards(steps, absorbing + 1)
    means = masked.fill(masked.alive(batch.mask), means)
    return masked.total(means * masked.discounts(len(means), discount, batch.dtype))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _mean_rewards(steps: _Steps, num_places: int) -> Float[Array, " time"]:
    """The mean reward of every step: by shares, or in log space where shares would vanish."""
    means, trusted = _by_shares(steps, num_places)
    return _redo_in_log_space(means, steps, num_places, ~trusted)


@_mean_rewards.defjvp
def _differentiate_in_log_space(num_places: int, steps, changes):
    return jax.jvp(lambda given: _in_log_space(given, num_places), steps, changes)


def _by_shares(steps: _Steps, num_places: int) -> tuple[Float[Array, " time"], Bool[Array, ""]]:
    """The mean reward of every step, and whether no share came near to vanishing."""
    dtype = steps.reward.dtype
    least = 1e-280 if dtype == jnp.float64 else 1e-30

    def step(carry, inputs: _Steps):
        share, trusted = carry
        weight = share * jnp.exp(inputs.log_ratio)
        total = jnp.sum(weight)
        exists = (share > 0) & (inputs.log_ratio > -jnp.inf)
        trusted &= jnp.all(~exists | (weight > least)) & jnp.isfinite(total)
        share = _mean_by_place(weight, inputs.next_place, num_places) / total
        return (share, trusted), jnp.sum(weight * inputs.reward)

    number = steps.reward.shape[1]
    start = jnp.full(number, 1 / number, dtype), jnp.asarray(True)
    (_, trusted), means = lax.scan(step, start, steps)
    return means, trusted


def _mean_by_place(
    weight: Float[Array, " traj"], place: Int[Array, " traj"], num_places: int
) -> Float[Array, " traj"]:
    """For each trajectory, the mean weight of all that are in the same place."""
    weight_and_count = jnp.stack([weight, jnp.ones_like(weight)], -1)
    total, count = jax.ops.segment_sum(weight_and_count, place, num_places)[place].T
    return total / count


def _step_in_log_space(
    log_share: Float[Array, " traj"], now: _Steps, num_places: int
) -> tuple[Float[Array, " traj"], Float[Array, ""]]:
    log_weight = log_share + now.log_ratio
    reward_mean = jnp.sum(jnp.exp(log_weight) * now.reward)
    log_total = jax.nn.logsumexp(log_weight)
    peak = masked.segment_peak(log_weight, now.next_place, num_places)[now.next_place]
    mean = _mean_by_place(jnp.exp(log_weight - peak), now.next_place, num_places)
    log_share = jnp.log(mean) + peak - log_total
    return jnp.where(log_total > -jnp.inf, log_share, jnp.nan), reward_mean


def _log_uniform(steps: _Steps) -> Float[Array, " traj"]:
    number = steps.reward.shape[1]
    return jnp.full(number, -jnp.log(number), steps.reward.dtype)


def _in_log_space(steps: _Steps, num_places: int) -> Float[Array, " time"]:
    """The plain form, for shares of any size."""
    step = partial(_step_in_log_space, num_places=num_places)
    return lax.scan(step, _log_uniform(steps), steps)[1]


def _redo_in_log_space(
    means: Float[Array, " time"], steps: _Steps, num_places: int, needed: Bool[Array, ""]
) -> Float[Array, " time"]:
    """Overwrites the means by those of the plain form, where `needed`.

    A loop of zero turns where it is not: under vmap a `cond` would always pay for both.
    """

    def body(carry):
        t, log_share, means = carry
        now = _Steps(*(field[t] for field in steps))
        log_share, mean = _step_in_log_space(log_share, now, num_places)
        return t + 1, log_share, means.at[t].set(mean)

    def unfinished(carry):
        return needed & (carry[0] < len(means))

    return lax.while_loop(unfinished, body, (0, _log_uniform(steps), means))[2]
