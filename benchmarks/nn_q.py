"""NN-Q on 200 gridworld data sets: all networks fitted in one call, and one after another.

    python benchmarks/nn_q.py

Both forms in one process, warmed up and blocked, by turns so that other load falls on both alike.
The loop compiles its one fit once, and each pass waits for its result.
"""

import os
import time

import jax
import numpy as np

import osiris_jax as oj
from osiris_jax.relevance.neural import nn_q

TRIALS, SIZE, RUNS, THRESHOLD = 200, 25, 7, 0.4


def seconds(function):
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def main():
    """Prints the table."""
    keys = jax.random.split(jax.random.key(0), TRIALS)
    batches = oj.make("dilly-dallying").rollout(keys, SIZE)
    data = batches, jax.random.split(jax.random.key(1), TRIALS)
    singles = [jax.tree.map(lambda x, k=k: x[k], data) for k in range(TRIALS)]
    one = jax.jit(lambda item: nn_q(item[0], key=item[1]))
    many = jax.jit(jax.vmap(one))
    forms = {
        "one call": lambda: many(data),
        "loop": lambda: [jax.block_until_ready(one(item)) for item in singles],
    }
    one_fit = {"loop": lambda: one(singles[0])}
    first = {name: seconds(one_fit.get(name, form)) for name, form in forms.items()}
    rounds = [{name: seconds(form) for name, form in forms.items()} for _ in range(RUNS)]
    print(f"{TRIALS} fits, data {batches.reward.shape[1:]}, {batches.num_states} states", end=", ")
    print(f"{batches.dtype}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':10}{'first call':>12}{'least':>10}{'median':>10}{'loop/this':>12}{'(median)':>10}")
    least, median = (
        {name: f([wall[name] for wall in rounds]) for name in forms} for f in (min, np.median)
    )
    for name in forms:
        print(f"{name:10}{first[name]:10.2f} s{least[name]:8.2f} s{median[name]:8.2f} s", end="")
        print(f"{least['loop'] / least[name]:12.2f}{median['loop'] / median[name]:10.2f}")
    together, alone = np.asarray(forms["one call"]()), np.stack(forms["loop"]())
    differ = (together > THRESHOLD) != (alone > THRESHOLD)
    print(f"theta differs between one call and loop in {differ.sum()} of {differ.size} states")


if __name__ == "__main__":
    main()
