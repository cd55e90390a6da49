"""A study's chunk on one CPU device and on two, on one core and on two.

    python benchmarks/devices.py

Each case runs in a fresh process, one after another; steady state, blocked, the least of five.
"""

import json
import os
import subprocess
import sys
import time

TRIALS, RUNS = 2000, 5


def measure(devices, cores):
    """Prints the least seconds of a chunk over so many devices, pinned to so many cores.

    Pinned, because XLA's flags for one thread do not keep a device from using two cores.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import jax
    import numpy as np

    jax.config.update("jax_num_cpu_devices", devices)
    import osiris_jax as oj
    from osiris_jax.study.engine import Engine

    alphas = (0.05, 0.1, 0.25, 0.5, 1.0)
    estimators = ("is", "wis", "osiris", "osirwis")
    study = oj.Study(world="dilly-dallying", trials=TRIALS, alphas=alphas, estimators=estimators)
    engine, trials = Engine(study), np.arange(TRIALS, dtype=np.uint32)
    engine.values(trials)
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        engine.values(trials)
        seconds.append(time.perf_counter() - start)
    print(json.dumps(min(seconds)))


def in_process(devices, cores):
    """Seconds of `measure` in a process of its own."""
    command = [sys.executable, __file__, str(devices), str(cores)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Prints the table."""
    print(
        f"{TRIALS} trials of dilly-dallying, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    cases = [(1, 1), (2, 2), (1, 2)]
    seconds = {case: min(in_process(*case) for _ in range(2)) for case in cases}
    for (devices, cores), least in seconds.items():
        speed, ratio = 1e6 * least / TRIALS, seconds[1, 1] / least
        print(
            f"devices {devices}, cores {cores}: {least:.3f} s, {speed:.0f} us/trial, {ratio:.2f} x"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]), int(sys.argv[2]))
    else:
        main()
