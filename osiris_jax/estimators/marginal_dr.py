"""Double reinforcement learning: `dr` with weights of states in place of weights of paths."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import takes_options_of
from osiris_jax.core.platforms import scan
from osiris_jax.core.segments import look_up, segment_sum
from osiris_jax.estimators.doubly_robust import fitted_values
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.estimators.per_decision import log_discounts
from osiris_jax.models.qhat import StepValues
from osiris_jax.models.tabular import cross_fitting

PURPOSE = "the estimator `drl`"


@with_headroom
@takes_options_of(fitted_values)
def drl(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    marginals: Any = None,
    q_folds: int = 5,
    **fitting: Any,
) -> Float[Array, ""]:
    """Double reinforcement learning: Q-hat and weights of states (Kallus & Uehara 2020).

    The mean over trajectories of
    sum_t gamma^(t-1) [mu_t (r_t - Qhat(s_t, a_t)) + mu_{t-1} Vhat(s_t)], where mu_0 = 1 and
    mu_t = d_t(s_t) N / n_t(s_t) rho_t with the d_t and the counts n_t of `mis`, 0 where n_t is 0.
    Those of trajectory i come from the N trajectories of other folds, as its Q-hat does. NaN where
    all weights of these are zero. Consistent where states are Markov, if Q-hat or mu is.

    Args:
      marginals: the chance of each state at each time under the target over that under the
        behaviour, [time, state], in place of d_t N / n_t.
      q_folds: Q-hat and marginals for trajectory i use those j with j mod q_folds other than i mod
        q_folds; 0 uses all data.
    """
    value = fitted_values(batch, discount=discount, q_folds=q_folds, **fitting)
    if marginals is None:
        log_marginal = log_marginals(batch, log_ratio, q_folds)
    else:
        log_marginal = _supplied(batch, marginals)
    log_weight, log_before = _weights(batch, log_ratio, log_marginal)
    surprise = masked.fill(batch.mask, batch.reward) - value.q
    parts = jnp.stack([surprise, value.v]) / len(batch.reward)
    weights = jnp.stack([log_weight, log_before])
    return masked.scaled_sum(weights + log_discounts(batch, discount)[None, None], parts)


def corrected_terms(
    batch: TrajectoryBatch, log_marginal: Float[Array, "traj time"], value: StepValues, discount
) -> Float[Array, " traj"]:
    """What each trajectory adds to `drl` by these marginals and this Q-hat, times their number."""
    log_weight, log_before = _weights(batch, batch.require("log_ratio", PURPOSE), log_marginal)
    surprise = masked.fill(batch.mask, batch.reward) - value.q
    terms = jnp.exp(log_weight) * surprise + jnp.exp(log_before) * value.v
    return masked.total(terms * jnp.exp(log_discounts(batch, discount))[None])


def unlogged_terms(
    batch: TrajectoryBatch,
    log_marginal: Float[Array, "traj time"],
    value: Float[Array, "traj time"],
    discount,
) -> Float[Array, " traj"]:
    """The same from values of states alone: the surprise of a step is r + gamma v(s') - v(s)."""
    log_weight, _ = _weights(batch, batch.require("log_ratio", PURPOSE), log_marginal)
    following = jnp.pad(value[:, 1:], ((0, 0), (0, 1)))
    gained = masked.fill(batch.mask, batch.reward) + jnp.asarray(discount, batch.dtype) * following
    terms = jnp.exp(log_weight) * gained - masked.fill(batch.mask, jnp.exp(log_marginal) * value)
    return value[:, 0] + masked.total(terms * jnp.exp(log_discounts(batch, discount))[None])


def _weights(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    log_marginal: Float[Array, "traj time"],
) -> tuple[Float[Array, "traj time"], Float[Array, "traj time"]]:
    """log mu_t and log mu_{t-1}; what lies behind a trajectory's end has no value."""
    log_weight = masked.fill(batch.mask, log_marginal + masked.known(log_ratio))
    return log_weight, jnp.pad(log_weight[:, :-1], ((0, 0), (1, 0)))


def _supplied(batch: TrajectoryBatch, marginals: Any) -> Float[Array, "traj time"]:
    state = masked.fill(batch.mask, batch.require("state", PURPOSE))
    table, num_steps = jnp.asarray(marginals, batch.dtype), state.shape[1]
    if table.ndim != 2 or len(table) < num_steps or table.shape[1] != batch.num_states:
        raise ValueError(
            f"marginals: expected [time, state] with at least the batch's {num_steps} steps and "
            f"its {batch.num_states} states, got shape {table.shape}"
        )
    return jnp.log(table[jnp.broadcast_to(jnp.arange(num_steps)[None], state.shape), state])


def log_marginals(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], folds: int
) -> Float[Array, "traj time"]:
    """log d_t(s_t) N / n_t(s_t), from the trajectories of other folds.

    As in `mis`, d_t / n_t is carried per trajectory: a step multiplies by the ratio, and arriving
    together in a state averages, here over those from which a model learns. A finished trajectory
    waits in an absorbing state with ratio 1.
    """
    number, absorbing = len(batch.reward), batch.num_states
    place = masked.fill(batch.mask, batch.require("state", PURPOSE), absorbing)
    log_ratio = masked.fill(batch.mask, masked.known(log_ratio))
    model_of, learns = cross_fitting(number, folds)
    learnt_from = learns.sum(1, dtype=log_ratio.dtype)
    arrive = partial(_arrive, learns=learns.T, num_places=absorbing + 1)
    own = jnp.arange(number), model_of

    def step(log_weight: Float[Array, "traj model"], now: tuple[Array, Array]):
        log_ratio, place = now
        log_share = arrive(log_weight, place)
        return log_share + log_ratio[:, None], log_share[own]

    start = jnp.zeros(learns.T.shape, log_ratio.dtype)
    _, log_share = scan(step, start, (log_ratio.T, place.T))
    return log_share.T + jnp.log(learnt_from)[model_of][:, None]


def _arrive(
    log_weight: Float[Array, "traj model"],
    place: Int[Array, " traj"],
    *,
    learns: Bool[Array, "traj model"],
    num_places: int,
) -> Float[Array, "traj model"]:
    """log d(s) / n(s) for each trajectory's place s, of weights divided by their sum.

    Weights and counts are of those from which a model learns; -inf where there is none of them.
    """
    learned = jnp.where(learns, log_weight, -jnp.inf)
    log_total = jax.nn.logsumexp(learned, axis=0, keepdims=True)
    by_model = jax.vmap(look_up, (1, None), 1)
    peak = by_model(masked.segment_peak(learned, place, num_places), place)
    weights_and_counts = jnp.concatenate([jnp.exp(learned - peak), learns.astype(peak.dtype)], 1)
    total, count = jnp.split(segment_sum(weights_and_counts, place, num_places), 2, axis=1)
    mean = by_model(total / jnp.maximum(count, 1), place)
    weighs = mean > 0
    log_share = jnp.log(jnp.where(weighs, mean, 1)) + peak - log_total
    undefined = jnp.any(learns, axis=0, keepdims=True) & (log_total == -jnp.inf)
    share_or_none = jnp.where(weighs, log_share, -jnp.inf)
    return jnp.where(undefined | jnp.isnan(log_total), jnp.nan, share_or_none)
