"""Worlds: where data with a known truth comes from. To add one, write its function and its line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, update_wrapper
from importlib import import_module
from typing import Any

_SIZES, _MEMBERS = (7, 9, 11, 13, 15, 17), 32
_LOADERS: dict[str, tuple[Any, ...]] = {
    "dilly-dallying": ("gridworld", "dilly_dallying"),
    "express": ("gridworld", "express"),
    "cartpole": ("cartpole", "cartpole"),
    "lunar-lander": ("lunar_lander", "lunar_lander"),
    "icu-sepsis": ("icu_sepsis", "icu_sepsis"),
    "waiting-room": ("waiting", "waiting_room"),
    "first-look": ("first_look", "first_look"),
    "graph": ("classics", "graph"),
    "graph-partial": ("classics", "graph", True),
    "model-fail": ("classics", "model_fail"),
    "model-win": ("classics", "model_win"),
    "toy-mountain-car": ("classics", "toy_mountain_car"),
    **{f"lift-{size}": ("lift", "lift", size) for size in _SIZES},
    **{f"lift-stochastic-{size}": ("lift", "lift", size, True) for size in _SIZES},
    **{f"random-{number:02d}": ("random_mdps", "random_mdp", number) for number in range(_MEMBERS)},
}
WITHOUT_EXACT_TRUTH = ("cartpole", "lunar-lander")
WORLDS = tuple(_LOADERS)


def loader(name: str) -> Callable[..., Any]:
    """The function that makes a world; its module is imported only now."""
    if name not in _LOADERS:
        raise ValueError(f"world: {name!r} is unknown; there are {names_in_words()}")
    module, function, *arguments = _LOADERS[name]
    make_one = getattr(import_module(f"osiris_jax.worlds.{module}"), function)
    return update_wrapper(partial(make_one, *arguments), make_one) if arguments else make_one


def names_in_words() -> str:
    """The names of all worlds, the two families by their first and last member."""
    alone = [name for name, (_, _, *arguments) in _LOADERS.items() if not arguments]
    sizes = f"{_SIZES[0]} to {_SIZES[-1]}"
    families = [f"lift-{sizes}", f"lift-stochastic-{sizes}", f"random-00 to {_MEMBERS - 1}"]
    return ", ".join([*alone, "graph-partial", *families])


@cache
def make(name: str) -> Any:
    """A world by its name. Asked again, the same object, so that nothing compiles twice.

    Example:
      >>> world = oj.make("dilly-dallying")
      >>> batch = world.rollout(jax.random.key(0), 25)
      >>> world.exact().value
    """
    return loader(name)()
