"""The package's own `jax.jit`: it notices redefined registries, and releases what it compiled.

A kernel looks its functions up by name while it is traced, so the functions behind all names are
part of the key: what is registered anew under an old name is compiled anew. And compiled code is
memory that Linux counts in pieces, 65,530 for a process, hundreds of which a kernel takes:
after a hundred kernels all are forgotten, so that a process may see any number of shapes.
"""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, TypeVar

import jax

MOST_PROGRAMS = 96
_REGISTRIES: list[MutableMapping[str, Any]] = []
_EVERY: weakref.WeakSet[Compiled] = weakref.WeakSet()

Registry = TypeVar("Registry", bound=MutableMapping)


def watched(registry: Registry) -> Registry:
    """The registry, what is registered in which is part of the key of every kernel from now on."""
    _REGISTRIES.append(registry)
    return registry


def _registered() -> tuple:
    return tuple(entry for registry in _REGISTRIES for entry in registry.items())


class Compiled:
    """A function as `jax.jit` compiles it, until its programs are released."""

    def __init__(self, function: Callable[..., Any], static_argnames: Sequence[str] = ()):
        self.__wrapped__ = function
        functools.update_wrapper(self, function)
        self._static = static_argnames
        self.release()
        _EVERY.add(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        before = self._cache_size()
        result = self._jitted(*arguments, _registered=_registered(), **keywords)
        if self._cache_size() > before and programs() > MOST_PROGRAMS:
            release_all()
        return result

    def _cache_size(self) -> int:
        return self._jitted._cache_size()

    def release(self) -> None:
        """Forgets what was compiled; programs go once no call uses them."""
        function = self.__wrapped__

        # JAX keeps programs for as long as the function lives that they were compiled from
        def own(*arguments: Any, _registered: tuple, **keywords: Any) -> Any:
            return function(*arguments, **keywords)

        own.__name__ = own.__qualname__ = function.__name__
        names = list(inspect.signature(function).parameters)
        self._jitted: Any = jax.jit(
            own,
            static_argnums=[names.index(name) for name in self._static],
            static_argnames=(*self._static, "_registered"),
        )


def compiled(
    function: Callable[..., Any] | None = None, *, static_argnames: str | Sequence[str] = ()
) -> Any:
    """Decorates a kernel; arguments named in `static_argnames` select compiled code."""
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    if function is None:
        return functools.partial(compiled, static_argnames=names)
    return Compiled(function, names)


def programs() -> int:
    """How many programs the package's kernels hold."""
    return sum(kernel._cache_size() for kernel in _EVERY)


def release_all() -> None:
    """Forgets all programs of the package's kernels, and of no others."""
    for kernel in _EVERY:
        kernel.release()
    gc.collect()
