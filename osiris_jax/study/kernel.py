"""What a study computes for one data set: every cell, in the order of `Study.cells`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import keywords
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.pipeline import compose, selection
from osiris_jax.relevance import THRESHOLDS
from osiris_jax.study.named import Named
from osiris_jax.study.plan import MAP_LEVEL, MAPS, OF_OMISSION, ON_POLICY, TRUE_TOLERANCE, Study
from osiris_jax.study.source import DataSets, method_key

Options = tuple[tuple[str, Any], ...]


class Term(NamedTuple):
    """An estimator of a study, and the options written behind its name."""

    name: str
    options: Options


class Test(NamedTuple):
    """A relevance test of a study.

    Attributes:
      name: in the registry, or one of `MAPS`.
      options: for each estimator after omission, in their order.
      max_kept: the most ratios kept of a trajectory, or None.
    """

    name: str
    options: tuple[Options, ...]
    max_kept: int | None


@dataclasses.dataclass(frozen=True)
class Estimates:
    """What to estimate from a data set, without numbers that may change: static under jit.

    Attributes:
      sizes: numbers of trajectories.
      plain, omitting: estimators from all ratios, and those after omission.
      tests: of those after omission.
      methods: that choose a level from the data.
      on_policy: the place of the on-policy mean among the plain estimators, or None.
    """

    sizes: tuple[int, ...]
    plain: tuple[Term, ...]
    omitting: tuple[Term, ...]
    tests: tuple[Test, ...]
    methods: tuple[str, ...]
    on_policy: int | None


class TestInputs(NamedTuple):
    """A test's levels, and its map if it is one that is known beforehand."""

    levels: np.ndarray
    keep: np.ndarray | None


class Inputs(NamedTuple):
    """Numbers that every data set shares, traced: another study of the same kind compiles nothing.

    Attributes:
      discount: gamma.
      tests: for each test of `Estimates`.
    """

    discount: float
    tests: tuple[TestInputs, ...]


def estimates_of(study: Study) -> Estimates:
    """The static part of a study."""
    plain, omitting, on_policy = [], [], None
    for named in study.named_estimators:
        if named.name == ON_POLICY:
            on_policy = len(plain)
            continue
        name, omits = parse_name(named.name)
        (omitting if omits else plain).append(Term(name, named.options))
    tests = [_test_of(study, test, omitting) for test in study.tests_used]
    return Estimates(
        sizes=study.sizes,
        plain=tuple(plain),
        omitting=tuple(omitting),
        tests=tuple(tests),
        methods=study.methods,
        on_policy=on_policy,
    )


def _test_of(study: Study, test: Named, omitting: list[Term]) -> Test:
    if test.name in MAPS:
        return Test(test.name, ((),) * len(omitting), None)
    options = (study.test_options(test, term.name) for term in omitting)
    fixed = (tuple((k, v) for k, v in of.items() if k != "discount") for of in options)
    return Test(test.name, tuple(fixed), dict(test.options).get(OF_OMISSION))


def inputs_of(study: Study) -> Inputs:
    """The traced part of a study."""
    return Inputs(study.discount, tuple(_inputs_of_test(study, x) for x in study.tests_used))


def _inputs_of_test(study: Study, test: Named) -> TestInputs:
    if test.name == "oracle":
        return TestInputs(np.full(1, MAP_LEVEL), np.asarray(study.world.oracle))
    if test.name == "true":
        tolerance = dict(test.options).get("tolerance", TRUE_TOLERANCE)
        keep = study.world.exact(study.discount).relevance(tolerance)
        return TestInputs(np.full(1, MAP_LEVEL), np.asarray(keep))
    levels = study.thresholds_of(test) if test.name in THRESHOLDS else study.levels
    return TestInputs(np.asarray(levels, float), None)


def of_data_set(estimates: Estimates, inputs: Inputs, data: DataSets) -> Array:
    """[cell] the values of all sizes from one data set, in the order of `Study.cells`.

    What is random in a method has a stream of its own.
    """
    return jnp.concatenate([_of_size(estimates, inputs, data, size) for size in estimates.sizes])


def _of_size(estimates: Estimates, inputs: Inputs, data: DataSets, size: int) -> Array:
    batch = jax.tree.map(lambda field: field[:size], data.data)
    common = {"discount": inputs.discount, "key": method_key(data.key, size)}
    values = []
    for name, options in estimates.plain:
        settings = _taken(ESTIMATORS[name], common, options)
        values.append(ESTIMATORS[name](batch, batch.log_ratio, **settings)[None])
    if estimates.on_policy is not None and data.on_policy is not None:
        values.insert(estimates.on_policy, data.on_policy[:size].mean()[None])
    for test, numbers in zip(estimates.tests, inputs.tests, strict=True):
        under = _UnderTest(batch, common, test, numbers, estimates.methods, {})
        for term, options in zip(estimates.omitting, test.options, strict=True):
            values += under.values(term, options)
    return jnp.concatenate(values)


class _UnderTest(NamedTuple):
    """A data set under one test; `evidence` is kept for the estimators that share it."""

    batch: TrajectoryBatch
    common: dict[str, Any]
    test: Test
    numbers: TestInputs
    methods: tuple[str, ...]
    evidence: dict[Any, compose.Evidence]

    def values(self, term: Term, test_options: Options) -> list[Array]:
        """Those of one estimator at all levels, then at the chosen ones."""
        batch, name = self.batch, term.name
        settings = _taken(ESTIMATORS[name], self.common, term.options)
        levels = jnp.asarray(self.numbers.levels, batch.dtype)
        if self.numbers.keep is not None:
            evidence = compose.gather(batch, name, "oracle", keep=self.numbers.keep)
            return [compose.values_at(batch, name, evidence, levels, **settings)]

        def gather(data: TrajectoryBatch) -> compose.Evidence:
            function = compose.test_for(name, self.test.name)
            taken = _taken(function, self.common, test_options)
            return compose.gather(data, name, self.test.name, **taken)

        shared = (compose.is_by_lag(name), test_options)
        if shared not in self.evidence:
            self.evidence[shared] = gather(batch)
        evidence = self.evidence[shared]
        settings["max_kept"] = self.test.max_kept
        values = [compose.values_at(batch, name, evidence, levels, **settings)]
        grid = selection.THRESHOLDS if evidence.by_threshold else selection.ALPHAS
        for method in self.methods:
            choice = compose.choose(
                batch,
                name,
                evidence,
                jnp.asarray(grid, batch.dtype),
                method=method,
                gather_again=gather,
                method_options=_taken(selection.SELECTION[method], self.common, ()),
                **settings,
            )
            values.append(choice.value[None])
        return values


def _taken(function, common: dict[str, Any], options: Options) -> dict[str, Any]:
    """The study's settings that the function takes, and the options written behind its name."""
    return {k: v for k, v in common.items() if k in keywords(function)} | dict(options)
