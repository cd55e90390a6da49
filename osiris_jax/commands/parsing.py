"""Lists as users type them, `25,50` or `is,wis`, to tuples."""

from __future__ import annotations


def words(text: str | None) -> tuple[str, ...] | None:
    """The words between commas; None for an option that was not given."""
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def levels(text: str | None) -> tuple | None:
    """Numbers, and the words that stand for a level chosen from the data."""
    from osiris_jax.selection import AUTO, SELECTION

    chosen = (AUTO, *SELECTION)
    given = words(text)
    if given is None:
        return None
    return tuple(word if word in chosen else _number("alphas", word, chosen) for word in given)


def _number(field: str, word: str, chosen: tuple[str, ...]) -> float:
    try:
        return float(word)
    except ValueError:
        names = ", ".join(chosen)
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
