"""Incremental importance sampling: for each reward, only its most recent ratios."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import check_word
from osiris_jax.estimators.headroom import with_headroom

ROW_BLOCK = 128


class Cuts(NamedTuple):
    """For every reward t: the chosen cut, t - k, and the mean of B r_t there."""

    cut: Int[Array, " time"]
    mean: Float[Array, " time"]


class _Paths(NamedTuple):
    """Products from the start: rho_{1:j} is exp(log_weight), or 0 after a `zero` ratio."""

    log_weight: Float[Array, "traj cut"]
    zero: Bool[Array, "traj time"]
    reward: Float[Array, "traj time"]


@with_headroom
def incris(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    variance: str = "of-one",
) -> Float[Array, ""]:
    """INCRIS: each reward keeps its k most recent ratios, k by estimated MSE (Guo et al. 2017).

    For reward t and a cut j = t - k, A = rho_{1:j} is left out and B = rho_{j+1:t} kept; the cut
    minimises cov(A, B r_t)^2 + var(B r_t) over the data, ties (to rounding) to the smallest k.
    A finished trajectory has reward 0 and ratio 1. Quadratic in time, memory linear in it.

    Args:
      variance: "of-one" as published, or "of-mean": the variance divided by N, which makes the
        criterion the MSE of what is averaged.
    """
    mean_reward = choose_cuts(batch, log_ratio, variance=variance).mean
    value = masked.total(mean_reward * masked.discounts(len(mean_reward), discount, batch.dtype))
    return jnp.where(masked.unknown(log_ratio, batch.mask), jnp.nan, value)


def choose_cuts(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, variance: str = "of-one"
) -> Cuts:
    """The cuts that `incris` makes; a discount multiplies all scores of a step alike."""
    check_word("variance", variance, ("of-one", "of-mean"))
    finite, zero = masked.split_zeros(log_ratio, batch.mask)
    paths = _Paths(
        log_weight=jnp.pad(masked.running_sum(finite), ((0, 0), (1, 0))),
        zero=zero,
        reward=masked.fill(batch.mask, batch.reward),
    )
    variance_share = 1.0 if variance == "of-one" else 1.0 / len(batch.reward)
    choice, trusted = _choose_by_matmul(paths, variance_share)
    return _redo_in_log_space(choice, paths, variance_share, ~trusted)


def latest_best(
    score: Float[Array, "*row cut"], slack: Callable[[Array], Array]
) -> Int[Array, "*row"]:
    """The last cut (smallest k) whose score is within the slack of the best.

    The best is named apart, for a compiler may compute the scores twice and round them differently,
    so that none equals the minimum.
    """
    within = (score < jnp.inf) & (score <= slack(score.min(-1, keepdims=True)))
    last_good = jnp.max(jnp.where(within, jnp.arange(score.shape[-1]), 0), axis=-1)
    return jnp.maximum(last_good, jnp.argmin(score, axis=-1))


def _tie_tolerance(dtype) -> float:
    return 1e-9 if dtype == jnp.float64 else 1e-4


def _least_square(dtype) -> float:
    """A mean of squares below which some of them, or their rounding, may have vanished."""
    return 2.0**10 * float(jnp.finfo(dtype).tiny)


def _mean_and_deviation(x: Float[Array, "traj *rest"]) -> tuple[Array, Array]:  # noqa: F821
    """Mean over trajectories and what remains, both exact where all values are equal."""
    from_first = x - x[:1]
    shift = from_first.mean(0, keepdims=True)
    return (x[:1] + shift)[0], from_first - shift


def _factors_are_safe(paths: _Paths) -> Bool[Array, ""]:
    """Whether no ratio is zero and no square of a factor in `_choose_by_matmul` can vanish."""
    spread = jnp.max(paths.log_weight.max(1) - paths.log_weight.min(1))
    size = jnp.where(paths.reward != 0, jnp.abs(paths.reward), 1)
    log_reward = jnp.log(jnp.stack([size.min(), size.max()]))
    limit = 0.9 * jnp.log(jnp.finfo(paths.reward.dtype).max)
    return (spread + 2 * jnp.max(jnp.abs(log_reward)) < limit) & ~paths.zero.any()


def _choose_by_matmul(paths: _Paths, variance_share: float) -> tuple[Cuts, Bool[Array, ""]]:
    """The cuts of all rewards, from two matrix products per block of rows; and if all are known.

    With u_j = 1 / rho_{1:j} and v_t = rho_{1:t} r_t, B r_t = u_j v_t, so that the means over
    trajectories of B r_t and of its square are products of matrices; mean(A B r_t) is free of
    the cut. Scores are [cut, time]: XLA reduces leading axes by vectors, and the last one item by
    item.
    """
    log_weight, reward = paths.log_weight, paths.reward
    num_trajectories, num_steps = reward.shape
    middle = (log_weight.max(1) + log_weight.min(1))[:, None] / 2
    inverse = jnp.exp(middle - log_weight)
    weighted_reward = jnp.exp(log_weight[:, 1:] - middle) * reward
    mean_kept = jnp.exp(log_weight).mean(0)[:, None]
    mean_full = (jnp.exp(log_weight[:, 1:]) * reward).mean(0)
    mean_bare, deviation = _mean_and_deviation(reward)
    variance_bare = (deviation**2).mean(0)
    by_time = jnp.stack([weighted_reward.T, weighted_reward.T**2], axis=1)
    powers = jnp.stack([inverse, inverse**2])
    cut = jnp.arange(num_steps + 1)[:, None]

    def rows(inputs):
        weighted, *by_column = inputs
        full, bare, bare_variance, time = (x[None] for x in by_column)
        no_ratio = cut == time
        sums = jnp.einsum("knc,tkn->kct", powers, weighted, precision=lax.Precision.HIGHEST)
        first, second = sums / num_trajectories
        first = jnp.where(no_ratio, bare, first)
        spread = jnp.where(no_ratio, bare_variance, jnp.maximum(second - first**2, 0))
        split = mean_kept * first
        score = (full - split) ** 2 + variance_share * spread
        allowed = cut <= time
        score = jnp.where(allowed, score, jnp.inf)
        best = score.min(0, keepdims=True)
        eps = jnp.finfo(score.dtype).eps
        rounding = (64 * eps) ** 2 * (full**2 + split**2) + 8 * eps * second
        within = allowed & (score <= best * (1 + _tie_tolerance(score.dtype)) + rounding)
        chosen = jnp.max(jnp.where(within, cut, 0), axis=0)
        mean = jnp.take_along_axis(first, chosen[None], axis=0)[0]
        # an error that overflows would admit every cut, and so would squares that vanish
        vanishing = (second < _least_square(score.dtype)) & (weighted[:, 0] != 0).any(1)[None]
        unknown = allowed & (vanishing | ~jnp.isfinite(rounding))
        return Cuts(chosen, mean), jnp.isfinite(best[0]) & ~unknown.any(0)

    by_row = (by_time, mean_full, mean_bare, variance_bare, jnp.arange(num_steps) + 1)
    choice, trusted = blocked(rows, by_row)
    return choice, trusted.all() & _factors_are_safe(paths)


def blocked(rows, by_row):
    """`rows` over blocks of the leading axis, so that memory stays linear in time."""
    num_rows = len(by_row[0])
    if num_rows <= ROW_BLOCK:
        return rows(by_row)
    block = ROW_BLOCK
    num_blocks = -(-num_rows // block)

    def fold(x):
        padded = jnp.pad(x, [(0, num_blocks * block - num_rows)] + [(0, 0)] * (x.ndim - 1))
        return padded.reshape(num_blocks, block, *x.shape[1:])

    blocks = lax.map(rows, jax.tree.map(fold, by_row))
    return jax.tree.map(lambda x: x.reshape(-1)[:num_rows], blocks)


def _redo_in_log_space(
    choice: Cuts, paths: _Paths, variance_share: float, needed: Bool[Array, ""]
) -> Cuts:
    """Overwrites the choice by that of the log-space form where `needed`.

    A loop of zero turns where it is not: under vmap a `cond` would always pay for both.
    """

    def body(carry):
        t, choice = carry
        cut, mean = _choose_in_log_space(paths, t, variance_share)
        return t + 1, Cuts(choice.cut.at[t].set(cut), choice.mean.at[t].set(mean))

    def unfinished(carry):
        return needed & (carry[0] < len(choice.cut))

    return lax.while_loop(unfinished, body, (0, choice))[1]


def _choose_in_log_space(
    paths: _Paths, t: Int[Array, ""], variance_share: float
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The cut of one reward and the mean there, for ratios of zero and of any size."""
    log_weight = paths.log_weight
    reward = paths.reward[:, t, None]
    cut, step = jnp.arange(log_weight.shape[1])[None], jnp.arange(paths.zero.shape[1])[None]
    allowed = cut <= t + 1
    first_zero = jnp.min(jnp.where(paths.zero, step, step.size), axis=1, keepdims=True)
    latest_zero = jnp.max(jnp.where(paths.zero & (step <= t), step, -1), axis=1, keepdims=True)
    survives = (latest_zero < cut) & (reward != 0) & allowed
    log_now = lax.dynamic_index_in_dim(log_weight, t + 1, axis=1)
    log_recent = log_now - log_weight + jnp.log(jnp.abs(reward))
    recent, log_recent_scale = _scale_down(log_recent, survives)
    kept, log_kept_scale = _scale_down(log_weight, (first_zero >= cut) & allowed)

    mean_recent, deviation = _mean_and_deviation(recent * jnp.sign(reward))
    _, kept_deviation = _mean_and_deviation(kept)
    covariance = (kept_deviation * deviation).mean(0)
    log_spread = jnp.log(variance_share * (deviation**2).mean(0))
    log_bias_square = 2 * (jnp.log(jnp.abs(covariance)) + log_kept_scale)
    log_score = 2 * log_recent_scale + jnp.logaddexp(log_spread, log_bias_square)
    log_score = jnp.where(allowed[0], log_score, jnp.inf)
    tolerance = _tie_tolerance(log_score.dtype)
    chosen = latest_best(log_score, lambda best: best + tolerance)
    root = jnp.exp(log_recent_scale[chosen] / 2)
    return chosen, mean_recent[chosen] * root * root


def _scale_down(log_x: Float[Array, "traj cut"], exists: Bool[Array, "traj cut"]):
    """x / scale and log scale, the scale of a column being its largest existing x."""
    scale = jnp.max(jnp.where(exists, log_x, -jnp.inf), axis=0, keepdims=True)
    scale = jnp.where(jnp.isfinite(scale), scale, 0)
    return jnp.where(exists, jnp.exp(jnp.where(exists, log_x, 0) - scale), 0), scale[0]
