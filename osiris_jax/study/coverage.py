"""Coverage of intervals: in how many data sets they contain the target's true value.

In a tabular world the truth is exact, and so are the bounds of weights and returns that some
methods need: the largest and the smallest over all trajectories that can happen.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random

from osiris_jax.batch import TrajectoryBatch, bucket_length, trim
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, RESAMPLES, WEIGHTING
from osiris_jax.core.random_streams import RESAMPLES_STREAM
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.inference import INTERVALS, Sample
from osiris_jax.inference.checks import check_methods, check_numbers, refusal, refuse_idle
from osiris_jax.inference.forms import prepare, terms_of_parts, values_of_rows
from osiris_jax.inference.methods import NEEDS
from osiris_jax.inference.resampling import draw_rows, rows_without_groups
from osiris_jax.inference.welch import Sizes, plan_sizes, trajectories_by_group
from osiris_jax.pipeline.spec import Spec, make_specs
from osiris_jax.study.checks import number, settle_data_sets, some_of, weighting
from osiris_jax.study.chunks import Progress, by_size
from osiris_jax.worlds.tabular import TabularWorld, log_ratio_table

CHUNK_CELLS = 2**21
PIECE_CELLS = 2**21
COLUMNS_MEMORY = 2**28
LARGEST, LARGEST_LOG = 1e300, 700.0
Interval = tuple[np.ndarray, np.ndarray]


class Bounds(NamedTuple):
    """What no trajectory of a world can exceed.

    Attributes:
      weight: the largest weight of a trajectory or of a part of it from its start.
      returns: the smallest and the largest return.
      parts: the smallest sum of negative rewards, the largest of positive ones.
    """

    weight: float
    returns: tuple[float, float]
    parts: tuple[float, float]


def bounds_of(world: TabularWorld, discount: float = 1.0) -> Bounds:
    """The bounds over all trajectories that the behaviour policy can make, by induction."""
    reward, behavior = world.dynamics.reward, world.behavior_probs
    ratio = log_ratio_table(world.target_probs, behavior)[..., None]
    log_weight = _largest(world, np.broadcast_to(ratio, reward.shape), 1.0, stops=True)

    def most(gain: np.ndarray) -> float:
        return _largest(world, gain, discount)

    return Bounds(
        weight=float(min(np.exp(min(log_weight, LARGEST_LOG)), LARGEST)),
        returns=(-most(-reward), most(reward)),
        parts=(-most(np.maximum(-reward, 0)), most(np.maximum(reward, 0))),
    )


def _largest(world: TabularWorld, gain: np.ndarray, discount: float, stops: bool = False) -> float:
    """The largest discounted sum of gains from a start; `stops` if it may end at any step."""
    dynamics = world.dynamics
    possible = (dynamics.probability > 0) & (world.behavior_probs > 0)[..., None]
    gain = np.where(possible, gain, -np.inf)
    starts = dynamics.start[dynamics.start_probability > 0]
    value = np.zeros(dynamics.num_states)
    for _ in range(world.horizon):
        before, following = value, np.where(dynamics.terminal, 0.0, value)[dynamics.successor]
        value = (gain + discount * following).max((1, 2))
        value = np.maximum(value, 0) if stops else value
        if np.array_equal(value, before) or (stops and value[starts].max() > LARGEST_LOG):
            break
    return float(value[starts].max())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often intervals contain the truth, in independent data sets of a tabular world.

    Attributes:
      world: a name in `oj.WORLDS`, or a `TabularWorld`.
      trials: independent data sets.
      sizes: numbers of trajectories.
      estimators: names as for `estimate`; omission for those that begin with "osir".
      methods: names in `INTERVALS`; what a method is not for is left out.
      relevance, alpha, threshold, discount, weighting, ddof: as for `estimate`.
      confidence: of the intervals.
      resamples: of the bootstrap.
      options: further options of estimators and test.
      seed: of all data and resamples.
    """

    world: Any
    trials: int = 2000
    sizes: tuple[int, ...] = (25, 100)
    estimators: tuple[str, ...] = ("is", "wis", "osirwis")
    methods: tuple[str, ...] = tuple(INTERVALS)
    relevance: str | None = None
    alpha: Any = ALPHA
    threshold: float | None = None
    discount: float = 1.0
    weighting: str = WEIGHTING
    ddof: int = DDOF
    confidence: float = 0.95
    resamples: int = RESAMPLES
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0

    def __post_init__(self):
        settle_data_sets(self, "coverage needs a tabular world, whose value is known", 2)
        some_of(self, "estimators")
        check_methods(self.methods)
        weighting("weighting", self.weighting)
        check_numbers(self.confidence, self.resamples)
        number("discount", self.discount, 0, 1)
        if not self.pairs:
            raise ValueError("methods: none of these is for any of the estimators")
        used = tuple(dict.fromkeys(method for _, method in self.pairs))
        refuse_idle({"resamples": self.resamples}, used, self._two_trajectories)

    def run(self, progress: Progress | None = None) -> list[dict[str, Any]]:
        """One row per estimator, method and size.

        The coverage is the share of data sets, of those in which the estimate is defined, whose
        interval holds the truth, which for `mc` is the behaviour's value. A miss below is an
        interval that lies wholly below the truth.
        """
        exact = self.world.exact(self.discount)
        truth = {"mc": float(exact.behavior_value), "": float(exact.value)}
        rows = []
        statistic, probs = partial(self._intervals, {}), self._takes_probs
        for size, intervals in by_size(self, CHUNK_CELLS, statistic, progress, probs=probs):
            for (label, method), (low, high) in zip(self.pairs, intervals, strict=True):
                true = truth.get(label, truth[""])
                rows.append(self._row(label, method, size, true, low, high))
        return rows

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Every estimator with every method that is for it."""
        least = self.bounds.parts[0]
        return [
            (label, method)
            for label, spec in self._two_trajectories.items()
            for method in self.methods
            if refusal(method, spec, least) is None
        ]

    @cached_property
    def _two_trajectories(self) -> dict[str, Spec]:
        """The specs for a data set as small as can be: what is refused is refused of any."""
        return self._specs(self.world.rollout(random.key(0), 2, probs=self._takes_probs))

    @property
    def _takes_probs(self) -> bool:
        entries = (ESTIMATORS[parse_name(label)[0]] for label in self.estimators)
        return any("target_probs" in entry.reads_if_there for entry in entries)

    def _specs(self, batch: TrajectoryBatch) -> dict[str, Spec]:
        names = ("alpha", "threshold", "discount", "weighting", "ddof")
        settings = {name: getattr(self, name) for name in names} | {"key": None}
        return make_specs(batch, self.estimators, self.relevance, settings | self.options)

    @cached_property
    def bounds(self) -> Bounds:
        """Of weights and returns, as the world has them."""
        return bounds_of(self.world, self.discount)

    def _intervals(
        self, rooms: dict[int, Sizes], keys: Array, batch: TrajectoryBatch
    ) -> list[Interval]:
        """The intervals of some trials, each [trial], in the order of `pairs`.

        Args:
          rooms: by size, what held the data sets before; kept up to date.
        """
        batch = trim(batch, bucket_length)
        size = batch.reward.shape[1]
        rooms[size] = _room(batch, rooms.get(size))
        specs = self._specs(jax.tree.map(lambda x: x[0], batch))
        needs = frozenset().union(*(NEEDS[method] for _, method in self.pairs))
        statistics = _statistics(
            keys,
            batch,
            specs,
            rows_without_groups(size) if "left_out" in needs else [],
            room=rooms[size],
            resamples=self.resamples if "resampled" in needs else 0,
        )
        samples = {}
        for label, of_label in statistics.items():
            estimator, _ = parse_name(label)
            samples[label] = Sample(
                estimator=estimator,
                weight_bound=self.bounds.weight,
                return_bounds=self.bounds.parts if estimator == "pdis" else self.bounds.returns,
                rounding=float(jnp.finfo(batch.dtype).eps),
                **{name: np.asarray(x, np.float64) for name, x in of_label.items()},
            )
        return [INTERVALS[method](samples[k], self.confidence) for k, method in self.pairs]

    def _row(self, label, method, size, truth, low, high) -> dict[str, Any]:
        _, omits = parse_name(label)
        defined = ~np.isnan(low)
        number = int(defined.sum())
        below, above = (high < truth) & defined, (low > truth) & defined
        covered = int((defined & ~below & ~above).sum())
        rate = covered / number if number else float("nan")
        width = (high - low)[defined]
        return {
            "world": self.world.name,
            "estimator": label,
            "relevance": (self.relevance or "welch") if omits else None,
            "alpha": self.alpha if omits and self.threshold is None else None,
            "threshold": self.threshold if omits else None,
            "method": method,
            "confidence": self.confidence,
            "size": size,
            "trials": self.trials,
            "truth": truth,
            "undefined": self.trials - number,
            "covered": covered,
            "coverage": rate,
            "coverage_se": float(np.sqrt(rate * (1 - rate) / number)) if number else float("nan"),
            "mean_width": float(width.mean()) if number else float("nan"),
            "mean_low": float(low[defined].mean()) if number else float("nan"),
            "missed_below": int(below.sum()),
            "missed_above": int(above.sum()),
        }


def _room(batch: TrajectoryBatch, before: Sizes | None) -> Sizes:
    """Sizes that hold every data set of this chunk and of those before, to compile seldom."""
    by_group = trajectories_by_group(batch)
    itemsize = batch.dtype.itemsize
    sizes = plan_sizes(by_group, batch.reward.shape[1], itemsize, COLUMNS_MEMORY)
    if before is None or before.few != sizes.few:
        return sizes
    blocks, columns = (max(pair) for pair in zip(before[:2], sizes[:2], strict=True))
    return Sizes(blocks, columns, sizes.few)


@compiled(static_argnames=("room", "resamples"))
def _statistics(
    keys: Array,
    batch: TrajectoryBatch,
    specs: dict[str, Spec],
    left_out: list[Array],
    *,
    room: Sizes,
    resamples: int,
) -> dict[str, dict[str, Array]]:
    """Label -> statistics, [trial, ...], that the methods look at.

    One data set after another: `lax.cond` inside is a choice only where it is not vectorised.
    """
    size = batch.reward.shape[1]
    step = max(1, min(resamples, PIECE_CELLS // (16 * size + 32 * room.blocks)))
    numbers = jnp.arange(-(-resamples // step) * step, dtype=jnp.uint32).reshape(-1, step)

    def one(item: tuple[Array, TrajectoryBatch]) -> dict[str, dict[str, Array]]:
        key, data = item
        prepared = prepare(data, specs, room)
        draws = random.fold_in(key, RESAMPLES_STREAM)
        statistics: dict[str, dict[str, Array]] = {}
        for label, spec in specs.items():
            terms = terms_of_parts(spec, prepared.parts.get(label))
            statistics[label] = {"value": prepared.values[label], **terms}

        def values(rows: Array) -> dict[str, Array]:
            return values_of_rows(data, prepared, specs, rows)

        if resamples:
            drawn = lax.map(lambda some: values(draw_rows(draws, some, size)), numbers)
            for label, x in drawn.items():
                statistics[label]["resampled"] = x.ravel()[:resamples]
        if left_out:
            groups = [values(rows) for rows in left_out]
            for label in statistics:
                statistics[label]["left_out"] = jnp.concatenate([x[label] for x in groups])
        return statistics

    return lax.map(one, (keys, batch))
