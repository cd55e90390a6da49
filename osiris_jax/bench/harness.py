"""How a time is taken: compilation apart, blocked, warmed up, least and median, on what machine."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from osiris_jax.core.machine import cores

PACKAGES = ("osiris-jax", "jax", "jaxlib", "numpy", "scipy", "scope-rl")
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
MOST_CALLS, SHORTEST = 10_000, 1e-9


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What calling one function took.

    Attributes:
      first: seconds of the first call, which compiles.
      seconds: of each later run, per call.
      calls: in a run; more than one where a call is too short to time alone.
      peak_memory: bytes that the process held at most, None where the system does not say.
      processor: seconds of processors that the fastest run took, per call; None if not known.
    """

    first: float
    seconds: tuple[float, ...]
    calls: int = 1
    peak_memory: int | None = None
    processor: float | None = None

    @property
    def least(self) -> float:
        """Seconds of the fastest run: the steady state with the least of what else was going on."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def compiling(self) -> float:
        """Seconds by which the first call was slower than the steady state."""
        return max(0.0, self.first - self.least)


def measure(
    function: Callable[[], Any],
    *,
    runs: int = 5,
    at_least: float = 0.02,
    budget: float = 30.0,
    clock: Callable[[], float] = time.perf_counter,
    processor_clock: Callable[[], float] = time.process_time,
) -> Measurement:
    """Times a function: one first call, one to warm up, then runs; each call is blocked.

    Args:
      function: its results may be JAX arrays, which are waited for.
      runs: how many, at most.
      at_least: seconds of a run; shorter calls are repeated within it.
      budget: no further run begins after so many seconds, but there is always one.
      clock, processor_clock: seconds of the wall and of the process, for tests.
    """
    if runs < 1:
        raise ValueError(f"runs: expected a positive number, got {runs}")

    def timed(calls: int) -> tuple[float, float]:
        start, used = clock(), processor_clock()
        for _ in range(calls):
            jax.block_until_ready(function())
        return (clock() - start) / calls, (processor_clock() - used) / calls

    gc.collect()
    with contextlib.suppress(OSError):  # where the system allows it, the peak begins anew
        CLEAR.write_text(RESET_PEAK)
    begun = clock()
    first, warm = timed(1), timed(1)
    short = warm[0] < at_least
    calls = min(MOST_CALLS, math.ceil(at_least / max(warm[0], SHORTEST))) if short else 1
    timings = [warm] if calls == 1 else []
    while len(timings) < runs and (not timings or clock() - begun < budget):
        timings.append(timed(calls))
    seconds = tuple(wall for wall, _ in timings)
    return Measurement(first[0], seconds, calls, peak_memory(), min(timings)[1])


def peak_memory() -> int | None:
    """Bytes that the process held at most, on the accelerator if there is one."""
    with contextlib.suppress(Exception):  # not every backend has these numbers
        on_device = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        if on_device:
            return int(on_device)
    if text := _entry(STATUS, "VmHWM"):
        return 1024 * int(text.split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def load() -> float | None:
    """How many processes wanted a core in the last minute, on average."""
    with contextlib.suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return None


def machine(dtype: str) -> dict[str, Any]:
    """What the figures depend on: device, cores, load, memory, versions, float type."""
    device, versions = jax.local_devices()[0], {}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    name = _entry(Path("/proc/cpuinfo"), "model name") or platform.processor()
    return {
        "device": f"{device.platform}: {name or device.device_kind}",
        "devices": jax.local_device_count(),
        "cores": cores(),
        "load before": load(),
        "memory": _memory(),
        "dtype": dtype,
        "compilation cache": bool(getattr(jax.config, "jax_compilation_cache_dir", None)),
        "peak of memory": "of each case" if CLEAR.exists() else "of the process so far",
        "python": platform.python_version(),
        "versions": versions,
    }


def _entry(path: Path, name: str) -> str | None:
    """What a file of Linux says behind this name and a colon, first."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return None


def _memory() -> int | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference over the largest size of theirs; infinite where NaNs do not match."""
    ours, theirs = (np.asarray(x, np.float64).ravel() for x in (ours, theirs))
    if ours.shape != theirs.shape or (np.isnan(ours) != np.isnan(theirs)).any():
        return math.inf
    defined = ~np.isnan(theirs)
    if not defined.any():
        return 0.0
    size = float(np.abs(theirs[defined]).max())
    gap = float(np.abs(ours[defined] - theirs[defined]).max())
    return gap / size if size > 0 else gap
