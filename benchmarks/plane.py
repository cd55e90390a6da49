"""The plane of `osiris-star`, levels by pasts, of many data sets in one call, beside loops.

    python benchmarks/plane.py

Loops over data sets, levels and pasts in the same run: once with NumPy over all visits and a linear
solver, once the slow oracle of the tests. Both take a few of the data sets.
"""

import itertools

import jax
import numpy as np
from workbench import by_turns, machine, of_tests, print_times, timed

import osiris_jax as oj
from osiris_jax.bench import rivals
from osiris_jax.bench.data import as_numpy

TRIALS, SIZE, RUNS, AT_ONCE = 1000, 25, 5, 4
FOR_NUMPY, FOR_ORACLE = 40, 1
ALPHAS = np.array([1.0, 0.6, 0.35, 0.2, 0.1, 0.05, 0.01, 0.0])
PASTS = np.array([1, 2, 4, 8, 16, 0])
(oracle, oracle_star, datasets) = of_tests("oracles", "oracles.star", "datasets")


def of_numpy(log):
    """[alpha, past] by a loop."""
    pvalues = rivals.welch(log)
    values = [
        rivals.chain(rivals.omit(log, pvalues, alpha), past)
        for alpha, past in itertools.product(ALPHAS, PASTS)
    ]
    return np.reshape(values, (len(ALPHAS), len(PASTS)))


def of_oracle(data, num_states):
    """The same from the definitions."""
    pvalues = oracle.pvalues(data, num_states, weighting="none")
    values = [
        oracle_star.star(oracle.omit(data, oracle.keep_map(pvalues, alpha)), past=past)
        for alpha, past in itertools.product(ALPHAS, PASTS)
    ]
    return np.reshape(values, (len(ALPHAS), len(PASTS)))


def main():
    """Prints times for each point of the plane, and how far the values are apart."""
    world = oj.make("dilly-dallying")
    batches = world.rollout(jax.random.split(jax.random.key(0), TRIALS), SIZE)
    singles = [jax.tree.map(lambda x, k=k: x[k], batches) for k in range(FOR_NUMPY)]
    logs = [as_numpy(one) for one in singles]

    def plane(batch):
        return oj.estimate(batch, "osiris-star", alpha=ALPHAS, past=PASTS)

    every = jax.jit(lambda given: jax.lax.map(plane, given, batch_size=AT_ONCE))
    points = len(ALPHAS) * len(PASTS)
    print(f"{TRIALS} data sets of {SIZE}, {points} points each, float32, {machine()}")
    forms = {"one call": lambda: every(batches), "NumPy": lambda: [of_numpy(x) for x in logs]}
    values, times = by_turns(forms, RUNS)
    print_times(times)
    data = datasets.ragged(singles[0])
    slow, seconds = timed(lambda: of_oracle(data, batches.num_states))
    ours = times["one call"].least / TRIALS
    for name, spent in (("NumPy", times["NumPy"].least / FOR_NUMPY), ("the oracle", seconds)):
        print(
            f"a point: ours {1e6 * ours / points:.3g} us, {name} {1e6 * spent / points:,.0f} us, "
            f"{spent / ours:,.0f} times as long"
        )
    found = np.asarray(values["one call"])
    print(f"apart from NumPy by {np.abs(found[:FOR_NUMPY] - values['NumPy']).max():.1e}", end=", ")
    print(f"from the oracle by {np.abs(found[0] - slow).max():.1e}")


if __name__ == "__main__":
    main()
