"""INCRIS on data like one CartPole data set: matrix products against one exp per (i, t, cut).

    python benchmarks/incris.py

Prints compile time, and the least of several blocked runs, for both forms in one process.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import osiris_jax as oj
from osiris_jax.estimators import incremental


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


def measure(function, batch, repeats=7):
    """Compile seconds and the best steady seconds."""
    start = time.perf_counter()
    jax.block_until_ready(function(batch))
    compiling = time.perf_counter() - start
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(batch))
        runs.append(time.perf_counter() - start)
    return compiling, min(runs)


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
    fast_compile, fast_run = measure(fast, batch)
    _, slow_run = measure(slow, batch, repeats=3)
    print(f"shape {batch.reward.shape}, {batch.dtype}, {jax.devices()[0].device_kind}")
    print(f"matrix products: {fast_run * 1e3:8.1f} ms (compilation {fast_compile:.1f} s)")
    print(f"log space:       {slow_run * 1e3:8.1f} ms, {slow_run / fast_run:.1f} times as long")
    print(f"values: {fast(batch):.4f} and {slow(batch):.4f}")


if __name__ == "__main__":
    main()
