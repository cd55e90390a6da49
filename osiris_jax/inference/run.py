"""`intervals`: estimates of one data set with intervals by several methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax import Array, random
from jax.typing import ArrayLike

from osiris_jax.batch import TrajectoryBatch, pad_states, pad_to_bucket
from osiris_jax.core.options import ALPHA, DDOF, RESAMPLES, WEIGHTING, traced
from osiris_jax.estimators import names_of
from osiris_jax.inference import checks
from osiris_jax.inference.methods import INTERVALS, NEEDS, Interval, Sample
from osiris_jax.inference.resampler import MEMORY, Progress, Resampler
from osiris_jax.pipeline.spec import Spec, check_batch, make_specs

DEFAULT_METHODS = ("percentile", "bca")


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
        ends = [f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in self.intervals.items()]
        lost = f", {self.undefined} resamples undefined" if self.undefined else ""
        return f"{self.estimator}: {self.value:.4g} ({'; '.join(ends)}{lost})"

    def __repr__(self) -> str:
        return f"Estimated({self})"


def intervals(
    batch: TrajectoryBatch,
    estimators: str | Sequence[str],
    *,
    methods: str | Sequence[str] = DEFAULT_METHODS,
    relevance: str | None = None,
    alpha: ArrayLike | str = ALPHA,
    threshold: ArrayLike | str | None = None,
    discount: ArrayLike = 1.0,
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
    """Estimates with intervals, by name; each resample of trajectories finds relevance anew.

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

    Example:
      >>> found = oj.intervals(batch, ["wis", "osirwis"], alpha=0.05, resamples=2000)
      >>> found["osirwis"].value, found["osirwis"].intervals["bca"]
    """
    labels, wanted = names_of(estimators), checks.check_methods(methods)
    check_batch(batch)
    bounds = {"weight_bound": weight_bound, "return_bounds": return_bounds}
    sampling = {"confidence": confidence, "resamples": resamples, "memory": memory}
    checks.check_numbers(**sampling)
    checks.check_bounds(**bounds)
    settings = {"alpha": alpha, "threshold": threshold, "discount": discount, "ddof": ddof}
    settings |= {"weighting": weighting} | options
    batch = of_shared_shape(batch, settings, relevance)
    key = random.key(0) if key is None else traced("key", key, batch.dtype)
    specs = make_specs(batch, labels, relevance, settings | {"key": key})
    checks.refuse_idle({"resamples": resamples, **bounds}, wanted, specs)
    return with_intervals(batch, specs, wanted, key=key, progress=progress, **sampling, **bounds)


def with_intervals(
    batch: TrajectoryBatch,
    specs: dict[str, Spec],
    methods: Sequence[str],
    *,
    key: Array,
    confidence: float,
    resamples: int,
    memory: int,
    progress: Progress | None,
    **bounds: Any,
) -> dict[str, Estimated]:
    """The estimates of specifications with intervals; arguments as for `intervals`, checked."""
    for label, spec in specs.items():
        if spec.levels.ndim and spec.composition.method is None:
            name = "alpha" if spec.test is None else spec.test.level_name
            raise ValueError(f"{name}: expected one number, got {spec.levels.shape}")
        for method in methods:
            checks.check_method(method, label, spec, **bounds)
            if method in checks.GUARANTEED:
                checks.check_data(batch, spec, **bounds)
    needs = frozenset().union(*(NEEDS[name] for name in methods))
    samples = Resampler(batch, specs, memory).samples(key, resamples, needs, progress, **bounds)
    return {label: _estimated(label, x, methods, confidence) for label, x in samples.items()}


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
    ends = {name: INTERVALS[name](sample, confidence) for name in methods}
    values = np.asarray(sample.resampled)
    defined = values[np.isfinite(values)]
    return Estimated(
        estimator=label,
        value=float(sample.value),
        intervals={name: Interval(float(low), float(high)) for name, (low, high) in ends.items()},
        standard_error=float(defined.std(ddof=1)) if len(defined) > 1 else float("nan"),
        resampled=values,
        undefined=int(np.isnan(values).sum()),
        confidence=float(confidence),
    )
