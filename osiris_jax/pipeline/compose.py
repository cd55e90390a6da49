"""OSIRIS as a composition: evidence of relevance, a level, omission, an estimator.

`estimate` does it for one data set and a study for thousands; both call what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import keywords
from osiris_jax.estimators import function_of, name_of
from osiris_jax.estimators.trajectory import OF_WEIGHTS
from osiris_jax.pipeline import selection
from osiris_jax.relevance import (
    RELEVANCE,
    RELEVANCE_BY_LAG,
    THRESHOLDS,
    AtSteps,
    above,
    at_steps,
    composite,
    keep_steps,
    log_weights_of_levels,
    most_relevant,
    omit,
    relevant,
)


class Evidence(NamedTuple):
    """What a test found, and whether it is large where a state is relevant."""

    value: Any
    by_threshold: bool
    by_lag: bool


Estimator = str | Callable[..., Any]


def is_by_lag(estimator: Estimator) -> bool:
    """Whether the estimator omits by lag: it takes a map `theta` of lags and states."""
    return "theta" in keywords(function_of(estimator))


def test_for(estimator: Estimator, test: str) -> Callable[..., Any]:
    """The test's function, for an estimator that omits by state or by lag.

    Raises:
      ValueError: the test is unknown, or has no form by lag; there are no ratios to omit.
    """
    if not isinstance(test, str) or test not in RELEVANCE:
        raise ValueError(f"relevance: {test!r} is unknown; there are {', '.join(RELEVANCE)}")
    if estimator == "dm":
        raise ValueError("relevance: `dm` uses no ratios, so there are none to omit")
    if not is_by_lag(estimator):
        return RELEVANCE[test]
    if test not in RELEVANCE_BY_LAG:
        known, name = ", ".join(RELEVANCE_BY_LAG), name_of(estimator)
        raise ValueError(f"relevance: {test!r} has no form by lag, as `{name}` needs: {known}")
    return RELEVANCE_BY_LAG[test]


def gather(batch: TrajectoryBatch, estimator: Estimator, test: str, **options: Any) -> Evidence:
    """The test's evidence from this data set."""
    function = test_for(estimator, test)
    return Evidence(function(batch, **options), test in THRESHOLDS, is_by_lag(estimator))


def map_at(evidence: Evidence, level) -> Any:
    """The map of what is kept at this level."""
    return (
        above(evidence.value, level) if evidence.by_threshold else relevant(evidence.value, level)
    )


def steps_at(batch: TrajectoryBatch, evidence: Evidence, level, max_kept=None) -> Array:
    """[traj, time] the steps whose ratios are kept at this level."""
    keep = keep_steps(map_at(evidence, level), batch)
    if max_kept is None:
        return keep
    by_step = at_steps(evidence.value, batch)
    return most_relevant(
        keep & batch.mask, -by_step if evidence.by_threshold else by_step, max_kept
    )


def value_at(
    batch: TrajectoryBatch,
    estimator: Estimator,
    evidence: Evidence,
    level,
    *,
    max_kept=None,
    **options: Any,
) -> Float[Array, ""]:
    """The estimate after omission at this level; NaN where the evidence is not a number."""
    function = function_of(estimator)
    log_ratio = batch.require("log_ratio", f"`{name_of(estimator)}` after omission")
    if evidence.by_lag:
        value = function(batch, log_ratio, theta=map_at(evidence, level), **options)
    else:
        keep = steps_at(batch, evidence, level, max_kept)
        value = function(composite(batch, keep), omit(log_ratio, keep), **options)
    return _unless_failed(evidence, value)


def _unless_failed(evidence: Evidence, value: Array) -> Array:
    """The value, or NaN where the evidence is not a number."""
    failed = [jnp.isnan(x).any() for x in jax.tree.leaves(evidence.value)]
    return jnp.where(jnp.any(jnp.stack(failed)), jnp.nan, value)


def values_at(
    batch: TrajectoryBatch, estimator: Estimator, evidence, levels, *, max_kept=None, **options: Any
) -> Array:
    """[level] the estimates at all levels."""
    of_weights = OF_WEIGHTS.get(function_of(estimator))
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
    rising = log_weights_of_levels(
        batch.require("log_ratio", "omission"), batch.mask, at_steps(omissions, batch), len(levels)
    )
    return jnp.zeros_like(rising).at[order].set(rising)


def choose(
    batch: TrajectoryBatch,
    estimator: Estimator,
    evidence: Evidence,
    levels: Float[Array, " level"],
    *,
    method: str,
    gather_again: Callable[[TrajectoryBatch], Evidence],
    max_kept=None,
    method_options: dict[str, Any],
    **options: Any,
) -> selection.Choice:
    """The level that the method chooses among `levels`, and the estimate there.

    Args:
      levels: candidates, from the one that keeps most to the one that keeps least.
      method: a name in `SELECTION`.
      gather_again: the same test on another data set.
      method_options: of the method.
    """

    def values(batch: TrajectoryBatch, evidence: Evidence) -> Array:
        return values_at(batch, estimator, evidence, levels, max_kept=max_kept, **options)

    by_state = not evidence.by_lag and not isinstance(evidence.value, AtSteps)
    maps = jax.vmap(lambda level: map_at(evidence, level))(levels) if by_state else None
    if maps is not None and maps.ndim == 3:
        maps = maps.mean(1, dtype=batch.dtype) > 0.5
    steps = None
    if not evidence.by_lag:
        steps = jax.vmap(lambda level: steps_at(batch, evidence, level, max_kept))(levels)
    candidates = selection.Candidates(
        batch=batch,
        estimator=name_of(estimator),
        value=values(batch, evidence),
        maps=maps,
        keep=steps,
        resample=lambda drawn: values(drawn, gather_again(drawn)),
        discount=options.get("discount", 1.0),
    )
    return selection.choose(candidates, levels, method, **method_options)
