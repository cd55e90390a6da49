"""Episodes of Gymnasium environments: played by several processes, each played once and kept."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
import warnings
from collections.abc import Generator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import bucket_length
from osiris_jax.core.files import read_arrays, write_arrays
from osiris_jax.core.terminal import stages
from osiris_jax.worlds import processes
from osiris_jax.worlds.gymnasium_episodes import Episodes, Weights, play_task, task_of

CACHE_FORMAT = 1
LARGEST_TASK = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Player:
    """An epsilon-greedy policy in an environment.

    Attributes:
      env_id: the environment's name in Gymnasium.
      weights: of the network of the greedy action.
      epsilon: probability of a uniformly random action.
      horizon: the largest number of steps of an episode.
      cache: folder of the episodes already played, or None.
      processes: how many play at once.
      progress: whether a bar on standard error shows the episodes played.
    """

    env_id: str
    weights: Weights
    epsilon: float
    horizon: int
    cache: Path | None
    processes: int | None
    progress: bool

    def episodes(self, keys: Array, n: int) -> list[Episodes]:
        """The first `n` episodes of each of keys [trial]; a trial is kept once it is complete."""
        paths = [self._path(key) for key in keys]
        kept = [_read(path) for path in paths]
        missing = {
            trial: _seeds(keys[trial], n)[count(episodes) :]
            for trial, episodes in enumerate(kept)
            if count(episodes) < n
        }
        with contextlib.closing(self._play(missing)) as completed:
            for trial, played in completed:
                kept[trial] = join([kept[trial], played]) if count(kept[trial]) else played
                if path := paths[trial]:
                    write_arrays(path, kept[trial])
        return [_first(episodes, n) for episodes in kept]

    def _play(self, seeds: dict[int, list[int]]) -> Generator[tuple[int, Episodes]]:
        """(trial, episodes of its seeds), each trial as soon as it is complete."""
        number = sum(map(len, seeds.values()))
        workers = self.processes or os.cpu_count() or 1
        size = min(LARGEST_TASK, max(1, number // (4 * workers)))
        places = [(trial, start) for trial in seeds for start in range(0, len(seeds[trial]), size)]
        fixed = self.env_id, self.weights, float(self.epsilon), int(self.horizon)
        tasks = [task_of(*fixed, seeds[trial][start : start + size]) for trial, start in places]
        parts = {trial: {} for trial in seeds}
        left = {trial: len(range(0, len(seeds[trial]), size)) for trial in seeds}
        with (
            stages(self.progress and number > 0) as show,
            processes.results(play_task, tasks, workers) as results,
        ):
            show(self.env_id, 0, number)
            done = 0
            for task, episodes in results:
                trial, start = places[task]
                parts[trial][start] = episodes
                left[trial] -= 1
                done += count(episodes)
                show(self.env_id, done, number)
                if not left[trial]:
                    yield trial, join([part for _, part in sorted(parts.pop(trial).items())])

    def _path(self, key: Array) -> Path | None:
        """The file of a key's episodes: its name is a digest of all that they depend on."""
        if self.cache is None:
            return None
        stream = str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key)).tolist()
        version = importlib.metadata.version("gymnasium")
        rules = self.env_id, version, float(self.epsilon), int(self.horizon)
        digest = hashlib.sha256(repr((CACHE_FORMAT, *rules, *stream)).encode())
        for array in self.weights.arrays():
            digest.update(repr(array.shape).encode())
            digest.update(array.tobytes())
        return Path(self.cache) / f"{digest.hexdigest()[:24]}.npz"


def count(episodes: Episodes) -> int:
    """How many episodes there are."""
    return len(episodes["lengths"])


def join(parts: list[Episodes]) -> Episodes:
    """The episodes of all parts, in order."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _first(episodes: Episodes, n: int) -> Episodes:
    steps = episodes["lengths"][:n].sum()
    return {name: a[: n if name == "lengths" else steps] for name, a in episodes.items()}


def _seeds(key: Array, n: int) -> list[int]:
    numbers = jnp.arange(bucket_length(n), dtype=jnp.uint32)  # few lengths, few compilations
    folded = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
    words = np.asarray(jax.random.key_data(folded)).astype(">u4")[:n]
    return [int.from_bytes(row.tobytes(), "big") for row in words]


def _read(path: Path | None) -> Episodes:
    """What the file holds: no episodes without a file or, with a warning, if it is damaged."""
    nothing = {"lengths": np.zeros(0, np.int32)}
    if path is None or not path.exists():
        return nothing
    try:
        episodes = read_arrays(path)
        steps = int(episodes["lengths"].sum())
        sizes = {name: len(array) for name, array in episodes.items() if name != "lengths"}
        if sizes != dict.fromkeys(("observation", "action", "greedy", "reward"), steps):
            raise ValueError(f"lengths of {steps} steps, arrays of {sizes}")
    except (ValueError, KeyError, TypeError, OSError) as error:
        warnings.warn(f"{path} is damaged and will be written anew: {error}", stacklevel=5)
        return nothing
    return episodes
