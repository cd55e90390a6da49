"""What the scripts share: times, the machine, modules of the tests, a large log."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pandas as pd

from osiris_jax.bench.harness import Measurement, load
from osiris_jax.bench.report import seconds
from osiris_jax.core.machine import cores

TESTS = Path(__file__).parent.parent / "tests"
SIX = ("is", "wis", "pdis", "cwpdis", "osiris", "osirwis")
EPISODES, STATES, ACTIONS = 20_000, 100, 4


def machine() -> str:
    """What times depend on."""
    return f"{jax.devices()[0].platform}, {cores()} cores, load {load() or 0:.1f}"


def of_tests(*names: str) -> Iterable[ModuleType]:
    """Modules of the tests: oracles, and what is fuzzed."""
    sys.path.insert(0, str(TESTS))
    return [importlib.import_module(name) for name in names]


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its seconds, blocked."""
    start = time.perf_counter()
    value = jax.block_until_ready(function())
    return value, time.perf_counter() - start


def by_turns(
    forms: Mapping[str, Callable[[], Any]], runs: int
) -> tuple[dict[str, Any], dict[str, Measurement]]:
    """What each form gives and its times, by turns, so that other load falls on all alike."""
    values, spent = {}, {name: [] for name in forms}
    for _ in range(1 + runs):
        for name, form in forms.items():
            values[name], one = timed(form)
            spent[name].append(one)
    times = {name: Measurement(first, tuple(rest)) for name, (first, *rest) in spent.items()}
    return values, times


def print_times(times: Mapping[str, Measurement], beside: str | None = None) -> None:
    """A line for each form; `beside` names the one whose time over each is told."""
    for name, one in times.items():
        steady = f"then least {seconds(one.least)}, median {seconds(one.median)}"
        ratio = f"; {beside} takes {times[beside].least / one.least:.2f} x" if beside else ""
        print(f"{name:20} first {seconds(one.first)}, {steady}{ratio}")


def large_log(seed: int = 0) -> pd.DataFrame:
    """1,000,000 rows: 20,000 episodes of 1 to 99 steps; policies differ in every third state."""
    rng = np.random.default_rng(seed)
    half = rng.integers(1, 100, EPISODES // 2)
    lengths = np.concatenate([half, 100 - half])
    rows = lengths.sum()
    behavior, other = (rng.dirichlet(np.ones(ACTIONS), STATES) for _ in range(2))
    share = np.where(np.arange(STATES) % 3 == 0, 0.1, 0.01)[:, None]
    target = (1 - share) * behavior + share * other
    state, uniform = rng.integers(STATES, size=rows), rng.random(rows)
    action = (uniform[:, None] > behavior.cumsum(1)[state][:, :-1]).sum(-1)
    return pd.DataFrame(
        {
            "episode": np.repeat(np.arange(EPISODES), lengths),
            "step": np.arange(rows) - np.repeat(lengths.cumsum() - lengths, lengths),
            "state": state,
            "action": action,
            "reward": 0.02 * (rng.random(rows) < 0.2 + 0.1 * (action == 0)),
            "behavior_prob": behavior[state, action],
            "target_prob": target[state, action],
        }
    )
