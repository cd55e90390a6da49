"""Simulates the data sets of a study and estimates every cell, on all cores or devices.

Trials are divided over workers: one for each device, or one thread for each core of a single CPU.
A worker simulates its trials at once, and then estimates them in groups that fit a core's cache.
The data sets of a group have longest trajectories of similar lengths, so little of it is padding.
To what length a data set is padded depends on the study and on the data set itself; neither the
other trials, nor the chunks, nor the workers can change its values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import bucket_length, pad_or_cut
from osiris_jax.core.compiled import compiled
from osiris_jax.core.random_streams import TARGET_STREAM
from osiris_jax.pipeline import selection
from osiris_jax.study.kernel import (
    ARRAYS,
    ARRAYS_PER_LEVEL,
    Inputs,
    Recipe,
    inputs_of,
    keys_of,
    of_data_set,
    recipe_of,
)
from osiris_jax.study.plan import Study
from osiris_jax.worlds.rollout import Shared, batch_of, outcomes, record_fields
from osiris_jax.worlds.world import World

PILOT_TRIALS, MANY_TRIALS = 64, 1000
QUANTILES, LARGEST_ONLY = (0.5, 0.9, 1.0), (1.0,)
CELLS_IN_CACHE = 2**16
ARRAYS_RECORDED = 6


class _Data(NamedTuple):
    """Data sets of a worker, a batch or as `Recorded`, and on-policy returns, if asked for."""

    keys: Array
    data: Any
    on_policy: Array | None


class Engine:
    """Values [trial, cell] of a study's trials, on all devices of this process.

    Args:
      study: what to compute.
      devices: over which trials are divided.
    """

    def __init__(self, study: Study, devices: list | None = None):
        self.study, self.recipe, self.inputs = study, recipe_of(study), inputs_of(study)
        devices = jax.local_devices() if devices is None else devices
        self.on_cpu = all(device.platform == "cpu" for device in devices)
        alone = self.on_cpu and len(devices) == 1 and isinstance(study.world, World)
        self.workers = devices * (_cores() if alone else 1)
        self.largest, self.num_cells = max(study.sizes), len(study.cells())
        self._lengths: tuple[int, ...] | None = None
        if isinstance(study.world, World):
            world = study.world
            behavior, target = world.decider("behavior"), world.decider("target")
            self._simulator = Shared.split((world.dynamics, behavior, target))
            self._data_reader = Shared.split((world.dynamics, behavior))

    @property
    def width(self) -> int:
        """How many trials are computed side by side, at least."""
        return len(self.workers)

    def bytes_per_trial(self) -> int:
        """A rough upper guess of the memory that one trial takes until it is estimated.

        On a CPU that is the data set as recorded, for few are estimated at a time.
        """
        world, recipe = self.study.world, self.recipe
        steps = world.horizon
        if isinstance(world, World):
            steps = world.steps_needed(self.keys(np.arange(8, dtype=np.uint32)), self.largest)
        arrays = ARRAYS_RECORDED
        if not self.on_cpu:
            chosen = len(recipe.methods) * len(selection.ALPHAS)
            levels = (len(self.inputs.alphas) + chosen) * len(recipe.omitting)
            arrays = ARRAYS + ARRAYS_PER_LEVEL * levels
        if recipe.probs:
            arrays += ARRAYS_PER_LEVEL * world.num_actions
        return self.largest * steps * arrays * np.dtype(self.study.dtype).itemsize

    def keys(self, trials: np.ndarray) -> Array:
        """[trial] the keys of these trials."""
        return keys_of(self.study.seed, trials)

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
            found = list(pool.map(partial(self._values_of, double), range(self.width), drawn))
        return np.concatenate(found)[: len(trials)]

    def keeps_values(self, trials: int) -> bool:
        """Whether the trials of a study that differs in their number alone have these values.

        They have if data sets are padded to the same lengths and estimated in groups of one size.
        """
        numbers = (trials, self.study.trials)
        if len({(min(n, PILOT_TRIALS), n >= MANY_TRIALS) for n in numbers}) > 1:
            return False
        if self._lengths is None:
            first = np.arange(min(PILOT_TRIALS, self.study.trials), dtype=np.uint32)[None]
            world = self.study.world
            simulated = isinstance(world, World)
            pilot = [self._simulated(world, self.workers[0], first[0])] if simulated else []
            self._lengths = self._padded_lengths(first, pilot)
        return all(
            self._group_size(steps, trials) == self._group_size(steps) for steps in self._lengths
        )

    def _drawn(self, double: bool, device: Any, trials: np.ndarray) -> _Data:
        """The data sets of a worker; a thread does not inherit the float type in force."""
        world = self.study.world
        draw = self._simulated if isinstance(world, World) else self._played
        with jax.enable_x64(double):
            return jax.block_until_ready(draw(world, device, trials))

    def _padded_lengths(self, parts: np.ndarray, drawn: list[_Data]) -> tuple[int, ...]:
        """To which lengths data sets may be padded, rising.

        Some quantiles of what the study's first trials need, and twice, four times, ... the
        largest, up to the horizon. With few trials, compiling for many lengths takes more time
        than padding, so only the largest. Worlds that are slow to play are not asked.
        """
        world = self.study.world
        if isinstance(world, World):
            first = np.arange(min(PILOT_TRIALS, self.study.trials), dtype=np.uint32)
            if not np.array_equal(parts.ravel()[: len(first)], first):
                part = parts.shape[1]
                some = (np.resize(first[i : i + part], part) for i in range(0, len(first), part))
                drawn = [self._simulated(world, self.workers[0], trials) for trials in some]
            needed = np.concatenate([_longest(data) for data in drawn])[: len(first)]
            shares = QUANTILES if self.study.trials >= MANY_TRIALS else LARGEST_ONLY
            lengths = [bucket_length(int(np.quantile(needed, share))) for share in shares]
        else:
            lengths = [bucket_length(-(-world.horizon // 8))]
        while lengths[-1] < world.horizon:
            lengths.append(2 * lengths[-1])
        return tuple(sorted({min(length, world.horizon) for length in lengths}))

    def _values_of(self, double: bool, worker: int, drawn: _Data) -> np.ndarray:
        """[trial, cell] of the data sets of one worker.

        Every second worker begins with the longest, so that two compile at a time.
        """
        device, longest = self.workers[worker], _longest(drawn)
        values = np.zeros((len(longest), self.num_cells))
        with jax.enable_x64(double), jax.default_device(device):
            estimate = self._estimator(device)
            waiting: list[tuple[np.ndarray, Array]] = []
            for members, steps in list(self._groups(longest))[:: -1 if worker % 2 else 1]:
                waiting.append((members, estimate(drawn, members, steps)))
                if len(waiting) > 1:
                    _collect(values, *waiting.pop(0))
            for members, found in waiting:
                _collect(values, members, found)
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
        return int(np.clip(CELLS_IN_CACHE // (self.largest * steps), 1, most))

    def _simulated(self, world: World, device: Any, trials: np.ndarray) -> _Data:
        with jax.default_device(device):
            keys = jax.device_put(self.keys(trials), device)
            leaves, shared = self._simulator
            lanes = world.lanes(len(trials) * self.largest)
            steps = world.steps_needed(keys, self.largest)
            return _simulate(leaves, keys, shared, self.recipe, steps, world.horizon, lanes)

    def _played(self, world: Any, device: Any, trials: np.ndarray) -> _Data:
        keys = self.keys(trials)
        batch = world.rollout(keys, self.largest, observations=False, probs=self.recipe.probs)
        batch = batch.replace(num_states=bucket_length(batch.num_states))
        returns = None
        if self.recipe.on_policy is not None:
            found = world.returns(_of_target(keys), self.largest, discount=self.study.discount)
            returns = jnp.asarray(found.returns, batch.dtype)
        return jax.device_put(_Data(keys, batch, returns), device)

    def _estimator(self, device: Any) -> Callable[[_Data, np.ndarray, int], Array]:
        """What gives [member, cell] of the data sets at some places, and of some more."""
        inputs, recipe = jax.device_put(self.inputs, device), self.recipe
        simulated = isinstance(self.study.world, World)
        leaves, shared = self._data_reader if simulated else ([], None)
        leaves = jax.device_put(leaves, device)

        def estimate(drawn: _Data, members: np.ndarray, steps: int) -> Array:
            size = self._group_size(steps) if self.on_cpu else len(members)
            places = members[np.arange(size) % len(members)]
            if simulated:
                taken = _restore(leaves, drawn, places, shared, recipe, steps)
            else:
                taken = _take(drawn, places, steps)
            return _estimate(inputs, taken, recipe)

        return estimate


def _collect(values: np.ndarray, members: np.ndarray, found: Array) -> None:
    values[members] = np.asarray(found)[: len(members)]


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _of_target(keys: Array) -> Array:
    return jax.vmap(random.fold_in, (0, None))(keys, TARGET_STREAM)


def _longest(drawn: _Data) -> np.ndarray:
    """[trial] the length of the longest trajectory of each data set."""
    return np.asarray(drawn.data.lengths).max(1)


@compiled(static_argnames=("shared", "recipe", "steps", "horizon", "lanes"))
def _simulate(leaves, keys, shared, recipe: Recipe, steps, horizon, lanes) -> _Data:
    dynamics, behavior, target = shared.restore(leaves)
    largest = max(recipe.sizes)
    options = {"observations": False, "probs": recipe.probs}
    data = record_fields(dynamics, behavior, keys, largest, steps=steps, lanes=lanes, **options)
    returns = None
    if recipe.on_policy is not None:
        returns = outcomes(
            dynamics,
            target,
            _of_target(keys),
            largest,
            steps=horizon,
            discount=recipe.discount,
            lanes=lanes,
        ).returns
    return _Data(keys, data, returns)


@compiled(static_argnames=("shared", "recipe", "steps"))
def _restore(leaves, drawn: _Data, places, shared, recipe: Recipe, steps: int) -> _Data:
    """The simulated data sets at these places, with so many steps.

    Compiled apart, so that what is looked up is looked up once, and not again in every kernel.
    """
    dynamics, behavior = shared.restore(leaves)
    keys, data, on_policy = jax.tree.map(lambda x: x[places], drawn)
    batch = batch_of(dynamics, behavior, data.pad_or_cut(steps), probs=recipe.probs)
    return _Data(keys, batch, on_policy)


@compiled(static_argnames="steps")
def _take(drawn: _Data, places, steps: int) -> _Data:
    """The played data sets at these places, with so many steps."""
    keys, batch, on_policy = jax.tree.map(lambda x: x[places], drawn)
    return _Data(keys, pad_or_cut(batch, steps), on_policy)


@compiled(static_argnames="recipe")
def _estimate(inputs: Inputs, drawn: _Data, recipe: Recipe) -> Array:
    return jax.vmap(partial(of_data_set, recipe, inputs))(*drawn)
