"""OSIRIS as a composition: evidence of relevance, a level, omission, an estimator.

It is written here and nowhere else: `estimate` does it for one data set, intervals for resamples,
a study for thousands of data sets; all call what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.relevance import RELEVANCE, RelevanceTest, omission

EstimatorLike = str | Callable[..., Any]


class Evidence(NamedTuple):
    """What a test found, and whether it is large where a state is relevant."""

    value: Any
    by_threshold: bool
    by_lag: bool


def is_by_lag(estimator: EstimatorLike) -> bool:
    """Whether the estimator omits by lag: it takes a map `theta` of lags and states."""
    return ESTIMATORS.entry(estimator).by_lag


def test_for(estimator: EstimatorLike, test: Any) -> Callable[..., Any]:
    """The test's function, for an estimator that omits by state or by lag.

    Raises:
      ValueError: the test is unknown, or has no form by lag; there are no ratios to omit.
    """
    if not isinstance(test, str) or test not in RELEVANCE:
        raise ValueError(f"relevance: {test!r} is unknown; there are {', '.join(RELEVANCE)}")
    entry = ESTIMATORS.entry(estimator)
    if not entry.may_omit:
        raise ValueError(
            f"relevance: `{entry.name}` {entry.why_no_omission}, so there are none to omit"
        )
    if not entry.by_lag:
        return RELEVANCE[test].function
    by_lag = RELEVANCE[test].by_lag
    if by_lag is None:
        forms = ", ".join(name for name, other in RELEVANCE.items() if other.by_lag is not None)
        raise ValueError(
            f"relevance: {test!r} has no form by lag, as `{entry.name}` needs: {forms}"
        )
    return by_lag


def gather(
    batch: TrajectoryBatch, estimator: EstimatorLike, test: str | RelevanceTest, **options: Any
) -> Evidence:
    """The test's evidence from this data set."""
    entry, by_lag = RELEVANCE.entry(test), is_by_lag(estimator)
    function = entry.by_lag if by_lag else entry
    assert function is not None, "checked at the border"
    return Evidence(function(batch, **options), entry.large_is_relevant, by_lag)


def map_at(evidence: Evidence, level) -> Any:
    """The map of what is kept at this level."""
    return (
        omission.above(evidence.value, level)
        if evidence.by_threshold
        else omission.relevant(evidence.value, level)
    )


def steps_at(
    batch: TrajectoryBatch, evidence: Evidence, level, max_kept=None
) -> Bool[Array, "traj time"]:
    """The steps whose ratios are kept at this level."""
    keep = omission.keep_steps(map_at(evidence, level), batch)
    if max_kept is None:
        return keep
    by_step = omission.at_steps(evidence.value, batch)
    return omission.most_relevant(
        keep & batch.mask, -by_step if evidence.by_threshold else by_step, max_kept
    )


def kept_weights(batch: TrajectoryBatch, keep: Bool[Array, "traj time"]) -> Float[Array, " traj"]:
    """The log-weights of the trajectories after omission."""
    return masked.log_weights(omission.kept_ratios(batch, keep), batch.mask)


def value_of(
    batch: TrajectoryBatch,
    estimator: EstimatorLike,
    keep: Bool[Array, "traj time"],
    **options: Any,
) -> Float[Array, ""]:
    """The estimate after omission at all steps that are not kept."""
    entry = ESTIMATORS.entry(estimator)
    return entry(omission.composite(batch, keep), omission.kept_ratios(batch, keep), **options)


def plain_value(
    batch: TrajectoryBatch, estimator: EstimatorLike, **options: Any
) -> Float[Array, ""]:
    """The estimate without omission."""
    log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
    return ESTIMATORS.entry(estimator)(batch, log_ratio, **options)


def value_at(
    batch: TrajectoryBatch,
    estimator: EstimatorLike,
    evidence: Evidence,
    level,
    *,
    max_kept=None,
    **options: Any,
) -> Float[Array, ""]:
    """The estimate after omission at this level; NaN where the evidence is not a number."""
    entry = ESTIMATORS.entry(estimator)
    log_ratio = batch.require("log_ratio", f"`{entry.name}` after omission")
    if evidence.by_lag:
        value = entry(batch, log_ratio, theta=map_at(evidence, level), **options)
    else:
        value = value_of(batch, entry, steps_at(batch, evidence, level, max_kept), **options)
    return _unless_failed(evidence, value)


def _unless_failed(evidence: Evidence, value: Array) -> Array:
    """The value, or NaN where the evidence is not a number."""
    failed = [jnp.isnan(x).any() for x in jax.tree.leaves(evidence.value)]
    return jnp.where(jnp.any(jnp.stack(failed)), jnp.nan, value)


def values_at(
    batch: TrajectoryBatch,
    estimator: EstimatorLike,
    evidence: Evidence,
    levels: Float[Array, " level"],
    *,
    max_kept=None,
    **options: Any,
) -> Float[Array, " level"]:
    """The estimates at all levels; from weights alone, all at once, where that is enough."""
    of_weights = ESTIMATORS.entry(estimator).of_weights
    if of_weights is not None and max_kept is None:
        log_weight = log_weights_at(batch, evidence, levels)
        value = jax.vmap(lambda weights: of_weights(batch, weights, **options))(log_weight)
        return _unless_failed(evidence, value)

    def at(level: Array) -> Array:
        return value_at(batch, estimator, evidence, level, max_kept=max_kept, **options)

    return jax.vmap(at)(levels)


def log_weights_at(
    batch: TrajectoryBatch, evidence: Evidence, levels: Float[Array, " level"]
) -> Float[Array, "level traj"]:
    """Log-weights of the trajectories after omission by state or step, at all levels."""
    order = jnp.argsort(-levels if evidence.by_threshold else levels)

    def count(omissions: Any, level: Array) -> tuple[Any, None]:
        keep = map_at(evidence, level)
        return jax.tree.map(lambda number, kept: number + ~kept, omissions, keep), None

    none = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.int32), evidence.value)
    # a loop, for XLA would compute a sum anew at every step of every trajectory
    omissions, _ = lax.scan(count, none, levels)
    rising = omission.log_weights_of_levels(
        batch.require("log_ratio", "omission"),
        batch.mask,
        omission.at_steps(omissions, batch),
        len(levels),
    )
    return jnp.zeros_like(rising).at[order].set(rising)
