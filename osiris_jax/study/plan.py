"""What a study is: a world, estimators, relevance tests, levels, sizes, trials. Checked at once."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import (
    ALPHA,
    DDOF,
    WEIGHTING,
    Unset,
    check_options,
    default,
    given,
    keywords,
    refuse_grids,
    refuse_unknown,
)
from osiris_jax.core.options import RELEVANCE as RELEVANCE_TEST
from osiris_jax.data.columns import suggest
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.pipeline import selection
from osiris_jax.pipeline.compose import is_by_lag, test_for
from osiris_jax.pipeline.spec import Composition, Named, refuse_idle
from osiris_jax.relevance import RELEVANCE, THRESHOLDS
from osiris_jax.study import checks
from osiris_jax.worlds import make
from osiris_jax.worlds.tabular import TabularWorld

ON_POLICY = "on-policy"
MAPS = ("oracle", "true")
MAP_LEVEL = 0.5
TRUE_TOLERANCE = 1e-9
OF_OMISSION = "max_kept"
TRUTH_EPISODES = default(20_000)
_OF_TESTS = ("relevance", "alphas", "thresholds", "weighting", "ddof")


class Cell(NamedTuple):
    """One row of the summary: what is estimated how, from how many trajectories."""

    estimator: str
    relevance: str | None
    alpha: float | None
    threshold: float | None
    size: int


class Column(NamedTuple):
    """What is computed at once: an estimator, and the test whose omission comes first.

    Attributes:
      levels: of the test; the candidates where a method chooses among them.
      labels: for each value what the test is called, its alpha and its threshold.
      method: a name in `SELECTION`.
    """

    named: Named
    test: Named | None = None
    levels: tuple[float, ...] = ()
    labels: tuple[tuple[str | None, float | None, float | None], ...] = ((None, None, None),)
    method: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Bias, variance and RMSE of estimators over many independent data sets.

    Attributes:
      world: a name in `oj.WORLDS`, or a world.
      trials: number of independent data sets.
      sizes: numbers of trajectories; within a trial a smaller data set begins a larger one.
      alphas: levels of relevance, for the estimators after omission; also "auto" or a name in
        `SELECTION`, which chooses a level from each data set.
      thresholds: the same for tests in `THRESHOLDS`; by default each one's own.
      estimators: names in `oj.ESTIMATORS`, "osiris-<name>", "osiris", "osirwis", or "on-policy";
        options are written behind the name, as in "cwpdis:finished=drop".
      relevance: tests for the estimators after omission, likewise: "welch", "smirnov",
        "welch:weighting=none:max_kept=10", "oracle" (the world's own map), "true" (exact relevance,
        with a tolerance: "true:tolerance=0.1").
      weighting, ddof: of every test that does not say otherwise.
      discount: gamma in [0, 1].
      dtype: "float32" or "float64".
      seed: of all data; trial k uses fold_in(key(seed), k).
      truth_episodes: on-policy episodes for the truth, where it is not known exactly.

    Raises:
      ValueError: names the field.

    Example:
      >>> study = oj.Study(world="express", trials=1000, estimators=("wis", "osirwis"))
      >>> study.run(seed=0).summary()
    """

    world: Any
    trials: int = 1000
    sizes: tuple[int, ...] = ()
    alphas: tuple[float | str, ...] = default((float(ALPHA),))
    thresholds: tuple[float, ...] = default(())
    estimators: tuple[str, ...] = ("is", "wis", "osiris", "osirwis")
    relevance: tuple[str, ...] = default((str(RELEVANCE_TEST),))
    weighting: str = WEIGHTING
    ddof: int = DDOF
    discount: float = 1.0
    dtype: str = "float32"
    seed: int = 0
    truth_episodes: int = TRUTH_EPISODES

    def __post_init__(self):
        listed = ("sizes", "alphas", "thresholds", "estimators", "relevance")
        for field in listed:
            self._settle(field, checks.sequence(field, getattr(self, field)))
        world = make(self.world) if isinstance(self.world, str) else self.world
        if not hasattr(world, "rollout"):
            raise ValueError(f"world: expected a name or a world, got {self.world!r}")
        plain = {
            "world": world,
            "trials": checks.integer("trials", self.trials, 1, checks.MOST_TRIALS),
            "seed": checks.integer("seed", self.seed, 0, checks.LARGEST_SEED),
            "truth_episodes": checks.integer("truth_episodes", self.truth_episodes, 2, 2**31),
            "sizes": checks.sizes(self.sizes, 1) or (world.size,),
            "alphas": tuple(_level(alpha) for alpha in self.alphas),
            "thresholds": tuple(checks.number("thresholds", x, 0, np.inf) for x in self.thresholds),
            "discount": checks.number("discount", self.discount, 0, 1),
            "ddof": checks.integer("ddof", self.ddof, 0, 1),
        }
        for field, value in plain.items():
            self._settle(field, value)
        checks.weighting("weighting", self.weighting)
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected float32 or float64, got {self.dtype!r}")
        checks.some_of(self, "estimators")
        for field in listed:
            checks.no_repeats(field, getattr(self, field))
        for named in self.named_estimators:
            self._check_estimator(named)
        by_level = any(_has_alpha(test) for test in self.tests)
        if self.omits and not self.alphas and by_level:
            raise ValueError("alphas: none given, and a relevance test needs one")
        if self.omits and not self.relevance:
            raise ValueError("relevance: none given, and an estimator after omission needs one")
        for named in self.tests:
            self._check_test(named)
        for field, reason in self.idle().items():
            if given(getattr(self, field)) and getattr(self, field) != ():
                raise ValueError(f"{field}: {reason}")
        if self.omits and self.levels and given(self.alphas) and not by_level:
            raise ValueError(f"alphas: {self.levels[0]:g} has no effect, for no test has levels")
        by_lag = [name for name in self._omitting if is_by_lag(name)]
        if by_lag and selection.BY_STATE in self.methods:
            others = ", ".join(name for name in selection.SELECTION if name != selection.BY_STATE)
            raise ValueError(
                f"alphas: the method `{selection.BY_STATE}` needs relevance by state, and "
                f"`{by_lag[0]}` has it by lag; choose one of {others}"
            )

    def _settle(self, field: str, value: Any) -> None:
        """Sets a field to its final form; a default stays known as one, also after `replace`."""
        if not isinstance(getattr(self, field), Unset):
            object.__setattr__(self, field, value)

    def idle(self) -> dict[str, str]:
        """The fields that cannot have an effect in this study, each with the reason."""
        reasons: dict[str, str] = {}
        if isinstance(self.world, TabularWorld):
            reasons["truth_episodes"] = "has no effect, for this world's value is known exactly"
        if not self.omits:
            reasons.update(dict.fromkeys(_OF_TESTS, "has no effect, for no estimator omits"))
            return reasons
        tests = [test for test in self.tests if test.name not in MAPS]
        if not any(test.name in THRESHOLDS for test in tests):
            reasons["thresholds"] = f"only for relevance by {', '.join(THRESHOLDS)}"
        if not tests or not (self.methods or any(map(_has_alpha, tests))):
            reasons["alphas"] = "has no effect, for no relevance test has levels"
        for field in ("weighting", "ddof"):
            common = [test for test in tests if field not in dict(test.options)]
            functions = (test_for(name, test.name) for test in common for name in self._omitting)
            if not any(field in keywords(function) for function in functions):
                reasons[field] = "has no effect, for no relevance test uses it"
        return reasons

    def _check_estimator(self, named: Named) -> None:
        if named.name == ON_POLICY:
            if named.options:
                raise ValueError(f"estimators: {ON_POLICY!r} takes no options, got {named.text!r}")
            return
        plain, omits = parse_name(named.name)
        if "discount" in dict(named.options):
            raise ValueError(f"estimators: {named.text!r}: the discount is the whole study's")
        check_options(dict(named.options), ESTIMATORS[plain])
        refuse_grids(dict(named.options))
        refuse_idle(dict(named.options), [Composition.of(plain)])
        kernel = _kernel_of(named)
        checks.try_kernel(kernel)
        if not self.has_states and (omits or checks.needs(kernel, "state")):
            raise ValueError(f"estimators: {named.text!r} needs states, and this world has none")

    def _check_test(self, named: Named) -> None:
        name, options = named.name, dict(named.options)
        if name not in (*RELEVANCE, "true"):
            raise ValueError(
                f"relevance: {name!r} is unknown; {suggest(name, [*RELEVANCE, 'true'])}"
            )
        if name == "true":
            tolerance = options.pop("tolerance", TRUE_TOLERANCE)
            checks.number("relevance: tolerance", tolerance, 0, np.inf)
            self.world.exact()
        if name == "oracle" and getattr(self.world, "oracle", None) is None:
            raise ValueError(f"relevance: the world {self.world.name!r} has no oracle map")
        if name in MAPS:
            if options:
                raise ValueError(f"relevance: {name!r} has no option {next(iter(options))!r}")
            return
        if OF_OMISSION in options:
            checks.integer(f"relevance: {OF_OMISSION}", options.pop(OF_OMISSION), 0, 2**31)
            if self.omits and all(map(is_by_lag, self._omitting)):
                raise ValueError(f"relevance: {OF_OMISSION} has no effect where omission is by lag")
        functions = {test_for(estimator, name): estimator for estimator in self._omitting}
        refuse_unknown(options, list(functions) or [RELEVANCE[name]])
        for function, estimator in functions.items():
            bound = self.test_options(named, estimator)
            check_options(bound, function)
            checks.try_kernel(lambda batch, f=function, bound=bound: f(batch, **bound))

    @property
    def omitting(self) -> list[Named]:
        """The estimators after omission."""
        return [named for named in self.named_estimators if _omits(named)]

    @property
    def _omitting(self) -> list[str]:
        return [parse_name(named.name)[0] for named in self.omitting]

    def test_options(self, named: Named, estimator: str) -> dict[str, Any]:
        """The options of a test for this estimator: its own and the study's, if it takes them."""
        common = {"weighting": self.weighting, "ddof": self.ddof, "discount": self.discount}
        taken = keywords(test_for(estimator, named.name))
        return {k: v for k, v in {**common, **dict(named.options)}.items() if k in taken}

    @cached_property
    def needs_probs(self) -> bool:
        """Whether any estimator reads the probabilities of all actions, if only where there are."""
        estimators = (named for named in self.named_estimators if named.name != ON_POLICY)
        return any(checks.takes_probs(named.name, _kernel_of(named)) for named in estimators)

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels alpha that are numbers."""
        return tuple(alpha for alpha in self.alphas if not isinstance(alpha, str))

    @property
    def methods(self) -> tuple[str, ...]:
        """The levels alpha that are chosen from the data: names in `SELECTION`."""
        words = (alpha for alpha in self.alphas if isinstance(alpha, str))
        return tuple(selection.DEFAULT_METHOD if word == selection.AUTO else word for word in words)

    def thresholds_of(self, test: Named) -> tuple[float, ...]:
        return self.thresholds or (THRESHOLDS[test.name],)

    @property
    def named_estimators(self) -> tuple[Named, ...]:
        return tuple(Named.parse("estimators", text) for text in self.estimators)

    @property
    def tests(self) -> tuple[Named, ...]:
        return tuple(Named.parse("relevance", text) for text in self.relevance)

    @property
    def omits(self) -> bool:
        """Whether any estimator needs a relevance test."""
        return bool(self.omitting)

    @property
    def tests_used(self) -> tuple[Named, ...]:
        """The relevance tests, if any estimator needs one."""
        return self.tests if self.omits else ()

    @property
    def is_on_policy(self) -> bool:
        """Whether the target's own returns are asked for."""
        return ON_POLICY in self.estimators

    @property
    def has_states(self) -> bool:
        return getattr(self.world, "num_states", 1) > 0

    def cells(self) -> list[Cell]:
        """The rows of the summary, in the order in which the kernel computes them."""
        return [
            Cell(column.named.text, *label, size)
            for size in self.sizes
            for column in columns_of(self)
            for label in column.labels
        ]

    def settings(self) -> dict[str, Any]:
        """Everything that decides the values, as plain data."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["world"] = self.world.name
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}

    def to_toml(self) -> str:
        """The study as a TOML document that `from_toml` reads, if its world has a known name."""
        idle = self.idle()
        return to_toml({k: v for k, v in self.settings().items() if k not in idle})

    @classmethod
    def from_toml(cls, path: str | Path, **changes: Any) -> Study:
        """Reads a study from a TOML file; `changes` replace what it says.

        Raises:
          ValueError: names the file and the field or line.
        """
        try:
            with open(path, "rb") as file:
                fields = tomllib.load(file)
        except ValueError as error:  # not TOML, or not even text
            raise ValueError(f"{path}: {error}") from None
        except RecursionError:
            raise ValueError(f"{path}: brackets are nested too deeply") from None
        names = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in names:
                raise ValueError(f"{path}: {name!r} is not a field; {suggest(name, names)}")
        try:
            return cls(**{**fields, **changes})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None

    def run(self, seed: int | None = None, **options: Any):
        """Computes everything, or what is missing of it; see `osiris_jax.study.run.run`."""
        from osiris_jax.study.run import run

        study = self if seed is None else dataclasses.replace(self, seed=seed)
        return run(study, **options)


def columns_of(study: Study) -> Iterator[Column]:
    """All that is computed of a data set: from all ratios, then after omission, by test."""
    for named in study.named_estimators:
        if not _omits(named):
            yield Column(named)
    for test in study.tests_used:
        for named in study.omitting:
            yield from (Column(named, test, *column) for column in _columns_of_test(study, test))


def _columns_of_test(study: Study, test: Named) -> Iterator[tuple[Any, ...]]:
    """Levels, labels and method."""
    if test.name in MAPS:
        yield (MAP_LEVEL,), ((test.text, None, None),)
        return
    levels, grid = study.levels, selection.ALPHAS
    labels = tuple((test.text, alpha, None) for alpha in levels)
    if test.name in THRESHOLDS:
        levels, grid = study.thresholds_of(test), selection.THRESHOLDS
        labels = tuple((test.text, None, threshold) for threshold in levels)
    if levels:
        yield levels, labels
    words = (alpha for alpha in study.alphas if isinstance(alpha, str))
    for word, method in zip(words, study.methods, strict=True):
        yield grid, ((f"{test.text}:alpha={word}", None, None),), method


def to_toml(settings: dict[str, Any]) -> str:
    """Plain settings as a TOML document."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def _kernel_of(named: Named) -> Callable[[TrajectoryBatch], Any]:
    """The estimator with its options, of all ratios of a data set."""
    function, options = ESTIMATORS[parse_name(named.name)[0]], dict(named.options)
    return lambda batch: function(batch, batch.log_ratio, **options)


def _omits(named: Named) -> bool:
    return named.name != ON_POLICY and parse_name(named.name)[1]


def _has_alpha(test: Named) -> bool:
    return test.name not in MAPS and test.name not in THRESHOLDS


def _level(alpha: Any) -> float | str:
    if isinstance(alpha, str):
        if alpha != selection.AUTO and alpha not in selection.SELECTION:
            words = ", ".join((selection.AUTO, *selection.SELECTION))
            raise ValueError(f"alphas: expected a number or one of {words}, got {alpha!r}")
        return alpha
    return checks.number("alphas", alpha, 0, 1)
