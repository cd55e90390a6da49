"""CartPole with the policy network: steps per second here and in Gymnasium's vector environment.

Run: python benchmarks/cartpole.py [--batch 8192] [--episodes 131072]
Needs gymnasium for the rival. Compilation and steady state are apart; both run the same network.
"""

from functools import partial

import gymnasium
import jax
import numpy as np
import typer
from jax import random
from workbench import machine, timed

import osiris_jax as oj
from osiris_jax.bench.harness import measure
from osiris_jax.worlds.rollout import outcomes, record

RUNS, TRIALS, SIZE = 3, 20, 50
RIVALS = {
    "Gymnasium's vector environment (sync)": ("sync", 10),
    "Gymnasium's own NumPy vector CartPole": ("vector_entry_point", 200),
}


def gymnasium_rate(world, mode, batch, steps):
    """Million steps per second of a Gymnasium vector environment, the network evaluated by JAX."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=batch, vectorization_mode=mode)
    act = jax.jit(lambda obs, key: random.categorical(key, world.behavior.log_probs(obs)))
    observation, _ = env.reset(seed=0)
    np.asarray(act(observation, random.key(0)))

    def play(observation):
        for number in range(steps):
            action = np.asarray(act(observation, random.key(number)))
            observation, *_ = env.step(action)

    return batch * steps / timed(partial(play, observation))[1] / 1e6


def main(batch: int = 8192, episodes: int = 131_072):
    """Prints the steps per second, ours first."""
    world = oj.make("cartpole")
    simulator = world.dynamics, world.decider("behavior")
    print(f"jax {jax.__version__} on {machine()}")

    sizes = {"steps": world.horizon, "discount": 1.0, "lanes": batch}
    free = partial(outcomes, *simulator, random.key(1)[None], episodes, **sizes)
    times = measure(free, runs=RUNS)
    million_steps = int(free().lengths.sum()) / 1e6
    rate = million_steps / times.median
    print(
        f"batch {batch}, {episodes} episodes, nothing stored: first {times.first:.1f} s"
        f", then {rate:.2f} (best {million_steps / times.least:.2f}) million real steps/s"
    )

    keys = random.split(random.key(0), TRIALS)
    batches = world.rollout(keys, SIZE, observations=False)
    steps = batches.mask.shape[-1]
    sizes = {"steps": steps, "lanes": world.lanes(0), "observations": False}
    stored = measure(partial(record, *simulator, keys, SIZE, **sizes), runs=RUNS).median
    speed = int(batches.lengths.sum()) / stored / 1e6
    print(f"{TRIALS} data sets of {SIZE}, stored, {steps} steps wide: {speed:.2f} million steps/s")

    for name, (mode, count) in RIVALS.items():
        rival = gymnasium_rate(world, mode, batch, count)
        print(f"{name}, batch {batch}: {rival:.3f} million steps/s, ours {rate / rival:.1f} x")


if __name__ == "__main__":
    typer.run(main)
