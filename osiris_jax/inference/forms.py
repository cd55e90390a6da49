"""Estimates of many resamples at once. A resample is rows of trajectories, or how often each came.

Estimators with a form by counts are computed from the counts: nothing is gathered, and what does
not depend on the resample is computed once. Every other one is computed as it stands from the
gathered trajectories, one resample after another. Both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import Options
from osiris_jax.inference.resampling import counts_of
from osiris_jax.inference.welch import Sizes, Visited, pvalues_by_counts, visited
from osiris_jax.pipeline import compose
from osiris_jax.pipeline.spec import Spec
from osiris_jax.relevance import omission, relevant
from osiris_jax.relevance.tests import oracle, welch

_PLAIN_WELCH = {"classes": "ratio", "leave_one_out": False, "folds": 0}


def by_counts(spec: Spec) -> bool:
    """Whether the estimates of resamples follow from counts."""
    if spec.estimator.of_counts is None or spec.composition.method is not None:
        return False
    return spec.test is None or spec.test.function is oracle or welch_by_counts(spec)


def welch_by_counts(spec: Spec) -> bool:
    """Whether Welch's test is made again from the counts."""
    counted = spec.estimator.of_counts
    if counted is None or counted.of_weights is None or spec.composition.method is not None:
        return False
    if spec.test is None or spec.test.function is not welch or spec.max_kept is not None:
        return False
    return spec.for_test is not None and _PLAIN_WELCH.items() <= spec.for_test.keywords.items()


class ByState(NamedTuple):
    """For omission: sums of log-ratios [traj, state], how many are of ratios 0, and the visits."""

    log_ratio: Float[Array, "traj state"]
    zeros: Float[Array, "traj state"]
    visited: Visited


class Prepared(NamedTuple):
    """What does not depend on the resample.

    Attributes:
      values: label -> the estimate of the data set itself.
      parts: label -> the parts of those with a form by counts.
      by_state: for Welch's test by counts; None where it is not made.
    """

    values: dict[str, Float[Array, ""]]
    parts: dict[str, Any]
    by_state: ByState | None


def prepare(batch: TrajectoryBatch, specs: Mapping[str, Spec], sizes: Sizes | None) -> Prepared:
    """The estimates of a data set, and what is common to all of its resamples.

    Args:
      specs: made together, so that all that use a test give it the same options.
      sizes: of Welch's test by counts; None where there is no room for it.
    """
    evidence: dict[Any, compose.Evidence] = {}
    values, parts, by_state = {}, {}, None
    for label, spec in specs.items():
        test = (spec.test, spec.estimator.by_lag)
        if spec.test is not None and test not in evidence:
            evidence[test] = spec.evidence(batch)
        values[label] = spec.values(batch, evidence.get(test))
        counted, again = spec.estimator.of_counts, welch_by_counts(spec)
        if counted is None or not by_counts(spec) or (again and sizes is None):
            continue
        log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
        if again and by_state is None:
            assert sizes is not None
            assert spec.for_test is not None
            by_state = _by_state(batch, sizes, spec.for_test)
        elif spec.test is not None and not again:
            keep = compose.steps_at(batch, evidence[test], spec.levels, spec.max_kept)
            log_ratio = omission.kept_ratios(batch, keep)
        parts[label] = counted.parts(batch, log_ratio, **spec.for_estimator.keywords)
    return Prepared(values, parts, by_state)


def _by_state(batch: TrajectoryBatch, sizes: Sizes, for_test: Options) -> ByState:
    names = ("weighting", "discount", "first_visit")
    seen = visited(batch, sizes, **{name: for_test.keywords[name] for name in names})
    log_ratio = batch.require("log_ratio", "omission by state")
    finite, zero = masked.split_zeros(log_ratio, batch.mask)
    state = masked.fill(batch.mask, batch.require("state", "omission by state"))
    row = jnp.arange(len(state))[:, None]
    empty = jnp.zeros((len(state), batch.num_states), batch.dtype)
    zeros = empty.at[row, state].add(zero.astype(batch.dtype))
    return ByState(empty.at[row, state].add(finite), zeros, seen)


def values_of_counts(
    batch: TrajectoryBatch,
    prepared: Prepared,
    specs: Mapping[str, Spec],
    counts: Float[Array, "resample traj"],
) -> tuple[dict[str, Float[Array, " resample"]], Bool[Array, ""]]:
    """The estimates of those with a form by counts, and whether Welch's test by counts holds."""
    values, kept = {}, None
    for label, parts in prepared.parts.items():
        spec, counted = specs[label], specs[label].estimator.of_counts
        assert counted is not None
        options, log_weight = spec.for_estimator.keywords, None
        if welch_by_counts(spec):
            kept = _kept(batch, prepared.by_state, spec, counts) if kept is None else kept
            log_weight = masked.clip_weights(kept[0], options.get("clip"))
        options |= {"mask": batch.mask}
        values[label] = counted.estimates(counts, parts, log_weight, **options)
    return values, jnp.asarray(True) if kept is None else kept[1]


def values_of_gathered(
    batch: TrajectoryBatch, specs: Mapping[str, Spec], rows: Int[Array, "resample row"]
) -> dict[str, Float[Array, " resample"]]:
    """The estimates of the resamples whose trajectories are in these rows, one after another."""

    def one(of_resample: Int[Array, " row"]) -> dict[str, Float[Array, ""]]:
        resample = jax.tree.map(lambda field: field[of_resample], batch)
        return {label: spec.values(resample) for label, spec in specs.items()}

    return lax.map(one, rows)


def values_of_rows(
    batch: TrajectoryBatch,
    prepared: Prepared,
    specs: Mapping[str, Spec],
    rows: Int[Array, "resample row"],
) -> dict[str, Float[Array, " resample"]]:
    """The estimates of the resamples whose trajectories are in these rows, each in its form."""
    counts = counts_of(rows, len(batch.reward), batch.dtype)
    counted, trusted = values_of_counts(batch, prepared, specs, counts)
    doubtful = {label: specs[label] for label in counted if welch_by_counts(specs[label])}
    if doubtful:
        counted |= lax.cond(
            trusted,
            lambda: {label: counted[label] for label in doubtful},
            lambda: values_of_gathered(batch, doubtful, rows),
        )
    others = {label: spec for label, spec in specs.items() if label not in counted}
    values = counted | (values_of_gathered(batch, others, rows) if others else {})
    return {label: values[label] for label in specs}


def _kept(
    batch: TrajectoryBatch, by_state: ByState | None, spec: Spec, counts: Array
) -> tuple[Float[Array, "resample traj"], Bool[Array, ""]]:
    """Log-weights of the ratios that every resample keeps, and whether they can be trusted."""
    assert by_state is not None
    assert spec.for_test is not None
    options = {name: spec.for_test.keywords[name] for name in ("ddof", "undecided")}
    pvalue, trusted = pvalues_by_counts(by_state.visited, counts, batch.num_states, **options)
    theta = relevant(pvalue, spec.levels).astype(batch.dtype)
    sums = jnp.stack([by_state.log_ratio.T, by_state.zeros.T])
    log_weight, zeros = jnp.matmul(theta[None], sums, precision=lax.Precision.HIGHEST)
    no_ratio_unknown = ~jnp.isnan(by_state.log_ratio).any()
    return jnp.where(zeros > 0, -jnp.inf, log_weight), trusted & no_ratio_unknown


def terms_of_parts(spec: Spec, parts: Any) -> dict[str, Array]:
    """What the estimate is the mean of, and the weights in it; empty where there are no terms."""
    counted = spec.estimator.of_counts
    if counted is None or counted.terms is None or parts is None:
        return {}
    return dict(zip(("terms", "weights"), counted.terms(parts), strict=True))
