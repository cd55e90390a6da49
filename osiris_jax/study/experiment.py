"""What every experiment is: cells over trials of a world, described as plain data."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple, Protocol


class Cell(NamedTuple):
    """One row of the summary: what is estimated how, from how many trajectories."""

    estimator: str
    relevance: str | None
    alpha: float | None
    threshold: float | None
    size: int


class Experiment(Protocol):
    """What is kept in a folder and summarised: a study, or another list of cells over trials."""

    @property
    def world(self) -> Any: ...
    @property
    def trials(self) -> int: ...
    @property
    def seed(self) -> int: ...
    def cells(self) -> list[Cell]: ...
    def settings(self) -> dict[str, Any]: ...
    def to_toml(self) -> str: ...


def to_toml(settings: dict[str, Any]) -> str:
    """Plain settings as a TOML document."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def digest(settings: dict[str, Any]) -> str:
    """A short name for settings; equal settings, equal digests."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
