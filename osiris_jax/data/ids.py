"""Ids of states and actions: whole numbers or text, made small before anything is allocated."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osiris_jax.core import labels
from osiris_jax.core.labels import Labels
from osiris_jax.data.columns import LARGEST_ID, Columns, check_numbers

LARGEST = 2**63 - 1
LARGEST_FLOAT = 2**53 - 1  # above it floats skip integers, so that two ids may have become one
LONGEST = 400  # digits; a longer one is too large for a float too
WORDS = {"true": 1, "false": 0}
_CODE = re.compile(r"[+-]?0[0-9]|\+")
_DECIMAL = re.compile(
    r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|-?inf(inity)?|nan", re.IGNORECASE
)


def read_ids(
    columns: Columns, field: str, given: Any, widths: Mapping[str, int] | None = None
) -> tuple[Any, int, Labels | None]:
    """The field's ids: text is numbered in sorted order, sparse integers are numbered too.

    Args:
      field: "state" or "action".
      given: the number of ids that the user gives, or None; integers then stay as they are.
      widths: of the policies whose probabilities the log tells, by field.

    Returns:
      [step] ids from 0 on (None where the log has no such field), how many ids there are, and what
      the log calls them (None where ids are its own integers).
    """
    if given is not None and not (isinstance(given, int | np.integer) and given > 0):
        raise ValueError(f"num_{field}s: expected a positive integer, got {given!r}")
    if field not in columns.fields:
        return None, 0, None
    column, names = _numbers_or_names(columns, field)
    number = None if given is None else int(given)
    for policy, width in (widths or {}).items():
        if names is not None:
            raise ValueError(
                f"{columns.name(policy)}: probabilities of numbered actions, where the log calls "
                f"its actions {labels.listed(names)}: which is which cannot be told; give the "
                "logged action's probability, number the actions, or use with_policies"
            )
        if number is not None and width != number:
            raise ValueError(f"{columns.name(policy)}: {width} actions where {number} are expected")
        number = width
    if names is not None:
        if number is not None and number < len(names):
            raise ValueError(
                f"num_{field}s: {number} where the log has {len(names)}: {labels.listed(names)}"
            )
        return column.astype(np.int32), number or len(names), names
    if number is None:
        column, names = labels.compacted(column, field)
        number = int(column.max()) + 1
    columns.fail_where(
        field, column >= number, lambda i: f"{column[i]} is not below the number of ids, {number},"
    )
    if number > LARGEST_ID + 1:
        raise ValueError(f"num_{field}s: {number} are more than 32-bit ids can number")
    return column.astype(np.int32), number, names


def _numbers_or_names(columns: Columns, field: str) -> tuple[np.ndarray, Labels | None]:
    """Integers [step], or ids of texts with the texts."""
    column = columns.fields[field]
    try:
        entries = {*column} if column.dtype.kind == "O" else set()
    except TypeError:  # lists and their like, which are no ids
        entries = set()
    texts = [str(entry) for entry in entries if isinstance(entry, str)]
    if not texts:
        return _check_integers(columns, field, column), None
    if not all(isinstance(entry, str) or _is_missing(entry) for entry in entries):
        return check_numbers(columns, field, column), None  # names the text among the numbers
    if len(texts) < len(entries):
        columns.fail_where(field, np.array([not isinstance(x, str) for x in column]), "NaN")
    names = tuple(sorted(texts))
    place = {name: number for number, name in enumerate(names)}
    ids = np.fromiter((place[entry] for entry in column), np.int64, len(column))
    values = numbers_of(names)
    odd = np.array([value is None for value in values])
    if odd.all():
        return ids, names
    columns.fail_where(  # a mixture is more likely a slip than names
        field, odd[ids], lambda i: f"expected a real number, got {names[ids[i]]!r:.80}"
    )
    return _check_integers(columns, field, np.array(values, object)[ids]), None


def numbers_of(texts: Sequence[Any]) -> list[int | float | None]:
    """The number that each text is; None for all where they are names.

    "7" is a number. "007" is a code, and beside it "7" is one too; "7" and "7.0" are names of
    different things, for nothing says that they are the same; and so are numbers that are all
    beyond 64 bits.
    """
    values = [_number(text.strip()) for text in texts]
    numbers = [value for value in values if value is not None]
    huge = all(isinstance(value, int) and value > LARGEST for value in numbers)
    codes = any(_CODE.match(text.strip()) for text in texts)
    if codes or huge or len({*numbers}) < len(numbers):
        return [None] * len(texts)
    return values


def _number(text: str) -> int | float | None:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    if labels.plain_integer(text):
        return int(text) if len(text) <= LONGEST else float(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def _is_missing(entry: Any) -> bool:
    return (
        entry is None
        or type(entry).__name__ == "NAType"
        or (isinstance(entry, float) and entry != entry)
    )


def _check_integers(columns: Columns, field: str, column: np.ndarray) -> np.ndarray:
    """The column in int64; every error names the first bad entry."""
    if column.dtype.kind == "O" and all(isinstance(entry, numbers.Integral) for entry in column):
        whole = column
    else:
        whole = check_numbers(columns, field, column)
    if whole.dtype.kind == "f":
        whole = whole.astype(np.float64)
        columns.fail_where(field, np.isnan(whole), "NaN")
        broken = np.isinf(whole) | (whole != np.floor(whole))
        columns.fail_where(field, broken, lambda i: f"{whole[i]} is not an integer")
    columns.fail_where(field, whole < 0, lambda i: f"{whole[i]} is negative")
    largest = LARGEST_FLOAT if whole.dtype.kind == "f" else LARGEST
    columns.fail_where(field, whole > largest, lambda i: f"{whole[i]} is too large an id")
    return whole.astype(np.int64)
