"""`estimate` and `relevance_pvalues`: relevance, then omission, then an estimator."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.relevance import RELEVANCE, keep_steps, omit, relevant

DEFAULT_RELEVANCE = "welch"


def estimate(
    batch: TrajectoryBatch,
    estimator: str,
    *,
    relevance: str | None = None,
    alpha: Any = 0.05,
    discount: Any = 1.0,
    weighting: str = "to-go",
    ddof: Any = 1,
    **options: Any,
) -> Array:
    """The target policy's value, estimated from trajectories of the behaviour policy.

    With `relevance`, or under a name that begins with "osir", the ratios of states that the test
    does not find relevant at level alpha are omitted first. Compiled once per shape: alpha,
    discount and other numbers are traced. May itself be called under jit and vmap.

    Args:
      batch: the data, with ratios; [traj, time].
      estimator: a name in `ESTIMATORS`, "osiris-<name>", "osiris" or "osirwis".
      relevance: a name in `RELEVANCE`; None omits nothing.
      alpha: level of the test in [0, 1]; an array gives one estimate for each entry.
      discount: gamma in [0, 1].
      weighting: of the test's samples: "to-go", "future" or "none".
      ddof: of the test's variances: 1 or 0.
      **options: further options of the estimator or of the test, by name.

    Returns:
      A scalar; with omission, an array of alpha's shape. NaN where the estimate is undefined.

    Example:
      >>> oj.estimate(batch, "wis", relevance="welch", alpha=0.05)    # OSIRWIS
    """
    plain_name, omits = parse_name(estimator)
    if omits and relevance is None:
        relevance = DEFAULT_RELEVANCE
    _check_batch(batch)
    if plain_name != "mc" or relevance is not None:
        batch.require("log_ratio", f"the estimator `{estimator}`")
    users = [ESTIMATORS[plain_name]] + ([_test(relevance)] if relevance is not None else [])
    _refuse_unknown(options, users)
    settings = {"discount": discount, "weighting": weighting, "ddof": ddof, **options}
    bound = [_bind(function, settings, batch.dtype) for function in users]
    level = _traced("alpha", alpha, batch.dtype)
    return _estimate(batch, level, *bound, estimator=plain_name, relevance=relevance)


def relevance_pvalues(
    batch: TrajectoryBatch,
    test: str = DEFAULT_RELEVANCE,
    *,
    weighting: str = "to-go",
    ddof: Any = 1,
    discount: Any = 1.0,
    **options: Any,
) -> Array:
    """The p-value of every state, small where the action matters to the return.

    Args:
      batch: the data, with states and ratios; [traj, time].
      test: a name in `RELEVANCE`.
      weighting: of the samples: "to-go", "future" or "none".
      ddof: of the variances: 1 or 0.
      discount: gamma in [0, 1].
      **options: further options of the test, by name.

    Returns:
      [num_states]; with `leave_one_out=True` [traj, num_states].

    Example:
      >>> relevant_states = oj.relevance_pvalues(batch, "welch") <= 0.05
    """
    function = _test(test)
    _check_batch(batch)
    _refuse_unknown(options, [function])
    settings = {"discount": discount, "weighting": weighting, "ddof": ddof, **options}
    return _pvalues(batch, _bind(function, settings, batch.dtype), test=test)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Options:
    """Keywords of a kernel: numbers are traced, words and switches select the compiled code."""

    traced: dict[str, Array]
    fixed: tuple[tuple[str, Any], ...] = dataclasses.field(metadata={"static": True})

    @property
    def keywords(self) -> dict[str, Any]:
        return {**self.traced, **dict(self.fixed)}


@partial(jax.jit, static_argnames=("estimator", "relevance"))
def _estimate(
    batch: TrajectoryBatch,
    alpha: Array,
    for_estimator: _Options,
    for_test: _Options | None = None,
    *,
    estimator: str,
    relevance: str | None,
) -> Array:
    log_ratio = jnp.zeros_like(batch.reward) if batch.log_ratio is None else batch.log_ratio
    value = partial(ESTIMATORS[estimator], batch, **for_estimator.keywords)
    if relevance is None or for_test is None:
        return value(log_ratio)
    pvalue = RELEVANCE[relevance](batch, **for_test.keywords)

    def at_level(alpha: Array) -> Array:
        return value(omit(log_ratio, keep_steps(relevant(pvalue, alpha), batch)))

    return jax.vmap(at_level)(alpha.ravel()).reshape(alpha.shape)


@partial(jax.jit, static_argnames=("test",))
def _pvalues(batch: TrajectoryBatch, for_test: _Options, *, test: str) -> Array:
    return RELEVANCE[test](batch, **for_test.keywords)


def _test(name: str) -> Callable[..., Array]:
    if name not in RELEVANCE:
        raise ValueError(f"relevance: {name!r} is unknown; there are {', '.join(RELEVANCE)}")
    return RELEVANCE[name]


def _check_batch(batch: TrajectoryBatch) -> None:
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


def _parameters(function: Callable) -> dict[str, inspect.Parameter]:
    keywords = inspect.signature(function).parameters
    return {k: p for k, p in keywords.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def check_options(options: dict[str, Any], function: Callable) -> None:
    """Raises a ValueError unless the kernel takes these options, with these values."""
    _refuse_unknown(options, [function])
    _bind(function, options, jnp.zeros(()).dtype)


def _refuse_unknown(options: dict[str, Any], users: list[Callable]) -> None:
    known = sorted({name for function in users for name in _parameters(function)})
    for name in options:
        if name not in known:
            places = " or ".join(f"`{function.__name__}`" for function in users)
            raise ValueError(f"{name}: not an option of {places}; there are {', '.join(known)}")


def _bind(function: Callable, settings: dict[str, Any], dtype) -> _Options:
    """The settings that the function takes, checked, and split into traced and fixed."""
    traced, fixed = {}, []
    for name, parameter in _parameters(function).items():
        if name not in settings and parameter.default is inspect.Parameter.empty:
            raise ValueError(f"{name}: `{function.__name__}` needs this option")
        value = settings.get(name, parameter.default)
        if isinstance(parameter.default, bool | str):
            _check_kind(name, value, type(parameter.default))
            fixed.append((name, value))
        elif value is not None:
            traced[name] = _traced(name, value, dtype)
    return _Options(traced, tuple(fixed))


def _check_kind(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected {kind.__name__}, got {value!r}")


def _in_unit_interval(value: np.ndarray) -> np.ndarray:
    return (value >= 0) & (value <= 1)


_ALLOWED: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "alpha": ("in [0, 1]", _in_unit_interval),
    "discount": ("in [0, 1]", _in_unit_interval),
    "undecided": ("in [0, 1]", _in_unit_interval),
    "length_probs": ("in [0, 1]", _in_unit_interval),
    "ddof": ("0 or 1", lambda value: (value == 0) | (value == 1)),
}


def _traced(name: str, value: Any, dtype) -> Array:
    """The number or array as a JAX array, its values checked unless they are being traced."""
    if not isinstance(value, Tracer):
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name}: expected a number or an array of numbers, got {value!r}")
        if name in _ALLOWED:
            meaning, allowed = _ALLOWED[name]
            bad = array[~np.asarray(allowed(array))]
            if bad.size:
                raise ValueError(f"{name}: must be {meaning}, got {bad.ravel()[0]}")
    array = jnp.asarray(value)
    return array if array.dtype == bool else array.astype(dtype)
