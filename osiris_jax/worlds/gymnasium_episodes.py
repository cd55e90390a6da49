"""Episodes of a Gymnasium environment, in plain NumPy; as a script, it plays for another process.

It imports neither JAX nor the package, so that such a process starts at once and holds little.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import traceback
import warnings
from typing import IO, Any, NamedTuple

import numpy as np

Episodes = dict[str, np.ndarray]


class Weights(NamedTuple):
    """The float32 arrays of a Q-network.

    Attributes:
      scale: [dim] what observations are multiplied by first.
      layers: (kernel [in, out], bias [out]) of every layer.
    """

    scale: np.ndarray
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    def arrays(self) -> list[np.ndarray]:
        """The scale, then the kernel and the bias of every layer."""
        return [self.scale, *itertools.chain(*self.layers)]


def weights_of(network: Any) -> Weights:
    """The arrays of a `QNetwork`."""
    dense = [network.params["params"][f"Dense_{layer}"] for layer in range(len(network.widths))]
    layers = tuple((_float32(layer["kernel"]), _float32(layer["bias"])) for layer in dense)
    return Weights(_float32(network.scale), layers)


def q_values(weights: Weights, observation: np.ndarray) -> np.ndarray:
    """[action] values of one observation [dim].

    `einsum` and not `@`: BLAS may round differently with another number of threads, and one
    rounding can change an action and with it the rest of the episode.
    """
    x = observation * weights.scale
    for number, (kernel, bias) in enumerate(weights.layers):
        x = np.einsum("i,io->o", np.maximum(x, 0) if number else x, kernel) + bias
    return x


def task_of(
    env_id: str, weights: Weights, epsilon: float, horizon: int, seeds: list[int]
) -> dict[str, Any]:
    """The arguments of `play`, of which a process that has no such classes can make sense."""
    rules = {"env_id": env_id, "epsilon": epsilon, "horizon": horizon, "seeds": seeds}
    return {**rules, "weights": tuple(weights)}


def play_task(task: dict[str, Any]) -> Episodes:
    """`play` with the arguments in a task."""
    return play(**{**task, "weights": Weights(*task["weights"])})


def play(env_id: str, weights: Weights, epsilon: float, horizon: int, seeds: list[int]) -> Episodes:
    """One epsilon-greedy episode for each seed; `horizon` replaces the registered time limit.

    Returns:
      lengths [episode]; observation [step, dim] and action, greedy, reward [step], the episodes
      one after another.
    """
    import gymnasium

    with warnings.catch_warnings():
        # Where warnings are errors, the deprecations in Box2D's import crash the interpreter.
        warnings.simplefilter("ignore")
        env = gymnasium.make(env_id).unwrapped
    rows, lengths = [], []
    for seed in seeds:
        episode = _play_one(env, weights, epsilon, horizon, seed)
        rows += episode
        lengths.append(len(episode))
    env.close()
    observation, action, greedy, reward = zip(*rows, strict=True)
    return {
        "lengths": np.asarray(lengths, np.int32),
        "observation": np.asarray(observation, np.float32),
        "action": np.asarray(action, np.uint8),
        "greedy": np.asarray(greedy, np.uint8),
        "reward": np.asarray(reward, np.float64),
    }


def _play_one(env: Any, weights: Weights, epsilon: float, horizon: int, seed: int) -> list[tuple]:
    # The environment itself uses the seed's own generator; a spawned one is independent of it.
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    observation, _ = env.reset(seed=seed)
    rows, terminated = [], False
    while not terminated and len(rows) < horizon:
        values = q_values(weights, observation)
        greedy = int(values.argmax())
        explores = generator.random() < epsilon
        action = int(generator.integers(len(values))) if explores else greedy
        following, reward, terminated, _, _ = env.step(action)
        rows.append((observation, action, greedy, reward))
        observation = following
    return rows


def _float32(array: Any) -> np.ndarray:
    return np.asarray(array, np.float32)


def send(stream: IO[bytes], message: Any) -> None:
    """Writes a message that `pickle.load` reads."""
    pickle.dump(message, stream)
    stream.flush()


def serve() -> None:
    """Answers tasks with episodes, or with a traceback as `failure`, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = play_task(task)
        except Exception:
            answer = {"failure": traceback.format_exc()}
        send(answers, answer)


if __name__ == "__main__":
    serve()
