"""Text from outside, such as names of files, columns and labels, made harmless to show."""

from __future__ import annotations

import re
from typing import Any

LONGEST_MESSAGE = 500
ASCII_FORMS = {"±": "+-", "≠": "!="}
_OF_MARKDOWN = re.compile(r"([\\`*_\[\]<>#|~&])")


def printable(text: Any) -> str:
    """The text with all that a terminal would act on escaped, line ends too."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain)


def one_line(text: Any) -> str:
    """The text on one line: what a terminal would act on is escaped, and what is long is cut."""
    plain = printable(text)
    return plain if len(plain) <= LONGEST_MESSAGE else plain[: LONGEST_MESSAGE - 4] + " ..."


def literal(text: Any) -> str:
    """The text so that Markdown shows it as it is: no link, no picture, no HTML."""
    return _OF_MARKDOWN.sub(r"\\\1", printable(text))


def encodable(text: str, encoding: str | None) -> str:
    """The text in characters that a stream of this encoding can carry."""
    charset = encoding or "ascii"
    try:
        text.encode(charset)
    except UnicodeEncodeError:
        for sign, form in ASCII_FORMS.items():
            text = text.replace(sign, form)
        return text.encode(charset, "backslashreplace").decode(charset)
    return text
