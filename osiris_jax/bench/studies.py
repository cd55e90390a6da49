"""Cases that simulate: rollouts, the whole pipeline, CartPole, one core and two."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np

import osiris_jax as oj
from osiris_jax.bench import data, rivals, roofline
from osiris_jax.bench.case import Case, Place, Rival, Settings, Work
from osiris_jax.bench.cases import ALPHAS, GRIDWORLD, NUMPY
from osiris_jax.bench.harness import cores
from osiris_jax.core.options import default
from osiris_jax.study.engine import Engine
from osiris_jax.study.plan import ON_POLICY, Study
from osiris_jax.study.run import compute

PIPELINE = ("is", "wis", "phwis", "incris", "mis", "osiris", "osirwis")
TABLE_1 = (*PIPELINE, ON_POLICY)
ONE_RUN = 1.0


def simulation(settings: Settings) -> list[Case]:
    """Rollouts that are kept, in three worlds."""
    trials = settings.size({GRIDWORLD: 1000, "express": 1000, "cartpole": 20}, {GRIDWORLD: 4})
    return [_rollout(settings, name, count) for name, count in trials.items()]


def _rollout(settings: Settings, name: str, trials: int) -> Case:
    world = oj.make(name)

    def make() -> Work:
        keys = jax.random.split(jax.random.key(0), trials)
        function = partial(world.rollout, keys, world.size, observations=False)

        def moved() -> int:
            cells = function().mask.size
            return roofline.bytes_of(roofline.RECORDED, cells, settings.itemsize)

        return Work(function, moved=moved)

    shape = {"trials": trials, "trajectories": world.size}
    return Case("simulation", name, shape, make, trials=trials)


def study_of(settings: Settings, **fields: Any) -> Study:
    """The whole Dilly-Dallying pipeline, with some fields changed."""
    usual: dict[str, Any] = {"world": GRIDWORLD, "alphas": default(ALPHAS)}
    usual["estimators"] = settings.size(PIPELINE, ("is", "wis", "osirwis"))
    return Study(**{**usual, "dtype": settings.dtype, **fields})


def run_study(study: Study) -> Any:
    """All trials, chunk by chunk, without files."""
    return compute(study, Engine(study))


def study_case(settings: Settings, group: str, name: str, **given: Any) -> Case:
    """A whole study: data are simulated, estimated and forgotten."""
    fields = given.pop("fields", {})
    study = study_of(settings, trials=given.pop("trials"), **fields)
    compared = given.pop("compared", 0)

    def make() -> Work:
        beside = _beside_study(study, compared) if compared else None
        return Work(partial(run_study, study), (), beside, partial(_study_bytes, study))

    shape = {"trials": study.trials, "trajectories": study.sizes[0]}
    if study.world.name == GRIDWORLD:
        shape |= {"steps": study.world.horizon, "states": study.world.num_states}
    return Case(group, name, shape, make, trials=study.trials, **given)


def _study_bytes(study: Study) -> int:
    """Every array of the data written once and read once, and the values written."""
    engine, itemsize = Engine(study), np.dtype(study.dtype).itemsize
    some = np.arange(min(8, study.trials), dtype=np.uint32)
    steps = study.world.steps_needed(engine.keys(some), study.sizes[0])
    cells = study.trials * study.sizes[0] * steps
    stored = roofline.bytes_of(roofline.STUDIED, cells, itemsize)
    return 2 * stored + study.trials * len(study.cells()) * itemsize


def _beside_study(study: Study, compared: int) -> Rival:
    """The NumPy form on the first data sets, which it need not simulate."""
    few = dataclasses.replace(study, dtype="float64", trials=compared)
    numbers = np.arange(compared, dtype=np.uint32)
    with jax.enable_x64(True):
        engine = Engine(few)
        batches = few.world.rollout(engine.keys(numbers), few.sizes[0])
    logs = [data.as_numpy(jax.tree.map(lambda x, k=k: x[k], batches)) for k in range(compared)]
    return Rival(
        f"{NUMPY}, {compared} data sets given",
        lambda: np.stack([rivals.pipeline(log, study.estimators, study.levels) for log in logs]),
        lambda: engine.values(numbers),
        part=compared / study.trials,
    )


def pipeline(settings: Settings) -> list[Case]:
    """The whole Dilly-Dallying pipeline: simulation, five estimators, Welch, two after omission."""
    trials = settings.pipeline_trials
    compared = min(trials, settings.size(20, 2))
    whole = study_case(settings, "pipeline", GRIDWORLD, trials=trials, compared=compared)
    linear = study_case(
        settings,
        "pipeline",
        f"{GRIDWORLD} without incris and mis",
        trials=trials,
        fields={"estimators": ("is", "wis", "phwis", "osiris", "osirwis")},
    )
    return settings.size([whole, linear], [whole])


def cartpole(settings: Settings) -> list[Case]:
    """CartPole with all of Table 1's estimators, in a process of its own for its peak of memory."""
    names = settings.size(TABLE_1, ("wis",))
    fields = {"world": "cartpole", "alphas": (0.05,), "estimators": names}
    fields["sizes"] = (settings.size(50, 3),)
    return [
        study_case(
            settings,
            "cartpole",
            "cartpole, Table 1",
            trials=settings.size(200, 2),
            fields=fields,
            place=Place(cores(), 1),
            budget=ONE_RUN,
        )
    ]


def on_cores(settings: Settings) -> list[Case]:
    """The pipeline in fresh processes, pinned to one core and to two."""
    places = [Place(1, 1), *([Place(2, 2), Place(2, 1)] if cores() > 1 else [])]
    fields = settings.size({}, {"estimators": ("wis",)})
    return [
        study_case(
            settings,
            "cores",
            f"cores {place.cores}, devices {place.devices}",
            trials=settings.size(2000, 8),
            fields=fields,
            place=place,
        )
        for place in settings.size(places, places[:1])
    ]
