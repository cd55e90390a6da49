"""Worlds: where data with a known truth comes from. To add one, write its function and its line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_LOADERS = {
    "dilly-dallying": ("gridworld", "dilly_dallying"),
    "express": ("gridworld", "express"),
    "cartpole": ("cartpole", "cartpole"),
    "lunar-lander": ("lunar_lander", "lunar_lander"),
    "icu-sepsis": ("icu_sepsis", "icu_sepsis"),
    "waiting-room": ("waiting", "waiting_room"),
}
WORLDS = tuple(_LOADERS)


def loader(name: str) -> Callable[..., Any]:
    """The function that makes a world; its module is imported only now."""
    if name not in _LOADERS:
        raise ValueError(f"world: {name!r} is unknown; there are {', '.join(WORLDS)}")
    module, function = _LOADERS[name]
    return getattr(import_module(f"osiris_jax.worlds.{module}"), function)


@cache
def make(name: str) -> Any:
    """A world by its name. Asked again, the same object, so that nothing compiles twice.

    Example:
      >>> world = oj.make("dilly-dallying")
      >>> batch = world.rollout(jax.random.key(0), 25)
      >>> world.exact().value
    """
    return loader(name)()
