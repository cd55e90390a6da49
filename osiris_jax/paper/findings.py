"""What the paper finds, claim by claim: its numbers here, and yes or no. A no is a finding."""

from __future__ import annotations

import itertools
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


Answer = tuple[str, bool]


class Claim(NamedTuple):
    """Something the paper says that can be read off rows.

    Attributes:
      text: the claim; {} stands for the names of the estimators in turn.
      worlds: where it is made.
      judge: of rows: numbers, and whether it holds.
      rows: lists of names as by `_name`, and of worlds where they are others than the claim's own:
        each list is a claim of its own, and is not answered where a row is missing.
    """

    text: str
    worlds: tuple[str, ...]
    judge: Callable[..., Answer]
    rows: Sequence[tuple[str, ...]]


def _name(row: Row) -> str:
    """The estimator, and the test if it is another than the usual one."""
    is_usual = row["relevance"] in (None, DEFAULT)
    return row["estimator"] if is_usual else f"{row['estimator']} {row['relevance']}"


def _named(row: Row, statistic: str) -> str:
    return f"{_name(row)} {number(row[statistic], row[f'{statistic}_se'])}"


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


_RIVALS = ("is", "wis", "phwis", "incris")
_OSIRIS = ("osiris", "osirwis")
_PAIRS = [("osiris", "is"), ("osirwis", "wis")]
_OTHER_TESTS = ("welch:classes=return", "smirnov", "nn-q")
_LESS_STD, _LESS_RMSE = partial(_below, "std", True), partial(_below, "rmse", True)

CLAIMS = (
    Claim("{} has a smaller std than {}", ALL, _LESS_STD, _PAIRS),
    Claim(
        "{} has a smaller RMSE than {}",
        LONG,
        _LESS_RMSE,
        [("osiris", "is"), *(("osirwis", rival) for rival in (*_RIVALS, "mis"))],
    ),
    Claim("{} betters {} mostly by its variance", LONG, _by_variance, _PAIRS),
    Claim(
        "{} does not beat {} in Express",
        EXPRESS,
        partial(_below, "rmse", False),
        [(name, "wis") for name in _OSIRIS],
    ),
    Claim(
        "{} is more accurate in Express than in Dilly-Dallying",
        EXPRESS,
        partial(_elsewhere, operator.lt),
        [(name, f"{name} in dilly-dallying") for name in ("is", "wis")],
    ),
    Claim(
        "{} is as accurate in Express as in Dilly-Dallying (RMSE within 10 %)",
        EXPRESS,
        partial(_elsewhere, lambda here, there: abs(here - there) <= ABOUT_EQUAL * there),
        [(name, f"{name} in dilly-dallying") for name in _OSIRIS],
    ),
    Claim(
        "{} performs well in the gridworlds: the smallest RMSE",
        GRIDWORLDS,
        _least_rmse,
        [("mis", *_RIVALS, *_OSIRIS)],
    ),
    Claim(
        "{} with the oracle map has a smaller RMSE than with the estimated one",
        GRIDWORLDS,
        _LESS_RMSE,
        [(f"{name} oracle", name) for name in _OSIRIS],
    ),
    Claim(
        "{} by Algorithm 1 has a smaller RMSE than by other ways to find relevance",
        ALL,
        _least_rmse,
        [("osirwis", *(f"osirwis {test}" for test in _OTHER_TESTS))],
    ),
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Every claim that the rows can answer, for each protocol and world."""
    answers = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        of_protocol = [row for row in rows if row["protocol"] == protocol]
        by_name = {(row["world"], _name(row)): row for row in of_protocol}
        for claim in CLAIMS:
            for names, world in itertools.product(claim.rows, claim.worlds):
                places = [name.partition(" in ") for name in names]
                read = [by_name.get((where or world, name)) for name, _, where in places]
                if None not in read:
                    text = claim.text.format(*(name.split()[0].upper() for name in names))
                    answers.append(Finding(text, protocol, world, *claim.judge(*read)))
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
