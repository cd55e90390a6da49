"""Ours beside the slow oracle of the tests: the definitions, in NumPy and Python loops.

    python benchmarks/definitions.py

One log of 1,000 trajectories, 100 steps, 25 states. The oracle runs once, ours several times after
a warm-up. INCRIS by the definition would take hours there, so its oracle gets the first steps.
"""

import importlib
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import osiris_jax as oj
from osiris_jax.bench import data
from osiris_jax.bench.harness import load, measure
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.pipeline import compose

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
oracle = importlib.import_module("oracle")

TRAJECTORIES, STEPS, STATES = 1000, 100, 25
INCRIS_STEPS = 10
ALPHAS = tuple(np.linspace(0.05, 1, 20))


def episodes(batch):
    """The log as the oracle reads it: a list of trajectories."""
    log = data.as_numpy(batch)
    fields = {"rewards": log.reward, "states": log.state, "log_ratio": log.log_ratio}
    fields["actions"] = np.asarray(batch.action)
    return [{name: x[i] for name, x in fields.items()} for i in range(len(log.reward))]


def our_grid(batch):
    """Welch's map and OSIRWIS at all levels."""
    evidence = compose.gather(batch, "wis", "welch")
    return compose.values_at(batch, "wis", evidence, jnp.asarray(ALPHAS, batch.dtype))


def grid_of_oracle(log):
    """The same by the definition."""
    pvalues = oracle.pvalues(log, STATES)
    return [oracle.wis(oracle.omit(log, oracle.keep_map(pvalues, alpha))) for alpha in ALPHAS]


def main():
    """Prints a line for each."""
    whole = data.log(TRAJECTORIES, STEPS, STATES)
    short = jax.tree.map(lambda x: x[:, :INCRIS_STEPS], whole)
    cases = {
        "welch + osirwis, 20 alphas": (whole, our_grid, grid_of_oracle),
        "mis": (whole, lambda b: ESTIMATORS["mis"](b, b.log_ratio), oracle.mis),
        f"incris, {INCRIS_STEPS} steps": (
            short,
            lambda b: ESTIMATORS["incris"](b, b.log_ratio),
            oracle.incris,
        ),
    }
    print(f"osiris-jax {oj.__version__}, float32, load {load():.1f}")
    for name, (batch, ours, slow) in cases.items():
        log = episodes(batch)
        start = time.perf_counter()
        expected = np.asarray(slow(log))
        seconds = time.perf_counter() - start
        function = jax.jit(ours)
        apart = np.max(np.abs(np.asarray(function(batch)) / expected - 1))
        least = measure(partial(function, batch)).least
        print(
            f"{name}: ours {1e3 * least:.3g} ms, the oracle {seconds:.3g} s, "
            f"{seconds / least:,.0f} times as long; relative difference {apart:.1e}"
        )


if __name__ == "__main__":
    main()
