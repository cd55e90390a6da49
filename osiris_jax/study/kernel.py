"""What a study computes for one data set: every cell, in the order of `Study.cells`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.core.options import Options, bind, traced
from osiris_jax.estimators import parse_name
from osiris_jax.pipeline import selection
from osiris_jax.pipeline.spec import Composition, Named, Spec
from osiris_jax.relevance import THRESHOLDS
from osiris_jax.study.plan import MAP_LEVEL, MAPS, OF_OMISSION, ON_POLICY, TRUE_TOLERANCE, Study
from osiris_jax.study.source import DataSets, method_key


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Estimates:
    """What to estimate from a data set. Numbers are traced, so that other ones compile nothing.

    Attributes:
      specs: the estimators from all ratios, then those after omission, by test.
      evidence: for each of `specs`, the number of the evidence that it shares with others.
      sizes: numbers of trajectories.
      on_policy: before which of `specs` the on-policy mean comes, or None.
    """

    specs: tuple[Spec, ...]
    evidence: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    on_policy: int | None = dataclasses.field(metadata={"static": True})


def estimates_of(study: Study) -> Estimates:
    """The estimates of a study."""
    plain = [named for named in study.named_estimators if named not in study.omitting]
    names = [named.name for named in plain]
    specs, evidence, shared = [], [], {}
    for named in plain:
        if named.name != ON_POLICY:
            specs.append(_plain_spec(study, named))
            evidence.append(-1)
    for test in study.tests_used:
        for named in study.omitting:
            of_test = _Omission(study, test, named)
            number = shared.setdefault((test, of_test.estimator.by_lag), len(shared))
            for spec in of_test.specs():
                specs.append(spec)
                evidence.append(number)
    on_policy = names.index(ON_POLICY) if ON_POLICY in names else None
    return Estimates(tuple(specs), tuple(evidence), study.sizes, on_policy)


def _options(study: Study, function: Any, options: Any) -> Options:
    """The study's settings that the function takes, and the options written behind its name."""
    common = {"discount": study.discount, "key": random.key(0)}  # each trial has its own key
    return bind(function, common | dict(options), study.dtype)


def _plain_spec(study: Study, named: Named) -> Spec:
    composition = Composition.of(named.name)
    options = _options(study, composition.estimator.function, named.options)
    return Spec(composition, jnp.zeros(0, study.dtype), None, options)


class _Omission(NamedTuple):
    """An estimator of a study after omission by one of its tests."""

    study: Study
    test: Named
    named: Named

    @property
    def estimator(self) -> Any:
        return Composition.of(parse_name(self.named.name)[0]).estimator

    def specs(self) -> Iterator[Spec]:
        """At all levels at once, then at each that is chosen."""
        if self.test.name in MAPS:
            yield self._spec("oracle", {"keep": self._map()}, np.full(1, MAP_LEVEL))
            return
        name, study = self.test.name, self.study
        options = study.test_options(self.test, self.estimator.name)
        by_threshold = name in THRESHOLDS
        levels = study.thresholds_of(self.test) if by_threshold else study.levels
        yield self._spec(name, options, np.asarray(levels, float))
        grid = selection.THRESHOLDS if by_threshold else selection.ALPHAS
        for method in study.methods:
            yield self._spec(name, options, np.asarray(grid), method)

    def _spec(self, test: str, options: Any, levels: np.ndarray, method: str | None = None) -> Spec:
        study = self.study
        composition = Composition.of(self.estimator, test)._replace(method=method)
        most = dict(self.test.options).get(OF_OMISSION)
        of_method = None if method is None else _options(study, selection.SELECTION[method], ())
        return Spec(
            composition,
            levels=jnp.asarray(levels.astype(study.dtype)),
            max_kept=None if most is None else traced(OF_OMISSION, most, study.dtype),
            for_estimator=_options(study, self.estimator.function, self.named.options),
            for_test=_options(study, composition.test_function, options),
            for_method=of_method,
        )

    def _map(self) -> np.ndarray:
        """[state] the map that is known beforehand."""
        world = self.study.world
        if self.test.name == "oracle":
            return np.asarray(world.oracle)
        tolerance = dict(self.test.options).get("tolerance", TRUE_TOLERANCE)
        return np.asarray(world.exact(self.study.discount).relevance(tolerance))


def of_data_set(estimates: Estimates, data: DataSets) -> Array:
    """[cell] the values of all sizes from one data set, in the order of `Study.cells`."""
    return jnp.concatenate([_of_size(estimates, data, size) for size in estimates.sizes])


def _of_size(estimates: Estimates, data: DataSets, size: int) -> Array:
    batch = jax.tree.map(lambda field: field[:size], data.data)
    key, values, gathered = method_key(data.key, size), [], {}
    for spec, shared in zip(estimates.specs, estimates.evidence, strict=True):
        spec = _with_key(spec, key)
        if spec.test is not None and shared not in gathered:
            gathered[shared] = spec.evidence(batch)
        values.append(jnp.ravel(spec.values(batch, gathered.get(shared))))
    if estimates.on_policy is not None and data.on_policy is not None:
        values.insert(estimates.on_policy, data.on_policy[:size].mean()[None])
    return jnp.concatenate(values)


def _with_key(spec: Spec, key: Array) -> Spec:
    """The same, where what is random comes from this key."""

    def changed(leaf: Array) -> Array:
        return key if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    return jax.tree.map(changed, spec)
