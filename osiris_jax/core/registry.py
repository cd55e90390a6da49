"""Registries: names and the entries behind them, each of which says all about what it names."""

from __future__ import annotations

import dataclasses
import re
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from osiris_jax.core.compiled import watched
from osiris_jax.core.options import keywords


@dataclasses.dataclass(frozen=True)
class Entry:
    """A function under a name; it is called, documented and inspected like its function.

    Attributes:
      function: what is called.
      name: the name it is registered under, or the function's own.
    """

    function: Callable[..., Any]
    name: str = dataclasses.field(default="", kw_only=True)

    def __post_init__(self):
        own = getattr(self.function, "__name__", "function")
        seen = {"name": self.name or own, "__name__": own, "__wrapped__": self.function}
        for attribute, value in (seen | {"__doc__": self.function.__doc__}).items():
            object.__setattr__(self, attribute, value)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)

    def takes(self, option: str) -> bool:
        """Whether the function has an option of this name."""
        return option in keywords(self.function)

    @property
    def paper(self) -> str:
        """Where it comes from, as the first line of the docstring says in parentheses; or ""."""
        first_line = (self.function.__doc__ or "").partition("\n")[0]
        cited = re.search(r"\(([^()]*\d{4}[^()]*)\)", first_line)
        return cited[1] if cited else ""


Kind = TypeVar("Kind", bound=Entry)


class Registry(UserDict[str, Kind], Generic[Kind]):
    """Names and entries of one kind. A plain function that is assigned becomes an entry."""

    def __init__(self, kind: type[Kind], entries: Mapping[str, Any]):
        self._kind = kind
        super().__init__(entries)
        watched(self)

    def __setitem__(self, name: str, entry: Any) -> None:
        self.data[name] = dataclasses.replace(self.entry(entry), name=name)

    def entry(self, entry: Any) -> Kind:
        """The entry of this name, the entry itself, or what a plain function becomes."""
        if isinstance(entry, str):
            return self[entry]
        return entry if isinstance(entry, self._kind) else self._kind(entry)
