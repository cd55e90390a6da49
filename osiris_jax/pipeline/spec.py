"""One estimation, said once: which functions are composed, and the numbers that they are given.

Made from keywords, all of which are checked here: an option that cannot have an effect is refused.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import RELEVANCE as USUAL_TEST
from osiris_jax.core.options import (
    Options,
    bind,
    given,
    keywords,
    refuse_grids,
    refuse_unknown,
    traced,
)
from osiris_jax.estimators import ESTIMATORS, Estimator, parse_name
from osiris_jax.models.qhat import QHAT
from osiris_jax.pipeline import compose, selection
from osiris_jax.relevance import RELEVANCE, THRESHOLDS, AtSteps, RelevanceTest

OF_OMISSION = ("relevance", "alpha", "threshold", "weighting", "ddof", "max_kept", "levels")
_OF_TEST = ("weighting", "ddof")
_OF_FIT = ("fit", "q_folds", "smoothing")
_ALWAYS = ("discount", "key")
_NOT_USED = "has no effect, for the test `{}` does not use it"
_BY_LAG = "`{}` omits by lag, not the whole ratio of a step"


@dataclasses.dataclass(frozen=True)
class Named:
    """An estimator or a test with options, written `name:option=value:option=value`."""

    text: str
    name: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, field: str, text: Any) -> Named:
        """Raises a ValueError that names the field where the text is not so written."""
        if not isinstance(text, str):
            raise ValueError(f"{field}: expected a name, got {text!r}")
        name, *parts = text.split(":")
        options = []
        for part in parts:
            option, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{field}: expected option=value in {text!r}, got {part!r}")
            options.append((option, _value(value)))
        return cls(text, name, tuple(options))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a word, or no value that anything takes
        return text


class Composition(NamedTuple):
    """An estimator, the test whose omission comes first, and what chooses its level.

    Attributes:
      estimator: its entry.
      test: its entry; None where nothing is omitted.
      method: a name in `SELECTION`; None where the level is a number.
    """

    estimator: Estimator
    test: RelevanceTest | None = None
    method: str | None = None

    @classmethod
    def of(
        cls,
        estimator: compose.EstimatorLike,
        relevance: str | None = None,
        alpha: Any = None,
        threshold: Any = None,
    ) -> Composition:
        """With the level's word, if it is one, understood."""
        entry = ESTIMATORS.entry(estimator)
        if relevance is None:
            return cls(entry)
        compose.test_for(entry, relevance)
        test = RELEVANCE[relevance]
        if test.large_is_relevant and threshold is not None:
            return cls(entry, test, chooser("threshold", threshold))
        return cls(entry, test, chooser("alpha", alpha))

    @classmethod
    def listed(cls, label: str, relevance: str | None, settings: Mapping[str, Any]) -> Composition:
        """Of an estimator in a list: there only names that begin with "osir" omit."""
        plain_name, omits = parse_name(label)
        test = (relevance or USUAL_TEST) if omits else None
        return cls.of(plain_name, test, settings.get("alpha"), settings.get("threshold"))

    @property
    def relevance(self) -> str | None:
        """The name of the test."""
        return None if self.test is None else self.test.name

    @property
    def test_function(self) -> Callable[..., Any] | None:
        """The test in the form that the estimator needs, by state or by lag."""
        if self.test is None:
            return None
        return self.test.by_lag if self.estimator.by_lag else self.test.function

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """The kernels whose options it takes."""
        method = None if self.method is None else selection.SELECTION[self.method]
        composed = (self.estimator.function, self.test_function, method)
        return [function for function in composed if function is not None]

    def why_idle(self, name: str, settings: Mapping[str, Any]) -> str | None:
        """Why an option cannot have an effect here, beside these others; None where it has one."""
        if name in _ALWAYS:
            return None
        if name in OF_OMISSION:
            return self._why_idle_in_omission(name, settings)
        if name == "theta" and self.test is not None:
            return f"found by `{self.relevance}`; give one of the two"
        if name in _OF_FIT and self.estimator.takes(name):
            fits_marginals = self.estimator.takes("marginals") and not given(
                settings.get("marginals")
            )
            if name == "q_folds" and fits_marginals:
                return None
            return _why_idle_in_fit(name, settings)
        if any(name in keywords(function) for function in self.functions):
            return None
        return f"`{self.estimator.name}` has no such option"

    def _why_idle_in_omission(self, name: str, settings: Mapping[str, Any]) -> str | None:
        estimator = self.estimator.name
        if self.test is None:
            named = self.estimator.may_omit and ESTIMATORS.get(estimator) == self.estimator
            other = f'; "osiris-{estimator}" does' if named else ""
            return f"has no effect, for `{estimator}` omits nothing{other}"
        by_threshold, taken = self.test.large_is_relevant, keywords(self.functions[1])
        word = self.method is not None and settings.get("threshold") is None
        for option, idle, reason in (
            ("alpha", by_threshold and not word, f"`{self.relevance}` has a threshold instead"),
            ("threshold", not by_threshold, f"only for relevance by {', '.join(THRESHOLDS)}"),
            ("levels", self.method is None, 'only where a level is chosen, as by alpha="auto"'),
            ("max_kept", self.estimator.by_lag, _BY_LAG.format(estimator)),
            *((x, x not in taken, _NOT_USED.format(self.relevance)) for x in _OF_TEST),
        ):
            if name == option and idle:
                return reason
        return None


def _why_idle_in_fit(name: str, settings: Mapping[str, Any]) -> str | None:
    for supplied in ("q", "q_steps"):
        if settings.get(supplied) is not None:
            return f"has no effect, for nothing is fitted where `{supplied}` is given"
    fit = settings.get("fit", "tabular")
    if name == "smoothing" and fit in QHAT and name not in keywords(QHAT[fit]):
        return f"has no effect on the fit `{fit}`"
    return None


def methods() -> tuple[str, ...]:
    """The words that choose a level, those registered last included."""
    return (selection.AUTO, *selection.SELECTION)


def chooser(name: str, level: Any) -> str | None:
    """The name in `SELECTION` that a level's word asks for; None for a number.

    Raises:
      ValueError: it is another word.
    """
    if not isinstance(level, str):
        return None
    words = methods()
    if level not in words:
        raise ValueError(f"{name}: expected a number or one of {', '.join(words)}, got {level!r}")
    return selection.DEFAULT_METHOD if level == selection.AUTO else level


def refuse_idle(settings: Mapping[str, Any], compositions: Sequence[Composition]) -> None:
    """Raises a ValueError for the first option given that no estimator would use."""
    for name, value in settings.items():
        if not given(value):
            continue
        reasons = [one.why_idle(name, settings) for one in compositions]
        if all(reasons):
            omitting = [
                why for one, why in zip(compositions, reasons, strict=True) if one.test is not None
            ]
            raise ValueError(f"{name}: {(omitting or reasons)[0]}")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Spec:
    """What to estimate and how: the functions select compiled code, the numbers are traced.

    Attributes:
      composition: the functions.
      levels: the level, or several; the candidates where a method chooses among them.
      max_kept: ratios of a trajectory that are kept at most; None for all.
      for_estimator, for_test, for_method: the options of each function.
    """

    composition: Composition = dataclasses.field(metadata={"static": True})
    levels: Array
    max_kept: Array | None
    for_estimator: Options
    for_test: Options | None = None
    for_method: Options | None = None

    @property
    def estimator(self) -> Estimator:
        return self.composition.estimator

    @property
    def test(self) -> RelevanceTest | None:
        return self.composition.test

    def evidence(self, batch: TrajectoryBatch, key: Array | None = None) -> compose.Evidence:
        """What its test finds in this data set; by another key, where it is random."""
        assert self.test is not None
        assert self.for_test is not None
        options = self.for_test.keywords
        if key is not None and "key" in options:
            options["key"] = key
        return compose.gather(batch, self.estimator, self.test, **options)

    def values(self, batch: TrajectoryBatch, evidence: compose.Evidence | None = None) -> Array:
        """The estimate of this data set, at every level; from evidence that is there already."""
        if self.test is None:
            return compose.plain_value(batch, self.estimator, **self.for_estimator.keywords)
        if self.composition.method is not None:
            return self.choice(batch, evidence).value
        evidence = self.evidence(batch) if evidence is None else evidence
        values = self._values_at(batch, evidence)
        return values.reshape(*self.levels.shape, *values.shape[1:])

    def _values_at(self, batch: TrajectoryBatch, evidence: compose.Evidence) -> Array:
        options = {"max_kept": self.max_kept, **self.for_estimator.keywords}
        return compose.values_at(batch, self.estimator, evidence, self.levels.ravel(), **options)

    def choice(
        self, batch: TrajectoryBatch, evidence: compose.Evidence | None = None
    ) -> selection.Choice:
        """The level that its method chooses in this data set, and the estimate there."""
        assert self.composition.method is not None
        assert self.for_method is not None
        gathered = self.evidence(batch) if evidence is None else evidence
        maps = log_weights = None
        if not gathered.by_lag:

            def weights(level: Array) -> Array:
                keep = compose.steps_at(batch, gathered, level, self.max_kept)
                return compose.kept_weights(batch, keep)

            log_weights = jax.vmap(weights)(self.levels)
            if not isinstance(gathered.value, AtSteps):
                maps = jax.vmap(lambda level: compose.map_at(gathered, level))(self.levels)
                maps = maps.mean(1, dtype=batch.dtype) > 0.5 if maps.ndim == 3 else maps
        candidates = selection.Candidates(
            batch=batch,
            normalised=self.estimator.normalised,
            value=self._values_at(batch, gathered),
            maps=maps,
            log_weights=log_weights,
            resample=lambda drawn: self._values_at(drawn, self.evidence(drawn)),
            discount=self.for_estimator.keywords.get("discount", 1.0),
        )
        options = self.for_method.keywords
        return selection.choose(candidates, self.levels, self.composition.method, **options)


_OF_LEVEL = ("alpha", "threshold", "levels", "max_kept")


def make_spec(
    batch: TrajectoryBatch, composition: Composition, settings: Mapping[str, Any]
) -> Spec:
    """The specification of an estimate of this data set, or of others like it.

    Args:
      settings: `alpha`, `threshold`, `levels`, `max_kept`; `discount`, `weighting`, `ddof`, `key`;
        and further options, each of the estimator, the test or the choice.

    Raises:
      ValueError: names what is wrong, before anything is computed.
    """
    check_batch(batch)
    if settings.get("key") is not None:
        traced("key", settings["key"], batch.dtype)
    if composition.estimator.reads_ratios or composition.test is not None:
        batch.require("log_ratio", f"the estimator `{composition.estimator.name}`")
    _refuse_options(settings, [composition])
    if composition.method is not None:
        refuse_grids(dict(settings))
    of_kernels = {name: value for name, value in settings.items() if name not in _OF_LEVEL}
    options = [bind(function, of_kernels, batch.dtype) for function in composition.functions]
    most = settings.get("max_kept")
    most = None if most is None else traced("max_kept", most, batch.dtype)
    return Spec(composition, _levels(composition, settings, batch.dtype), most, *options)


def make_specs(
    batch: TrajectoryBatch,
    labels: Sequence[str],
    relevance: str | None,
    settings: Mapping[str, Any],
) -> dict[str, Spec]:
    """The specification of every estimator, which gets those options that it, or its test, has.

    Raises:
      ValueError: names an option that none of them would use, or that is given by trajectory and
        would not follow resampled ones.
    """
    compositions = [Composition.listed(label, relevance, settings) for label in labels]
    _refuse_options({"relevance": relevance, **settings}, compositions)
    refuse_grids(dict(settings))
    specs = {}
    for label, one in zip(labels, compositions, strict=True):
        own = {name: value for name, value in settings.items() if not one.why_idle(name, settings)}
        specs[label] = make_spec(batch, one, own)
        _refuse_by_trajectory(one, own)
    return specs


def _refuse_options(settings: Mapping[str, Any], compositions: Sequence[Composition]) -> None:
    """Raises a ValueError for an option that nothing takes, or that cannot have an effect."""
    usual = {*OF_OMISSION, *_ALWAYS}
    further = {name: value for name, value in settings.items() if name not in usual}
    refuse_unknown(further, [function for one in compositions for function in one.functions])
    refuse_idle(settings, compositions)


def _refuse_by_trajectory(composition: Composition, settings: Mapping[str, Any]) -> None:
    for name, axes in (("q_steps", 1), ("keep", 2)):
        given_by_row = settings.get(name) is not None and np.ndim(settings[name]) >= axes
        if given_by_row and composition.estimator.of_counts is None:
            raise ValueError(f"{name}: given by trajectory, which resamples would misplace")


def _levels(composition: Composition, settings: Mapping[str, Any], dtype: Any) -> Array:
    """The level that was given, the test's usual one, or the candidates to choose among."""
    test = composition.test
    name = "alpha" if test is None else test.level_name
    if composition.method is None:
        level = settings.get(name)
        usual = RelevanceTest.default_level if test is None else test.default_level
        return traced(name, usual if level is None else level, dtype)
    grid = selection.THRESHOLDS if name == "threshold" else selection.ALPHAS
    levels = settings.get("levels")
    wanted = np.ravel(grid if levels is None else levels)
    if not wanted.size:
        raise ValueError("levels: none given")
    return traced(name, sorted(wanted, reverse=name == "alpha"), dtype)


def check_batch(batch: TrajectoryBatch) -> None:
    """Raises a ValueError unless this is one data set."""
    if not isinstance(batch, TrajectoryBatch):
        raise ValueError(
            f"batch: expected a TrajectoryBatch, got {type(batch).__name__}; "
            "make one with from_episodes, from_dataframe or from_arrays"
        )
    if np.ndim(batch.reward) != 2:
        raise ValueError(
            f"batch: expected axes [traj, time], got shape {np.shape(batch.reward)}; "
            "for many data sets use jax.vmap"
        )
