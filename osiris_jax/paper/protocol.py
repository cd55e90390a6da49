"""Protocols: what the published one does otherwise than defined, each switchable alone."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from osiris_jax.paper.numbers import BY_RETURN, Column

CHOICES = {
    "seeds": ("overlapping", "independent"),
    "truth": ("on-policy", "exact"),
    "ddof": (0, 1),
    "weighting": ("none", "to-go"),
    "incris": ("published", "defined"),
    "mis": ("published", "defined"),
    "levels": ("published", "defined"),
    "ties": ("random", "defined"),
    "network": ("published", "defined"),
}

DEVIATIONS = {
    "seeds": "Trial k + 1 shares all but one of its trajectories with trial k, so 200 trials of 25 "
    "hold only 224 distinct trajectories and their spread is far too small.",
    "truth": "The true value is taken to be the mean of the on-policy trials, which overlap too.",
    "ddof": "The test's variances are those of a population (ddof 0), not of a sample, which makes "
    "p-values of small groups too small.",
    "weighting": "The test compares plain returns to go, not returns weighted by their ratios as "
    "in Algorithm 1.",
    "incris": "Ratios kept by INCRIS run to the end of the trajectory, not to the reward's step, "
    "and its moments are over the trajectories still running.",
    "mis": "MIS divides the weight of a move by how often that very move was made, not by how "
    "often its state was visited.",
    "levels": "A state that the test cannot decide is never kept, not even at alpha = 1, and p = 0 "
    "is kept even at alpha = 0.",
    "ties": "Where classes of actions are made by return, coins decide ties; as defined, a tie is "
    "below.",
    "network": "NN-Q has two hidden layers, not one, reads the state's index as a number, fits "
    "behaviour returns, clips gradients, and divides by the mean and not by its size.",
}


class Form(NamedTuple):
    """A column of a table as one protocol computes it: equal forms are computed once.

    Attributes:
      settings: (field, choice) of the protocol's fields that matter to it.
    """

    column: Column
    settings: tuple[tuple[str, Any], ...]

    @property
    def label(self) -> str:
        """The settings as they are written behind a name."""
        return "".join(f":{field}={choice}" for field, choice in self.settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """How data are drawn, errors measured and quantities computed.

    Every field has two choices, see `CHOICES`: the published one, which is the default, and that
    of the definitions. `DEVIATIONS` explains each in a sentence.
    """

    name: str
    seeds: str = "overlapping"
    truth: str = "on-policy"
    ddof: int = 0
    weighting: str = "none"
    incris: str = "published"
    mis: str = "published"
    levels: str = "published"
    ties: str = "random"
    network: str = "published"

    def __post_init__(self):
        for field, choices in CHOICES.items():
            if getattr(self, field) not in choices:
                either = " or ".join(map(repr, choices))
                raise ValueError(f"{field}: expected {either}, got {getattr(self, field)!r}")

    def replace(self, name: str, **changes: Any) -> Protocol:
        """The same with another name and some choices changed."""
        return dataclasses.replace(self, name=name, **changes)

    def form(self, column: Column) -> Form:
        """The column as this protocol computes it."""
        fields = _FIELDS.get(column.relevance or column.estimator, ())
        return Form(column, tuple((field, getattr(self, field)) for field in fields))


_OF_TEST = ("weighting", "levels")
_FIELDS = {
    "incris": ("incris",),
    "mis": ("mis",),
    "welch": (*_OF_TEST, "ddof"),
    BY_RETURN: (*_OF_TEST, "ddof", "ties"),
    "smirnov": _OF_TEST,
    "nn-q": ("network",),
}

PUBLISHED = Protocol(name="published")
INDEPENDENT = Protocol(
    name="independent", **{field: defined for field, (_, defined) in CHOICES.items()}
)
PROTOCOLS = {protocol.name: protocol for protocol in (PUBLISHED, INDEPENDENT)}


def ablation() -> tuple[Protocol, ...]:
    """From the published protocol to the definitions, one deviation after another mended.

    The rule for undecided states goes with ddof; at the tables' levels it changes nothing.
    """
    steps = [PUBLISHED]
    for name, fields in (
        ("independent seeds", ("seeds", "truth")),
        ("ddof 1", ("ddof", "levels")),
        ("weighting to-go", ("weighting",)),
        ("INCRIS as defined", ("incris",)),
        ("MIS as defined", ("mis",)),
    ):
        steps.append(steps[-1].replace(name, **{field: CHOICES[field][1] for field in fields}))
    return tuple(steps)
