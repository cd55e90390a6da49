"""What a method of intervals needs, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import given
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.inference.methods import INTERVALS, NEEDS
from osiris_jax.pipeline.spec import Spec

SLACK, MOST_RESAMPLES = 1e-5, 10**9
GUARANTEED = ("bernstein", "hoeffding", "hcope")


def check_methods(methods: Any) -> tuple[str, ...]:
    """The names as a tuple; a ValueError for one that is unknown."""
    names = (methods,) if isinstance(methods, str) else tuple(methods)
    if not names:
        raise ValueError("methods: none given")
    for name in names:
        if name not in INTERVALS:
            raise ValueError(f"methods: {name!r} is unknown; there are {', '.join(INTERVALS)}")
    return names


def refusal(method: str, spec: Spec, discounted_from: float = 0.0) -> str | None:
    """Why the method has no interval for this estimator; None where it has one.

    Args:
      discounted_from: the smallest return that there can be, as far as it is known.
    """
    if "left_out" in NEEDS[method] and spec.estimator.chooses:
        return "a choice jumps, and a jackknife takes it to be smooth; use percentile"
    if "terms" not in NEEDS[method]:
        return None
    if spec.test is not None:
        return (
            "after omission terms are not independent, for all data choose what is kept; "
            "use percentile or bca"
        )
    allowed = [name for name, entry in ESTIMATORS.items() if entry.mean_of_terms]
    if method == "t":
        allowed += [
            name
            for name, entry in ESTIMATORS.items()
            if name not in allowed and entry.of_counts is not None and entry.of_counts.terms
        ]
    if spec.estimator.name not in allowed:
        return f"only {', '.join(allowed)} are means of independent terms; use percentile or bca"
    if method in GUARANTEED and spec.for_estimator.keywords.get("clip") is not None:
        return "a guarantee for clipped weights would be of another value; leave out `clip`"
    if method == "hcope" and spec.estimator.per_decision and discounted_from < 0:
        return "it needs rewards that are never negative; use `is`, which is shifted"
    return None


def check_method(
    method: str, label: str, spec: Spec, weight_bound: Any, return_bounds: Any
) -> None:
    """Raises a ValueError that names what the method lacks for this estimator."""
    least = 0.0 if return_bounds is None else float(return_bounds[0])
    reason = refusal(method, spec, least)
    if reason is not None:
        raise ValueError(f"methods: `{method}` is not available for `{label}`: {reason}")
    if "return_bounds" in NEEDS[method] and return_bounds is None:
        raise ValueError(
            f"return_bounds: `{method}` needs the smallest and the largest return possible, "
            "such as (0, 1), known from elsewhere than the data"
        )
    ends = (return_bounds or (0, 0))[: 1 if method == "hcope" else 2]
    if "return_bounds" in NEEDS[method] and not np.isfinite(ends).all():
        raise ValueError(f"return_bounds: `{method}` needs finite bounds, got {return_bounds!r}")
    weighs = spec.estimator.reads_ratios
    if "weight_bound" in NEEDS[method] and weighs and weight_bound is None:
        raise ValueError(
            f"weight_bound: `{method}` needs the largest weight possible, known from elsewhere "
            "than the data: the largest ratio of the two policies to the power of the horizon"
        )


def refuse_idle(
    settings: Mapping[str, Any], methods: Sequence[str], specs: Mapping[str, Spec]
) -> None:
    """Raises a ValueError for a number that no method would use."""
    weighs = any(spec.estimator.reads_ratios for spec in specs.values())
    for name, need, used in (
        ("resamples", "resampled", True),
        ("weight_bound", "weight_bound", weighs),
        ("return_bounds", "return_bounds", True),
    ):
        if given(settings.get(name)) and not (used and any(need in NEEDS[m] for m in methods)):
            raise ValueError(f"{name}: has no effect on intervals by {', '.join(methods)}")


def check_numbers(confidence: Any, resamples: Any, memory: Any = 1) -> None:
    """Raises a ValueError that names the number that is wrong."""
    if not isinstance(confidence, float | np.floating) or not 0 < confidence < 1:
        raise ValueError(f"confidence: must be in (0, 1), got {confidence!r}")
    for name, number, least in (("resamples", resamples, 2), ("memory", memory, 1)):
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or number < least:
            raise ValueError(f"{name}: expected a whole number, {least} or more, got {number!r}")
    if resamples > MOST_RESAMPLES:
        raise ValueError(f"resamples: expected at most {MOST_RESAMPLES}, got {resamples}")


def check_bounds(weight_bound: Any, return_bounds: Any) -> None:
    """Raises a ValueError unless the bounds are numbers that can be bounds."""
    if weight_bound is not None and not (_number(weight_bound) and 1 <= weight_bound < np.inf):
        raise ValueError(
            f"weight_bound: must be a number of at least 1, the mean weight, got {weight_bound!r}"
        )
    if return_bounds is None:
        return
    pair = tuple(return_bounds) if isinstance(return_bounds, tuple | list | np.ndarray) else ()
    if len(pair) != 2 or not all(map(_number, pair)) or not pair[0] <= pair[1]:
        raise ValueError(f"return_bounds: expected (smallest, largest), got {return_bounds!r}")


def _number(x: Any) -> bool:
    return isinstance(x, int | float | np.number) and not isinstance(x, bool) and not np.isnan(x)


def check_data(batch: TrajectoryBatch, spec: Spec, weight_bound: Any, return_bounds: Any) -> None:
    """Raises a ValueError where the data go beyond the bounds that were claimed."""
    estimator, discount = spec.estimator, spec.for_estimator.keywords["discount"]
    extremes = jax.tree.map(float, _extremes(batch, discount))
    low, high = extremes["parts" if estimator.per_decision else "returns"]
    heaviest = extremes["weights" if estimator.per_decision else "weight"]
    if return_bounds is not None:
        slack = SLACK * max(abs(low), abs(high))
        for end in (low, high):
            if not return_bounds[0] - slack <= end <= return_bounds[1] + slack:
                kind = "sum of rewards of one sign" if estimator.per_decision else "return"
                raise ValueError(
                    f"return_bounds: the data have a {kind} of {end:.6g}, beyond {return_bounds}"
                )
    above = weight_bound is not None and heaviest > weight_bound * (1 + SLACK)
    if estimator.reads_ratios and above:
        raise ValueError(f"weight_bound: the data have a weight of {heaviest:.6g}, above it")


@compiled(quick=True)
def _extremes(batch: TrajectoryBatch, discount: Array) -> dict[str, Any]:
    """Extremes of returns, of their parts of one sign, and of weights."""
    value = masked.returns(batch.reward, batch.mask, discount)
    reward = masked.fill(batch.mask, batch.reward)
    gains = masked.returns(jnp.maximum(reward, 0), batch.mask, discount)
    losses = masked.returns(jnp.minimum(reward, 0), batch.mask, discount)
    log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
    running = masked.running_log_weights(log_ratio, batch.mask)
    return {
        "returns": (value.min(), value.max()),
        "parts": (losses.min(), gains.max()),
        "weight": jnp.exp(masked.log_weights(log_ratio, batch.mask).max()),
        "weights": jnp.exp(running.max()),
    }
