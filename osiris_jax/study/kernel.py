"""What a study computes for one data set: every cell, in the order of `Study.cells`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.core.options import Options, bind, traced
from osiris_jax.estimators import parse_name
from osiris_jax.pipeline.selection import ALPHAS, SELECTION
from osiris_jax.pipeline.spec import Composition, Named, Spec
from osiris_jax.study import plan
from osiris_jax.study.plan import Column, Study
from osiris_jax.study.source import DataSets, method_key

ARRAYS, ARRAYS_OF_ACTION = 16, 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Estimates:
    """What to estimate from a data set. Numbers are traced, so that other ones compile nothing.

    Those that options of one name have in common are one, so that what is computed from them is
    seen to be one too.

    Attributes:
      numbers: of the specifications, each once.
      form: the specifications without their numbers.
      places: which of `numbers` is each of theirs.
      evidence: for each of `specs`, the number of the evidence that it shares with others.
      sizes: numbers of trajectories.
      on_policy: before which of `specs` the on-policy mean comes, or None.
    """

    numbers: tuple[Array, ...]
    form: Any = dataclasses.field(metadata={"static": True})
    places: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    evidence: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    on_policy: int | None = dataclasses.field(metadata={"static": True})

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The estimators from all ratios, then those after omission, by test."""
        return jax.tree.unflatten(self.form, [self.numbers[place] for place in self.places])


def estimates_of(study: Study) -> Estimates:
    """The estimates of a study."""
    specs, evidence, shared, on_policy = [], [], {}, None
    for column in plan.columns_of(study):
        if column.named.name == plan.ON_POLICY:
            on_policy = len(specs)
            continue
        spec = _spec(study, column)
        test = (column.test, spec.estimator.by_lag)
        specs.append(spec)
        evidence.append(-1 if spec.test is None else shared.setdefault(test, len(shared)))
    leaves, form = jax.tree_util.tree_flatten_with_path(tuple(specs))
    seen: dict[Any, int] = {}
    places = tuple(seen.setdefault(_known_by(path, x), len(seen)) for path, x in leaves)
    numbers = tuple(leaves[places.index(place)][1] for place in range(len(seen)))
    return Estimates(numbers, form, places, tuple(evidence), study.sizes, on_policy)


def _known_by(path: Any, number: Array) -> Any:
    """What tells a number of a specification from others: its option's name, and what it is."""
    is_key = jnp.issubdtype(number.dtype, jax.dtypes.prng_key)
    plain = np.asarray(random.key_data(number) if is_key else number)
    return str(path[-1]), str(number.dtype), plain.shape, plain.tobytes()


def _spec(study: Study, column: Column) -> Spec:
    """The column with the study's settings and the options written behind its names."""

    def options(function: Any, own: Any = ()) -> Options:
        common = {"discount": study.discount, "key": random.key(0)}  # each trial has its own key
        return bind(function, common | dict(own), study.dtype)

    composition = Composition.of(parse_name(column.named.name)[0])
    levels = jnp.asarray(np.asarray(column.levels, float).astype(study.dtype))
    for_estimator = options(composition.estimator.function, column.named.options)
    test, method = column.test, column.method
    if test is None:
        return Spec(composition, levels, None, for_estimator)
    if test.name in plan.MAPS:
        name, of_test = "oracle", {"keep": _map(study, test)}
    else:
        name, of_test = test.name, study.test_options(test, composition.estimator.name)
    composition = Composition.of(composition.estimator, name)._replace(method=method)
    most = dict(test.options).get(plan.OF_OMISSION)
    return Spec(
        composition,
        levels,
        max_kept=None if most is None else traced(plan.OF_OMISSION, most, study.dtype),
        for_estimator=for_estimator,
        for_test=options(composition.test_function, of_test),
        for_method=None if method is None else options(SELECTION[method]),
    )


def _map(study: Study, test: Named) -> np.ndarray:
    """[state] the map that is known beforehand."""
    if test.name == "oracle":
        return np.asarray(study.world.oracle)
    tolerance = dict(test.options).get("tolerance", plan.TRUE_TOLERANCE)
    return np.asarray(study.world.exact(study.discount).relevance(tolerance))


def bytes_on_device(study: Study, steps: int, per_level: int = 1) -> int:
    """A guess of the memory that one trial takes while it is estimated."""
    chosen = len(study.methods) * len(ALPHAS)
    arrays = ARRAYS + per_level * (len(study.levels) + chosen) * len(study.omitting)
    if study.needs_probs:
        arrays += ARRAYS_OF_ACTION * study.world.num_actions
    return max(study.sizes) * steps * arrays * np.dtype(study.dtype).itemsize


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
