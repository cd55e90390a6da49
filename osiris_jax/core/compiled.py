"""The package's own `jax.jit`: it notices redefined registries, and releases what it compiled.

A kernel looks its functions up by name while it is traced, so the functions behind all names are
part of the key: what is registered anew under an old name is compiled anew. And compiled code is
memory that Linux counts in pieces, 65,530 for a process, hundreds of which a kernel takes, and
thousands a study: after a hundred kernels, or many pieces, all are forgotten, so that a process may
see any number of shapes.

For one small data set compiling takes seconds and running milliseconds. A kernel that is `quick`
then tells XLA to hurry, which halves the time to the first number.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax.core import Tracer

from osiris_jax.core import platforms

MOST_PROGRAMS, MOST_PIECES = 96, 30_000
FEW_NUMBERS = 2**20
LEVEL = "xla_backend_optimization_level"
HURRY = {LEVEL: 1, "xla_cpu_use_fusion_emitters": False}
_REGISTRIES: list[MutableMapping[str, Any]] = []
_EVERY: weakref.WeakSet[Compiled] = weakref.WeakSet()

Registry = TypeVar("Registry", bound=MutableMapping)


def watched(registry: Registry) -> Registry:
    """The registry, what is registered in which is part of the key of every kernel from now on."""
    _REGISTRIES.append(registry)
    return registry


def _registered() -> tuple:
    entries = (entry for registry in _REGISTRIES for entry in registry.items())
    return (platforms.ASSUMED, *entries)


class Compiled:
    """A function as `jax.jit` compiles it, until its programs are released."""

    def __init__(
        self, function: Callable[..., Any], static_argnames: Sequence[str] = (), quick: bool = False
    ):
        self.__wrapped__ = function
        functools.update_wrapper(self, function)
        self._static, self._quick = static_argnames, quick
        self.release()
        _EVERY.add(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        before = self._cache_size()
        jitted = self._jitted
        if self._quick and _are_few_numbers((arguments, keywords)):
            jitted = self._hurried
        value = jitted(*arguments, _registered=_registered(), **keywords)
        if self._cache_size() > before and (programs() > MOST_PROGRAMS or pieces() > MOST_PIECES):
            release_all()
        return value

    def lower(self, *arguments: Any, **keywords: Any) -> Any:
        """What `jax.jit` calls so; also for devices that are not there."""
        return self._jitted.lower(*arguments, _registered=_registered(), **keywords)

    def _cache_size(self) -> int:
        return self._jitted._cache_size() + self._hurried._cache_size()

    def release(self) -> None:
        """Forgets what was compiled; programs go once no call uses them."""
        self._jitted, self._hurried = self._new(None), self._new(HURRY)

    def _new(self, options: dict[str, Any] | None) -> Any:
        function = self.__wrapped__

        # JAX keeps programs for as long as the function lives that they were compiled from
        def own(*arguments: Any, _registered: tuple, **keywords: Any) -> Any:
            return function(*arguments, **keywords)

        own.__name__ = own.__qualname__ = function.__name__
        names = list(inspect.signature(function).parameters)
        return jax.jit(
            own,
            static_argnums=[names.index(name) for name in self._static],
            static_argnames=(*self._static, "_registered"),
            compiler_options=options,
        )


def _are_few_numbers(arguments: Any) -> bool:
    """Whether a CPU that can hurry is given a little data, and not the tracers of another jit."""
    leaves = jax.tree.leaves(arguments)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return False
    return sum(getattr(leaf, "size", 1) for leaf in leaves) < FEW_NUMBERS and _can_hurry()


@functools.cache
def _can_hurry() -> bool:
    """Whether XLA knows the words of `HURRY`, and the user has not chosen others."""
    if jax.default_backend() != "cpu" or LEVEL in os.environ.get("XLA_FLAGS", ""):
        return False
    try:
        jax.jit(lambda: 0, compiler_options=HURRY)()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def compiled(
    function: Callable[..., Any] | None = None,
    *,
    static_argnames: str | Sequence[str] = (),
    quick: bool = False,
) -> Any:
    """Decorates a kernel.

    Args:
      static_argnames: arguments that select compiled code.
      quick: compile faster, for slower code, wherever the arguments are small.
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if function is None:
        return functools.partial(compiled, static_argnames=names, quick=quick)
    return Compiled(function, names, quick)


def programs() -> int:
    """How many programs the package's kernels hold."""
    return sum(kernel._cache_size() for kernel in _EVERY)


def pieces() -> int:
    """Of this process's memory, as Linux counts them; 0 where nobody does."""
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


def release_all() -> None:
    """Forgets all programs of the package's kernels, and of no others."""
    for kernel in _EVERY:
        kernel.release()
    gc.collect()
