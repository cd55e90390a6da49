"""Many logs of different shapes evaluated in one process: does it survive, and does it slow down?

    python benchmarks/many_logs.py [logs, by default 100]

Every log has its own numbers of trajectories, steps and states. Prints, for every tenth of them,
the seconds of one evaluation, the programs compiled for it, the memory maps of the process (Linux
allows 65,530) and its resident memory. JAX's cache on disk is left out.
"""

import os
import time
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer

import osiris_jax as oj
from osiris_jax.core import compiled

COMPILED = "/jax/core/compile/backend_compile_duration"


def log(seed):
    """A log of a shape of its own."""
    rng = np.random.default_rng(seed)
    size, steps, states = 40 + 3 * seed, int(rng.integers(4, 40)), int(rng.integers(3, 60))
    shape = size, steps
    action = rng.integers(0, 3, shape)
    return oj.from_arrays(
        state=rng.integers(0, states, shape),
        action=action,
        reward=rng.normal(size=shape),
        behavior_prob=np.full(shape, 1 / 3),
        target_prob=np.array([0.5, 0.3, 0.2])[action],
        lengths=rng.integers(1, steps + 1, size),
        num_states=states,
    )


def maps():
    """Pieces of memory that Linux counts."""
    return len(Path("/proc/self/maps").read_text().splitlines())


def resident():
    """Gigabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def main(logs: Annotated[int, typer.Argument()] = 100):
    """Prints a row for every tenth of the logs."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilations = []

    def listen(event, seconds, **_):
        if event == COMPILED:
            compilations.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    print("| logs | s a log | compilations a log | programs held | memory maps | GB |")
    print("|---|---|---|---|---|---|")
    some = max(logs // 10, 1)
    start, most = time.perf_counter(), 0
    for seed in range(logs):
        oj.evaluate(log(seed))
        most = max(most, maps())
        if (seed + 1) % some == 0:
            seconds = (time.perf_counter() - start) / some
            print(
                f"| {seed + 1} | {seconds:.1f} | {len(compilations) / some:.1f} | "
                f"{compiled.programs()} | {maps():,} | {resident():.2f} |",
                flush=True,
            )
            start = time.perf_counter()
            compilations.clear()
    print(f"most memory maps after a log: {most:,}")


if __name__ == "__main__":
    typer.run(main)
