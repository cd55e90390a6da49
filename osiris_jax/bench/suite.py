"""Runs cases: here, or in a process of their own; checks the rivals; makes the rows."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from osiris_jax.bench import kernels, roofline, scaling, studies
from osiris_jax.bench.case import TOLERANCE, Case, Rival, Settings
from osiris_jax.bench.harness import difference, load, machine, measure
from osiris_jax.data.columns import suggest

GROUPS: dict[str, Callable[[Settings], list[Case]]] = {
    "pipeline": studies.pipeline,
    "estimators": kernels.estimators,
    "relevance": kernels.relevance,
    "datasets": kernels.datasets,
    "simulation": studies.simulation,
    "intervals": kernels.intervals,
    "cartpole": studies.cartpole,
    "scaling": scaling.scaling,
    "cores": studies.on_cores,
    "scope-rl": kernels.beside_scope_rl,
}
NOT_QUICK = ("cartpole",)  # its compilation alone takes long
HAD_A_CORE = 0.8
RIVAL_RUNS, RIVAL_BUDGET = 3, 10.0
Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Timing:
    """What one case gave; seconds are wall-clock, and those of a rival for all of the case's work.

    Attributes:
      compile_seconds: by which the first call was slower.
      least, median: seconds of a call in the steady state.
      us_per_trial: microseconds, from the least.
      ratio: the rival's least seconds over ours; None also where the two disagree.
      difference: between rival and ours in float64, relative to the largest number.
      allowed: how large the difference may be.
      processor: seconds of processors in the fastest run; below the least where it had to wait.
      peak_memory: bytes of the process.
      moved: bytes that had to be moved at least.
      share: of the measured bandwidth.
      note: in words.
    """

    group: str
    name: str
    shape: dict[str, int]
    dtype: str
    compile_seconds: float
    least: float
    median: float
    runs: int
    us_per_trial: float | None = None
    rival: str | None = None
    rival_seconds: float | None = None
    ratio: float | None = None
    difference: float | None = None
    allowed: float = TOLERANCE
    processor: float | None = None
    peak_memory: int | None = None
    moved: int | None = None
    share: float | None = None
    axis: str | None = None
    note: str = ""

    @property
    def starved(self) -> bool:
        """Whether the process waited for a processor; the figure is then too high."""
        return self.processor is not None and self.processor < HAD_A_CORE * self.least

    @property
    def agrees(self) -> bool | None:
        """Whether the rival gives the same numbers; None without one."""
        return None if self.difference is None else self.difference <= self.allowed


@dataclasses.dataclass(frozen=True)
class Results:
    """All rows, and what they depend on."""

    machine: dict[str, Any]
    bandwidth: roofline.Bandwidth
    rows: tuple[Timing, ...]
    quick: bool

    @property
    def disagreements(self) -> list[Timing]:
        return [row for row in self.rows if row.agrees is False]


def run(
    settings: Settings, only: Sequence[str] | None = None, progress: Progress | None = None
) -> Results:
    """Measures the bandwidth, then all cases of the groups asked for.

    Raises:
      ValueError: a group is unknown.
    """
    tell = progress or (lambda stage, done, total: None)
    for name in only or ():
        if name not in GROUPS:
            raise ValueError(f"only: {name!r} is unknown; {suggest(name, list(GROUPS))}")
    wanted = only or [name for name in GROUPS if not settings.quick or name not in NOT_QUICK]
    facts = machine(settings.dtype)
    tell("bandwidth", 0, 1)
    bandwidth = roofline.bandwidth(settings.size(2**28, 2**22), runs=settings.runs)
    tell("bandwidth", 1, 1)
    rows: list[Timing] = []
    for group in wanted:
        with jax.enable_x64(settings.dtype == "float64"):
            cases = GROUPS[group](settings)
        for done, case in enumerate(cases):
            tell(group, done, len(cases))
            rows.append(row_of(case, settings, bandwidth.best))
        tell(group, len(cases), len(cases))
        if not settings.quick:
            jax.clear_caches()  # Linux ends a process with too many mapped pieces of code
    facts["load after"] = load()
    return Results(facts, bandwidth, tuple(rows), settings.quick)


def row_of(case: Case, settings: Settings, roof: float) -> Timing:
    """The case measured where it belongs, its rival after it."""
    if case.place is not None:
        return alone(case, settings, roof)
    budget, trials = case.budget or settings.budget, case.shape.get("trials")
    with jax.enable_x64(settings.dtype == "float64"):
        work = case.make()
        ours = measure(work.function, runs=settings.runs, budget=budget)
        moved = None if work.moved is None else work.moved()
        row = Timing(
            group=case.group,
            name=case.name,
            shape=case.shape,
            dtype=settings.dtype,
            compile_seconds=ours.compiling,
            least=ours.least,
            median=ours.median,
            runs=len(ours.seconds),
            us_per_trial=None if trials is None else 1e6 * ours.least / trials,
            processor=ours.processor,
            peak_memory=ours.peak_memory,
            moved=moved,
            share=roofline.share(moved, ours.least, roof),
            axis=case.axis,
        )
        return row if work.rival is None else beside(row, work.rival, settings)


def beside(row: Timing, rival: Rival, settings: Settings) -> Timing:
    """The row with its rival's time, and the ratio if both give the same numbers."""
    theirs = rival.function()
    budget = min(settings.budget, RIVAL_BUDGET)
    seconds = measure(rival.function, runs=RIVAL_RUNS, budget=budget).least / rival.part
    with jax.enable_x64(True):
        gap = difference(rival.ours(), theirs)
    row = dataclasses.replace(
        row,
        rival=rival.name,
        rival_seconds=seconds,
        ratio=seconds / row.least,
        difference=gap,
        allowed=rival.tolerance,
    )
    if row.agrees:
        return row
    said = "NaN in other places" if math.isinf(gap) else f"by {gap:.1e}"
    return dataclasses.replace(row, ratio=None, note=f"disagrees with {rival.name}: {said}")


def alone(case: Case, settings: Settings, roof: float) -> Timing:
    """The case measured in a fresh process of its own.

    Raises:
      ValueError: it failed; with the last line that it wrote.
    """
    order = {"settings": dataclasses.asdict(settings), "roof": roof}
    order |= {"group": case.group, "name": case.name, "place": case.place}
    command = [sys.executable, "-m", "osiris_jax.bench.alone", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"{case.name}: its process ended with {done.returncode}: {last}")
    return Timing(**json.loads(done.stdout.splitlines()[-1]))
