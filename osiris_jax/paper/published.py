"""Estimators and p-values as the paper's own code computes them.

Kept only to reproduce the published digits; each docstring says what differs from the definition.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.estimators.incremental import Choice
from osiris_jax.relevance import RELEVANCE
from osiris_jax.relevance.samples import visits

TIE_TOLERANCE = 1e-6


def incris_published(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]
) -> Float[Array, ""]:
    """INCRIS with the cuts of `choose_cuts_published`."""
    return choose_cuts_published(batch, log_ratio).mean.sum()


def choose_cuts_published(batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"]) -> Choice:
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

    def choose(inputs) -> Choice:
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
        return Choice(latest, mean(value)[0, latest])

    reward = masked.fill(batch.mask, batch.reward)
    by_time = (reward.T, batch.mask.T, jnp.arange(1, kept.shape[1]))
    return lax.map(choose, by_time)


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
        return (arrive_together @ flow) / flow.sum(), value

    start = (place[:, :1] == place[:, :1].T).mean(1, dtype=ratio.dtype)
    _, value = lax.scan(step, start, (place.T, next_place.T, ratio.T, reward.T))
    return masked.fill(masked.alive(batch.mask), value).sum()


def pvalues_published(batch: TrajectoryBatch, test: str = "welch") -> Float[Array, " state"]:
    """Unweighted returns-to-go and population variances; 1 for an empty group, NaN for 0 / 0."""
    options = {"weighting": "none", "undecided": jnp.nan}
    options |= {"ddof": 0} if test == "welch" else {}
    pvalue = RELEVANCE[test](batch, **options)
    visit = visits(batch, weighting="none", discount=1.0, first_visit=False)

    def visited(group: Bool[Array, "traj time"]) -> Bool[Array, " state"]:
        counts = (visit.used & group).astype(jnp.int32)
        return jax.ops.segment_sum(counts.ravel(), visit.state.ravel(), batch.num_states) > 0

    return jnp.where(visited(visit.above) & visited(~visit.above), pvalue, 1)


def keep_published(pvalue: Float[Array, " state"], alpha) -> Bool[Array, " state"]:
    """p <= alpha as it stands: NaN is never kept, p = 0 is kept even at alpha = 0."""
    return pvalue <= jnp.asarray(alpha, pvalue.dtype)
