"""Estimates every cell of a study's data sets, on all cores or devices.

Trials are divided over workers: one for each device, or one thread for each core of a single CPU.
A worker draws its data sets at once, and then estimates them in groups that fit a core's cache.
The data sets of a group have longest trajectories of similar lengths, so little of it is padding.
To what length a data set is padded depends on the study and on the data set itself; neither the
other trials, nor the chunks, nor the workers can change its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import bucket_length
from osiris_jax.core.compiled import compiled
from osiris_jax.core.machine import cores
from osiris_jax.pipeline import selection
from osiris_jax.study.kernel import Estimates, estimates_of, of_data_set
from osiris_jax.study.plan import Study
from osiris_jax.study.source import DataSets, Simulated, keys_of, source_of

PILOT_TRIALS, MANY_TRIALS = 64, 1000
QUANTILES, LARGEST_ONLY = (0.5, 0.9, 1.0), (1.0,)
CELLS_IN_CACHE = 2**16
ARRAYS, ARRAYS_PER_LEVEL, ARRAYS_RECORDED = 16, 3, 6


class Engine:
    """Values [trial, cell] of a study's trials, on all devices of this process.

    Args:
      study: what to compute.
      devices: over which trials are divided.
    """

    def __init__(self, study: Study, devices: list | None = None):
        self.study, self.source = study, source_of(study)
        self.estimates = estimates_of(study)
        devices = jax.local_devices() if devices is None else devices
        self.on_cpu = all(device.platform == "cpu" for device in devices)
        alone = self.on_cpu and len(devices) == 1 and isinstance(self.source, Simulated)
        self.workers = devices * (cores() if alone else 1)
        self.num_cells = len(study.cells())
        self._lengths: tuple[int, ...] | None = None

    @property
    def width(self) -> int:
        """How many trials are computed side by side, at least."""
        return len(self.workers)

    def bytes_per_trial(self) -> int:
        """A rough upper guess of the memory that one trial takes until it is estimated.

        On a CPU that is the data set as recorded, for few are estimated at a time.
        """
        arrays = ARRAYS_RECORDED
        if not self.on_cpu:
            chosen = len(self.study.methods) * len(selection.ALPHAS)
            levels = (len(self.study.levels) + chosen) * len(self.study.omitting)
            arrays = ARRAYS + ARRAYS_PER_LEVEL * levels
        if self.study.needs_probs:
            arrays += ARRAYS_PER_LEVEL * self.study.world.num_actions
        cells = self.source.size * self.source.steps_needed
        return cells * arrays * np.dtype(self.study.dtype).itemsize

    def values(self, trials: np.ndarray) -> np.ndarray:
        """[trial, cell] in float64."""
        part = -(-len(trials) // self.width)
        padded = np.pad(trials, (0, part * self.width - len(trials)), mode="edge")
        parts = padded.astype(np.uint32).reshape(self.width, part)
        double = jnp.result_type(float) == jnp.float64
        with ThreadPoolExecutor(self.width) as pool:
            drawn = list(pool.map(partial(self._drawn, double), self.workers, parts))
            if self._lengths is None:
                self._lengths = self._padded_lengths(parts, drawn)
            values = list(pool.map(partial(self._values_of, double), range(self.width), drawn))
        return np.concatenate(values)[: len(trials)]

    def keeps_values(self, trials: int) -> bool:
        """Whether the trials of a study that differs in their number alone have these values.

        They have if data sets are padded to the same lengths and estimated in groups of one size.
        """
        numbers = (trials, self.study.trials)
        if len({(min(n, PILOT_TRIALS), n >= MANY_TRIALS) for n in numbers}) > 1:
            return False
        if self._lengths is None:
            self._lengths = self._padded_lengths(self._pilot()[None, :0], [])
        return all(
            self._group_size(steps, trials) == self._group_size(steps) for steps in self._lengths
        )

    def _drawn(self, double: bool, device: Any, trials: np.ndarray) -> DataSets:
        """The data sets of a worker; a thread does not inherit the float type in force."""
        with jax.enable_x64(double):
            return self.source.draw(keys_of(self.study.seed, trials), device)

    def _pilot(self) -> np.ndarray:
        """The trials whose lengths decide to what all are padded."""
        return np.arange(min(PILOT_TRIALS, self.study.trials), dtype=np.uint32)

    def _padded_lengths(self, parts: np.ndarray, drawn: list[DataSets]) -> tuple[int, ...]:
        """To which lengths data sets may be padded, rising.

        Some quantiles of what the study's first trials need, and twice, four times, ... the
        largest, up to the horizon. With few trials, compiling for many lengths takes more time
        than padding, so only the largest.

        Args:
          parts: [worker, trial] trials whose data sets are drawn already.
          drawn: those data sets.
        """
        first, horizon = self._pilot(), self.study.world.horizon
        if isinstance(self.source, Simulated) and not np.array_equal(
            parts.ravel()[: len(first)], first
        ):
            part = parts.shape[1] or len(first)
            some = (np.resize(first[i : i + part], part) for i in range(0, len(first), part))
            seed, device = self.study.seed, self.workers[0]
            drawn = [self.source.draw(keys_of(seed, trials), device) for trials in some]
        needed = self.source.pilot_lengths(drawn)[: len(first)]
        shares = QUANTILES if self.study.trials >= MANY_TRIALS else LARGEST_ONLY
        lengths = [bucket_length(int(np.quantile(needed, share))) for share in shares]
        while lengths[-1] < horizon:
            lengths.append(2 * lengths[-1])
        return tuple(sorted({min(length, horizon) for length in lengths}))

    def _values_of(self, double: bool, worker: int, drawn: DataSets) -> np.ndarray:
        """[trial, cell] of the data sets of one worker.

        Every second worker begins with the longest, so that two compile at a time.
        """
        device, longest = self.workers[worker], drawn.longest
        values = np.zeros((len(longest), self.num_cells))
        with jax.enable_x64(double), jax.default_device(device):
            estimates, take = jax.device_put(self.estimates, device), self.source.taker(device)
            waiting: list[tuple[np.ndarray, Array]] = []

            def collect(most_waiting: int) -> None:
                while len(waiting) > most_waiting:
                    members, computed = waiting.pop(0)
                    values[members] = np.asarray(computed)[: len(members)]

            for members, steps in list(self._groups(longest))[:: -1 if worker % 2 else 1]:
                size = self._group_size(steps) if self.on_cpu else len(members)
                places = members[np.arange(size) % len(members)]
                waiting.append((members, _estimate(estimates, take(drawn, places, steps))))
                collect(1)
            collect(0)
        return values

    def _groups(self, longest: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """The places of trials that are padded to the same length, and that length.

        An accelerator takes all at once, and a core what fits its cache.
        """
        assert self._lengths is not None
        if not self.on_cpu:
            steps = min(bucket_length(int(longest.max())), self.study.world.horizon)
            yield np.arange(len(longest)), steps
            return
        kind = np.searchsorted(self._lengths, longest)
        for number, steps in enumerate(self._lengths):
            alike = np.flatnonzero(kind == number)
            size = self._group_size(steps)
            for start in range(0, len(alike), size):
                yield alike[start : start + size], steps

    def _group_size(self, steps: int, trials: int | None = None) -> int:
        """How many data sets a core estimates at once; not by its part, which may change."""
        most = self.study.trials if trials is None else trials
        return int(np.clip(CELLS_IN_CACHE // (self.source.size * steps), 1, most))


@compiled
def _estimate(estimates: Estimates, drawn: DataSets) -> Array:
    return jax.vmap(partial(of_data_set, estimates))(drawn)
