"""What a study computes for one data set: every cell, in the order of `Study.cells`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import keywords
from osiris_jax.core.random_streams import METHOD_STREAM
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.pipeline import compose, selection
from osiris_jax.relevance import THRESHOLDS
from osiris_jax.study.plan import MAP_LEVEL, MAPS, OF_OMISSION, ON_POLICY, TRUE_TOLERANCE, Study

ARRAYS, ARRAYS_PER_LEVEL = 16, 3
Options = tuple[tuple[str, Any], ...]


class Test(NamedTuple):
    """A relevance test of a study.

    Attributes:
      name: in the registry, or one of `MAPS`.
      options: for each estimator after omission, in their order.
      max_kept: the most ratios kept of a trajectory, or None.
      thresholds: its levels, if it has thresholds.
    """

    name: str
    options: tuple[Options, ...]
    max_kept: int | None
    thresholds: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to compute for one data set, without numbers that may change: static under jit."""

    sizes: tuple[int, ...]
    plain: tuple[tuple[str, Options], ...]
    omitting: tuple[tuple[str, Options], ...]
    tests: tuple[Test, ...]
    methods: tuple[str, ...]
    on_policy: int | None
    discount: float
    probs: bool


class Inputs(NamedTuple):
    """Arrays that every data set shares: the levels, and the maps known beforehand."""

    alphas: Any
    maps: tuple


def recipe_of(study: Study) -> Recipe:
    """The static part of a study."""
    plain, omitting, on_policy = [], [], None
    for named in study.named_estimators:
        if named.name == ON_POLICY:
            on_policy = len(plain)
            continue
        name, omits = parse_name(named.name)
        (omitting if omits else plain).append((name, named.options))
    tests = [_test_of(study, test, omitting) for test in (study.tests if study.omits else ())]
    return Recipe(
        sizes=study.sizes,
        plain=tuple(plain),
        omitting=tuple(omitting),
        tests=tuple(tests),
        methods=study.methods,
        on_policy=on_policy,
        discount=study.discount,
        probs=study.needs_probs,
    )


def _test_of(study: Study, test: Any, omitting: list) -> Test:
    if test.name in MAPS:
        return Test(test.name, ((),) * len(omitting), None, ())
    options = [tuple(study.test_options(test, estimator).items()) for estimator, _ in omitting]
    thresholds = study.thresholds_of(test) if test.name in THRESHOLDS else ()
    return Test(test.name, tuple(options), dict(test.options).get(OF_OMISSION), thresholds)


def inputs_of(study: Study) -> Inputs:
    """The arrays of a study: its levels, and a map for every test that is one."""
    maps = []
    for test in study.tests if study.omits else ():
        if test.name == "oracle":
            maps.append(study.world.oracle)
        elif test.name == "true":
            tolerance = dict(test.options).get("tolerance", TRUE_TOLERANCE)
            maps.append(study.world.exact(study.discount).relevance(tolerance))
    return Inputs(np.asarray(study.levels, float), tuple(np.asarray(keep) for keep in maps))


def of_data_set(
    recipe: Recipe, inputs: Inputs, key: Array, batch: TrajectoryBatch, on_policy: Array | None
) -> Array:
    """[cell] the values of all sizes, in the order of `Study.cells`.

    The key is the trial's; what is random in a method has a stream of its own.
    """
    by_size = [_of_size(recipe, inputs, key, batch, on_policy, size) for size in recipe.sizes]
    return jnp.concatenate(by_size)


def method_key(key: Array, size: int) -> Array:
    """The key of what is random in a method, from a trial's key."""
    return random.fold_in(random.fold_in(key, METHOD_STREAM), size)


def _of_size(recipe: Recipe, inputs: Inputs, key, batch, on_policy, size: int) -> Array:
    batch = jax.tree.map(lambda field: field[:size], batch)
    common = {"discount": recipe.discount, "key": method_key(key, size)}
    values = []
    for name, options in recipe.plain:
        settings = _taken(ESTIMATORS[name], common, options)
        values.append(ESTIMATORS[name](batch, batch.log_ratio, **settings)[None])
    if recipe.on_policy is not None and on_policy is not None:
        values.insert(recipe.on_policy, on_policy[:size].mean()[None])
    maps = iter(inputs.maps)
    for test in recipe.tests:
        keep, known = next(maps) if test.name in MAPS else None, {}
        for place, entry in enumerate(recipe.omitting):
            values += _after_omission(
                recipe, inputs, common, batch, test, keep, known, place, *entry
            )
    return jnp.concatenate(values)


def _after_omission(
    recipe: Recipe, inputs: Inputs, common, batch, test: Test, keep, known, place, name, options
) -> list[Array]:
    """The values of one estimator under one test, at all its levels and chosen ones.

    Evidence goes into `known`, for the estimators that share it.
    """
    settings = _taken(ESTIMATORS[name], common, options)
    if keep is not None:
        evidence = compose.gather(batch, name, "oracle", keep=keep)
        return [compose.values_at(batch, name, evidence, jnp.full(1, MAP_LEVEL), **settings)]

    def gather(data: TrajectoryBatch) -> compose.Evidence:
        function = compose.test_for(name, test.name)
        taken = _taken(function, common, test.options[place])
        return compose.gather(data, name, test.name, **taken)

    of = (compose.is_by_lag(name), test.options[place])
    evidence = known[of] = known.get(of) or gather(batch)
    settings["max_kept"] = test.max_kept
    levels = jnp.asarray(test.thresholds or inputs.alphas, batch.dtype)
    values = [compose.values_at(batch, name, evidence, levels, **settings)]
    grid = selection.THRESHOLDS if test.thresholds else selection.ALPHAS
    for method in recipe.methods:
        choice = compose.choose(
            batch,
            name,
            evidence,
            jnp.asarray(grid, batch.dtype),
            method=method,
            gather_again=gather,
            method_options=_taken(selection.SELECTION[method], common, ()),
            **settings,
        )
        values.append(choice.value[None])
    return values


def _taken(function, common: dict[str, Any], options: Options) -> dict[str, Any]:
    """The study's settings that the function takes, and the options written behind its name."""
    return {k: v for k, v in common.items() if k in keywords(function)} | dict(options)


_fold_in_all = compiled(jax.vmap(random.fold_in, (None, 0)))


def keys_of(seed: int, trials: np.ndarray) -> Array:
    """[trial] the keys of these trials of a seed."""
    return _fold_in_all(random.key(seed), trials)
