"""Point estimates and bootstrap intervals beside SCOPE-RL's on one log of equal lengths.

    python benchmarks/scope_rl_bootstrap.py [--episodes 1000] [--steps 100] [--resamples 10000]

SCOPE-RL (Kiyohara et al. 2023, version 0.2.1; `pip install scope-rl`) is optional: without it only
our side is measured. Both sides see the same dictionaries and take turns, in one process, in
float64; the first call of ours compiles and is shown apart, and the least of the others is the
steady state. SCOPE-RL resamples terms that were normalised once, by the whole log; ours
normalises, and tests relevance, anew in every resample, so the intervals of `wis` and `cwpdis`
differ and those of `is` and `pdis` differ by chance alone.
"""

import warnings

import jax
import typer
from workbench import SIX, by_turns, machine, print_times

import osiris_jax as oj
from osiris_jax.bench import scope_rl

STATES, SEED = 25, 0
THEIRS = "SCOPE-RL, four"


def theirs(log, inputs, resamples):
    """Name -> (estimate, low, high) by SCOPE-RL's classes."""
    given, estimates = scope_rl.arguments(log, inputs), {}
    for name in scope_rl.THEIRS:
        estimator = scope_rl.estimator(name)
        value = estimator.estimate_policy_value(**given)
        drawn = {"n_bootstrap_samples": resamples, "random_state": SEED}
        ends = estimator.estimate_interval(**given, **drawn)
        estimates[name] = (value, *(end for label, end in ends.items() if "CI" in label))
    return estimates


def ours(log, inputs, resamples, names):
    """Name -> (estimate, low, high) from the same dictionaries."""
    batch = oj.from_scope_rl(log, inputs)
    bounds = oj.intervals(batch, names, methods="percentile", resamples=resamples)
    return {name: (one.value, *one.intervals["percentile"]) for name, one in bounds.items()}


def main(episodes: int = 1000, steps: int = 100, resamples: int = 10_000, runs: int = 3):
    """Prints the seconds, their ratio, and both sides' numbers."""
    jax.config.update("jax_enable_x64", True)
    data = scope_rl.dictionaries(episodes, steps, STATES)
    sides = {
        "ours, six": lambda: ours(*data, resamples, SIX),
        "ours, the same four": lambda: ours(*data, resamples, tuple(scope_rl.THEIRS)),
    }
    if scope_rl.installed():
        warnings.simplefilter("ignore")
        sides[THEIRS] = lambda: theirs(*data, resamples)
    else:
        print(f"SCOPE-RL is not installed ({scope_rl.INSTALL}): ours alone")
    print(f"{episodes} episodes of {steps} steps, {resamples} resamples, float64, {machine()}")
    estimates, times = by_turns(sides, runs)
    print_times(times, beside=THEIRS if THEIRS in sides else None)
    for name in SIX:
        print(f"{name:8}", end="")
        for side in ("ours, six", THEIRS):
            if name in estimates.get(side, {}):
                value, low, high = estimates[side][name]
                print(f" {side}: {value:.12g} ({low:.4g} to {high:.4g})", end="")
        print()


if __name__ == "__main__":
    typer.run(main)
