"""Cases that simulate: rollouts, the whole pipeline, CartPole, one core and two."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

import osiris_jax as oj
from osiris_jax.bench import data, rivals
from osiris_jax.bench.case import Case, Place, Rival, Settings, Work
from osiris_jax.bench.kernels import ALPHAS, GRIDWORLD, NUMPY
from osiris_jax.bench.roofline import STUDIED, bytes_of
from osiris_jax.core.machine import cores
from osiris_jax.core.options import default
from osiris_jax.study.plan import ON_POLICY, Study
from osiris_jax.study.run import compute, engine_of
from osiris_jax.study.source import keys_of

PIPELINE = ("is", "wis", "phwis", "incris", "mis", "osiris", "osirwis")
LINEAR = tuple(name for name in PIPELINE if name not in ("incris", "mis"))
TABLE_1 = (*PIPELINE, ON_POLICY)
ONE_RUN = 1.0


def simulation(settings: Settings) -> list[Case]:
    """Rollouts that are kept, in three worlds."""
    trials = settings.size({GRIDWORLD: 1000, "express": 1000, "cartpole": 20}, {GRIDWORLD: 4})
    return [_rollout(name, count) for name, count in trials.items()]


def _rollout(name: str, trials: int) -> Case:
    world = oj.make(name)

    def make() -> Work:
        keys = jax.random.split(jax.random.key(0), trials)
        function = partial(world.rollout, keys, world.size, observations=False)
        return Work(function, moved=lambda: bytes_of(function()))

    shape = {"trials": trials, "trajectories": world.size}
    return Case("simulation", name, shape, make)


def study_of(settings: Settings, **fields: Any) -> Study:
    """The whole Dilly-Dallying pipeline, with some fields changed."""
    usual: dict[str, Any] = {"world": GRIDWORLD, "alphas": default(ALPHAS)}
    usual["estimators"] = settings.size(PIPELINE, ("is", "wis", "osirwis"))
    return Study(**{**usual, "dtype": settings.dtype, **fields})


def study_case(group: str, name: str, study: Study, *, compared: int = 0, **given: Any) -> Case:
    """A whole study: data are simulated, estimated and forgotten.

    Args:
      compared: data sets that NumPy estimates too, beside ours.
      **given: fields of the case.
    """

    def make() -> Work:
        beside = _beside_study(study, compared) if compared else None
        return Work(lambda: compute(study, engine_of(study)), beside, partial(_study_bytes, study))

    shape = {"trials": study.trials, "trajectories": study.sizes[0]}
    if study.world.name == GRIDWORLD:
        shape |= {"steps": study.world.horizon, "states": study.world.num_states}
    return Case(group, name, shape, make, **given)


def _study_bytes(study: Study) -> int:
    """Every array of the data written once and read once, and the values written."""
    world, size = study.world, study.sizes[0]
    keys = keys_of(study.seed, np.arange(min(8, study.trials), dtype=np.uint32))
    steps = world.steps_needed(keys, size)
    recorded = partial(world.rollout, n=size, steps=steps, observations=False)
    batches = jax.eval_shape(recorded, keys)
    stored = bytes_of([getattr(batches, name) for name in STUDIED]) * study.trials // len(keys)
    return 2 * stored + study.trials * len(study.cells()) * np.dtype(study.dtype).itemsize


def _beside_study(study: Study, compared: int) -> Rival:
    """The NumPy form on the first data sets, which it need not simulate."""
    few = dataclasses.replace(study, dtype="float64", trials=compared)
    numbers = np.arange(compared, dtype=np.uint32)
    with jax.enable_x64(True):
        engine = engine_of(few)
        batches = few.world.rollout(keys_of(few.seed, numbers), few.sizes[0])
    logs = [data.as_numpy(jax.tree.map(lambda x, k=k: x[k], batches)) for k in range(compared)]
    return Rival(
        f"{NUMPY}, {compared} data sets given",
        lambda: np.stack([rivals.pipeline(log, study.estimators, study.levels) for log in logs]),
        lambda: engine.begin(numbers)(),
        part=compared / study.trials,
    )


def pipeline(settings: Settings) -> list[Case]:
    """The whole Dilly-Dallying pipeline: simulation, five estimators, Welch, two after omission."""
    study = study_of(settings, trials=settings.pipeline_trials)
    compared = min(study.trials, settings.size(20, 2))
    whole = study_case("pipeline", GRIDWORLD, study, compared=compared)
    if settings.quick:
        return [whole]
    fewer = dataclasses.replace(study, estimators=LINEAR)
    return [whole, study_case("pipeline", f"{GRIDWORLD} without incris and mis", fewer)]


def cartpole(settings: Settings) -> list[Case]:
    """CartPole with all of Table 1's estimators, in a process of its own for its peak of memory."""
    study = study_of(
        settings,
        world="cartpole",
        alphas=(0.05,),
        estimators=settings.size(TABLE_1, ("wis",)),
        sizes=(settings.size(50, 3),),
        trials=settings.size(200, 2),
    )
    place = Place(cores(), 1)
    return [study_case("cartpole", "cartpole, Table 1", study, place=place, budget=ONE_RUN)]


def on_cores(settings: Settings) -> list[Case]:
    """The pipeline in fresh processes, pinned to one core and to two."""
    places = [Place(1, 1), *([Place(2, 2), Place(2, 1)] if cores() > 1 else [])]
    fields = settings.size({}, {"estimators": ("wis",)})
    study = study_of(settings, trials=settings.size(2000, 8), **fields)
    return [
        study_case("cores", f"cores {place.cores}, devices {place.devices}", study, place=place)
        for place in settings.size(places, places[:1])
    ]
