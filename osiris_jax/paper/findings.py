"""What the paper finds, claim by claim: its numbers here, and yes or no. A no is a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from osiris_jax.paper.numbers import GRIDWORLDS
from osiris_jax.paper.tables import number

Row = Mapping[str, Any]
ALL = ("dilly-dallying", "express", "cartpole", "lunar-lander")
LONG = tuple(world for world in ALL if world != "express")
ABOUT_EQUAL = 0.1
DEFAULT = "welch"


class Rows:
    """The rows of one protocol, by world and estimator."""

    def __init__(self, rows: Sequence[Row]):
        self._rows = {(row["world"], row["estimator"], row["relevance"]): row for row in rows}

    def get(self, world: str, estimator: str, relevance: str | None = None) -> Row | None:
        if relevance is None and estimator.startswith("osir"):
            relevance = DEFAULT
        return self._rows.get((world, estimator, relevance))


class Finding(NamedTuple):
    """A claim in one world under one protocol."""

    claim: str
    protocol: str
    world: str
    numbers: str
    holds: bool


Check = Callable[[Rows, str], tuple[str, bool] | None]


class Claim(NamedTuple):
    """Something the paper says that can be read off rows.

    Attributes:
      text: the claim.
      worlds: where it is made.
      check: (rows, world) -> numbers and whether it holds; None if rows are missing.
    """

    text: str
    worlds: tuple[str, ...]
    check: Check


def _shown(row: Row, statistic: str) -> str:
    test = "" if row["relevance"] in (None, DEFAULT) else f" {row['relevance']}"
    name = row["estimator"] + test
    return f"{name} {number(row[statistic], row[f'{statistic}_se'])}"


def _below(
    statistic: str, first: tuple[str, ...], second: tuple[str, ...], *, wanted: bool = True
) -> Check:
    """Whether the first estimator's statistic is below the second's, or is not."""

    def check(rows: Rows, world: str) -> tuple[str, bool] | None:
        one, other = rows.get(world, *first), rows.get(world, *second)
        if one is None or other is None:
            return None
        holds = bool(one[statistic] < other[statistic]) == wanted
        return f"{_shown(one, statistic)}, {_shown(other, statistic)}", holds

    return check


def _least(statistic: str, first: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> Check:
    """Whether the first estimator's statistic is below those of all others."""

    def check(rows: Rows, world: str) -> tuple[str, bool] | None:
        one = rows.get(world, *first)
        known = [row for name in others if (row := rows.get(world, *name)) is not None]
        if one is None or len(known) < len(others):
            return None
        rival = min(known, key=lambda row: row[statistic])
        numbers = f"{_shown(one, statistic)}, next {_shown(rival, statistic)}"
        return numbers, bool(one[statistic] < rival[statistic])

    return check


def _elsewhere(estimator: str, holds: Callable[[float, float], bool]) -> Check:
    """A condition on the RMSE in this world and in Dilly-Dallying."""

    def check(rows: Rows, world: str) -> tuple[str, bool] | None:
        here, there = rows.get(world, estimator), rows.get("dilly-dallying", estimator)
        if here is None or there is None:
            return None
        numbers = f"{_shown(here, 'rmse')}, in dilly-dallying {_shown(there, 'rmse')}"
        return numbers, bool(holds(here["rmse"], there["rmse"]))

    return check


def _by_variance(first: str, second: str) -> Check:
    """Whether a lower mean squared error is for its larger part a lower variance."""

    def check(rows: Rows, world: str) -> tuple[str, bool] | None:
        one, other = rows.get(world, first), rows.get(world, second)
        if one is None or other is None:
            return None
        variance = other["std"] ** 2 - one["std"] ** 2
        total = other["rmse"] ** 2 - one["rmse"] ** 2
        return f"MSE falls by {total:.4g}, variance by {variance:.4g}", 2 * variance > total > 0

    return check


_RIVALS = ("is", "wis", "phwis", "incris", "mis")
_OTHER_TESTS = ("welch:classes=return", "smirnov", "nn-q")

CLAIMS = (
    Claim("OSIRIS has a smaller std than IS", ALL, _below("std", ("osiris",), ("is",))),
    Claim("OSIRWIS has a smaller std than WIS", ALL, _below("std", ("osirwis",), ("wis",))),
    Claim("OSIRIS has a smaller RMSE than IS", LONG, _below("rmse", ("osiris",), ("is",))),
    *(
        Claim(
            f"OSIRWIS has a smaller RMSE than {name.upper()}",
            LONG,
            _below("rmse", ("osirwis",), (name,)),
        )
        for name in _RIVALS
    ),
    Claim("OSIRIS betters IS mostly by its variance", LONG, _by_variance("osiris", "is")),
    Claim("OSIRWIS betters WIS mostly by its variance", LONG, _by_variance("osirwis", "wis")),
    *(
        Claim(
            f"{name.upper()} does not beat WIS in Express",
            ("express",),
            _below("rmse", (name,), ("wis",), wanted=False),
        )
        for name in ("osiris", "osirwis")
    ),
    *(
        Claim(
            f"{name.upper()} is more accurate in Express than in Dilly-Dallying",
            ("express",),
            _elsewhere(name, lambda here, there: here < there),
        )
        for name in ("is", "wis")
    ),
    *(
        Claim(
            f"{name.upper()} is as accurate in Express as in Dilly-Dallying (RMSE within 10 %)",
            ("express",),
            _elsewhere(name, lambda here, there: abs(here - there) <= ABOUT_EQUAL * there),
        )
        for name in ("osiris", "osirwis")
    ),
    Claim(
        "MIS performs well in the gridworlds: the smallest RMSE",
        GRIDWORLDS,
        _least("rmse", ("mis",), [(name,) for name in (*_RIVALS[:-1], "osiris", "osirwis")]),
    ),
    *(
        Claim(
            f"{name.upper()} with the oracle map has a smaller RMSE than with the estimated one",
            GRIDWORLDS,
            _below("rmse", (name, "oracle"), (name, "welch")),
        )
        for name in ("osiris", "osirwis")
    ),
    Claim(
        "OSIRWIS by Algorithm 1 has a smaller RMSE than by other ways to find relevance",
        ALL,
        _least("rmse", ("osirwis",), [("osirwis", test) for test in _OTHER_TESTS]),
    ),
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Every claim that the rows can answer, for each protocol and world."""
    found = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        mine = Rows([row for row in rows if row["protocol"] == protocol])
        for claim in CLAIMS:
            for world in claim.worlds:
                answer = claim.check(mine, world)
                if answer is not None:
                    found.append(Finding(claim.text, protocol, world, *answer))
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
