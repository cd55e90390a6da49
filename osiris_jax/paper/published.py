"""Estimators and p-values as the paper's own code computes them.

Kept only to reproduce the published digits; each docstring says what differs from the definition.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Bool, Float

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators.incremental import Cuts, blocked, latest_best
from osiris_jax.relevance.samples import Visits, visits
from osiris_jax.relevance.tests import smirnov_of_visits, welch_of_visits

TIE_TOLERANCE = 1e-6
LONG = 256


def incris_published(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]
) -> Float[Array, ""]:
    """INCRIS with the cuts of `choose_cuts_published`; long data by `choose_cuts_by_products`."""
    is_long = batch.mask.shape[1] > LONG
    choose = choose_cuts_by_products if is_long else choose_cuts_published
    return choose(batch, log_ratio).mean.sum()


def choose_cuts_published(batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]) -> Cuts:
    """INCRIS whose kept ratios run to the *end* of the trajectory, not to the reward's step.

    A = rho_{1:t-k} as defined, but B = rho_{t-k+1:T}, so that k = 0 still weighs a reward by all
    later ratios; and all moments are over the trajectories alive at t instead of all N.
    """
    start = jnp.zeros((len(log_ratio), 1), log_ratio.dtype)
    before = masked.running_log_weights(log_ratio, batch.mask)
    after = masked.running_log_weights(log_ratio, batch.mask, reverse=True)
    omitted = jnp.exp(jnp.concatenate([start, before], axis=1))
    kept = jnp.exp(jnp.concatenate([after, start], axis=1))
    cut = jnp.arange(kept.shape[1])

    def choose(inputs) -> Cuts:
        reward_t, alive_t, t = inputs
        number = jnp.maximum(alive_t.sum(), 1)

        def mean(x: Array) -> Array:
            return jnp.where(alive_t[:, None], x, 0).sum(0, keepdims=True) / number

        value = kept * reward_t[:, None]
        deviation = value - mean(value)
        covariance = mean((omitted - mean(omitted)) * deviation)
        score = jnp.where(cut <= t, (covariance**2 + mean(deviation**2))[0], jnp.inf)
        rounding = (64 * jnp.finfo(score.dtype).eps) ** 2 * mean(value**2) * (1 + mean(omitted**2))
        tied = score <= score.min() * (1 + TIE_TOLERANCE) + rounding[0]
        latest = jnp.maximum(jnp.max(jnp.where(tied, cut, 0)), jnp.argmin(score))
        return Cuts(latest, mean(value)[0, latest])

    reward = masked.fill(batch.mask, batch.reward)
    by_time = (reward.T, batch.mask.T, jnp.arange(1, kept.shape[1]))
    return lax.map(choose, by_time)


def choose_cuts_by_products(batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]) -> Cuts:
    """`choose_cuts_published` from products of matrices: fast, but rounded more.

    A variance is found as the mean of squares less the square of the mean.
    """
    reward = masked.fill(batch.mask, batch.reward)
    start = jnp.zeros((len(log_ratio), 1), log_ratio.dtype)
    before = masked.running_log_weights(log_ratio, batch.mask)
    after = masked.running_log_weights(log_ratio, batch.mask, reverse=True)
    omitted = _bounded_exp(jnp.concatenate([start, before], axis=1))
    kept = _bounded_exp(jnp.concatenate([after, start], axis=1))
    # A B is the whole weight for every cut, and all other moments are products of matrices
    full = _bounded_exp(masked.log_weights(log_ratio, batch.mask))[:, None] * reward
    cut = jnp.arange(kept.shape[1])[None]

    def rows(inputs) -> Cuts:
        alive, reward, full, time = inputs
        number = jnp.maximum(alive.sum(1), 1)[:, None]
        mean, square, mean_omitted = (
            jnp.matmul(x, y, precision=lax.Precision.HIGHEST) / number
            for x, y in ((reward, kept), (reward**2, kept**2), (alive, omitted))
        )
        split = mean_omitted * mean
        covariance = full.sum(1)[:, None] / number - split
        score = covariance**2 + jnp.maximum(square - mean**2, 0)
        score = jnp.where(cut <= time[:, None], score, jnp.inf)
        rounding = 64 * jnp.finfo(score.dtype).eps * square
        latest = latest_best(score, lambda best: best * (1 + TIE_TOLERANCE) + rounding)
        return Cuts(latest, jnp.take_along_axis(mean, latest[:, None], axis=1)[:, 0])

    alive = batch.mask.astype(reward.dtype)
    return blocked(rows, (alive.T, reward.T, full.T, jnp.arange(1, kept.shape[1])))


def _bounded_exp(log_weight: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Weights whose squares do not overflow: a cut that has larger ones is never the best."""
    return jnp.exp(jnp.minimum(log_weight, 0.4 * jnp.log(jnp.finfo(log_weight.dtype).max)))


def mis_published(batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]) -> Float[Array, ""]:
    """MIS whose transition weights are divided by the count of (s, s') instead of the count of s.

    They are renormalised afterwards, so that every observed kind of move weighs its mean ratio,
    however often it was made. Rewards are divided by the count of s, as defined.
    """
    place = masked.fill(batch.mask, batch.require("state", "mis_published"), batch.num_states)
    next_place = jnp.pad(place[:, 1:], ((0, 0), (0, 1)), constant_values=batch.num_states)
    ratio = jnp.exp(masked.fill(batch.mask, log_ratio))
    reward = masked.fill(batch.mask, batch.reward)

    def step(mass, inputs):
        place_t, next_place_t, ratio_t, reward_t = inputs
        together = place_t[:, None] == place_t[None]
        arrive_together = next_place_t[:, None] == next_place_t[None]
        flow = mass * ratio_t
        value = jnp.sum(flow * reward_t / together.sum(1))
        flow = flow / (together & arrive_together).sum(1)
        arriving = jnp.matmul(arrive_together, flow, precision=lax.Precision.HIGHEST)
        return arriving / flow.sum(), value

    start = (place[:, :1] == place[:, :1].T).mean(1, dtype=ratio.dtype)
    _, value = lax.scan(step, start, (place.T, next_place.T, ratio.T, reward.T))
    return masked.fill(masked.alive(batch.mask), value).sum()


class Coins(NamedTuple):
    """How ties are broken: for a visit at the median, and for an action with half its visits above.

    The second coin is not fair: the paper's code compares a normal variate with 0.5.
    """

    visit: Bool[Array, "traj time"]
    action: Bool[Array, "state action"]

    @classmethod
    def toss(cls, key: Array, batch: TrajectoryBatch) -> Coins:
        """Coins that do not depend on padding."""
        of_visits, of_actions = random.split(key)
        row_keys = jax.vmap(random.fold_in, (None, 0))(of_visits, jnp.arange(len(batch.mask)))
        times = jnp.arange(batch.mask.shape[1])
        step_keys = jax.vmap(jax.vmap(random.fold_in, (None, 0)), (0, None))(row_keys, times)
        normal = random.normal(of_actions, (batch.num_states, batch.num_actions), jnp.float32)
        return cls(jax.vmap(jax.vmap(random.bernoulli))(step_keys), normal < 0.5)


def pvalues_published(
    batch: TrajectoryBatch,
    test: str = "welch",
    *,
    weighting: str = "none",
    ddof=0,
    classes: str = "ratio",
    coins: Coins | None = None,
) -> Float[Array, " state"]:
    """Unweighted returns-to-go and population variances; 1 for an empty group, NaN for 0 / 0.

    Args:
      test: "welch" or "smirnov".
      weighting, ddof, classes: as for `welch`, so that each can be as defined.
      coins: for classes by return, break ties by them.
    """
    visit = visits(batch, weighting=weighting, discount=1.0, first_visit=False, classes=classes)
    if coins is not None:
        visit = visit._replace(above=_classes_by_coins(batch, visit, coins))
    if test == "welch":
        pvalue = welch_of_visits(visit, batch.num_states, ddof=ddof)
    else:
        pvalue = smirnov_of_visits(visit, batch.num_states).pvalue

    def visited(group: Bool[Array, "traj time"]) -> Bool[Array, " state"]:
        counts = (visit.used & group).astype(jnp.int32)
        return jax.ops.segment_sum(counts.ravel(), visit.state.ravel(), batch.num_states) > 0

    both = visited(visit.above) & visited(~visit.above)
    return jnp.where(both, jnp.clip(pvalue, 0, 1), 1)


def keep_published(pvalue: Float[Array, " state"], alpha) -> Bool[Array, " state"]:
    """p <= alpha as it stands: NaN is never kept, p = 0 is kept even at alpha = 0."""
    return pvalue <= jnp.asarray(alpha, pvalue.dtype)


def _classes_by_coins(
    batch: TrajectoryBatch, visit: Visits, coins: Coins
) -> Bool[Array, "traj time"]:
    """Classes of actions by return, see `visits`, where coins decide ties."""
    place = jnp.where(visit.used, visit.state, batch.num_states)
    median = stats.segment_median(visit.value.ravel(), place.ravel(), batch.num_states)
    middle = median[visit.state]
    votes = jnp.where((visit.value == middle) & ~coins.visit, -1, 1)
    votes = jnp.where(visit.value < middle, -1, votes)
    num_pairs = batch.num_states * batch.num_actions
    action = masked.fill(batch.mask, batch.require("action", "classes of actions by return"))
    pair = visit.state * batch.num_actions + action
    balance = jax.ops.segment_sum(
        votes.ravel(), jnp.where(visit.used, pair, num_pairs).ravel(), num_pairs
    )
    return jnp.where(balance == 0, coins.action.ravel(), balance > 0)[pair]
