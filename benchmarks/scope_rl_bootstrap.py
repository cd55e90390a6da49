"""Point estimates and bootstrap intervals beside SCOPE-RL's on one log of equal lengths.

    python benchmarks/scope_rl_bootstrap.py [--episodes 1000] [--steps 100] [--resamples 10000]

SCOPE-RL (Kiyohara et al. 2023, version 0.2.1; `pip install scope-rl`) is optional: without it only
our side is measured. Both sides see the same dictionaries and take turns, in one process, in
float64; the first call of ours compiles and is shown apart, and the least of the others is the
steady state. SCOPE-RL resamples terms that were normalised once, by the whole log; ours
normalises, and tests relevance, anew in every resample, so the intervals of `wis` and `cwpdis`
differ and those of `is` and `pdis` differ by chance alone.
"""

import argparse
import os
import time
import warnings

import jax
import numpy as np

import osiris_jax as oj
from osiris_jax.bench import scope_rl

STATES, SEED = 25, 0
OURS = ("is", "wis", "pdis", "cwpdis", "osiris", "osirwis")


def theirs(log, inputs, resamples):
    """Name -> (estimate, low, high) by SCOPE-RL's classes."""
    given, found = scope_rl.arguments(log, inputs), {}
    for name in scope_rl.THEIRS:
        estimator = scope_rl.estimator(name)
        value = estimator.estimate_policy_value(**given)
        ends = estimator.estimate_interval(
            **given, n_bootstrap_samples=resamples, random_state=SEED
        )
        low, high = (end for label, end in ends.items() if "CI" in label)
        found[name] = (value, low, high)
    return found


def ours(log, inputs, resamples, names):
    """Name -> (estimate, low, high) from the same dictionaries."""
    batch = oj.from_scope_rl(log, inputs)
    found = oj.intervals(batch, names, methods="percentile", weighting="none", resamples=resamples)
    return {name: (one.value, *one.intervals["percentile"]) for name, one in found.items()}


def timed(function, *arguments):
    """(seconds, what it returned)."""
    start = time.perf_counter()
    found = function(*arguments)
    return time.perf_counter() - start, found


def main():
    """Prints the seconds, their ratio, and both sides' numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    data = scope_rl.dictionaries(given.episodes, given.steps, STATES)
    have = scope_rl.installed()
    sides = {
        "ours, six": lambda: ours(*data, given.resamples, OURS),
        "ours, the same four": lambda: ours(*data, given.resamples, tuple(scope_rl.THEIRS)),
    }
    if have:
        warnings.simplefilter("ignore")
        sides["SCOPE-RL, four"] = lambda: theirs(*data, given.resamples)
    else:
        print(f"SCOPE-RL is not installed ({scope_rl.INSTALL}): ours alone")
    print(
        f"{given.episodes} episodes of {given.steps} steps, {given.resamples} resamples, ", end=""
    )
    print(f"float64, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    seconds = {name: [] for name in sides}
    found = {}
    for _ in range(1 + given.runs):
        for name, side in sides.items():
            spent, found[name] = timed(side)
            seconds[name].append(spent)
    rival = min(seconds.get("SCOPE-RL, four", [np.nan]))
    for name, (first, *others) in seconds.items():
        ratio = f", SCOPE-RL takes {rival / min(others):.2f} x" if have else ""
        print(f"{name:20} first {first:6.2f} s, then least {min(others):6.3f} s{ratio}")
    for name, (value, low, high) in found["ours, six"].items():
        line = f"{name:8} ours {value:.12g} ({low:.4g} to {high:.4g})"
        if have and name in scope_rl.THEIRS:
            value, low, high = found["SCOPE-RL, four"][name]
            line += f", SCOPE-RL {value:.12g} ({low:.4g} to {high:.4g})"
        print(line)


if __name__ == "__main__":
    main()
