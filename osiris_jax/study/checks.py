"""Checks of the fields of a plan: each returns the value in its final form, or names the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.relevance.samples import WEIGHTINGS
from osiris_jax.worlds import make
from osiris_jax.worlds.tabular import TabularWorld

MOST_TRIALS, MOST_TRAJECTORIES, LARGEST_SEED = 10**9, 2**31, 2**63 - 1


def sequence(field: str, value: Any) -> tuple:
    """The value as a tuple; one that stands alone as a tuple of one."""
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        value = list(np.ravel(value))
    if isinstance(value, str | int | float):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise ValueError(f"{field}: expected a list, got {value!r}") from None


def integer(field: str, value: Any, least: int, most: int) -> int:
    """The value, if it is an integer in the range."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not good or not least <= value <= most:
        raise ValueError(f"{field}: expected an integer from {least} to {most}, got {value!r}")
    return int(value)


def number(field: str, value: Any, least: float, most: float) -> float:
    """The value as a float, if it is a number in the range."""
    good = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not good or not least <= value <= most:
        raise ValueError(f"{field}: must be in [{least}, {most}], got {value!r}")
    return float(str(value)) if isinstance(value, np.floating) else float(value)


def sizes(values: tuple, least: int) -> tuple[int, ...]:
    """The values, if they are numbers of trajectories."""
    return tuple(integer("sizes", value, least, MOST_TRAJECTORIES) for value in values)


def settle_data_sets(plan: Any, problem: str, smallest: int) -> None:
    """Makes the world of a frozen plan, which must be tabular; checks trials, sizes and seed."""
    world = make(plan.world) if isinstance(plan.world, str) else plan.world
    if not isinstance(world, TabularWorld):
        raise ValueError(f"world: {problem}")
    object.__setattr__(plan, "world", world)
    integer("trials", plan.trials, 2, MOST_TRIALS)
    some_of(plan, "sizes")
    sizes(plan.sizes, smallest)
    integer("seed", plan.seed, 0, LARGEST_SEED)


def some_of(plan: Any, *fields: str) -> None:
    """Refuses fields that are empty."""
    for field in fields:
        if not getattr(plan, field):
            raise ValueError(f"{field}: none given")


def weighting(field: str, value: Any) -> str:
    """The value, if it is a way to weight samples."""
    if value not in WEIGHTINGS:
        raise ValueError(f"{field}: {value!r} is not one of {', '.join(WEIGHTINGS)}")
    return value


def no_repeats(field: str, values: tuple) -> None:
    """Refuses values of which two are equal."""
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"{field}: {value!r} is given twice")


def try_kernel(kernel: Callable[[TrajectoryBatch], Any], **changes: Any) -> None:
    """Traces a kernel on two short trajectories: it raises now what it would raise later."""
    number = jax.dtypes.canonicalize_dtype(float)
    steps = jax.ShapeDtypeStruct((2, 3), number)
    ids, mask = (jax.ShapeDtypeStruct((2, 3), kind) for kind in (np.int32, bool))
    probs = jax.ShapeDtypeStruct((2, 3, 2), number)
    fields = {"reward": steps, "log_ratio": steps, "action": ids, "state": ids, "mask": mask}
    fields |= {"target_probs": probs, "behavior_probs": probs}
    batch = TrajectoryBatch(**fields, num_states=2, num_actions=2)  # pyright: ignore[reportArgumentType]
    jax.eval_shape(kernel, batch.replace(**changes))


def needs(kernel: Callable[[TrajectoryBatch], Any], *fields: str, **changes: Any) -> bool:
    """Whether the kernel refuses a batch without these fields, and with these changes."""
    try:
        try_kernel(kernel, **changes | dict.fromkeys(fields))
    except ValueError:
        return True
    return False


def takes_probs(estimator: str, kernel: Callable[[TrajectoryBatch], Any]) -> bool:
    """Whether it reads the probabilities of all actions, if only where a batch has them."""
    entry = ESTIMATORS[parse_name(estimator)[0]]
    return "target_probs" in entry.reads_if_there or needs(kernel, "target_probs")
