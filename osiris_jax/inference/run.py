"""`intervals`: estimates of one data set with intervals by several methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch, pad_states, pad_to_bucket
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, RESAMPLES, WEIGHTING, refuse_unknown, traced
from osiris_jax.core.random_streams import RESAMPLES_STREAM
from osiris_jax.estimators import names_of, parse_name
from osiris_jax.inference import checks
from osiris_jax.inference.exact import terms_of
from osiris_jax.inference.forms import (
    BY_COUNTS,
    Prepared,
    Trajectories,
    prepare,
    recipe,
    terms,
    values_of_rows,
)
from osiris_jax.inference.methods import INTERVALS, MEANS, NEEDS, Interval, Sample
from osiris_jax.inference.resampling import draw_rows, pieces, rows_without_groups
from osiris_jax.inference.welch import SLOTS, Sizes, plan_sizes, trajectories_by_group
from osiris_jax.pipeline.estimate import Plan, check_batch, follow, plan_use
from osiris_jax.pipeline.uses import OF_OMISSION, listed, refuse_idle
from osiris_jax.relevance import THRESHOLDS

DEFAULT_METHODS = ("percentile", "bca")
MEMORY = 2**29
MOST_RESAMPLES = 10**9
_OF_LEVEL = ("alpha", "threshold", "levels", "max_kept")
_COMMON = ("discount", "weighting", "ddof", "key")
Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimated:
    """An estimate with its intervals.

    Attributes:
      estimator: as it was asked for.
      value: the estimate.
      intervals: method -> (low, high).
      standard_error: the standard deviation of the resamples; NaN without resamples.
      resampled: [resample] the estimate of every resample, NaN where it is undefined.
      undefined: how many of them are.
      confidence: of the intervals.
    """

    estimator: str
    value: float
    intervals: dict[str, Interval]
    standard_error: float
    resampled: np.ndarray
    undefined: int
    confidence: float

    def __str__(self) -> str:
        shown = [f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in self.intervals.items()]
        lost = f", {self.undefined} resamples undefined" if self.undefined else ""
        return f"{self.estimator}: {self.value:.4g} ({'; '.join(shown)}{lost})"

    def __repr__(self) -> str:
        return f"Estimated({self})"


def intervals(
    batch: TrajectoryBatch,
    estimators: str | Sequence[str],
    *,
    methods: str | Sequence[str] = DEFAULT_METHODS,
    relevance: str | None = None,
    alpha: Any = ALPHA,
    threshold: Any = None,
    discount: Any = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    key: Array | None = None,
    memory: int = MEMORY,
    weight_bound: float | None = None,
    return_bounds: tuple[float, float] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Estimated]:
    """Estimates with intervals; trajectories are resampled, and relevance is found anew in each.

    All estimators see the same resamples, so those of two can be compared. Methods that resample
    hold approximately, and badly where a few weights dominate. `hoeffding`, `bernstein` and
    `hcope` hold always, if the bounds do and the behaviour can do all that the target does.

    Args:
      batch: the data, with ratios; [traj, time].
      estimators: one name or several, as for `estimate`; omission for those that begin with "osir".
      methods: names in `INTERVALS`. "t" is for mc, is, pdis and, by its linear part, wis;
        "bernstein", "hoeffding" and "hcope" are for mc, is and pdis.
      relevance, alpha, threshold, discount, weighting, ddof: as for `estimate`.
      confidence: of each interval, in (0, 1); of "hcope", whose high is inf, that of the low.
      resamples: of the bootstrap.
      key: a `jax.random.key`, consumed; key(0) if None.
      memory: bytes that arrays of resamples may take at a time.
      weight_bound: the largest weight that any trajectory could have; for pdis also any part of
        one from its start. Not the largest in the data.
      return_bounds: the smallest and the largest return that any trajectory could have; for pdis
        the smallest sum of its negative rewards and the largest of its positive ones.
      progress: called with (stage, done, total).
      **options: further options of the estimators or the test, by name; each gets those it has.

    Returns:
      Name of the estimator -> `Estimated`.

    Example:
      >>> found = oj.intervals(batch, ["wis", "osirwis"], alpha=0.05, resamples=2000)
      >>> found["osirwis"].value, found["osirwis"].intervals["bca"]
    """
    labels = names_of(estimators)
    wanted = checks.check_methods(methods)
    check_batch(batch)
    check_numbers(confidence, resamples, memory)
    checks.check_bounds(weight_bound, return_bounds)
    batch = of_shared_shape(batch, options, relevance)
    key = random.key(0) if key is None else traced("key", key, batch.dtype)
    settings = {"alpha": alpha, "threshold": threshold, "discount": discount, "key": key}
    settings |= {"weighting": weighting, "ddof": ddof}
    bounds = {"weight_bound": weight_bound, "return_bounds": return_bounds}
    plans = plan_all(batch, labels, relevance, settings, options)
    checks.refuse_idle({"resamples": resamples, **bounds}, wanted, plans)
    sampling = {"confidence": confidence, "resamples": resamples, "memory": memory}
    return with_intervals(
        batch, plans, wanted, key=key, discount=discount, progress=progress, **sampling, **bounds
    )


def with_intervals(
    batch: TrajectoryBatch,
    plans: dict[str, Plan],
    methods: Sequence[str],
    *,
    key: Array,
    discount: Any,
    confidence: float,
    resamples: int,
    memory: int,
    progress: Progress | None,
    **bounds: Any,
) -> dict[str, Estimated]:
    """The estimates of plans with intervals; arguments as for `intervals`, checked."""
    for label, plan in plans.items():
        _check_plan(label, plan, discount, batch, methods, **bounds)
    engine = Engine(batch, plans, memory)
    needs = frozenset().union(*(NEEDS[name] for name in methods))
    empty = dict.fromkeys(plans, np.zeros(0))
    draws = random.fold_in(key, RESAMPLES_STREAM)
    resampled = engine.resampled(draws, resamples, progress) if "resampled" in needs else empty
    left_out = engine.left_out() if "left_out" in needs else empty
    return {
        label: _estimated(
            label,
            engine.sample(
                label, resampled[label], left_out[label], with_terms="terms" in needs, **bounds
            ),
            methods,
            confidence,
        )
        for label in plans
    }


def of_shared_shape(
    batch: TrajectoryBatch, options: dict[str, Any], relevance: str | None
) -> TrajectoryBatch:
    """The batch with time and states padded to buckets, which no estimate sees.

    Unless an option is given by time or by state; and a network on state ids begins with other
    weights where there are more of them.
    """
    batch = batch if any(np.ndim(x) for x in options.values()) else pad_to_bucket(batch)
    by_state = any(name in options for name in ("keep", "theta", "q"))
    network = "nn-q" in (relevance, options.get("fit"))
    return batch if by_state or network else pad_states(batch)


def _estimated(label: str, sample: Sample, methods: Iterable[str], confidence: float) -> Estimated:
    found = {}
    for name in methods:
        low, high = INTERVALS[name](sample, confidence)
        found[name] = Interval(float(low), float(high))
    values = np.asarray(sample.resampled)
    defined = values[np.isfinite(values)]
    return Estimated(
        estimator=label,
        value=float(sample.value),
        intervals=found,
        standard_error=float(defined.std(ddof=1)) if len(defined) > 1 else float("nan"),
        resampled=values,
        undefined=int(np.isnan(values).sum()),
        confidence=float(confidence),
    )


def check_numbers(confidence: Any, resamples: Any, memory: Any = MEMORY) -> None:
    """Raises a ValueError that names the number that is wrong."""
    if not isinstance(confidence, float | np.floating) or not 0 < confidence < 1:
        raise ValueError(f"confidence: must be in (0, 1), got {confidence!r}")
    for name, number, least in (("resamples", resamples, 2), ("memory", memory, 1)):
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or number < least:
            raise ValueError(f"{name}: expected a whole number, {least} or more, got {number!r}")
    if resamples > MOST_RESAMPLES:
        raise ValueError(f"resamples: expected at most {MOST_RESAMPLES}, got {resamples}")


def plan_all(
    batch: TrajectoryBatch,
    labels: Sequence[str],
    relevance: str | None,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> dict[str, Plan]:
    """The plan of every estimator, which gets those options that it, or its test, has.

    Raises:
      ValueError: names an option that none of them would use.
    """
    uses = {label: listed(label, relevance, settings) for label in labels}
    refuse_unknown(
        {name: value for name, value in options.items() if name not in OF_OMISSION},
        [function for use in uses.values() for function in use.functions],
    )
    every = settings | options
    refuse_idle({"relevance": relevance} | every, list(uses.values()))
    plans = {}
    for label, use in uses.items():
        idle = {name for name in every if use.why_idle(name, every) is not None}
        known = {name: value for name, value in every.items() if name not in idle}
        of_level = {name: known.pop(name) for name in _OF_LEVEL if name in known}
        common = {name: known.pop(name) for name in _COMMON if name in known}
        plans[label] = plan_use(batch, use, of_level, common, known)
        _refuse_by_trajectory(label, known)
    return plans


def _refuse_by_trajectory(label: str, options: dict[str, Any]) -> None:
    """Raises a ValueError for arrays by trajectory, which would not follow resampled ones."""
    gathers = parse_name(label)[0] not in BY_COUNTS
    for name, by_trajectory in (("q_steps", True), ("keep", np.ndim(options.get("keep", 0)) == 2)):
        if options.get(name) is not None and by_trajectory and gathers:
            raise ValueError(f"{name}: given by trajectory, which resamples would misplace")


def _check_plan(
    label: str,
    plan: Plan,
    discount: Any,
    batch: TrajectoryBatch,
    methods: Iterable[str],
    weight_bound: Any,
    return_bounds: Any,
) -> None:
    if plan.arguments[0].ndim and plan.names["method"] is None:
        name = "threshold" if plan.names["relevance"] in THRESHOLDS else "alpha"
        raise ValueError(f"{name}: expected one number, got {plan.arguments[0].shape}")
    for name in methods:
        checks.check_method(name, label, plan, weight_bound, return_bounds)
        if name in checks.GUARANTEED:
            estimator = plan.names["estimator"] or ""
            checks.check_data(batch, estimator, discount, weight_bound, return_bounds)


class Engine:
    """The estimates of one data set and of its resamples."""

    def __init__(self, batch: TrajectoryBatch, plans: dict[str, Plan], memory: int = MEMORY):
        self.batch, self.plans, self.memory = batch, plans, memory
        self.arguments = {label: plan.arguments for label, plan in plans.items()}
        itemsize = batch.dtype.itemsize
        fits = 2 * len(batch.reward) * batch.num_states * itemsize <= memory
        self.recipes = tuple(recipe(label, plan, fits) for label, plan in plans.items())
        self.sizes: Sizes | None = None
        if any(one.tests_again for one in self.recipes):
            by_group = np.asarray(_by_group(batch))[None]
            self.sizes = plan_sizes(by_group, len(batch.reward), itemsize, memory)
        self.prepared: Prepared = _prepare(
            batch, self.arguments, recipes=self.recipes, sizes=self.sizes
        )

    @property
    def bytes_of_one(self) -> int:
        """What one resample takes while it is computed, roughly."""
        rows, steps = self.batch.mask.shape
        blocks, columns, _ = self.sizes or Sizes(0, 0, 0)
        items = 16 * rows + 16 * steps + 4 * SLOTS * blocks + 40 * columns
        return self.batch.dtype.itemsize * (items + 20 * self.batch.num_states)

    def values(self, rows: Any) -> dict[str, np.ndarray]:
        """Label -> [resample] estimates of the trajectories in these rows."""
        found = _values(
            self.batch, self.prepared, self.arguments, jnp.asarray(rows), recipes=self.recipes
        )
        return {label: np.asarray(x, np.float64) for label, x in found.items()}

    def resampled(
        self, key: Array, resamples: int, progress: Progress | None = None
    ) -> dict[str, np.ndarray]:
        """Label -> [resample] estimates of data sets drawn with replacement."""
        parts = []
        for numbers in pieces(resamples, self.bytes_of_one, self.memory):
            parts.append(self.values(_draw(key, numbers, number=len(self.batch.reward))))
            if progress is not None:
                progress("resamples", min(int(numbers[-1]) + 1, resamples), resamples)
        return _joined(parts, resamples)

    def left_out(self) -> dict[str, np.ndarray]:
        """Label -> [group] estimates of the data without each group; [0] if none would be left."""
        parts = []
        for rows in rows_without_groups(len(self.batch.reward)):
            if not rows.shape[1]:
                return dict.fromkeys(self.plans, np.zeros(0))
            for numbers in pieces(len(rows), self.bytes_of_one, self.memory):
                places = np.minimum(np.asarray(numbers), len(rows) - 1)
                found = self.values(rows[places])
                parts.append({k: v[: len(rows) - int(numbers[0])] for k, v in found.items()})
        return _joined(parts)

    def sample(
        self, label: str, resampled: Any, left_out: Any, *, with_terms: bool, **known: Any
    ) -> Sample:
        """What the methods may look at."""
        value = follow(self.batch, self.plans[label])
        own = self._terms(label) if with_terms else {}
        return Sample(
            estimator=self.plans[label].names["estimator"] or "",
            value=np.asarray(value, np.float64),
            resampled=resampled,
            left_out=left_out,
            rounding=float(jnp.finfo(self.batch.dtype).eps),
            **own,
            **known,
        )

    def _terms(self, label: str) -> dict[str, np.ndarray]:
        """The terms of a mean: exact where the data alone make them, else as computed."""
        plan, parts = self.plans[label], self.prepared.parts.get(label)
        if not isinstance(parts, Trajectories):
            return {}
        estimator, options = plan.names["estimator"] or "", plan.arguments[2].keywords
        omits = plan.names["relevance"] is not None
        if estimator in MEANS and not omits and options.get("clip") is None:
            exact = terms_of(self.batch, estimator, float(options["discount"]))
            own = {"terms": exact.value, "weights": exact.weights}
            return own | {"error": exact.error, "weight_error": exact.weight_error}
        terms, weights = _terms(parts, estimator=estimator)
        return {"terms": np.asarray(terms, np.float64), "weights": np.asarray(weights, np.float64)}


def _joined(parts: list[dict[str, np.ndarray]], number: int | None = None) -> dict[str, np.ndarray]:
    return {label: np.concatenate([part[label] for part in parts])[:number] for label in parts[0]}


_by_group = compiled(trajectories_by_group)
_prepare = compiled(prepare, static_argnames=("recipes", "sizes"))
_values = compiled(values_of_rows, static_argnames="recipes")
_terms = compiled(terms, static_argnames="estimator")


@compiled(static_argnames="number")
def _draw(key: Array, numbers: Array, *, number: int) -> Array:
    return draw_rows(key, numbers, number)
