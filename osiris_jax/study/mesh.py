"""A study's step on accelerators: data sets are simulated and estimated in one program.

The program runs on every device of a mesh, each with its own trials, and no device waits for
another. It pads trajectories to a length that holds most trials; those that it does not hold are
computed again by the program of the next length, which holds more. So a trial's values depend on
its data and on the study, and neither on its chunk nor on how many devices there are.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding

from osiris_jax.core.compiled import compiled
from osiris_jax.core.memory import free
from osiris_jax.core.once import once
from osiris_jax.core.platforms import ALL, EACH, GPUS, mesh_of, over_devices
from osiris_jax.study.kernel import Estimates, bytes_on_device, estimates_of, of_data_set
from osiris_jax.study.plan import Study
from osiris_jax.study.source import (
    DataSets,
    Simulated,
    keys_of,
    padded_lengths,
    pilot_of,
    same_pilot,
    simulated,
)
from osiris_jax.worlds.rollout import Shared, batch_of

LANES = 2**15
SHARES_OF_LENGTHS = (0.9, 1.0)
SHARES, LEAST_AT_ONCE, MOST_AT_ONCE = 64, 16, 4096
SHARE_OF_DEVICE = 0.75
CALLS_IN_CHUNK = 4
IN_ORDER = "xla_gpu_deterministic_ops"


class Found(NamedTuple):
    """What a program finds of each trial.

    Attributes:
      values: [trial, cell].
      longest: [trial] the length of the longest trajectory, or that of the program if it is longer.
    """

    values: Array
    longest: Array


@dataclasses.dataclass(frozen=True)
class Shape:
    """What selects a compiled program."""

    mesh: Mesh
    shared: Shared
    size: int
    steps: int
    lanes: int
    probs: bool
    horizon: int | None


@compiled(static_argnames="shape")
def found_on_mesh(
    estimates: Estimates, leaves: list, discount: Array, keys: Array, *, shape: Shape
) -> Found:
    """Simulates, restores and estimates the data sets of all keys, each device its own."""
    return over_devices(partial(_found, shape), shape.mesh, (estimates, leaves, discount), keys)


def _found(shape: Shape, estimates: Estimates, leaves: list, discount: Array, keys: Array) -> Found:
    drawn = simulated(
        leaves,
        keys,
        discount,
        shared=shape.shared,
        size=shape.size,
        steps=shape.steps,
        lanes=shape.lanes,
        probs=shape.probs,
        horizon=shape.horizon,
    )
    dynamics, behavior, _ = shape.shared.restore(leaves)
    batch = batch_of(dynamics, behavior, drawn.data, steps=shape.steps, probs=shape.probs)
    data = DataSets(keys, batch, drawn.on_policy)
    return Found(once(jax.vmap(of_data_set, (None, 0)))(estimates, data), drawn.data.lengths.max(1))


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """The step of a study for so many trials on each device of a mesh, padded to one length."""

    study: Study
    shape: Shape
    trials: int
    estimates: Estimates
    leaves: list

    @property
    def calls(self) -> int:
        """Trials of a call, on all devices."""
        return self.trials * self.shape.mesh.size

    @property
    def common(self) -> tuple[Any, Any, Any]:
        """All that is on every device: what to estimate, the world and the discount."""
        return self.estimates, self.leaves, jnp.asarray(self.study.discount, self.study.dtype)

    @cached_property
    def _placed(self) -> tuple[Any, Any, Any]:
        return jax.device_put(self.common, NamedSharding(self.shape.mesh, ALL))

    def __call__(self, trials: np.ndarray) -> Found:
        """Begins to compute as many trials as the program is for."""
        keys = keys_of(self.study.seed, trials)
        return self.executable(
            *self._placed, jax.device_put(keys, NamedSharding(self.shape.mesh, EACH))
        )

    @cached_property
    def executable(self) -> Any:
        return self.lower().compile(compiler_options=self.options)

    @property
    def options(self) -> dict[str, bool]:
        """On a GPU sums are made in one order, unless the user has said how they shall be."""
        of_gpu = self.shape.mesh.devices.flat[0].platform in ("gpu", *GPUS)
        return (
            {IN_ORDER: True} if of_gpu and IN_ORDER not in os.environ.get("XLA_FLAGS", "") else {}
        )

    def lower(self) -> Any:
        """The program for the mesh's devices, which need not be there."""

        def described(tree: Any, spec: Any) -> Any:
            sharding = NamedSharding(self.shape.mesh, spec)
            return jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                jax.eval_shape(lambda: tree),
            )

        keys = keys_of(self.study.seed, np.zeros(self.calls, np.uint32))
        return found_on_mesh.lower(
            *described(self.common, ALL), described(keys, EACH), shape=self.shape
        )

    def memory(self) -> int:
        """Bytes of a device that a call takes, as the compiler says; 0 where it does not."""
        told = self.executable.memory_analysis()
        parts = ("temp_size_in_bytes", "output_size_in_bytes", "argument_size_in_bytes")
        return sum(int(getattr(told, part, 0)) for part in parts)


def program_of(study: Study, mesh: Mesh, trials: int, steps: int | None = None) -> Program:
    """The program of a study, by default of the length that holds most trials.

    Args:
      trials: on each device.
    """
    source = Simulated(study)
    leaves, shared = source.simulator
    shape = Shape(
        mesh=mesh,
        shared=shared,
        size=source.size,
        steps=lengths_of(study)[0] if steps is None else steps,
        lanes=study.world.lanes(trials * source.size, most=LANES),
        probs=study.needs_probs,
        horizon=study.world.horizon if study.is_on_policy else None,
    )
    return Program(study, shape, trials, estimates_of(study), leaves)


def lengths_of(study: Study) -> tuple[int, ...]:
    """The lengths of a study's programs, rising: what most, all, and longer trials need."""
    first = keys_of(study.seed, pilot_of(study))
    played = study.world.returns(first, max(study.sizes), policy="behavior")
    return padded_lengths(study, np.asarray(played.lengths).max(1), SHARES_OF_LENGTHS)


class OnMesh:
    """Values [trial, cell] of a study's trials, on all devices of a mesh.

    Args:
      study: of a world that runs in JAX.
      devices: of the mesh, all of one kind.
      memory: bytes that a call may take on each device; by default a share of what it has.
    """

    def __init__(self, study: Study, devices: Sequence[Any], memory: int | None = None):
        self.study, self.mesh = study, mesh_of(devices)
        self.num_cells = len(study.cells())
        self.memory = int(SHARE_OF_DEVICE * memory_of(devices)) if memory is None else memory
        self._programs: dict[int, Program] = {}

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        return lengths_of(self.study)

    def at_once(self, number: int, trials: int | None = None) -> int:
        """How many trials a device takes in a call of program `number`, at most.

        As many as have lanes in the simulator and fit the memory; a few of them in a small study,
        lest a single device have all. Neither chunks nor the number of devices have a say in it.
        """
        size, steps = max(self.study.sizes), self.lengths[number]
        share = max((self.study.trials if trials is None else trials) / SHARES, LEAST_AT_ONCE)
        fits = self.memory // bytes_on_device(self.study, steps)
        most = _power_of_two_in(min(LANES / size, fits, MOST_AT_ONCE))
        at_once = min(2 ** math.ceil(math.log2(share)), most)
        return at_once if number == 0 else max(at_once // 8, 1)

    def most_trials(self, memory: int | None) -> int:
        """In a chunk: whole calls, some of which wait while others are computed."""
        return CALLS_IN_CHUNK * self._program(0).calls

    def keeps_values(self, trials: int) -> bool:
        """Whether the trials of a study that differs in their number alone have these values."""
        return same_pilot(trials, self.study.trials) and all(
            self.at_once(number, trials) == self.at_once(number)
            for number in range(len(self.lengths))
        )

    def begin(self, trials: np.ndarray) -> Callable[[], np.ndarray]:
        """Begins to compute; what it returns waits for the values, [trial, cell] in float64."""
        trials = np.asarray(trials, np.uint32)
        return partial(self._finish, trials, self._begin(0, trials))

    def _program(self, number: int) -> Program:
        """A program that fits the memory, by the guess or else by what the compiler says."""
        if number not in self._programs:
            steps, at_once = self.lengths[number], self.at_once(number)
            program = program_of(self.study, self.mesh, at_once, steps)
            while program.memory() > self.memory and program.trials > 1:
                program = program_of(self.study, self.mesh, program.trials // 2, steps)
            self._programs[number] = program
        return self._programs[number]

    def _begin(self, number: int, trials: np.ndarray) -> list[Found]:
        program = self._program(number)
        padded = np.pad(trials, (0, -len(trials) % program.calls), mode="edge")
        return [program(part) for part in padded.reshape(-1, program.calls)]

    def _finish(self, trials: np.ndarray, begun: list[Found]) -> np.ndarray:
        values, missing = np.zeros((len(trials), self.num_cells)), np.arange(len(trials))
        for number, steps in enumerate(self.lengths):
            if number:
                begun = self._begin(number, trials[missing])
            parts = zip(*jax.device_get(begun), strict=True)
            found, longest = (np.concatenate(part)[: len(missing)] for part in parts)
            holds = (longest < steps) | (steps == self.study.world.horizon)
            values[missing[holds]] = found[holds]
            missing = missing[~holds]
            if not len(missing):
                break
        return values


def _power_of_two_in(number: float) -> int:
    """The largest power of two that is not above it; at least 1."""
    return 2 ** math.floor(math.log2(max(number, 1)))


def memory_of(devices: Sequence[Any]) -> int:
    """Bytes that the smallest of the devices has; its part of the free ones where it has no own."""
    told = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    return min(int(x) for x in told if x) if all(told) else free() // len(devices)
