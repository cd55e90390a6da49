"""What is known of each world beforehand: its half in comparisons, its kind, where it is from.

The rule of the halves, written before any result of them was seen. Worlds in whose figures the
automatic choices were thought out are `design`: the paper's gridworlds, ICU-Sepsis, the waiting
room, the first look and CartPole. Of the random MDPs sixteen are `design`, and sixteen, drawn from
another master seed, `report`. The other families, relatives together, take turns in alphabetical
order, beginning with `design`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

DESIGN, REPORT = HALVES = ("design", "report")
KNOWN = ("cartpole", "dilly-dallying", "express", "first-look", "icu-sepsis", "waiting-room")
OTHERS = ("graph", "lift", "lunar-lander", "model-fail", "model-win", "toy-mountain-car")
FIRST_OF_REPORT = 16  # among the random MDPs
SHEN = "Shen et al. 2021"
COBS = "Voloshin et al. 2021 (COBS)"
THOMAS = "Thomas & Brunskill 2016"
SOURCES = {
    "cartpole": SHEN,
    "dilly-dallying": SHEN,
    "express": SHEN,
    "first-look": "README of osiris_jax",
    "graph": COBS,
    "icu-sepsis": "Choudhary et al. 2024",
    "lift": "Bossens & Thomas 2024",
    "lunar-lander": SHEN,
    "model-fail": THOMAS,
    "model-win": THOMAS,
    "random": "a seeded family of osiris_jax",
    "toy-mountain-car": COBS,
    "waiting-room": "osiris_jax",
}


class Card(NamedTuple):
    """What is known of a world.

    Attributes:
      half: "design" or "report"; None for a world of your own.
      markov: whether what estimators see as states is all that matters.
      heavy: whether the variance of importance sampling grows geometrically with the horizon, or
        lies beyond float64.
      source: where it comes from.
    """

    half: str | None
    markov: bool
    heavy: bool
    source: str


def family_of(name: str) -> str | None:
    """The name that relatives share; None for a world that is not ours."""
    known = (family for family in SOURCES if name == family or name.startswith(f"{family}-"))
    return next(known, None)


def half_of(name: str) -> str | None:
    """By the rule above."""
    family = family_of(name)
    if family in KNOWN:
        return DESIGN
    if family == "random":
        return HALVES[int(name.removeprefix("random-")) >= FIRST_OF_REPORT]
    return None if family is None else HALVES[OTHERS.index(family) % 2]


def card_of(world: Any) -> Card:
    """The card of a world; what is exact of a tabular one, else what was observed of the others."""
    from osiris_jax.worlds.tabular import TabularWorld

    tabular = isinstance(world, TabularWorld)
    return Card(
        half=half_of(world.name),
        markov=tabular and world.is_markov,
        heavy=world.exact().is_heavy if tabular else True,
        source=SOURCES.get(family_of(world.name) or "", "yours"),
    )
