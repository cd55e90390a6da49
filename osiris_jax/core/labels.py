"""What a log calls its ids: its own text or its own integers, kept beside small ids from 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from osiris_jax.core.text import printable

Labels = tuple[str, ...] | tuple[int, ...]

KEPT_BELOW = {"state": 4096, "action": 256}
KEPT_TIMES = 4
MOST_SHOWN = 8
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def is_text(labels: Labels | None) -> TypeGuard[tuple[str, ...]]:
    """Whether the labels are names, which order nothing."""
    return bool(labels) and isinstance(labels[0], str)


def own_integers(labels: Labels | None, ids: np.ndarray) -> np.ndarray:
    """The log's own integers of ids; ids themselves where there are no labels, or names."""
    return ids if labels is None or is_text(labels) else np.asarray(labels, np.int64)[ids]


def compacted(ids: np.ndarray, field: str) -> tuple[np.ndarray, Labels | None]:
    """Ids from 0 without gaps, and the integers they stand for, where the integers are sparse.

    Integers keep their meaning, gaps included, while the largest is below `KEPT_BELOW`, or below
    four times the number of different ones. Else arrays by id would be mostly empty.
    """
    largest = int(ids.max())
    if largest < KEPT_BELOW[field]:
        return ids, None
    seen, place = np.unique(ids, return_inverse=True)
    if largest < KEPT_TIMES * len(seen):
        return ids, None
    return place.reshape(ids.shape), tuple(seen.tolist())


def plain_integer(text: Any) -> bool:
    """Whether the text is how an integer is written: "7", but not "007", "7.0" or "-0"."""
    return _PLAIN_INTEGER.fullmatch(text) is not None


def shown(labels: Sequence[Any], most: int = MOST_SHOWN, *, quoted: bool = False) -> str:
    """The ids with their labels, not all of very many: "0 = cold, 1 = hot and 3 more".

    Quoted, each label stands between backticks, so that Markdown shows it as it is.
    """
    plain = [_plain(label) for label in labels[:most]]
    if quoted:
        plain = ["`" + label.replace("`", "'") + "`" for label in plain]
    return with_rest([f"{number} = {label}" for number, label in enumerate(plain)], labels)


def listed(labels: Sequence[Any], most: int = MOST_SHOWN) -> str:
    """The labels alone, not all of very many."""
    return with_rest([_plain(label) for label in labels[:most]], labels) or "nothing"


def with_rest(first: Sequence[str], labels: Sequence[Any]) -> str:
    """The first of the labels, already text, and how many more there are."""
    rest = len(labels) - len(first)
    return ", ".join(first) + (f" and {rest} more" if rest else "")


def _plain(label: Any) -> str:
    """What a terminal would act on is escaped, and what is long is cut."""
    return printable(str(label)[:40]) + "..." * (len(str(label)) > 40)
