"""Marginalised importance sampling: weights of states instead of paths."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.platforms import by_platform, scan
from osiris_jax.core.segments import look_up, segment_sum
from osiris_jax.estimators.headroom import with_headroom

MOST_COMPARED = 256


class _Steps(NamedTuple):
    """What happens at each step; a finished trajectory waits where nothing happens."""

    log_ratio: Float[Array, "time traj"]
    reward: Float[Array, "time traj"]
    next_place: Int[Array, "time traj"]


@with_headroom
def mis(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """Marginalised IS for tabular states (Xie, Ma & Wang 2019).

    d_{t+1}(s') = sum_i d_t(s_t^i) rho_t^i / n_t(s_t^i) [s_{t+1}^i = s'], renormalised, and the
    value is sum_t gamma^(t-1) sum_i d_t(s_t^i) rho_t^i r_t^i / n_t(s_t^i). Since d_t / n_t is one
    number for all trajectories in the same state, it is carried per trajectory: a step multiplies
    by the ratio, and arriving together in a state averages. A finished trajectory waits in an
    absorbing state with ratio 1 and reward 0. NaN where all weights of a step are zero.
    """
    state = batch.require("state", "the estimator `mis`")
    absorbing = batch.num_states
    place = masked.fill(batch.mask, state, absorbing)
    next_place = jnp.pad(place[:, 1:], ((0, 0), (0, 1)), constant_values=absorbing)
    steps = _Steps(
        masked.fill(batch.mask, masked.known(log_ratio)).T,
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
    """The mean reward of every step, NaN where all weights are 0, and whether to trust them.

    They cannot be where a share comes near to vanishing. A weight of 0 is right where a ratio is
    0, and where the share was 0; it is the share's doing if the ratio is not small.
    """
    dtype = steps.reward.dtype
    small, least = 1e-6, jnp.asarray(1e-30, dtype)
    if dtype == jnp.float64:  # whose exponents are those of float32 on a TPU
        least = by_platform(default=lambda: jnp.asarray(1e-280, dtype), tpu=lambda: least)
    ratio = jnp.exp(steps.log_ratio)

    def step(share, inputs):
        ratio, next_place = inputs
        weight = share * ratio
        given = weight, next_place, jnp.sum(weight)
        return by_platform(*given, default=plain, tpu=quick, gpu=quick), weight

    number = steps.reward.shape[1]
    plain = partial(_mean_by_place, num_places=num_places)
    quick = _mean_by_comparing if number <= MOST_COMPARED else plain
    start = jnp.full(number, 1 / number, dtype)
    _, weight = scan(step, start, (ratio, steps.next_place))
    total = jnp.sum(weight, axis=1)
    ends = (weight == 0) & ((ratio > small) | (steps.log_ratio == -jnp.inf))
    trusted = jnp.all(ends | (weight > least * jnp.maximum(total, 1)[:, None]))
    mean = jnp.where(total > 0, jnp.sum(weight * steps.reward, axis=1), jnp.nan)
    return mean, trusted & jnp.isfinite(total).all()


def _mean_by_place(
    weight: Float[Array, " traj"],
    place: Int[Array, " traj"],
    unit: Float[Array, ""] | int = 1,
    *,
    num_places: int,
) -> Float[Array, " traj"]:
    """For each trajectory, the mean weight of all that are in the same place, over the unit."""
    weight_and_count = jnp.stack([weight, jnp.ones_like(weight)], -1)
    total, count = segment_sum(weight_and_count, place, num_places).T
    return look_up(total / (jnp.maximum(count, 1) * unit), place)


def _mean_by_comparing(
    weight: Float[Array, " traj"], place: Int[Array, " traj"], unit: Float[Array, ""]
) -> Float[Array, " traj"]:
    """The same by comparing all places, in one pass, which has no derivative."""
    together = place[:, None] == place[None]
    sums = jnp.where(together, weight[None], 0), together.astype(weight.dtype)
    nothing = jnp.zeros((), weight.dtype)
    total, count = lax.reduce(sums, (nothing, nothing), _add_pairs, (1,))
    return total / (count * unit)


def _add_pairs(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    return first[0] + second[0], first[1] + second[1]


def _step_in_log_space(
    log_share: Float[Array, " traj"], now: _Steps, num_places: int
) -> tuple[Float[Array, " traj"], Float[Array, ""]]:
    log_weight = log_share + now.log_ratio
    log_total = jax.nn.logsumexp(log_weight)
    exists = log_total > -jnp.inf
    reward_mean = jnp.where(exists, masked.scaled_sum(log_weight, now.reward), jnp.nan)
    peak = look_up(masked.segment_peak(log_weight, now.next_place, num_places), now.next_place)
    mean = _mean_by_place(jnp.exp(log_weight - peak), now.next_place, num_places=num_places)
    log_share = jnp.log(mean) + peak - log_total
    return jnp.where(exists, log_share, jnp.nan), reward_mean


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
