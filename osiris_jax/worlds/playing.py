"""Episodes of Gymnasium environments: played by several processes, each played once and kept."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import queue
import subprocess
import sys
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import bucket_length
from osiris_jax.core.files import read_arrays, write_arrays
from osiris_jax.core.terminal import stages
from osiris_jax.worlds import gymnasium_episodes
from osiris_jax.worlds.gymnasium_episodes import Episodes, Weights, play, receive, send_task

CACHE_FORMAT = 1
LARGEST_TASK = 8
Rules = tuple[str, Weights, float, int]


def episodes(
    keys: Array,
    n: int,
    rules: Rules,
    *,
    cache: Path | None,
    processes: int | None,
    progress: bool,
) -> Episodes:
    """The first `n` episodes of each of keys [trial], one trial after another.

    Args:
      keys, n: a trial is kept once it is complete.
      rules: what `play` takes before the seeds: environment, weights, epsilon, horizon.
      cache: folder of the episodes already played, or None.
      processes: how many play at once; None is one for each core.
      progress: whether a bar on standard error shows the episodes played.
    """
    paths = [None if cache is None else _path(cache, key, rules) for key in keys]
    kept = [_read(path) for path in paths]
    missing = {
        trial: _seeds(keys[trial], n)[count(trial_episodes) :]
        for trial, trial_episodes in enumerate(kept)
        if count(trial_episodes) < n
    }
    with closing(_play(rules, missing, processes or os.cpu_count() or 1, progress)) as completed:
        for trial, played in completed:
            kept[trial] = join([kept[trial], played]) if count(kept[trial]) else played
            if path := paths[trial]:
                write_arrays(path, kept[trial])
    return join([_first(trial_episodes, n) for trial_episodes in kept])


def _play(
    rules: Rules, seeds: dict[int, list[int]], workers: int, progress: bool
) -> Generator[tuple[int, Episodes]]:
    """(trial, episodes of its seeds), each trial as soon as it is complete."""
    number = sum(map(len, seeds.values()))
    size = min(LARGEST_TASK, max(1, number // (4 * workers)))
    places = [(trial, start) for trial in seeds for start in range(0, len(seeds[trial]), size)]
    tasks = [(*rules, seeds[trial][start : start + size]) for trial, start in places]
    parts, done = {trial: {} for trial in seeds}, 0
    with stages(progress and number > 0) as show, closing(results(tasks, workers)) as answers:
        show(rules[0], 0, number)
        for task, played in answers:
            trial, start = places[task]
            parts[trial][start] = played
            done += count(played)
            show(rules[0], done, number)
            if sum(map(count, parts[trial].values())) == len(seeds[trial]):
                yield trial, join([part for _, part in sorted(parts.pop(trial).items())])


def results(tasks: Sequence[tuple], processes: int) -> Generator[tuple[int, Episodes]]:
    """(number of the task, the episodes of `play(*task)`), in the order in which they finish.

    Unlike `multiprocessing`, this needs no `if __name__ == "__main__"` in the calling script, and
    the processes import only what `gymnasium_episodes` does. They end with the generator, whatever
    closes it; Ctrl-C reaches only the caller.

    Raises:
      RuntimeError: a task failed, or a process died.
    """
    if min(processes, len(tasks)) <= 1:
        yield from ((number, play(*task)) for number, task in enumerate(tasks))
        return
    workers = [_start() for _ in range(min(processes, len(tasks)))]
    idle = queue.SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def ask(task: tuple) -> Episodes:
        worker: Any = idle.get()
        try:
            send_task(worker.stdin, *task)
            answer = receive(worker.stdout)
        except (EOFError, OSError):
            raise RuntimeError(f"a process ended by itself with code {worker.wait()}") from None
        finally:
            idle.put(worker)
        if "failure" in answer:
            raise RuntimeError(f"a task failed in its process:\n{answer['failure']}")
        return answer

    threads = ThreadPoolExecutor(len(workers))
    try:
        numbers = {threads.submit(ask, task): number for number, task in enumerate(tasks)}
        yield from ((numbers[future], future.result()) for future in as_completed(numbers))
    finally:
        for worker in workers:
            worker.kill()
        threads.shutdown(cancel_futures=True)
        for worker in workers:
            with suppress(OSError), worker:
                pass


def _start() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-P", gymnasium_episodes.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def _path(cache: Path, key: Array, rules: Rules) -> Path:
    """The file of a key's episodes: its name is a digest of all that they depend on."""
    env_id, weights, *numbers = rules
    stream = str(jax.random.key_impl(key)), np.asarray(jax.random.key_data(key)).tolist()
    version = importlib.metadata.version("gymnasium")
    digest = hashlib.sha256(repr((CACHE_FORMAT, env_id, version, *numbers, *stream)).encode())
    for array in weights:
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes())
    return Path(cache) / f"{digest.hexdigest()[:24]}.npz"


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
