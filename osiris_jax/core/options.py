"""Options of kernels: checked once at the border, then split into traced and fixed ones."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

Function = TypeVar("Function", bound=Callable)


class Unset:
    """Marks a default: its value is used, and it is known that nobody asked for it."""


class _Float(Unset, float): ...


class _Int(Unset, int): ...


class _Str(Unset, str): ...


class _Tuple(Unset, tuple): ...


_KINDS: dict[type, Callable[[Any], Any]] = {float: _Float, int: _Int, str: _Str, tuple: _Tuple}


def default(value: Any) -> Any:
    """The value as a default, which looks and works as it does and is known not to be given."""
    return _KINDS[type(value)](value)


ALPHA, DDOF, RESAMPLES, EPSILON = default(0.05), default(1), default(1000), default(0.0)
WEIGHTING, RELEVANCE = default("none"), default("welch")


def given(value: Any) -> bool:
    """Whether an argument was given, rather than left to its default."""
    return value is not None and not isinstance(value, Unset)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Options:
    """Keywords of a kernel: numbers are traced; words, switches and sizes select compiled code."""

    traced: dict[str, Array]
    fixed: tuple[tuple[str, Any], ...] = dataclasses.field(metadata={"static": True})

    @property
    def keywords(self) -> dict[str, Any]:
        return {**self.traced, **dict(self.fixed)}


def keywords(function: Callable) -> dict[str, inspect.Parameter]:
    """The options that a kernel takes."""
    parameters = inspect.signature(function).parameters
    return {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


def takes_options_of(
    source: Callable, *, without: Iterable[str] = (), first: bool = False
) -> Callable[[Function], Function]:
    """Spells out a function's `**options` as those options of `source` that it does not name.

    What reads signatures, as `keywords` does, then sees them, with the defaults of `source`, and
    behind the function's own unless `first`.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        named = {k: p for k, p in own.parameters.items() if p.kind is not p.VAR_KEYWORD}
        passed = {k: p for k, p in keywords(source).items() if k not in without}
        merged = passed | named if first else named | passed | named
        parameters = sorted(merged.values(), key=lambda parameter: parameter.kind)
        signature = own.replace(parameters=parameters)
        function.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return decorate


def check_options(options: dict[str, Any], function: Callable) -> None:
    """Raises a ValueError unless the kernel takes these options, with these values."""
    refuse_unknown(options, [function])
    bind(function, options, jax.dtypes.canonicalize_dtype(float))


def refuse_unknown(options: dict[str, Any], users: list[Callable]) -> None:
    """Raises a ValueError for the first option that none of the kernels takes."""
    taken = sorted({name for function in users for name in keywords(function)})
    for name in options:
        if name not in taken:
            places = " or ".join(f"`{function.__name__}`" for function in users)
            raise ValueError(f"{name}: not an option of {places}; there are {', '.join(taken)}")


def bind(function: Callable, settings: dict[str, Any], dtype) -> Options:
    """The settings that the function takes, checked, and split into traced and fixed.

    Fixed are words, switches, and sizes: options whose parameter is annotated as `int`.
    """
    values, fixed = {}, []
    for name, parameter in keywords(function).items():
        if name not in settings and parameter.default is inspect.Parameter.empty:
            raise ValueError(f"{name}: `{function.__name__}` needs this option")
        value = settings.get(name, parameter.default)
        if isinstance(parameter.default, bool | str):
            kind = type(parameter.default)
            if not isinstance(value, kind):
                raise ValueError(f"{name}: expected {kind.__name__}, got {value!r}")
            fixed.append((name, value))
        elif parameter.annotation in (int, "int"):
            fixed.append((name, _size(name, value)))
        elif value is not None:
            if isinstance(parameter.default, int | float) and name not in GRIDS:
                _check_axes(name, value, 0)
            values[name] = traced(name, value, dtype)
    return Options(values, tuple(fixed))


def refuse_grids(options: dict[str, Any]) -> None:
    """Raises a ValueError for an array where there is room for one estimate."""
    for name in GRIDS:
        if np.ndim(options.get(name, 0)):
            shape = np.shape(options[name])
            raise ValueError(
                f"{name}: expected one number, got shape {shape}: `estimate` has grids"
            )


def check_word(name: str, word: Any, words: Iterable[str]) -> None:
    """Raises a ValueError unless the option is one of these words."""
    if word not in words:
        names = ", ".join(f'"{one}"' for one in words)
        raise ValueError(f"{name}: {word!r} is not one of {names}")


_MOST = {"layers": 100}


def _size(name: str, value: Any) -> int:
    most = _MOST.get(name, np.iinfo(np.int32).max)
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}: expected a whole number, 0 or more, got {value!r}")
    if value > most:
        raise ValueError(f"{name}: expected at most {most}, got {value}")
    return int(value)


GRIDS = ("past",)  # options that may be an array, which gives an array of estimates
_AXES = {"sweeps": 0, "clip": 0, "gradient_clip": 0, "max_kept": 0, "length_probs": 1}
_ALLOWED: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "in [0, 1]": (
        lambda value: (value >= 0) & (value <= 1),
        ("alpha", "discount", "undecided", "length_probs", "confidence"),
    ),
    "0 or 1": (lambda value: (value == 0) | (value == 1), ("ddof",)),
    "above 0": (lambda value: value > 0, ("clip", "learning_rate", "gradient_clip", "width")),
    "a whole number, 0 or more": (
        lambda value: (value >= 0) & (value == np.floor(value)),
        ("past", "sweeps"),
    ),
    "0 or more": (lambda value: value >= 0, ("threshold", "smoothing", "max_kept", "marginals")),
}


def traced(name: str, value: Any, dtype) -> Array:
    """The number or array as a JAX array, its values checked unless they are being traced."""
    if name == "key":
        if not isinstance(value, Array) or not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise ValueError(f"key: expected jax.random.key(seed), got {value!r}")
        if value.ndim:
            raise ValueError(f"key: expected one key, got shape {value.shape}")
        return value
    if not isinstance(value, Tracer):
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name}: expected a number or an array of numbers, got {value!r}")
        for meaning, (allowed, names) in _ALLOWED.items():
            fits = np.asarray(allowed(array)) if name in names else np.True_
            if not fits.all():
                raise ValueError(f"{name}: must be {meaning}, got {array[~fits].ravel()[0]}")
    _check_axes(name, value, _AXES.get(name))
    # NumPy converts what is not in JAX yet: each conversion there would be a compilation.
    array = value if isinstance(value, Array) else np.asarray(value)
    return jnp.asarray(array if array.dtype == bool else array.astype(dtype))


def _check_axes(name: str, value: Any, axes: int | None) -> None:
    if axes is not None and np.ndim(value) != axes:
        kind = f"an array of {axes} axes" if axes else "one number"
        raise ValueError(f"{name}: expected {kind}, got shape {np.shape(value)}")
