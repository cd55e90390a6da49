"""Lists as users type them, `25,50` or `is,wis`, to tuples."""

from __future__ import annotations

from typing import Any


def words(text: str | None) -> tuple[str, ...] | None:
    """The words between commas; None for an option that was not given."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def chosen(**values: Any) -> dict[str, Any]:
    """The options that were given; the others keep the default of whatever they are given to."""
    return {name: value for name, value in values.items() if value is not None}


def level(text: str | None) -> float | str | None:
    """One level: a number, or a word that stands for one chosen from the data."""
    if text is None:
        return None
    found = levels(text, "alpha") or ()
    if len(found) != 1:
        raise ValueError(f"alpha: expected one level, got {text!r}")
    return found[0]


def levels(text: str | None, field: str = "alphas") -> tuple | None:
    """Numbers, and the words that stand for a level chosen from the data."""
    from osiris_jax.pipeline.selection import AUTO, SELECTION

    known = (AUTO, *SELECTION)
    given = words(text)
    if given is None:
        return None
    return tuple(word if word in known else _number(field, word, known) for word in given)


def _number(field: str, word: str, known: tuple[str, ...]) -> float:
    try:
        return float(word)
    except ValueError:
        names = ", ".join(known)
        raise ValueError(f"{field}: expected numbers, or {names}, got {word!r}") from None


def numbers(field: str, text: str | None, kind: type) -> tuple | None:
    """Numbers of one kind; the field is named if one is not.

    Raises:
      ValueError: names the field.
    """
    try:
        return None if text is None else tuple(kind(word) for word in words(text) or ())
    except ValueError:
        name = "integers" if kind is int else "numbers"
        raise ValueError(f"{field}: expected {name} with commas between, got {text!r}") from None
