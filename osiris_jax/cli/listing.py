"""`osiris-jax list`: what there is, read from the registries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from osiris_jax.core.terminal import print_table
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.models.qhat import QHAT
from osiris_jax.pipeline.selection import SELECTION
from osiris_jax.relevance import RELEVANCE
from osiris_jax.worlds import WORLDS, loader

HEADER = ["name", "what it is"]
OMISSION = "Any of these after omission; osiris, osirwis: of is and of wis (Shen et al. 2021)."
TRUE = "Exact relevance of a tabular world: Q differs by more than a tolerance (in studies)."


def show_lists() -> None:
    """Worlds, estimators, relevance tests, choices of a level and fits of Q, one line each."""
    print_table("worlds", HEADER, _rows(worlds()), words=2)
    print_table("estimators", HEADER, [*_rows(ESTIMATORS), ["osiris-<name>", OMISSION]], words=2)
    print_table("relevance tests", HEADER, [*_rows(RELEVANCE), ["true", TRUE]], words=2)
    print_table("choices of the level (alpha=...)", HEADER, _rows(SELECTION), words=2)
    print_table("fits of Q (fit=...)", HEADER, _rows(QHAT), words=2)


def worlds() -> dict[str, Callable[..., Any]]:
    """The worlds as a registry: name -> the function that makes it."""
    return {name: loader(name) for name in WORLDS}


def first_line(function: Callable) -> str:
    """What an entry of a registry is, in the words of its docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def _rows(registry: Mapping[str, Callable]) -> list[list[str]]:
    return [[name, first_line(function)] for name, function in registry.items()]
