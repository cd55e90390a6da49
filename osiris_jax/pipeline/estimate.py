"""`estimate`, `choose_level`, `relevance_pvalues`: relevance, then omission, then an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array
from jax.typing import ArrayLike

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, WEIGHTING, Options, bind, refuse_unknown
from osiris_jax.core.options import RELEVANCE as DEFAULT_RELEVANCE
from osiris_jax.estimators import parse_name
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.spec import (
    Composition,
    Spec,
    check_batch,
    make_spec,
    methods,
    refuse_idle,
)
from osiris_jax.relevance import RELEVANCE


def estimate(
    batch: TrajectoryBatch,
    estimator: compose.EstimatorLike,
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
    plain_name, omits = _parse(estimator)
    test = DEFAULT_RELEVANCE if omits and relevance is None else relevance
    settings = {"alpha": alpha, "threshold": threshold, "discount": discount, "ddof": ddof}
    settings |= {"weighting": weighting, "max_kept": max_kept, "levels": levels, "key": key}
    composition = Composition.of(plain_name, test, alpha, threshold)
    return values_of(batch, make_spec(batch, composition, settings | options))


@compiled(quick=True)
def values_of(batch: TrajectoryBatch, spec: Spec) -> Array:
    """The estimate of a specification on a data set, which may be another than it was made for."""
    return spec.values(batch)


def choose_level(
    batch: TrajectoryBatch,
    estimator: compose.EstimatorLike = "osirwis",
    *,
    method: str = selection.AUTO,
    relevance: str = DEFAULT_RELEVANCE,
    levels: Sequence[float] | ArrayLike | None = None,
    discount: ArrayLike = 1.0,
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
    if method not in methods():
        raise ValueError(f"method: expected one of {', '.join(methods())}, got {method!r}")
    settings = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": key}
    settings |= {"levels": levels, "max_kept": max_kept}
    composition = Composition.of(plain_name, relevance, method)
    return choice_of(batch, make_spec(batch, composition, settings | options))


@compiled(quick=True)
def choice_of(batch: TrajectoryBatch, spec: Spec) -> selection.Choice:
    """The level that a specification's method chooses in this data set."""
    return spec.choice(batch)


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
    refuse_idle({"weighting": weighting, "ddof": ddof}, [Composition.of("is", test)])
    settings = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": key, **options}
    return _pvalues(batch, bind(function, settings, batch.dtype), test=test)


@compiled(static_argnames="test", quick=True)
def _pvalues(batch: TrajectoryBatch, for_test: Options, *, test: str) -> Any:
    return RELEVANCE[test](batch, **for_test.keywords)


def _parse(estimator: compose.EstimatorLike) -> tuple[compose.EstimatorLike, bool]:
    """The plain name, or the function itself, and whether the name asks for omission."""
    return (estimator, False) if callable(estimator) else parse_name(estimator)
