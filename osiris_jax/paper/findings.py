"""What the paper finds, claim by claim: its numbers here, and yes or no. A no is a finding."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from osiris_jax.paper.numbers import GRIDWORLDS
from osiris_jax.paper.tables import Row, number

ALL = ("dilly-dallying", "express", "cartpole", "lunar-lander")
LONG = tuple(world for world in ALL if world != "express")
EXPRESS = ("express",)
ABOUT_EQUAL = 0.1
DEFAULT = "welch"


class Finding(NamedTuple):
    """A claim in one world under one protocol."""

    claim: str
    protocol: str
    world: str
    numbers: str
    holds: bool


class Of(NamedTuple):
    """Which row a claim reads; in which world, if not in the one where the claim is made."""

    estimator: str
    relevance: str | None = None
    world: str | None = None

    def key(self, world: str) -> tuple[str, str, str | None]:
        omits = self.estimator.startswith("osir")
        return self.world or world, self.estimator, self.relevance or (DEFAULT if omits else None)

    @property
    def dallying(self) -> Of:
        """The same in Dilly-Dallying."""
        return self._replace(world="dilly-dallying")


Answer = tuple[str, bool]


class Claim(NamedTuple):
    """Something the paper says that can be read off rows.

    Attributes:
      text: the claim.
      worlds: where it is made.
      rows: which it reads; where one is missing, it is not answered.
      judge: of these rows: numbers, and whether it holds.
    """

    text: str
    worlds: tuple[str, ...]
    rows: tuple[Of, ...]
    judge: Callable[..., Answer]


def _named(row: Row, statistic: str) -> str:
    """The row's name and its statistic."""
    test = "" if row["relevance"] in (None, DEFAULT) else f" {row['relevance']}"
    return f"{row['estimator']}{test} {number(row[statistic], row[f'{statistic}_se'])}"


def _below(statistic: str, wanted: bool, one: Row, other: Row) -> Answer:
    """Whether the first row's statistic is below the second's, or is not."""
    holds = bool(one[statistic] < other[statistic]) == wanted
    return f"{_named(one, statistic)}, {_named(other, statistic)}", holds


def _least_rmse(one: Row, *others: Row) -> Answer:
    """Whether the first row's RMSE is below those of all others."""
    rival = min(others, key=lambda row: row["rmse"])
    numbers = f"{_named(one, 'rmse')}, next {_named(rival, 'rmse')}"
    return numbers, bool(one["rmse"] < rival["rmse"])


def _elsewhere(holds: Callable[[float, float], bool], here: Row, there: Row) -> Answer:
    """A condition on the RMSE in two worlds."""
    numbers = f"{_named(here, 'rmse')}, in {there['world']} {_named(there, 'rmse')}"
    return numbers, bool(holds(here["rmse"], there["rmse"]))


def _by_variance(one: Row, other: Row) -> Answer:
    """Whether a lower mean squared error is for its larger part a lower variance."""
    variance = other["std"] ** 2 - one["std"] ** 2
    total = other["rmse"] ** 2 - one["rmse"] ** 2
    return f"MSE falls by {total:.4g}, variance by {variance:.4g}", 2 * variance > total > 0


def _claims(
    text: str, worlds: tuple[str, ...], judge: Callable[..., Answer], *rows: tuple[Of, ...]
) -> list[Claim]:
    """The claim for some lists of rows; {} stands for the names of the estimators in turn."""
    return [
        Claim(text.format(*(of.estimator.upper() for of in some)), worlds, some, judge)
        for some in rows
    ]


_RIVALS = _IS, _WIS, _, _, _MIS = tuple(map(Of, ("is", "wis", "phwis", "incris", "mis")))
_OSIRIS, _OSIRWIS = Of("osiris"), Of("osirwis")
_OTHER_TESTS = ("welch:classes=return", "smirnov", "nn-q")
_PAIRS = ((_OSIRIS, _IS), (_OSIRWIS, _WIS))
_LESS_STD, _LESS_RMSE = partial(_below, "std", True), partial(_below, "rmse", True)

CLAIMS = (
    *_claims("{} has a smaller std than {}", ALL, _LESS_STD, *_PAIRS),
    *_claims("{} has a smaller RMSE than {}", LONG, _LESS_RMSE, (_OSIRIS, _IS)),
    *_claims(
        "{} has a smaller RMSE than {}", LONG, _LESS_RMSE, *((_OSIRWIS, of) for of in _RIVALS)
    ),
    *_claims("{} betters {} mostly by its variance", LONG, _by_variance, *_PAIRS),
    *_claims(
        "{} does not beat {} in Express",
        EXPRESS,
        partial(_below, "rmse", False),
        (_OSIRIS, _WIS),
        (_OSIRWIS, _WIS),
    ),
    *_claims(
        "{} is more accurate in Express than in Dilly-Dallying",
        EXPRESS,
        partial(_elsewhere, operator.lt),
        *((of, of.dallying) for of in (_IS, _WIS)),
    ),
    *_claims(
        "{} is as accurate in Express as in Dilly-Dallying (RMSE within 10 %)",
        EXPRESS,
        partial(_elsewhere, lambda here, there: abs(here - there) <= ABOUT_EQUAL * there),
        *((of, of.dallying) for of in (_OSIRIS, _OSIRWIS)),
    ),
    *_claims(
        "{} performs well in the gridworlds: the smallest RMSE",
        GRIDWORLDS,
        _least_rmse,
        (_MIS, *_RIVALS[:-1], _OSIRIS, _OSIRWIS),
    ),
    *_claims(
        "{} with the oracle map has a smaller RMSE than with the estimated one",
        GRIDWORLDS,
        _LESS_RMSE,
        *((of._replace(relevance="oracle"), of) for of in (_OSIRIS, _OSIRWIS)),
    ),
    *_claims(
        "{} by Algorithm 1 has a smaller RMSE than by other ways to find relevance",
        ALL,
        _least_rmse,
        (_OSIRWIS, *(_OSIRWIS._replace(relevance=test) for test in _OTHER_TESTS)),
    ),
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Every claim that the rows can answer, for each protocol and world."""
    answers = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        by_key = {
            (row["world"], row["estimator"], row["relevance"]): row
            for row in rows
            if row["protocol"] == protocol
        }
        for claim in CLAIMS:
            for world in claim.worlds:
                read = [by_key.get(of.key(world)) for of in claim.rows]
                if None not in read:
                    answers.append(Finding(claim.text, protocol, world, *claim.judge(*read)))
    return answers


def finding_lines(answers: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table: for every claim and world, what each protocol says."""
    protocols = list(dict.fromkeys(finding.protocol for finding in answers))
    by_place: dict[tuple[str, str], dict[str, str]] = {}
    for finding in answers:
        text = f"{'yes' if finding.holds else 'NO'}: {finding.numbers}"
        by_place.setdefault((finding.claim, finding.world), {})[finding.protocol] = text
    lines = [
        [claim, world, *(said.get(protocol, "") for protocol in protocols)]
        for (claim, world), said in by_place.items()
    ]
    return ["claim", "world", *protocols], lines
