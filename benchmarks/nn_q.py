"""NN-Q on 200 gridworld data sets: all networks fitted in one call, and one after another.

    python benchmarks/nn_q.py

Both forms in one process, warmed up and blocked, by turns so that other load falls on both alike.
The loop compiles its one fit once, and each pass waits for its result.
"""

import jax
import numpy as np
from workbench import by_turns, machine, print_times

import osiris_jax as oj
from osiris_jax.relevance.neural import nn_q

TRIALS, SIZE, RUNS, THRESHOLD = 200, 25, 7, 0.4


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
    print(f"{TRIALS} fits, data {batches.reward.shape[1:]}, {batches.num_states} states", end=", ")
    print(f"{batches.dtype}, {machine()}")
    values, times = by_turns(forms, RUNS)
    print_times(times, beside="loop")
    together, alone = np.asarray(values["one call"]), np.stack(values["loop"])
    differ = (together > THRESHOLD) != (alone > THRESHOLD)
    print(f"theta differs between one call and loop in {differ.sum()} of {differ.size} states")


if __name__ == "__main__":
    main()
