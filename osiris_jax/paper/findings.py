"""What the paper finds, claim by claim: its numbers here, and yes or no. A no is a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from osiris_jax.paper.numbers import GRIDWORLDS
from osiris_jax.paper.tables import Row, number

ALL = ("dilly-dallying", "express", "cartpole", "lunar-lander")
LONG = tuple(world for world in ALL if world != "express")
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


def _shown(row: Row, statistic: str) -> str:
    test = "" if row["relevance"] in (None, DEFAULT) else f" {row['relevance']}"
    return f"{row['estimator']}{test} {number(row[statistic], row[f'{statistic}_se'])}"


def _below(statistic: str, wanted: bool, one: Row, other: Row) -> Answer:
    """Whether the first row's statistic is below the second's, or is not."""
    holds = bool(one[statistic] < other[statistic]) == wanted
    return f"{_shown(one, statistic)}, {_shown(other, statistic)}", holds


_LESS_STD, _LESS_RMSE = partial(_below, "std", True), partial(_below, "rmse", True)


def _least_rmse(one: Row, *others: Row) -> Answer:
    """Whether the first row's RMSE is below those of all others."""
    rival = min(others, key=lambda row: row["rmse"])
    numbers = f"{_shown(one, 'rmse')}, next {_shown(rival, 'rmse')}"
    return numbers, bool(one["rmse"] < rival["rmse"])


def _elsewhere(holds: Callable[[float, float], bool], here: Row, there: Row) -> Answer:
    """A condition on the RMSE in two worlds."""
    numbers = f"{_shown(here, 'rmse')}, in {there['world']} {_shown(there, 'rmse')}"
    return numbers, bool(holds(here["rmse"], there["rmse"]))


def _by_variance(one: Row, other: Row) -> Answer:
    """Whether a lower mean squared error is for its larger part a lower variance."""
    variance = other["std"] ** 2 - one["std"] ** 2
    total = other["rmse"] ** 2 - one["rmse"] ** 2
    return f"MSE falls by {total:.4g}, variance by {variance:.4g}", 2 * variance > total > 0


def _for_each(
    names: Iterable[str],
    text: str,
    worlds: tuple[str, ...],
    rows: Callable[[str], tuple[Of, ...]],
    judge: Callable[..., Answer],
) -> list[Claim]:
    return [Claim(text.format(name.upper()), worlds, rows(name), judge) for name in names]


_EXPRESS, _DALLYING = ("express",), "dilly-dallying"
_BOTH = ("osiris", "osirwis")
_RIVALS = ("is", "wis", "phwis", "incris", "mis")
_OTHER_TESTS = ("welch:classes=return", "smirnov", "nn-q")
_OSIRIS_IS, _OSIRWIS_WIS = (Of("osiris"), Of("is")), (Of("osirwis"), Of("wis"))

CLAIMS = (
    Claim("OSIRIS has a smaller std than IS", ALL, _OSIRIS_IS, _LESS_STD),
    Claim("OSIRWIS has a smaller std than WIS", ALL, _OSIRWIS_WIS, _LESS_STD),
    Claim("OSIRIS has a smaller RMSE than IS", LONG, _OSIRIS_IS, _LESS_RMSE),
    *_for_each(
        _RIVALS,
        "OSIRWIS has a smaller RMSE than {}",
        LONG,
        lambda name: (Of("osirwis"), Of(name)),
        _LESS_RMSE,
    ),
    Claim("OSIRIS betters IS mostly by its variance", LONG, _OSIRIS_IS, _by_variance),
    Claim("OSIRWIS betters WIS mostly by its variance", LONG, _OSIRWIS_WIS, _by_variance),
    *_for_each(
        _BOTH,
        "{} does not beat WIS in Express",
        _EXPRESS,
        lambda name: (Of(name), Of("wis")),
        partial(_below, "rmse", False),
    ),
    *_for_each(
        ("is", "wis"),
        "{} is more accurate in Express than in Dilly-Dallying",
        _EXPRESS,
        lambda name: (Of(name), Of(name, world=_DALLYING)),
        partial(_elsewhere, lambda here, there: here < there),
    ),
    *_for_each(
        _BOTH,
        "{} is as accurate in Express as in Dilly-Dallying (RMSE within 10 %)",
        _EXPRESS,
        lambda name: (Of(name), Of(name, world=_DALLYING)),
        partial(_elsewhere, lambda here, there: abs(here - there) <= ABOUT_EQUAL * there),
    ),
    Claim(
        "MIS performs well in the gridworlds: the smallest RMSE",
        GRIDWORLDS,
        tuple(map(Of, ("mis", *_RIVALS[:-1], *_BOTH))),
        _least_rmse,
    ),
    *_for_each(
        _BOTH,
        "{} with the oracle map has a smaller RMSE than with the estimated one",
        GRIDWORLDS,
        lambda name: (Of(name, "oracle"), Of(name, "welch")),
        _LESS_RMSE,
    ),
    Claim(
        "OSIRWIS by Algorithm 1 has a smaller RMSE than by other ways to find relevance",
        ALL,
        (Of("osirwis"), *(Of("osirwis", test) for test in _OTHER_TESTS)),
        _least_rmse,
    ),
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Every claim that the rows can answer, for each protocol and world."""
    found = []
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
                    found.append(Finding(claim.text, protocol, world, *claim.judge(*read)))
    return found


def finding_lines(found: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a table: for every claim and world, what each protocol says."""
    protocols = list(dict.fromkeys(finding.protocol for finding in found))
    by_place: dict[tuple[str, str], dict[str, str]] = {}
    for finding in found:
        text = f"{'yes' if finding.holds else 'NO'}: {finding.numbers}"
        by_place.setdefault((finding.claim, finding.world), {})[finding.protocol] = text
    lines = [
        [claim, world, *(said.get(protocol, "") for protocol in protocols)]
        for (claim, world), said in by_place.items()
    ]
    return ["claim", "world", *protocols], lines
