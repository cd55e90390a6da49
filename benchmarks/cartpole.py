"""CartPole with the policy network: steps per second here and in Gymnasium's vector environment.

Run: python benchmarks/cartpole.py [--batch 8192] [--episodes 131072]
Needs gymnasium for the rival. Compilation and steady state are apart; both run the same network.
"""

import argparse
import os
import statistics
import time

import gymnasium
import jax
import numpy as np
from jax import random

import osiris_jax as oj
from osiris_jax.worlds.rollout import outcomes, record

RUNS = 3


def timed(call, runs=RUNS):
    """(seconds of the first call, seconds of each later one), blocked."""
    seconds = []
    for number in range(runs + 1):
        start = time.perf_counter()
        jax.block_until_ready(call(number))
        seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1:]


def gymnasium_rate(world, mode, batch, steps):
    """Steps per second of a Gymnasium vector environment, the network evaluated by JAX."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=batch, vectorization_mode=mode)
    act = jax.jit(lambda obs, key: random.categorical(key, world.behavior.log_probs(obs)))
    observation, _ = env.reset(seed=0)
    np.asarray(act(observation, random.key(0)))
    start = time.perf_counter()
    for number in range(steps):
        action = np.asarray(act(observation, random.key(number)))
        observation, *_ = env.step(action)
    return batch * steps / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--episodes", type=int, default=131_072)
    options = parser.parse_args()
    world = oj.make("cartpole")
    decider = world.decider("behavior")
    load = os.getloadavg()[0]
    print(f"jax {jax.__version__} on {jax.devices()[0].platform}, load {load:.1f}")

    def without_storing(number):
        keys = random.key(number)[None]
        return outcomes(
            world.dynamics,
            decider,
            keys,
            options.episodes,
            steps=world.horizon,
            discount=1.0,
            lanes=options.batch,
        )

    total = int(without_storing(1).lengths.sum())
    first, later = timed(without_storing)
    rates = [total / seconds / 1e6 for seconds in later]
    free_rate = statistics.median(rates)
    print(
        f"batch {options.batch}, {options.episodes} episodes, nothing stored: first {first:.1f} s"
        f", then {free_rate:.2f} (best {max(rates):.2f}) million real steps/s"
    )

    trials, size = 20, 50
    keys = random.split(random.key(0), trials)
    steps = world.rollout(keys, size).mask.shape[-1]

    def stored(number):
        keys = random.split(random.key(0), trials)
        options = {"steps": steps, "lanes": world.lanes(0), "observations": False}
        return record(world.dynamics, decider, keys, size, **options).reward

    real = int(world.rollout(keys, size).lengths.sum())
    first, later = timed(stored)
    rate = real / statistics.median(later) / 1e6
    print(f"{trials} data sets of {size}, stored, {steps} steps wide: {rate:.2f} million steps/s")

    for mode, name, count in (
        ("sync", "Gymnasium's vector environment (sync)", 10),
        ("vector_entry_point", "Gymnasium's own NumPy vector CartPole", 200),
    ):
        rival = gymnasium_rate(world, mode, options.batch, count)
        ratio = free_rate * 1e6 / rival
        print(
            f"{name}, batch {options.batch}: {rival / 1e6:.3f} million steps/s, ours {ratio:.1f} x"
        )


if __name__ == "__main__":
    main()
