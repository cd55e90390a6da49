"""Estimators that weigh each reward by the ratios relevant to it, by how long ago they were."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import takes_options_of
from osiris_jax.estimators.doubly_robust import fitted_values, weights_now_and_before
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.estimators.per_decision import log_discounts, mean_of_sums, sum_of_means
from osiris_jax.relevance.lagged import lag_bins


@with_headroom
def stepwise(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    theta: Shaped[Array | np.ndarray, "lag state"] | None = None,
    weighted: bool = False,
    exact_lags: int = 16,
) -> Float[Array, ""]:
    """Step-wise OSIRIS: each reward keeps the ratios relevant at its lag (Shen et al. 2021).

    The mean of sum_t' gamma^(t'-1) r_t' W_t' with W_t' = prod_{t <= t'} rho_t^theta_{t'-t}(s_t).

    Args:
      theta: true where a state is relevant to the reward dt steps later, a row for each bin of
        `lag_edges(time steps, exact=exact_lags)`. With at most `exact_lags` rows, a row for each
        lag, the last one also for all later lags. None keeps all ratios, which is `pdis`.
      weighted: normalise W_t' at each t' over all trajectories, ended ones included with what
        W_t' their own steps make; without theta this is `cwpdis`.
      exact_lags: how many lags have a row of their own.
    """
    log_weight = lagged_log_weights(batch, log_ratio, theta, exact_lags=exact_lags)
    return (sum_of_means if weighted else mean_of_sums)(batch, log_weight, discount)


@with_headroom
@takes_options_of(fitted_values)
def stepwise_dr(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    theta: Shaped[Array | np.ndarray, "lag state"] | None = None,
    exact_lags: int = 16,
    **fitting: Any,
) -> Float[Array, ""]:
    """Doubly robust step-wise OSIRIS: what Q-hat misses, by lag (Shen et al. 2021, corrected).

    See `stepwise_dr_from_values`; theta and exact_lags as for `stepwise`, the rest as for `dr`.
    """
    value = fitted_values(batch, discount=discount, **fitting)
    return stepwise_dr_from_values(
        batch, log_ratio, theta, value.q, value.v, discount=discount, exact_lags=exact_lags
    )


def stepwise_dr_from_values(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    theta: Shaped[Array | np.ndarray, "lag state"] | None,
    q_logged: Float[Array, "traj time"],
    v: Float[Array, "traj time"],
    *,
    discount=1.0,
    exact_lags: int = 16,
) -> Float[Array, ""]:
    """Doubly robust step-wise OSIRIS, given Q-hat along the data (Shen et al. 2021, corrected).

    The mean of sum_t gamma^(t-1) W_{<t} [rho_t^theta_0(s_t) r_t + v_t - rho_t q_t], where W_{<t}
    is that of `stepwise` without the ratio of t itself. The ratio of q_t is never omitted, or
    v_t - rho_t q_t would not vanish on average. Without theta this is ordinary step-wise DR.

    Args:
      theta, exact_lags: as for `stepwise`.
      q_logged: Q-hat(s_t, a_t) of the logged action.
      v: sum_a pi_e(a|s_t) Q-hat(s_t, a).
    """
    before = lagged_log_weights(batch, log_ratio, theta, exact_lags=exact_lags, first_lag=1)
    before = before + log_discounts(batch, discount)[None]
    now = kept_now = masked.fill(batch.mask, masked.known(log_ratio))
    if theta is not None:
        kept_now = jnp.where(jnp.asarray(theta)[0].astype(bool)[_states(batch)], now, 0)
    log_weight = jnp.stack([before + kept_now, before, before + now])
    value = jnp.stack([masked.fill(batch.mask, x) for x in (batch.reward, v, -q_logged)])
    return masked.scaled_sum(log_weight, value / len(batch.reward))


def lagged_log_weights(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    theta: Shaped[Array | np.ndarray, "lag state"] | None,
    *,
    exact_lags: int = 16,
    first_lag: int = 0,
) -> Float[Array, "traj time"]:
    """log of prod_{t <= t'} rho_t^theta_{t'-t}(s_t) for every t', also after a trajectory's end.

    Only lags from `first_lag` (0 or 1) on take part.
    """
    if theta is None:
        return weights_now_and_before(batch, log_ratio)[first_lag]
    state, num_steps = _states(batch), batch.reward.shape[1]
    finite, zero = masked.split_zeros(log_ratio, batch.mask)
    bins = lag_bins(num_steps, exact=exact_lags)
    keep = _row_for_each_bin(theta, len(bins), batch, exact_lags)

    def add_bin(product: tuple[Array, Array, Array], inputs: tuple[Array, Array, Array], bits: int):
        (log_weight, rest, has_zero), (keep_row, first, width) = product, inputs
        kept = keep_row[state]
        window = _over_window(jnp.where(kept, finite, 0), kept & zero, width, bits)
        of_bin, zero_in_bin = (_behind(x, first) for x in window)
        log_weight, lost = masked.two_sum(log_weight, of_bin)
        return (log_weight, rest + lost, has_zero | zero_in_bin), None

    firsts, widths = (jnp.array(column) for column in zip(*bins, strict=True))
    num_single = sum(lags.width == 1 for lags in bins)
    product = jnp.zeros_like(finite), jnp.zeros_like(finite), jnp.zeros_like(zero)
    for part in (slice(first_lag, num_single), slice(num_single, None)):
        if bins[part]:
            bits = max(lags.width for lags in bins[part]).bit_length()
            rows = keep[part], firsts[part], widths[part]
            product, _ = lax.scan(partial(add_bin, bits=bits), product, rows)
    log_weight, rest, has_zero = product
    return masked.product(log_weight + rest, has_zero)


def _row_for_each_bin(
    theta: Shaped[Array | np.ndarray, "lag state"],
    num_bins: int,
    batch: TrajectoryBatch,
    exact_lags: int,
) -> Bool[Array, "bin state"]:
    """The map with its last row repeated; an error where it is unclear what the rows are."""
    theta = jnp.asarray(theta).astype(bool)
    num_rows, num_states = theta.shape
    if num_states != batch.num_states:
        raise ValueError(
            f"theta: its last axis must have the batch's {batch.num_states} states, "
            f"but its shape is {theta.shape}"
        )
    if not 0 < num_rows <= exact_lags and num_rows != num_bins:
        raise ValueError(
            f"theta: {num_rows} rows are neither at most exact_lags={exact_lags}, one for each "
            f"lag, nor one for each of the {num_bins} bins of lag_edges({batch.reward.shape[1]}, "
            f"exact={exact_lags}); for one row per lag give exact_lags={num_rows}"
        )
    return theta[jnp.minimum(jnp.arange(num_bins), num_rows - 1)]


def _states(batch: TrajectoryBatch) -> Int[Array, "traj time"]:
    return masked.fill(batch.mask, batch.require("state", "theta by lag and state"))


def _behind(x: Shaped[Array, "traj time"], steps: Int[Array, ""]) -> Shaped[Array, "traj time"]:
    """x_{t-steps}, 0 before the start."""
    num_steps = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (num_steps, 0)))
    return lax.dynamic_slice_in_dim(padded, num_steps - steps, num_steps, 1)


def _over_window(
    x: Float[Array, "traj time"], zero: Bool[Array, "traj time"], width: Int[Array, ""], bits: int
) -> tuple[Float[Array, "traj time"], Bool[Array, "traj time"]]:
    """Sum of x, and whether any is zero, over the `width` steps that end at each t.

    By blocks of 1, 2, 4, ... steps, one for each binary digit of the width, and not as the
    difference of two running sums, which would lose the digits of a short window late in a
    long trajectory.
    """
    if bits == 1:
        return x, zero

    def join(late: tuple[Array, Array], early: tuple[Array, Array], steps: Int[Array, ""]):
        return late[0] + _behind(early[0], steps), late[1] | _behind(early[1], steps)

    def digit(carry, power: Int[Array, ""]):
        block, window = carry
        steps = jnp.left_shift(1, power)
        has_digit = (width >> power) & 1 == 1
        longer = join(block, window, steps)
        window = jax.tree.map(partial(jnp.where, has_digit), longer, window)
        return (join(block, block, steps), window), None

    nothing = jnp.zeros_like(x), jnp.zeros_like(zero)
    (_, window), _ = lax.scan(digit, ((x, zero), nothing), jnp.arange(bits))
    return window
