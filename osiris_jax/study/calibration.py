"""Calibration of relevance tests: how often a state is called relevant, by how relevant it is.

In a tabular world the truth is known: in each state the largest and the smallest Q of the target
policy differ by a gap. A test keeps its level if it calls states of gap 0 relevant in at most a
share alpha of the data sets, and it has power if it calls those of a large gap so.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import check_options, default, given, keywords
from osiris_jax.core.random_streams import FIT_STREAM
from osiris_jax.pipeline.compose import gather, map_at
from osiris_jax.relevance import RELEVANCE, THRESHOLDS
from osiris_jax.relevance.samples import WEIGHTINGS, first_visits
from osiris_jax.study.checks import (
    MOST_TRAJECTORIES,
    integer,
    settle_data_sets,
    some_of,
    weighting,
)
from osiris_jax.study.chunks import Progress, by_size
from osiris_jax.worlds.tabular import TabularWorld

TESTS = ("welch", "smirnov", "effect")
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "first visit": {"first_visit": True},
    "leave one out": {"leave_one_out": True},
}
CHUNK_CELLS = 2**22


class TestForm(NamedTuple):
    """A test, how its samples are weighted, and which variant of it; selects compiled code."""

    test: str
    weighting: str
    variant: str

    @property
    def options(self) -> dict[str, Any]:
        return {"weighting": self.weighting, **VARIANTS[self.variant]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """How often tests call a state relevant, in independent data sets of a tabular world.

    Attributes:
      world, trials, sizes: as for `Coverage`; the world is tabular.
      alphas: levels of the tests with p-values.
      thresholds: the same for tests in `THRESHOLDS`.
      tests: names of tests; "nn-q" fits a network to every data set.
      weightings: of the samples.
      variants: names in `VARIANTS`: "" for the test as it is, "first visit", "leave one out";
        those that a test does not know are left out.
      edges: of the classes of states by gap; a state of gap g is in the first class with g <= edge.
      least_visits: a state counts in a data set if trajectories visit it so often, with actions of
        both groups.
      discount, seed: as in a `Study`.
    """

    world: Any
    trials: int = 1000
    sizes: tuple[int, ...] = (25, 100)
    alphas: tuple[float, ...] = default((0.05,))
    thresholds: tuple[float, ...] = default((0.1, 0.2, 0.4))
    tests: tuple[str, ...] = TESTS
    weightings: tuple[str, ...] = WEIGHTINGS
    variants: tuple[str, ...] = tuple(VARIANTS)
    edges: tuple[float, ...] = (1e-9, 0.1, 1.0, float("inf"))
    least_visits: int = 4
    discount: float = 1.0
    seed: int = 0

    def __post_init__(self):
        problem = "calibration needs a tabular world, whose relevance is known"
        settle_data_sets(self, problem, 1)
        some_of(self, "alphas", "thresholds", "tests", "weightings", "variants", "edges")
        for name in self.tests:
            if name not in RELEVANCE or "weighting" not in keywords(RELEVANCE[name]):
                raise ValueError(f"tests: {name!r} is not a test of data")
        for name in self.variants:
            if name not in VARIANTS:
                names = ", ".join(repr(variant) for variant in VARIANTS)
                raise ValueError(f"variants: {name!r} is unknown; there are {names}")
        for test, name in itertools.product(self.tests, self.weightings):
            check_options({"weighting": name}, RELEVANCE[test])
            weighting("weightings", name)
        if not all(0 <= alpha <= 1 for alpha in self.alphas):
            raise ValueError(f"alphas: must be in [0, 1], got {self.alphas}")
        if not all(0 <= threshold < np.inf for threshold in self.thresholds):
            raise ValueError(f"thresholds: must not be negative, got {self.thresholds}")
        for field, idle in (
            ("alphas", all(test in THRESHOLDS for test in self.tests)),
            ("thresholds", not any(test in THRESHOLDS for test in self.tests)),
        ):
            if idle and given(getattr(self, field)):
                raise ValueError(f"{field}: has no effect on {', '.join(self.tests)}")
        if not self._forms():
            raise ValueError(f"variants: {', '.join(self.tests)} know none of these")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount: must be in [0, 1], got {self.discount}")
        integer("least_visits", self.least_visits, 0, MOST_TRAJECTORIES)
        if list(self.edges) != sorted(self.edges) or self.edges[-1] != float("inf"):
            raise ValueError("edges: expected rising numbers, the last of them inf")

    def run(self, progress: Progress | None = None) -> list[dict[str, Any]]:
        """One row per test, weighting, variant, size, level and class of states.

        A row has the rejection rate over all (data set, state) that count, and its standard error
        from the spread between data sets, whose states are not independent.
        """
        gap = _gaps(self.world, self.discount)
        classes = np.searchsorted(self.edges, gap)
        forms, rows = self._forms(), []

        def count(form: TestForm, keys: Array, batch: TrajectoryBatch) -> tuple[Array, Array]:
            numbers = {"levels": np.asarray(self._levels(form.test)), "classes": classes}
            numbers |= {"discount": self.discount, "least_visits": self.least_visits}
            return _count(keys, batch, numbers, form, len(self.edges))

        def statistic(*data_sets: Any) -> list[tuple[Array, Array]]:
            return [count(form, *data_sets) for form in forms]

        for size, counts in by_size(self, CHUNK_CELLS, statistic, progress):
            for form, of_form in zip(forms, counts, strict=True):
                rows += self._rows({**form._asdict(), "size": size}, classes, gap, *of_form)
        if not rows:
            raise ValueError("sizes: so few trajectories that no test could decide in any data set")
        return rows

    def _forms(self) -> list[TestForm]:
        """Every test in every form that there is."""
        forms = itertools.product(self.tests, self.weightings, self.variants)
        return [
            TestForm(*form)
            for form in forms
            if set(VARIANTS[form[2]]) <= set(keywords(RELEVANCE[form[0]]))
        ]

    def _levels(self, test: str) -> tuple[float, ...]:
        return self.thresholds if test in THRESHOLDS else self.alphas

    def _rows(self, labels, classes, gap, rejected, counted) -> list[dict[str, Any]]:
        """`rejected` is [trial, level, class], `counted` [trial, class]."""
        rows, by_threshold = [], labels["test"] in THRESHOLDS
        for number, level in enumerate(self._levels(labels["test"])):
            for place, edge in enumerate(self.edges):
                hits, chances = rejected[:, number, place], counted[:, place]
                if not chances.sum():
                    continue
                rate = hits.sum() / chances.sum()
                spread = np.sqrt(((hits - rate * chances) ** 2).sum())
                rows.append(
                    {
                        "world": self.world.name,
                        **labels,
                        "alpha": None if by_threshold else level,
                        "threshold": level if by_threshold else None,
                        "gap_above": self.edges[place - 1] if place else 0.0,
                        "gap_up_to": edge,
                        "states": int((classes[gap >= 0] == place).sum()),
                        "tests": int(chances.sum()),
                        "rate": float(rate),
                        "rate_se": float(spread / chances.sum()),
                    }
                )
        return rows


def _gaps(world: TabularWorld, discount: float) -> np.ndarray:
    """[state] the largest less the smallest Q; -1 where trajectories of the behaviour never are."""
    exact = world.exact(discount)
    return np.where(exact.visited, exact.gaps, -1.0)


@compiled(static_argnames=("form", "num_classes"))
def _count(
    keys: Array, batch: TrajectoryBatch, numbers: dict[str, Any], form: TestForm, num_classes: int
) -> tuple[Array, Array]:
    """[trial, level, class] states that are called relevant, [trial, class] that count.

    Args:
      numbers: traced; `classes` is [state] the class of each state.
    """

    def of_data_set(key: Array, batch: TrajectoryBatch) -> tuple[Array, Array]:
        options = {**form.options, "discount": numbers["discount"]}
        if "key" in keywords(RELEVANCE[form.test]):
            options["key"] = random.fold_in(key, FIT_STREAM)
        evidence = gather(batch, "is", form.test, **options)
        if evidence.value.ndim == 2:
            of_first_trajectory = evidence.value[0]
            evidence = evidence._replace(value=of_first_trajectory)
        counts = _testable(batch, form, numbers["least_visits"]).astype(jnp.int32)
        levels = jnp.asarray(numbers["levels"], batch.dtype)
        rejected = jax.vmap(lambda level: map_at(evidence, level))(levels) * counts[None]
        by_class = jax.vmap(lambda x: jax.ops.segment_sum(x, numbers["classes"], num_classes))
        return by_class(rejected), by_class(counts[None])[0]

    return jax.vmap(of_data_set)(keys, batch)


def _testable(batch: TrajectoryBatch, form: TestForm, least_visits: Any) -> Array:
    """[state] whether enough visits, at least two in each group, let a test decide."""
    used = batch.mask
    state = batch.require("state", "calibration")
    log_ratio = batch.require("log_ratio", "calibration")
    if form.options.get("first_visit"):
        used = first_visits(state, batch.mask, batch.num_states)
    if form.options.get("leave_one_out"):
        used = used & (jnp.arange(len(used)) > 0)[:, None]
    place = jnp.where(used, 2 * state + (log_ratio > 0), 2 * batch.num_states)
    ones = jnp.ones_like(place)
    visits = jax.ops.segment_sum(ones.ravel(), place.ravel(), 2 * batch.num_states)
    by_group = visits.reshape(batch.num_states, 2)
    return (by_group.min(1) >= 2) & (by_group.sum(1) >= least_visits)
