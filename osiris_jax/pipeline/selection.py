"""Choosing the level of relevance from the data: methods behind one interface, and their registry.

A method gets the candidates, ordered from the level that keeps most to the one that keeps least,
and returns a score for each: the estimated squared error, or anything else of which the smallest
wins. To add one, write the function and add its line to `SELECTION`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.compiled import watched
from osiris_jax.estimators.trajectory import is_variance, wis_variance
from osiris_jax.models import empirical

AUTO = "auto"
DEFAULT_METHOD = BY_STATE = "model"
ALPHAS = (1.0, 0.6, 0.35, 0.2, 0.1, 0.05, 0.01, 0.0)
THRESHOLDS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
ERROR_COUNTS = 0.5
DOUBT = 2.0


class Candidates(NamedTuple):
    """What a method may look at.

    Attributes:
      batch: the data.
      normalised: whether the estimator divides weights by their sum.
      value: [level] the estimate at every level.
      maps: [level, state] the states kept at every level; None where relevance is not by state.
      log_weights: [level, traj] log-weights after omission; None where relevance is by lag.
      resample: from a batch to [level] estimates, relevance found anew.
      discount: gamma.
    """

    batch: TrajectoryBatch
    normalised: bool
    value: Float[Array, " level"]
    maps: Bool[Array, "level state"] | None
    log_weights: Float[Array, "level traj"] | None
    resample: Callable[[TrajectoryBatch], Float[Array, " level"]]
    discount: Any


class Choice(NamedTuple):
    """The level chosen, with all that were compared.

    Attributes:
      level: the chosen level.
      value: the estimate there.
      levels: [level] the candidates, from the one that keeps most.
      values: [level] their estimates.
      scores: [level] what the method minimised.
    """

    level: Float[Array, ""]
    value: Float[Array, ""]
    levels: Float[Array, " level"]
    values: Float[Array, " level"]
    scores: Float[Array, " level"]


def model(candidates: Candidates) -> Float[Array, " level"]:
    """Variance and squared distance from the target's value, both from the data's Markov chain.

    The chain (`osiris_jax.models.empirical`) gives the variance of the estimate at each level; that
    of the sample counts where it is larger. The target's value is the chain's, corrected by what
    the trajectories show against it (`corrected_value`). The squared distance counts half, for that
    value has an error of its own. Fast, and it sees the weights that a small data set happens to
    lack.
    """
    batch, value = candidates.batch, candidates.value
    if candidates.maps is None or candidates.log_weights is None:
        raise ValueError(
            f"alpha: the method `{BY_STATE}` needs relevance by state; "
            f"choose one of {', '.join(name for name in SELECTION if name != BY_STATE)}"
        )
    everything = jnp.ones((1, batch.num_states), bool)
    maps = jnp.concatenate([candidates.maps, everything])
    moments = empirical.composite_moments(batch, maps, discount=candidates.discount)
    number = len(batch.reward)
    target = corrected_value(batch, moments.by_state[-1], candidates.discount)
    returns = masked.returns(batch.reward, batch.mask, candidates.discount)
    of_sample = wis_variance if candidates.normalised else is_variance
    sampled = jax.vmap(of_sample, (0, None))(candidates.log_weights, returns)
    plain = moments.second - moments.value**2
    variance = (moments.centred if candidates.normalised else plain)[:-1]
    variance = jnp.where(jnp.isnan(variance), jnp.inf, variance) / number
    return ERROR_COUNTS * (value - target) ** 2 + jnp.maximum(variance, sampled)


def corrected_value(
    batch: TrajectoryBatch, by_state: Float[Array, " state"], discount
) -> Float[Array, ""]:
    """The mean value of the first states, corrected where the data contradict it.

    The correction is that of weighted doubly robust estimation with values of states alone: the sum
    over t of gamma^(t-1) times the weighted mean of r_t + gamma V(s_{t+1}) - V(s_t). Known with
    standard error e, a correction c is shrunk to c max(0, 1 - 2 e^2 / c^2), as James and Stein do;
    e^2 counts twice, for weights with heavy tails make it too small.
    """
    state = masked.fill(batch.mask, batch.require("state", "a choice of level"))
    value = masked.fill(batch.mask, by_state[state])
    following = jnp.pad(value[:, 1:], ((0, 0), (0, 1)))
    discount = jnp.asarray(discount, batch.dtype)
    surprise = masked.fill(batch.mask, batch.reward) + discount * following - value
    log_ratio = batch.require("log_ratio", "a choice of level")
    log_weight = masked.running_log_weights(log_ratio, batch.mask)
    mean = jax.vmap(masked.weighted_mean, in_axes=1)(log_weight, surprise)
    scale = jnp.where(masked.alive(batch.mask), 1, 0) * masked.discounts(
        len(mean), discount, batch.dtype
    )
    weight = jax.nn.softmax(log_weight, axis=0)
    influence = masked.total(weight * (surprise - mean[None]) * scale[None])
    correction, squared_error = masked.total(mean * scale), jnp.sum(influence**2)
    square = correction**2
    doubt = DOUBT * squared_error / jnp.where(square > 0, square, 1)
    shrunk = correction * jnp.maximum(0, 1 - doubt)
    return value[:, 0].mean() + jnp.where(jnp.isfinite(shrunk), shrunk, 0)


def lepski(
    candidates: Candidates, *, key=None, resamples: int = 50, width=1.0
) -> Float[Array, " level"]:
    """SLOPE: the least kept whose interval still meets all before it (Su et al. 2020).

    Starts where everything is kept and walks down while the intervals, `width` bootstrap standard
    errors to each side, have a point in common; levels without an estimate are passed over. It
    takes the bias to grow and the variance to fall on the way, which `weighting="to-go"` violates
    without leave-one-out.

    Args:
      key: of the resamples, consumed.
      resamples: data sets drawn, relevance found anew in each.
      width: standard errors to each side.
    """
    value, error = candidates.value, _bootstrap(candidates, key, resamples).std(0)
    defined = jnp.isfinite(value) & jnp.isfinite(error)
    low = lax.cummax(jnp.where(defined, value - width * error, -jnp.inf))
    high = lax.cummin(jnp.where(defined, value + width * error, jnp.inf))
    meets = defined & (lax.cummin((low <= high).astype(jnp.int32)) > 0)
    return jnp.where(meets, -jnp.arange(len(low), dtype=error.dtype), 1)


def bootstrap(
    candidates: Candidates, *, key=None, resamples: int = 50, confidence=0.5
) -> Float[Array, " level"]:
    """Bootstrap variance plus squared distance from what all ratios say (Thomas & Brunskill 2016).

    The bias of a level is its distance from the bootstrap interval of the estimate that keeps
    most, as in their MAGIC.

    Args:
      key: of the resamples, consumed.
      resamples: data sets drawn, relevance found anew in each.
      confidence: of the interval.
    """
    replicates = _bootstrap(candidates, key, resamples)
    tail = (1 - jnp.asarray(confidence, replicates.dtype)) / 2
    value = candidates.value
    most = jnp.argmax(jnp.isfinite(value))
    low, high = (jnp.quantile(replicates[:, most], q) for q in (tail, 1 - tail))
    low, high = jnp.minimum(low, value[most]), jnp.maximum(high, value[most])
    bias = jnp.maximum(jnp.maximum(low - value, value - high), 0)
    return replicates.var(0) + bias**2


def _bootstrap(candidates: Candidates, key, resamples: int) -> Float[Array, "resample level"]:
    """Estimates of all levels from data sets drawn with replacement, undefined ones as the mean."""
    number = len(candidates.batch.reward)
    key = random.key(0) if key is None else key
    chosen = random.randint(key, (resamples, number), 0, number)

    def again(rows: Int[Array, " traj"]) -> Float[Array, " level"]:
        return candidates.resample(jax.tree.map(lambda field: field[rows], candidates.batch))

    values = lax.map(again, chosen)
    defined = jnp.isfinite(values)
    return jnp.where(defined, values, jnp.mean(values, 0, keepdims=True, where=defined))


SELECTION = watched({"model": model, "lepski": lepski, "bootstrap": bootstrap})


def choose(
    candidates: Candidates, levels: Float[Array, " level"], method: str, **options: Any
) -> Choice:
    """The level with the smallest score, ties to the one that keeps more.

    A score that is undefined never wins, an undefined estimate only where all are.
    """
    scores = SELECTION[method](candidates, **options)
    finite = jnp.where(jnp.isfinite(scores), scores, jnp.finfo(scores.dtype).max)
    best = jnp.argmin(jnp.where(jnp.isnan(candidates.value), jnp.inf, finite))
    return Choice(levels[best], candidates.value[best], levels, candidates.value, scores)
