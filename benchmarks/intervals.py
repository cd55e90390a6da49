"""Intervals of a large log: 20,000 ragged episodes, 1,000,000 steps, 100 states, 1,000 resamples.

    python benchmarks/intervals.py [--resamples 1000] [--runs 2] [--double]

The first call compiles; the least of the others is the steady state. The peak of memory is the
process's, data included.
"""

from functools import partial

import jax
import typer
from workbench import SIX, STATES, large_log, machine

import osiris_jax as oj
from osiris_jax.bench.harness import measure


def main(resamples: int = 1000, runs: int = 2, double: bool = False):
    """Prints the seconds, the memory and the intervals."""
    jax.config.update("jax_enable_x64", double)
    batch = oj.from_dataframe(large_log(), num_states=STATES)
    print(f"{batch}, {int(batch.mask.sum()):,} steps, {resamples} resamples, {machine()}")
    bounds = partial(oj.intervals, batch, SIX, resamples=resamples)
    times = measure(bounds, runs=runs, budget=float("inf"))
    print(
        f"first call {times.first:.1f} s, steady {times.least:.1f} s "
        f"({times.processor:.1f} s of processors), peak {times.peak_memory / 2**30:.2f} GB"
    )
    for one in bounds().values():
        print(" ", one)


if __name__ == "__main__":
    typer.run(main)
