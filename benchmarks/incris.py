"""INCRIS on data like one CartPole data set: matrix products against one exp per (i, t, cut).

    python benchmarks/incris.py

Prints the first call, which compiles, and the least and median of blocked runs of both forms, by
turns in one process.
"""

import jax
import jax.numpy as jnp
import numpy as np
from workbench import by_turns, machine, print_times

import osiris_jax as oj
from osiris_jax.estimators import incremental

RUNS = 3


def cartpole_like(seed=0, size=50):
    """Lengths near-exponential around 600, two ratios, reward 1."""
    rng = np.random.default_rng(seed)
    episodes = []
    for steps in np.maximum(10, rng.exponential(600, size=size)).astype(int):
        greedy = rng.random(steps) < 0.875
        episodes.append(
            {
                "states": np.zeros(steps, int),
                "actions": greedy.astype(int),
                "rewards": np.ones(steps),
                "log_ratio": np.where(greedy, np.log(0.9 / 0.875), np.log(0.1 / 0.125)),
            }
        )
    return oj.from_episodes(episodes)


def in_log_space(batch):
    """The form that `incris` falls back to, forced by asking for it."""
    safe = incremental._factors_are_safe
    incremental._factors_are_safe = lambda paths: jnp.asarray(False)
    try:
        return jax.jit(lambda b: incremental.incris(b, b.log_ratio)).lower(batch).compile()
    finally:
        incremental._factors_are_safe = safe


def main():
    """Prints the table."""
    batch = cartpole_like()
    fast = jax.jit(lambda b: incremental.incris(b, b.log_ratio))
    slow = in_log_space(batch)
    forms = {"matrix products": lambda: fast(batch), "log space": lambda: slow(batch)}
    values, times = by_turns(forms, RUNS)
    print(f"shape {batch.reward.shape}, {batch.dtype}, {machine()}")
    print_times(times, beside="log space")
    print("values:", *(f"{value:.4f}" for value in values.values()))


if __name__ == "__main__":
    main()
