"""`osiris-jax list`: what there is, read from the registries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from osiris_jax.cli.options import option
from osiris_jax.core.terminal import print_table
from osiris_jax.worlds import WORLDS, loader
from osiris_jax.worlds.cards import family_of, half_of

HEADER = ["name", "what it is"]
OMISSION = "Any of these after omission; osiris, osirwis: of is and of wis (Shen et al. 2021)."
TRUE = "Exact relevance of a tabular world: Q differs by more than a tolerance (in studies)."


@dataclasses.dataclass(frozen=True)
class ListAll:
    """Worlds, estimators and relevance tests, with one line each.

    Example: osiris-jax list
    """

    markdown: bool = option("The reference page, with needs and options.", False)

    def run(self) -> None:
        """The reference page, or one line for each entry of each registry."""
        if self.markdown:
            from osiris_jax.cli.reference import reference

            print(reference(), end="")
            return
        for title, lines in registries().items():
            print_table(title, HEADER, [[*line] for line in lines.items()], words=2)


def registries() -> dict[str, dict[str, str]]:
    """Kind of thing -> its names -> what each is."""
    from osiris_jax.estimators import ESTIMATORS
    from osiris_jax.models.qhat import QHAT
    from osiris_jax.pipeline.selection import SELECTION
    from osiris_jax.relevance import RELEVANCE

    return {
        "worlds": {name: world_line(name) for name in WORLDS},
        "estimators": _with_assumptions(ESTIMATORS) | {"osiris-<name>": OMISSION},
        "relevance tests": _lines(RELEVANCE) | {"true": TRUE},
        "choices of the level (alpha=...)": _lines(SELECTION),
        "fits of Q (fit=...)": _lines(QHAT),
    }


def world_line(name: str) -> str:
    """What a world is, and in which half of the arena."""
    what = first_line(loader(name)).rstrip(".")
    if family_of(name) == "random":
        from osiris_jax.worlds.random_mdps import kind_of

        what = kind_of(int(name.removeprefix("random-"))).in_words()
    return f"{what} [{half_of(name)}]."


def first_line(function: Callable) -> str:
    """What an entry of a registry is, in the words of its docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def _with_assumptions(estimators: Mapping[str, Any]) -> dict[str, str]:
    said = {name: f" Assumes {e.assumes}." if e.assumes else "" for name, e in estimators.items()}
    return {name: line + said[name] for name, line in _lines(estimators).items()}


def _lines(registry: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    return {name: first_line(function) for name, function in registry.items()}
