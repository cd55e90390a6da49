"""`osiris-jax evaluate` on 1,000,000 rows of Parquet: 20,000 ragged episodes, 100 states.

    python benchmarks/evaluate.py [--resamples 1000] [--folder runs/large]

Makes the log, runs the command in a process of its own, from the file to the report, and prints
the seconds and the peak of memory of that process, compilation included.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EPISODES, STATES, ACTIONS, ROWS = 20_000, 100, 4, 1_000_000
ESTIMATORS = "is,wis,pdis,cwpdis,osiris,osirwis"


def write_log(path, seed=0):
    """A log of ragged episodes, 1 to 99 steps, whose policies differ in a third of the states."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 100, EPISODES)
    while lengths.sum() != ROWS:
        place = rng.integers(EPISODES)
        changed = lengths[place] + np.sign(ROWS - lengths.sum())
        lengths[place] = np.clip(changed, 1, 99)
    behavior, other = (rng.dirichlet(np.ones(ACTIONS), STATES) for _ in range(2))
    share = np.where(np.arange(STATES) % 3 == 0, 0.1, 0.01)[:, None]
    target = (1 - share) * behavior + share * other
    state, uniform = rng.integers(STATES, size=ROWS), rng.random(ROWS)
    action = (uniform[:, None] > behavior.cumsum(1)[state][:, :-1]).sum(-1)
    ends = np.cumsum(lengths)
    columns = {
        "episode": np.repeat(np.arange(EPISODES), lengths),
        "step": np.arange(ROWS) - np.repeat(ends - lengths, lengths),
        "state": state,
        "action": action,
        "reward": 0.02 * (rng.random(ROWS) < 0.2 + 0.1 * (action == 0)),
        "behavior_prob": behavior[state, action],
        "target_prob": target[state, action],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def main():
    """Prints what the command prints, then seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path("runs/large"))
    given = parser.parse_args()
    log = given.folder / "log.parquet"
    write_log(log)
    print(f"{log}: {log.stat().st_size / 2**20:.0f} MB, {os.cpu_count()} cores,", end=" ")
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    command = [sys.executable, "-m", "osiris_jax.cli", "evaluate", str(log)]
    command += ["--estimators", ESTIMATORS, "--resamples", str(given.resamples)]
    start = time.perf_counter()
    subprocess.run([*command, "--out", str(given.folder / "out")], check=True)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, cpu = used.ru_maxrss / 2**20, used.ru_utime + used.ru_stime
    print(f"{seconds:.1f} s ({cpu:.1f} s of processor time), {peak:.2f} GB at most")


if __name__ == "__main__":
    main()
