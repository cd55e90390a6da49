"""Intervals of a large log: 20,000 ragged episodes, 1,000,000 steps, 100 states, 1,000 resamples.

    python benchmarks/intervals.py [--resamples 1000] [--runs 2] [--double]

The first call compiles; the least of the others is the steady state. The peak of memory is the
process's, data included.
"""

import argparse
import os
import resource
import time

import jax
import numpy as np

import osiris_jax as oj

EPISODES, STATES, ACTIONS, MEAN_STEPS = 20_000, 100, 4, 50
ESTIMATORS = ("is", "wis", "pdis", "cwpdis", "osiris", "osirwis")


def log(seed):
    """A log of ragged episodes whose policies differ in a third of the states."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 2 * MEAN_STEPS, EPISODES)
    shape = (EPISODES, int(lengths.max()))
    mask = np.arange(shape[1]) < lengths[:, None]
    behavior = rng.dirichlet(np.ones(ACTIONS), STATES)
    other = rng.dirichlet(np.ones(ACTIONS), STATES)
    share = np.where(np.arange(STATES) % 3 == 0, 0.1, 0.01)[:, None]
    target = (1 - share) * behavior + share * other
    state, uniform = rng.integers(STATES, size=shape), rng.random(shape)
    action = (uniform[..., None] > behavior.cumsum(1)[state][..., :-1]).sum(-1)
    log_ratio = np.log(target[state, action] / behavior[state, action])
    reward = 0.02 * (rng.random(shape) < 0.2 + 0.1 * (action == 0))
    kind = np.float64 if jax.config.jax_enable_x64 else np.float32
    return oj.TrajectoryBatch(
        reward=jax.numpy.asarray(reward, kind),
        mask=jax.numpy.asarray(mask),
        log_ratio=jax.numpy.asarray(log_ratio, kind),
        action=jax.numpy.asarray(action, np.int32),
        state=jax.numpy.asarray(state, np.int32),
        num_states=STATES,
        num_actions=ACTIONS,
    )


def main():
    """Prints the seconds, the memory and the intervals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--double", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", given.double)
    batch = jax.block_until_ready(log(0))
    print(f"{batch}, {int(batch.mask.sum()):,} steps, {given.resamples} resamples", end=", ")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    seconds = []
    for _ in range(1 + given.runs):
        start, used = time.perf_counter(), time.process_time()
        found = oj.intervals(batch, ESTIMATORS, weighting="none", resamples=given.resamples)
        seconds.append((time.perf_counter() - start, time.process_time() - used))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"first call {seconds[0][0]:.1f} s, ", end="")
    steady = min(seconds[1:] or seconds)
    print(f"steady {steady[0]:.1f} s ({steady[1]:.1f} s of processors), peak {peak:.2f} GB")
    for one in found.values():
        print(" ", one)


if __name__ == "__main__":
    main()
