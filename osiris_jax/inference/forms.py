"""Estimates of many resamples at once. A resample is rows of trajectories, or how often each came.

Estimators that are sums over trajectories are computed from the counts: nothing is gathered, and
what does not depend on the resample is computed once. Every other one is computed as it stands
from the gathered trajectories, one resample after another. Both give the same numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import xlogy
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import Options
from osiris_jax.estimators import as_defined
from osiris_jax.inference.welch import Sizes, Visited, pvalues_by_counts, visited
from osiris_jax.pipeline import compose
from osiris_jax.pipeline.estimate import Plan, follow
from osiris_jax.relevance import RELEVANCE, omit, relevant
from osiris_jax.relevance.tests import oracle, welch


def mean_return(count, log_weight, value, **_: Any) -> Float[Array, ""]:
    """`mc` of a resample, from the counts, log-weights and returns of the trajectories."""
    del log_weight
    return jnp.sum(value * (count / count.sum()))


def weighted_sum(count, log_weight, value, **_: Any) -> Float[Array, ""]:
    """`is` of a resample."""
    return masked.scaled_sum(_counted(count, log_weight), value * (count / count.sum()))


def weighted_mean(count, log_weight, value, **_: Any) -> Float[Array, ""]:
    """`wis` of a resample."""
    return masked.weighted_mean(_counted(count, log_weight) + jnp.log(count), value)


def _counted(count: Array, log_weight: Array) -> Array:
    """The log-weights, those of trajectories that the resample lacks being of no weight."""
    return jnp.where(count > 0, log_weight, -jnp.inf)


def by_length(
    count, log_weight, value, *, length, num_lengths: int, length_probs=None, **_: Any
) -> Float[Array, ""]:
    """`phwis` of a resample."""
    log_weight = _counted(count, log_weight) + jnp.log(count)
    means = masked.segment_weighted_mean(log_weight, value, length, num_lengths)
    means = jnp.where(jnp.isnan(log_weight).any(), jnp.nan, means)
    share = jax.ops.segment_sum(count / count.sum(), length, num_lengths)
    if length_probs is not None:
        known = max(num_lengths, len(length_probs))
        share = jnp.pad(jnp.asarray(length_probs, value.dtype), (0, known - len(length_probs)))
        means = jnp.pad(means, (0, known - num_lengths), constant_values=jnp.nan)
    return jnp.sum(jnp.where(share > 0, share * means, 0))


BY_WEIGHT: dict[str, Callable[..., Array]] = {
    "mc": mean_return,
    "is": weighted_sum,
    "wis": weighted_mean,
    "phwis": by_length,
}
BY_COUNTS = (*BY_WEIGHT, "pdis", "cwpdis")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What is static about one estimator: its label, the names of its plan, and its form."""

    label: str
    names: tuple[tuple[str, Any], ...]
    by_counts: bool

    @property
    def estimator(self) -> str:
        return dict(self.names)["estimator"] or ""

    @property
    def relevance(self) -> str:
        return dict(self.names)["relevance"] or ""

    @property
    def tests_again(self) -> bool:
        """Whether Welch's test is made again from the counts."""
        return self.by_counts and self.relevance == "welch"

    def plan(self, arguments: tuple) -> Plan:
        return Plan(arguments, dict(self.names))


def recipe(label: str, plan: Plan, fits: bool) -> Recipe:
    """The form of an estimator; `fits` is whether there is room for arrays [traj, state]."""
    return Recipe(label, tuple(plan.names.items()), _has_form(plan, fits))


def _has_form(plan: Plan, fits: bool) -> bool:
    names, (_, max_kept, _, for_test, _) = plan.names, plan.arguments
    if names["estimator"] not in BY_COUNTS or names["method"] is not None:
        return False
    if not as_defined(names["estimator"]):
        return False
    if names["relevance"] is None or RELEVANCE[names["relevance"]] is oracle:
        return True
    usual = {"classes": "ratio", "leave_one_out": False, "folds": 0}
    return (
        names["relevance"] == "welch"
        and RELEVANCE["welch"] is welch
        and names["estimator"] in BY_WEIGHT
        and max_kept is None
        and fits
        and all(for_test.keywords[name] == word for name, word in usual.items())
    )


class Trajectories(NamedTuple):
    """Weight, value and length of each; a weight that omission changes is before omission."""

    log_weight: Float[Array, " traj"]
    value: Float[Array, " traj"]
    length: Int[Array, " traj"]


class Steps(NamedTuple):
    """Of every step the log-weight up to it, the reward, and whether it is real."""

    log_weight: Float[Array, "traj time"]
    reward: Float[Array, "traj time"]
    mask: Bool[Array, "traj time"]


class ByState(NamedTuple):
    """For omission: sums of log-ratios [traj, state], how many are of ratios 0, and the visits."""

    log_ratio: Float[Array, "traj state"]
    zeros: Float[Array, "traj state"]
    found: Visited


class Prepared(NamedTuple):
    """What does not depend on the resample."""

    parts: dict[str, Any]
    by_state: ByState | None


def prepare(
    batch: TrajectoryBatch,
    arguments: dict[str, tuple],
    recipes: tuple[Recipe, ...],
    sizes: Sizes | None,
) -> Prepared:
    """Computes what is common to all resamples of a data set."""
    parts, by_state = {}, None
    for one in recipes:
        if not one.by_counts:
            continue
        level, max_kept, for_estimator, for_test, _ = arguments[one.label]
        log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
        if one.tests_again:
            assert sizes is not None
            by_state = _by_state(batch, sizes, for_test) if by_state is None else by_state
        elif for_test is not None:
            evidence = compose.gather(batch, "is", one.relevance, **for_test.keywords)
            log_ratio = omit(log_ratio, compose.steps_at(batch, evidence, level, max_kept))
        parts[one.label] = _parts(batch, log_ratio, one.estimator, **for_estimator.keywords)
    return Prepared(parts, by_state)


def _by_state(batch: TrajectoryBatch, sizes: Sizes, for_test: Options) -> ByState:
    names = ("weighting", "discount", "first_visit")
    found = visited(batch, sizes, **{name: for_test.keywords[name] for name in names})
    log_ratio = batch.require("log_ratio", "omission by state")
    finite, zero = masked.split_zeros(log_ratio, batch.mask)
    state = masked.fill(batch.mask, batch.require("state", "omission by state"))
    row = jnp.arange(len(state))[:, None]
    empty = jnp.zeros((len(state), batch.num_states), batch.dtype)
    zeros = empty.at[row, state].add(zero.astype(batch.dtype))
    return ByState(empty.at[row, state].add(finite), zeros, found)


def _parts(
    batch: TrajectoryBatch, log_ratio: Array, estimator: str, *, discount, clip=None, **_: Any
) -> Trajectories | Steps:
    length = masked.lengths(batch.mask)
    if estimator in BY_WEIGHT:
        log_weight = masked.clip_weights(masked.log_weights(log_ratio, batch.mask), clip)
        value = masked.returns(batch.reward, batch.mask, discount)
        return Trajectories(log_weight, value, length)
    log_weight = masked.clip_weights(masked.running_log_weights(log_ratio, batch.mask), clip)
    steps = Steps(log_weight, masked.fill(batch.mask, batch.reward), batch.mask)
    return steps if estimator == "cwpdis" else Trajectories(*_summed(steps, discount), length)


def _summed(steps: Steps, discount) -> tuple[Float[Array, " traj"], Float[Array, " traj"]]:
    """sum_t gamma^(t-1) r_t rho_{1:t} of each trajectory, as the log of a weight and a value."""
    age = jnp.arange(steps.reward.shape[1], dtype=steps.reward.dtype)
    log_weight = steps.log_weight + xlogy(age, jnp.asarray(discount, age.dtype))[None]
    counts = (steps.reward != 0) & ~jnp.isneginf(log_weight)
    peak = jnp.where(counts, log_weight, -jnp.inf).max(1)
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    relative = jnp.exp(jnp.where(counts, log_weight - peak[:, None], 0))
    summed = masked.total(jnp.where(counts, steps.reward * relative, 0))
    return jnp.where(jnp.isnan(log_weight).any(1), jnp.nan, peak), summed


def values_of_rows(
    batch: TrajectoryBatch,
    prepared: Prepared,
    arguments: dict[str, tuple],
    rows: Int[Array, "resample row"],
    recipes: tuple[Recipe, ...],
) -> dict[str, Float[Array, " resample"]]:
    """The estimates of the resamples whose trajectories are in these rows, by label."""
    counts = counts_of(rows, len(batch.reward), batch.dtype)
    found, kept = {}, None
    for one in recipes:
        plain = _plain(batch, one.plan(arguments[one.label]), rows)
        if not one.by_counts:
            found[one.label] = plain()
            continue
        parts, options = prepared.parts[one.label], arguments[one.label][2].keywords
        if one.tests_again:
            kept = _kept(batch, prepared, arguments[one.label], counts) if kept is None else kept
            log_weight, trusted = kept
            log_weight = masked.clip_weights(log_weight, options.get("clip"))
            fast = _by_weight(one.estimator, counts, log_weight, parts, batch, options)
            found[one.label] = lax.cond(trusted, lambda fast=fast: fast, plain)
        elif isinstance(parts, Steps):
            found[one.label] = _cwpdis(counts, parts, options)
        elif one.estimator in ("is", "pdis"):
            found[one.label] = _weighted_sums(counts, parts.log_weight, parts.value)
        elif one.estimator == "wis":
            by_trajectory = parts.log_weight[:, None], parts.value[:, None]
            found[one.label] = _weighted_means(counts, *by_trajectory)[:, 0]
        else:
            found[one.label] = _by_weight(
                one.estimator, counts, parts.log_weight, parts, batch, options
            )
    return found


def counts_of(
    rows: Int[Array, "resample row"], number: int, dtype
) -> Float[Array, "resample traj"]:
    """How often each trajectory came into each resample."""
    place = rows + number * jnp.arange(len(rows), dtype=rows.dtype)[:, None]
    counts = jnp.zeros(len(rows) * number, jnp.int32).at[place.ravel()].add(1)
    return counts.reshape(len(rows), number).astype(dtype)


def _plain(batch: TrajectoryBatch, plan: Plan, rows: Array) -> Callable[[], Array]:
    def one(of_resample: Int[Array, " row"]) -> Float[Array, ""]:
        return follow(jax.tree.map(lambda field: field[of_resample], batch), plan)

    return lambda: lax.map(one, rows)


def _kept(
    batch: TrajectoryBatch, prepared: Prepared, arguments: tuple, counts: Array
) -> tuple[Float[Array, "resample traj"], Bool[Array, ""]]:
    """Log-weights of the ratios that every resample keeps, and whether they can be trusted."""
    level, _, _, for_test, _ = arguments
    assert prepared.by_state is not None
    options = {name: for_test.keywords[name] for name in ("ddof", "undecided")}
    pvalue, trusted = pvalues_by_counts(
        prepared.by_state.found, counts, batch.num_states, **options
    )
    theta = relevant(pvalue, level).astype(batch.dtype)
    sums = jnp.stack([prepared.by_state.log_ratio.T, prepared.by_state.zeros.T])
    log_weight, zeros = jnp.matmul(theta[None], sums, precision=lax.Precision.HIGHEST)
    known = ~jnp.isnan(prepared.by_state.log_ratio).any()
    return jnp.where(zeros > 0, -jnp.inf, log_weight), trusted & known


def _by_weight(
    estimator: str,
    counts: Float[Array, "resample traj"],
    log_weight: Float[Array, "*resample traj"],
    parts: Trajectories,
    batch: TrajectoryBatch,
    options: dict[str, Any],
) -> Float[Array, " resample"]:
    def one(count: Array, log_weight: Array) -> Array:
        return BY_WEIGHT[estimator](
            count,
            log_weight,
            parts.value,
            length=parts.length,
            num_lengths=batch.mask.shape[1] + 1,
            length_probs=options.get("length_probs"),
        )

    return jax.vmap(one, (0, None if log_weight.ndim == 1 else 0))(counts, log_weight)


def _cwpdis(
    counts: Float[Array, "resample traj"], parts: Steps, options: dict[str, Any]
) -> Float[Array, " resample"]:
    finished = options["finished"]
    log_weight, reward, mask = parts
    if finished != "keep":
        log_weight = masked.fill(mask, log_weight, -jnp.inf)
    alive = _product(counts, mask.astype(reward.dtype))
    mean = _weighted_means(counts, log_weight, reward, alive > 0)
    share = alive / counts.sum(1)[:, None] if finished == "share" else jnp.ones_like(alive)
    scale = masked.discounts(reward.shape[1], options["discount"], reward.dtype)
    return masked.total(jnp.where(alive > 0, mean * share, 0) * scale[None])


def _product(counts: Array, columns: Array) -> Array:
    return jnp.matmul(counts, columns, precision=lax.Precision.HIGHEST)


def _least_sum(dtype) -> float:
    """A sum of relative weights below which some of them may have vanished."""
    return 1e-200 if dtype == jnp.float64 else 1e-18


def _weighted_means(
    counts: Float[Array, "resample traj"],
    log_weight: Float[Array, "traj column"],
    value: Float[Array, "traj column"],
    asked: Bool[Array, "resample column"] | bool = True,
) -> Float[Array, "resample column"]:
    """`masked.weighted_mean` of every column in every resample, where asked, as products.

    Each by itself where the weights of a resample vanish beside the heaviest of all.
    """
    heaviest = jnp.argmax(log_weight, axis=0)[None]
    peak = jnp.take_along_axis(log_weight, heaviest, 0)
    reference = jnp.take_along_axis(value, heaviest, 0)
    weight = jnp.exp(log_weight - jnp.where(jnp.isfinite(peak), peak, 0))
    weighs = ~jnp.isneginf(log_weight)
    columns = (weight, weight * (value - reference), weighs.astype(value.dtype))
    norm, excess, weighing = jnp.split(_product(counts, jnp.concatenate(columns, 1)), 3, axis=1)
    needed = asked & (weighing > 0)

    def products() -> Array:
        mean = reference + excess / jnp.where(needed, norm, 1)
        return jnp.where(weighing > 0, mean, jnp.nan)

    def one(count: Float[Array, " traj"]) -> Float[Array, " column"]:
        by_count = _counted(count[:, None], log_weight) + jnp.log(count)[:, None]
        return jax.vmap(masked.weighted_mean, in_axes=1)(by_count, value)

    trusted = jnp.all(~needed | (norm > _least_sum(value.dtype)))
    return lax.cond(trusted, products, lambda: lax.map(one, counts))


def _weighted_sums(
    counts: Float[Array, "resample traj"],
    log_weight: Float[Array, " traj"],
    value: Float[Array, " traj"],
) -> Float[Array, " resample"]:
    """`weighted_sum` of every resample as one product, or each by itself where weights vanish."""
    adds = (value != 0) & ~jnp.isneginf(log_weight)
    peak = jnp.max(jnp.where(adds, log_weight, -jnp.inf))
    peak = jnp.where(jnp.isfinite(peak), peak, 0)
    weight = jnp.where(adds, jnp.exp(jnp.where(adds, log_weight, 0) - peak), 0)
    columns = jnp.stack([weight * value, weight, adds.astype(value.dtype)], axis=1)
    total, norm, adding = _product(counts / counts.sum(1)[:, None], columns).T
    root = jnp.exp(peak / 2)

    def each() -> Array:
        return lax.map(lambda count: weighted_sum(count, log_weight, value), counts)

    trusted = jnp.all((adding == 0) | (norm > _least_sum(value.dtype)))
    trusted = trusted & ~jnp.isnan(log_weight).any()
    return lax.cond(trusted, lambda: total * root * root, each)


def terms(
    parts: Trajectories, estimator: str
) -> tuple[Float[Array, " traj"], Float[Array, " traj"]]:
    """What the estimate is the mean of, and the weights in it; for `wis` its linear part."""
    if estimator == "mc":
        return parts.value, jnp.ones_like(parts.value)
    if estimator == "wis":
        centre = masked.weighted_mean(parts.log_weight, parts.value)
        share = len(parts.value) * jax.nn.softmax(parts.log_weight)
        return centre + share * (parts.value - centre), share
    weight = jnp.exp(parts.log_weight)
    return weight * parts.value, weight
