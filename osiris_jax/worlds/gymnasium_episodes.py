"""Episodes of a Gymnasium environment, in plain NumPy; as a script, it plays for another process.

It imports neither JAX nor the package, so that such a process starts at once and holds little.
"""

from __future__ import annotations

import io
import json
import os
import sys
import traceback
import warnings
from typing import IO, Any

import numpy as np

Episodes = dict[str, np.ndarray]
Weights = list[np.ndarray]


def weights_of(network: Any) -> Weights:
    """Of a `QNetwork` in float32: its scale [dim], then each layer's kernel [in, out] and bias."""
    dense = [network.params["params"][f"Dense_{layer}"] for layer in range(len(network.widths))]
    arrays = [layer[name] for layer in dense for name in ("kernel", "bias")]
    return [np.asarray(array, np.float32) for array in (network.scale, *arrays)]


def q_values(weights: Weights, observation: np.ndarray) -> np.ndarray:
    """[action] values of one observation [dim].

    `einsum` and not `@`: BLAS may round differently with another number of threads, and one
    rounding can change an action and with it the rest of the episode.
    """
    x = observation * weights[0]
    for number in range(1, len(weights), 2):
        kernel, bias = weights[number : number + 2]
        x = np.einsum("i,io->o", np.maximum(x, 0) if number > 1 else x, kernel) + bias
    return x


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


def send(stream: IO[bytes], **arrays: Any) -> None:
    """Writes arrays: the size of an .npz, and the .npz."""
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    stream.write(packed.tell().to_bytes(8, "big") + packed.getvalue())
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """Reads what `send` wrote; nothing is unpickled. An EOFError where the stream ends."""
    size = int.from_bytes(stream.read(8), "big")
    packed = stream.read(size)
    if not size or len(packed) < size:
        raise EOFError
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)


def send_task(stream: IO[bytes], env_id: str, weights: Weights, *numbers: Any) -> None:
    """Sends the arguments of `play`: the plain ones as JSON, and the weights."""
    send(stream, plain=json.dumps([env_id, *numbers]), **{f"{i}": x for i, x in enumerate(weights)})


def serve() -> None:
    """Answers tasks with episodes, or with a traceback as `failure`, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    while True:
        try:
            task = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            env_id, *numbers = json.loads(str(task.pop("plain")))
            answer = play(env_id, list(task.values()), *numbers)
        except Exception:
            answer = {"failure": np.array(traceback.format_exc())}
        send(answers, **answer)


if __name__ == "__main__":
    serve()
