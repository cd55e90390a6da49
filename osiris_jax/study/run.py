"""Runs trials chunk by chunk, on every device, resumable, never half written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import jax
import numpy as np
from jax.experimental import multihost_utils

from osiris_jax.study.chunks import Chunks, Progress, silent
from osiris_jax.study.engine import Engine
from osiris_jax.study.mesh import OnMesh
from osiris_jax.study.plan import Study
from osiris_jax.study.store import Experiment, FolderStore, Store
from osiris_jax.study.summary import StudyResult, cell_moments, notes_of, rows_of, truth_of
from osiris_jax.worlds.world import World

MOST_DEVICES = 1024


def run(
    study: Study,
    *,
    out: str | Path | None = None,
    memory: int | None = None,
    chunk_size: int | None = None,
    devices: list | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Computes all trials that are not there yet, then the summary.

    Args:
      study: what to compute.
      out: folder for the trials; the same study again, also with more trials, goes on where it
        stopped. None keeps everything in memory.
      memory: bytes that a chunk of trials may take, or a call on each accelerator; by default a
        share of what is free, at most half a gigabyte, or of what an accelerator has.
      chunk_size: trials per chunk, in place of `memory`. A folder keeps the one it began with.
      devices: to divide trials over; by default all of this process. With several processes
        (`jax.distributed`) each computes its own chunks, and all must see the same folder.
      progress: called with ("trials", done, total).
    """
    progress = progress or silent
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size: expected a positive number, got {chunk_size}")
    with jax.enable_x64(study.dtype == "float64"):
        engine = engine_of(study, devices, memory)
        store = compute(
            study, engine, out=out, memory=memory, chunk_size=chunk_size, progress=progress
        )
        progress("truth", 0, 1)
        truth = truth_of(study)
        progress("truth", 1, 1)
        moments = cell_moments(store.parts, truth.value)
        rows = rows_of(study.world.name, study.trials, study.cells(), moments, truth)
        notes, folder = notes_of(study, moments, rows), None if out is None else Path(out)
        return StudyResult(study, truth, rows, notes, store, folder)


class Computes(Protocol):
    """What computes the values of an experiment; see `Engine` and `OnMesh`."""

    def most_trials(self, memory: int | None) -> int: ...
    def begin(self, trials: np.ndarray) -> Callable[[], np.ndarray]: ...
    def keeps_values(self, trials: int) -> bool: ...


def engine_of(
    study: Study, devices: list | None = None, memory: int | None = None
) -> Engine | OnMesh:
    """What computes a study on these devices, by default all of this process."""
    devices = jax.local_devices() if devices is None else devices
    if isinstance(study.world, World) and are_accelerators(devices):
        return OnMesh(study, devices, memory)
    return Engine(study, devices)


def are_accelerators(devices: list) -> bool:
    return all(device.platform != "cpu" for device in devices)


def compute(
    experiment: Experiment,
    engine: Computes,
    *,
    out: str | Path | None = None,
    memory: int | None = None,
    chunk_size: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """The values of all trials, those that are missing computed; options as for `run`."""
    several = jax.process_count() > 1
    size = _chunk_size(experiment, engine, memory, chunk_size)
    if several:
        size = int(multihost_utils.broadcast_one_to_all(np.int32(size)))
    if out is None:
        if several:
            raise ValueError("out: several processes need a folder that all of them see")
        store = Store(experiment, Chunks(experiment.trials, size))
    else:
        store = FolderStore.open(experiment, Path(out), size)
        if not several:
            store.remove_leftovers()
        before, now = store.chunks_before.trials, experiment.trials
        if before != now and not engine.keeps_values(before):
            raise ValueError(
                f"trials: {store.folder} holds {before}, and in a study of {now} they would be "
                "computed in another shape and rounded otherwise; choose another folder"
            )
    store = _compute(engine, store, progress or silent)
    if several:
        multihost_utils.sync_global_devices("computed")
    return store


def _chunk_size(
    experiment: Experiment, engine: Computes, memory: int | None, given: int | None
) -> int:
    if given is not None:
        return max(1, min(given, experiment.trials))
    if memory is not None and memory <= 0:
        raise ValueError(f"memory: expected a positive number of bytes, got {memory}")
    return Chunks.even(experiment.trials, engine.most_trials(memory)).size


def _compute(engine: Computes, store: Store, progress: Progress) -> Store:
    chunks = store.chunks
    missing = [chunk for chunk in range(chunks.number) if not store.has(chunk)]
    mine = [c for c in missing if c % jax.process_count() == jax.process_index()]
    done = chunks.trials - sum(len(chunks.of(chunk)) for chunk in missing)
    progress("trials", done, chunks.trials)
    if missing and isinstance(store, FolderStore):
        store.check_versions()
    begun = False
    with ThreadPoolExecutor(1) as writer:  # waits for what it writes, whatever ends the computing
        writing: list[tuple[int, Future]] = []

        def written() -> None:
            nonlocal done
            number, future = writing.pop()
            future.result()
            done += number
            progress("trials", done, chunks.trials)

        try:
            for chunk, values in _computed(engine, chunks, mine):
                if not begun and isinstance(store, FolderStore):
                    store.describe()
                begun, number = True, len(chunks.of(chunk))
                if writing:
                    written()
                writing.append((number, writer.submit(store.write, chunk, values[:number])))
            if writing:
                written()
        except jax.errors.JaxRuntimeError as error:
            several = jax.process_count() > 1
            fresh = not begun and len(missing) == chunks.number
            if several or not fresh or "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if chunks.size == 1:
                raise ValueError("memory: not even one trial fits") from None
        else:
            return store
    return _compute(engine, store.resized(chunks.size // 2), progress)


def _computed(
    engine: Computes, chunks: Chunks, numbers: list[int]
) -> Iterator[tuple[int, np.ndarray]]:
    """The chunks and their values; each is begun before those of the one before are waited for."""
    begun: deque[tuple[int, Callable[[], np.ndarray]]] = deque()
    for number in numbers:
        begun.append((number, engine.begin(chunks.repeated(number))))
        if len(begun) > 1:
            chunk, values = begun.popleft()
            yield chunk, values()
    for chunk, values in begun:
        yield chunk, values()


def start_devices(
    *,
    cpu_devices: int | None = None,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    distributed: bool | None = None,
) -> None:
    """Divides the CPU, and joins other processes; before anything else touches JAX.

    Args:
      cpu_devices: into how many devices to divide the CPU.
      coordinator, num_processes, process_id: of `jax.distributed`, all three or none.
      distributed: without those three, let JAX find the other processes by itself; by default
        where Slurm, Open MPI or a TPU pod says that there are several.

    Raises:
      ValueError: a number is not positive, or only some of the three are given.
    """
    if cpu_devices is not None:
        if not 1 <= cpu_devices <= MOST_DEVICES:
            raise ValueError(
                f"cpu-devices: expected a number from 1 to {MOST_DEVICES}, got {cpu_devices}"
            )
        jax.config.update("jax_num_cpu_devices", cpu_devices)
    given = {"coordinator": coordinator, "num-processes": num_processes, "process-id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if not missing:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    elif len(missing) < len(given):
        present = ", ".join(name for name in given if name not in missing)
        raise ValueError(f"{missing[0]}: missing, and needed beside {present}")
    elif cluster_detected() if distributed is None else distributed:
        jax.distributed.initialize()


def cluster_detected() -> bool:
    """Whether this process is one of several that a cluster started together."""
    several = any(
        os.environ.get(name, "1").isdigit() and int(os.environ.get(name, "1")) > 1
        for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
    )
    return several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")
