"""`estimate`, `choose_level`, `relevance_pvalues`: relevance, then omission, then an estimator."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, WEIGHTING, Options, bind, refuse_unknown, traced
from osiris_jax.core.options import RELEVANCE as DEFAULT_RELEVANCE
from osiris_jax.estimators import WITHOUT_RATIOS, function_of, name_of, parse_name
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.uses import METHODS, Use, refuse_idle
from osiris_jax.relevance import RELEVANCE, THRESHOLDS


def estimate(
    batch: TrajectoryBatch,
    estimator: compose.Estimator,
    *,
    relevance: str | None = None,
    alpha: Any = ALPHA,
    threshold: Any = None,
    discount: Any = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    max_kept: Any = None,
    levels: Any = None,
    key: Array | None = None,
    **options: Any,
) -> Array:
    """The target policy's value, estimated from trajectories of the behaviour policy.

    With `relevance`, or under a name that begins with "osir", the ratios of states that the test
    does not find relevant at level alpha are omitted first. Compiled once per shape: alpha,
    discount and other numbers are traced. May itself be called under jit and vmap.

    Args:
      batch: the data, with ratios; [traj, time].
      estimator: a name in `ESTIMATORS`, "osiris-<name>", "osiris" or "osirwis"; or a function like
        those in `ESTIMATORS`: `(batch, log_ratio, *, ...options)` to a scalar.
      relevance: a name in `RELEVANCE`; None omits nothing.
      alpha: level of the test in [0, 1]; an array gives one estimate for each entry. "auto", or a
        name in `SELECTION`, chooses it from the data, see `choose_level`.
      threshold: the same for tests whose evidence is a statistic and not a p-value (`THRESHOLDS`):
        states above it are kept. By default the test's own, or chosen if alpha is a word.
      discount: gamma in [0, 1].
      weighting: of the test's samples: "none", "future" or "to-go".
      ddof: of the test's variances: 1 or 0.
      max_kept: keep at most so many ratios of a trajectory, those of the most relevant states.
      levels: what "auto" chooses among.
      key: a `jax.random.key` for what is random (nn-q, the bootstrap), consumed; key(0) if None.
      **options: further options of the estimator, the test or the choice, by name.

    Returns:
      A scalar; with omission, an array of the level's shape. NaN where the estimate is undefined.

    Example:
      >>> oj.estimate(batch, "wis", relevance="welch", alpha=0.05)    # OSIRWIS
      >>> oj.estimate(batch, "osirwis", weighting="none", alpha="auto")
    """
    plan = plan_estimate(
        batch,
        estimator,
        relevance=relevance,
        alpha=alpha,
        threshold=threshold,
        discount=discount,
        weighting=weighting,
        ddof=ddof,
        max_kept=max_kept,
        levels=levels,
        key=key,
        **options,
    )
    return follow(batch, plan)


def plan_estimate(
    batch: TrajectoryBatch,
    estimator: compose.Estimator,
    *,
    relevance: str | None = None,
    alpha: Any = ALPHA,
    threshold: Any = None,
    discount: Any = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    max_kept: Any = None,
    levels: Any = None,
    key: Array | None = None,
    **options: Any,
) -> Plan:
    """The arguments of `estimate`, checked: what to `follow` on this data set and others."""
    plain_name, omits = _parse(estimator)
    relevance = DEFAULT_RELEVANCE if omits and relevance is None else relevance
    use = Use.of(plain_name, relevance, alpha, threshold)
    of_level = {"alpha": alpha, "threshold": threshold, "levels": levels, "max_kept": max_kept}
    common = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": key}
    return plan_use(batch, use, of_level, common, options)


def follow(batch: TrajectoryBatch, plan: Plan) -> Array:
    """The estimate of a plan on a data set, which may be another than it was made for."""
    if plan.names["method"] is not None:
        return _choose(batch, *plan.arguments, **plan.names).value
    return _estimate(batch, *plan.arguments, **plan.names)


def choose_level(
    batch: TrajectoryBatch,
    estimator: compose.Estimator = "osirwis",
    *,
    method: str = selection.AUTO,
    relevance: str = DEFAULT_RELEVANCE,
    levels: Any = None,
    discount: Any = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    max_kept: Any = None,
    key: Array | None = None,
    **options: Any,
) -> selection.Choice:
    """The level of relevance that a method chooses from the data, with all that it compared.

    Args:
      batch: the data, with states and ratios; [traj, time].
      estimator: as for `estimate`; the choice is for this estimator after omission.
      method: a name in `SELECTION`; "auto" is "model".
      levels: candidates: levels alpha, or thresholds for a test that has them. By default a grid.
      relevance, discount, weighting, ddof, max_kept, key, **options: as for `estimate`.

    Returns:
      The level, its estimate, and [level] arrays of all levels, estimates and scores.

    Example:
      >>> choice = oj.choose_level(batch, "osirwis", weighting="none")
      >>> choice.level, choice.value
    """
    plain_name, _ = _parse(estimator)
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    use = Use.of(plain_name, relevance, method)
    common = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": key}
    plan = plan_use(batch, use, {"levels": levels, "max_kept": max_kept}, common, options)
    return _choose(batch, *plan.arguments, **plan.names)


def relevance_pvalues(
    batch: TrajectoryBatch,
    test: str = DEFAULT_RELEVANCE,
    *,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    discount: Any = 1.0,
    key: Array | None = None,
    **options: Any,
) -> Any:
    """The evidence of every state: a p-value, small where the action matters to the return.

    For a test in `THRESHOLDS` it is a statistic instead, large where the action matters.

    Args:
      batch: the data, with states and ratios; [traj, time].
      test: a name in `RELEVANCE`.
      weighting: of the samples: "none", "future" or "to-go".
      ddof: of the variances: 1 or 0.
      discount: gamma in [0, 1].
      key: a `jax.random.key` for a test that is random, consumed; key(0) if None.
      **options: further options of the test, by name.

    Returns:
      [num_states]; with `leave_one_out=True` or `folds` [traj, num_states].

    Example:
      >>> relevant_states = oj.relevance_pvalues(batch, "welch") <= 0.05
    """
    function = compose.test_for("is", test)
    check_batch(batch)
    refuse_unknown(options, [function])
    refuse_idle({"weighting": weighting, "ddof": ddof}, [Use.of("is", test, None)])
    settings = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": key, **options}
    return _pvalues(batch, bind(function, settings, batch.dtype), test=test)


class Plan(NamedTuple):
    """Arguments of the compiled functions: arrays, and the names that select the code."""

    arguments: tuple
    names: dict[str, Any]


def _parse(estimator: compose.Estimator) -> tuple[compose.Estimator, bool]:
    """The plain name, or the function itself, and whether the name asks for omission."""
    return (estimator, False) if callable(estimator) else parse_name(estimator)


def plan_use(
    batch: TrajectoryBatch,
    use: Use,
    of_level: dict[str, Any],
    common: dict[str, Any],
    options: dict[str, Any],
) -> Plan:
    """Checks everything before anything is computed.

    Args:
      of_level: `alpha`, `threshold`, `levels` and `max_kept`, those that there are.
      common: `discount`, `weighting`, `ddof` and `key`.
      options: further options, each of the estimator, the test or the choice.
    """
    check_batch(batch)
    if common["key"] is not None:
        traced("key", common["key"], batch.dtype)
    if use.estimator not in WITHOUT_RATIOS or use.relevance is not None:
        batch.require("log_ratio", f"the estimator `{name_of(use.estimator)}`")
    refuse_unknown(options, use.functions)
    refuse_idle(of_level | common | options, [use])
    bound: list[Options | None] = [
        bind(user, common | options, batch.dtype) for user in use.functions
    ]
    bound += [None] * (3 - len(bound))
    most = of_level.get("max_kept")
    most = None if most is None else traced("max_kept", most, batch.dtype)
    return Plan((_levels(use, of_level, batch.dtype), most, *bound), use._asdict())


def _levels(use: Use, of_level: dict[str, Any], dtype: Any) -> Array:
    """The level that was given, the test's usual one, or the candidates to choose among."""
    name = "threshold" if use.relevance in THRESHOLDS else "alpha"
    if use.method is None:
        level = of_level.get(name)
        usual = THRESHOLDS.get(use.relevance or "", ALPHA)
        return traced(name, usual if level is None else level, dtype)
    grid = selection.THRESHOLDS if name == "threshold" else selection.ALPHAS
    levels = of_level.get("levels")
    wanted = np.ravel(grid if levels is None else levels)
    if not wanted.size:
        raise ValueError("levels: none given")
    return traced(name, sorted(wanted, reverse=name == "alpha"), dtype)


_NAMES = ("estimator", "relevance", "method")


@compiled(static_argnames=_NAMES)
def _estimate(
    batch: TrajectoryBatch,
    level: Array,
    max_kept: Array | None,
    for_estimator: Options,
    for_test: Options | None,
    for_method: Options | None,
    *,
    estimator: compose.Estimator,
    relevance: str | None,
    method: str | None,
) -> Array:
    del for_method, method
    if relevance is None or for_test is None:
        log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
        return function_of(estimator)(batch, log_ratio, **for_estimator.keywords)
    evidence = compose.gather(batch, estimator, relevance, **for_test.keywords)
    options = {"max_kept": max_kept, **for_estimator.keywords}
    values = compose.values_at(batch, estimator, evidence, level.ravel(), **options)
    return values.reshape(level.shape)


@compiled(static_argnames=_NAMES)
def _choose(
    batch: TrajectoryBatch,
    levels: Array,
    max_kept: Array | None,
    for_estimator: Options,
    for_test: Options,
    for_method: Options,
    *,
    estimator: compose.Estimator,
    relevance: str,
    method: str,
) -> selection.Choice:
    def gather(data: TrajectoryBatch) -> compose.Evidence:
        return compose.gather(data, estimator, relevance, **for_test.keywords)

    return compose.choose(
        batch,
        estimator,
        gather(batch),
        levels,
        method=method,
        gather_again=gather,
        max_kept=max_kept,
        method_options=for_method.keywords,
        **for_estimator.keywords,
    )


@compiled(static_argnames="test")
def _pvalues(batch: TrajectoryBatch, for_test: Options, *, test: str) -> Any:
    return RELEVANCE[test](batch, **for_test.keywords)


def check_batch(batch: TrajectoryBatch) -> None:
    """Raises a ValueError unless this is one data set."""
    if not isinstance(batch, TrajectoryBatch):
        raise ValueError(
            f"batch: expected a TrajectoryBatch, got {type(batch).__name__}; "
            "make one with from_episodes, from_dataframe or from_arrays"
        )
    if jnp.ndim(batch.reward) != 2:
        raise ValueError(
            f"batch: expected axes [traj, time], got shape {jnp.shape(batch.reward)}; "
            "for many data sets use jax.vmap"
        )
