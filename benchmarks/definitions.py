"""Ours beside the slow oracle of the tests: the definitions, in NumPy and Python loops.

    python benchmarks/definitions.py

One log of 1,000 trajectories, 100 steps, 25 states. The oracle runs once, ours several times after
a warm-up. INCRIS by the definition would take hours there, so its oracle gets the first steps.
"""

from functools import partial

import jax
import numpy as np
from workbench import machine, of_tests, timed

import osiris_jax as oj
from osiris_jax.bench import data
from osiris_jax.bench.harness import measure
from osiris_jax.bench.kernels import MANY_ALPHAS, estimator, osirwis

TRAJECTORIES, STEPS, STATES = 1000, 100, 25
INCRIS_STEPS = 10
(oracle,) = of_tests("oracles")


def episodes(batch):
    """The log as the oracle reads it: a list of trajectories."""
    names = {"rewards": "reward", "states": "state", "log_ratio": "log_ratio", "actions": "action"}
    fields = {name: np.asarray(getattr(batch, field)) for name, field in names.items()}
    return [{name: x[i] for name, x in fields.items()} for i in range(TRAJECTORIES)]


def osirwis_of_oracle(log):
    """Welch's map and OSIRWIS at all levels, by the definition."""
    pvalues = oracle.pvalues(log, STATES)
    return [oracle.wis(oracle.omit(log, oracle.keep_map(pvalues, alpha))) for alpha in MANY_ALPHAS]


def main():
    """Prints a line for each."""
    whole = data.log(TRAJECTORIES, STEPS, STATES)
    short = jax.tree.map(lambda x: x[:, :INCRIS_STEPS], whole)
    cases = (
        (osirwis(MANY_ALPHAS), whole, osirwis_of_oracle),
        (estimator("mis"), whole, oracle.ESTIMATORS["mis"]),
        (estimator("incris"), short, oracle.ESTIMATORS["incris"]),
    )
    print(f"osiris-jax {oj.__version__}, float32, {machine()}")
    for kernel, batch, slow in cases:
        expected, seconds = timed(partial(slow, episodes(batch)))
        ours = partial(jax.jit(kernel.function), batch)
        apart = np.max(np.abs(np.asarray(ours()) / np.asarray(expected) - 1))
        least = measure(ours).least
        print(
            f"{kernel.name}, {batch.mask.shape[1]} steps: ours {1e3 * least:.3g} ms, "
            f"the oracle {seconds:.3g} s, {seconds / least:,.0f} times as long; "
            f"relative difference {apart:.1e}"
        )


if __name__ == "__main__":
    main()
