"""Names with options, as they are written in a study: `cwpdis:finished=drop`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Named:
    """An estimator or a test with options, written `name:option=value:option=value`."""

    text: str
    name: str
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, field: str, text: Any) -> Named:
        if not isinstance(text, str):
            raise ValueError(f"{field}: expected a name, got {text!r}")
        name, *parts = text.split(":")
        options = []
        for part in parts:
            option, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{field}: expected option=value in {text!r}, got {part!r}")
            options.append((option, _value(value)))
        return cls(text, name, tuple(options))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a word, or no value that anything takes
        return text
