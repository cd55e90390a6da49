"""Estimators that correct, or replace, importance sampling by fitted action values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import takes_options_of
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.estimators.per_decision import log_discounts
from osiris_jax.models.qhat import StepValues, step_values


def fitted_values(
    batch: TrajectoryBatch,
    *,
    discount=1.0,
    q: Any = None,
    q_steps: Any = None,
    fit: str = "tabular",
    q_folds: int = 5,
    smoothing=0.1,
    key=None,
) -> StepValues:
    """Q-hat along the data, as supplied or fitted; its options are explained at `dr`."""
    fitting = {"fit": fit, "folds": q_folds, "smoothing": smoothing, "key": key}
    return step_values(batch, discount=discount, q=q, q_steps=q_steps, **fitting)


@with_headroom
@takes_options_of(fitted_values)
def dr(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, **fitting: Any
) -> Float[Array, ""]:
    """Step-wise doubly robust: per-decision IS of what Q-hat does not predict (Jiang & Li 2016).

    The mean over trajectories of
    sum_t gamma^(t-1) [rho_{1:t} (r_t - Qhat(s_t, a_t)) + rho_{1:t-1} Vhat(s_t)],
    where Vhat(s_t) = sum_a pi_e(a|s_t) Qhat(s_t, a). Unbiased for any Q-hat that does not depend on
    the trajectory it corrects: one supplied, or one fitted with at least 2 q_folds.

    Args:
      q: Q-hat as a table, [state, action] or [time, state, action]; by default it is fitted.
      q_steps: Q-hat as [traj, time, action] instead.
      fit: how Q-hat is fitted, a name in `QHAT`.
      q_folds: the fit for trajectory i uses those j with j mod q_folds other than i mod q_folds;
        0 uses all data.
      smoothing: of a tabular fit, see `qhat.tabular`.
      key: of a fit that is random, consumed.
    """
    value = fitted_values(batch, discount=discount, **fitting)
    log_weight, log_before = weights_now_and_before(batch, log_ratio)
    surprise = masked.fill(batch.mask, batch.reward) - value.q
    parts = jnp.stack([surprise, value.v]) / len(batch.reward)
    weights = jnp.stack([log_weight, log_before])
    return masked.scaled_sum(weights + log_discounts(batch, discount)[None, None], parts)


@with_headroom
@takes_options_of(fitted_values)
def wdr(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, **fitting: Any
) -> Float[Array, ""]:
    """Weighted doubly robust: `dr` with weights normalised at each t (Thomas & Brunskill 2016).

    A finished trajectory keeps its final weight in the normaliser, as in `cwpdis`. Options as
    for `dr`.
    """
    value = fitted_values(batch, discount=discount, **fitting)
    log_weight, log_before = weights_now_and_before(batch, log_ratio)
    surprise = masked.fill(batch.mask, batch.reward) - value.q
    mean_by_time = jax.vmap(masked.weighted_mean, in_axes=1)
    mean = mean_by_time(log_weight, surprise) + mean_by_time(log_before, value.v)
    return masked.total(mean * masked.discounts(len(mean), discount, batch.dtype))


@with_headroom
@takes_options_of(fitted_values)
def dm(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0, **fitting: Any
) -> Float[Array, ""]:
    """Direct method: the mean of Vhat in the first states, ratios ignored (Jiang & Li 2016).

    Options as for `dr`.
    """
    del log_ratio
    value = fitted_values(batch, discount=discount, **fitting)
    return value.v[:, 0].mean()


def weights_now_and_before(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]
) -> tuple[Float[Array, "traj time"], Float[Array, "traj time"]]:
    """log rho_{1:t} and log rho_{1:t-1}."""
    log_weight = masked.running_log_weights(log_ratio, batch.mask)
    return log_weight, jnp.pad(log_weight[:, :-1], ((0, 0), (1, 0)))
