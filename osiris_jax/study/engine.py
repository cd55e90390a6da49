"""Estimates every cell of a study's data sets on CPUs, or of a world that is played elsewhere.

Trials are divided over workers: one for each device, or one thread for each core of a single CPU.
A worker draws its data sets at once, and then estimates them in groups that fit a core's cache.
The data sets of a group have longest trajectories of similar lengths, so little of it is padding.
To what length a data set is padded depends on the study and on the data set itself; neither the
other trials, nor the chunks, nor the workers can change its values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.core.compiled import compiled
from osiris_jax.core.machine import cores
from osiris_jax.core.once import once
from osiris_jax.study.chunks import most_trials
from osiris_jax.study.kernel import (
    ARRAYS_OF_ACTION,
    Estimates,
    bytes_on_device,
    estimates_of,
    of_data_set,
)
from osiris_jax.study.plan import Study
from osiris_jax.study.source import (
    DataSets,
    Simulated,
    keys_of,
    padded_lengths,
    pilot_of,
    same_pilot,
    source_of,
)

QUANTILES = (0.5, 0.9, 1.0)
CELLS_IN_CACHE, CELLS_ON_DEVICE = 2**16, 2**24
ARRAYS_PER_LEVEL, ARRAYS_RECORDED = 3, 6


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
        study, steps = self.study, self.source.steps_needed
        if not self.on_cpu:
            return bytes_on_device(study, steps, per_level=ARRAYS_PER_LEVEL)
        arrays = ARRAYS_RECORDED
        if study.needs_probs:
            arrays += ARRAYS_OF_ACTION * study.world.num_actions
        return self.source.size * steps * arrays * np.dtype(study.dtype).itemsize

    def most_trials(self, memory: int | None) -> int:
        """In a chunk."""
        return most_trials(self.bytes_per_trial(), memory)

    def begin(self, trials: np.ndarray) -> Callable[[], np.ndarray]:
        """What computes the values once it is called: the cores are busy with those before."""
        return partial(self.values, trials)

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
        if not same_pilot(trials, self.study.trials):
            return False
        if self._lengths is None:
            self._lengths = self._padded_lengths(pilot_of(self.study)[None, :0], [])
        return all(
            self._group_size(steps, trials) == self._group_size(steps) for steps in self._lengths
        )

    def _drawn(self, double: bool, device: Any, trials: np.ndarray) -> DataSets:
        """The data sets of a worker; a thread does not inherit the float type in force."""
        with jax.enable_x64(double):
            return self.source.draw(keys_of(self.study.seed, trials), device)

    def _padded_lengths(self, parts: np.ndarray, drawn: list[DataSets]) -> tuple[int, ...]:
        """To which lengths data sets may be padded, by those of the first trials.

        Args:
          parts: [worker, trial] trials whose data sets are drawn already.
          drawn: those data sets.
        """
        first = pilot_of(self.study)
        if isinstance(self.source, Simulated) and not np.array_equal(
            parts.ravel()[: len(first)], first
        ):
            part = parts.shape[1] or len(first)
            some = (np.resize(first[i : i + part], part) for i in range(0, len(first), part))
            seed, device = self.study.seed, self.workers[0]
            drawn = [self.source.draw(keys_of(seed, trials), device) for trials in some]
        needed = self.source.pilot_lengths(drawn)[: len(first)]
        return padded_lengths(self.study, needed, QUANTILES)

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
                size = self._group_size(steps)
                places = members[np.arange(size) % len(members)]
                waiting.append((members, _estimate(estimates, take(drawn, places, steps))))
                collect(1)
            collect(0)
        return values

    def _groups(self, longest: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """The places of trials that are padded to the same length, and that length."""
        assert self._lengths is not None
        kind = np.searchsorted(self._lengths, longest)
        for number, steps in enumerate(self._lengths):
            alike = np.flatnonzero(kind == number)
            size = self._group_size(steps)
            for start in range(0, len(alike), size):
                yield alike[start : start + size], steps

    def _group_size(self, steps: int, trials: int | None = None) -> int:
        """How many data sets a worker estimates at once; not by its part, which may change."""
        most = self.study.trials if trials is None else trials
        cells = CELLS_IN_CACHE if self.on_cpu else CELLS_ON_DEVICE
        return int(np.clip(cells // (self.source.size * steps), 1, most))


@compiled
def _estimate(estimates: Estimates, drawn: DataSets) -> Array:
    return once(jax.vmap(of_data_set, (None, 0)))(estimates, drawn)
