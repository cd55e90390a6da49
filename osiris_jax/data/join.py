"""Several logs as one data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from osiris_jax.batch import STATIC, TrajectoryBatch, pad_to, time_fields
from osiris_jax.core import memory
from osiris_jax.core.labels import Labels, compacted, is_text, listed

ALL = "every log must have it, or none"
POLICIES = ("target_probs", "behavior_probs")


def concatenate(batches: Sequence[TrajectoryBatch]) -> TrajectoryBatch:
    """The trajectories of several logs, one log after another, padded to the longest.

    States and actions that the logs call by text are joined by name, those with integers by
    integer.

    Args:
      batches: logs [traj, time] with the same fields, of the same float type. Probabilities of
        all actions need the same actions in each.

    Raises:
      ValueError: names the field and the log (counted from 0) that does not fit.

    Example:
      >>> oj.concatenate([oj.read_log("2023.parquet"), oj.read_log("2024.parquet")])
    """
    _check(batches)
    first = batches[0]
    state = _join(batches, "state")
    action = _join(batches, "action")
    number = sum(len(batch.mask) for batch in batches)
    longest = max(batch.mask.shape[1] for batch in batches)
    per_cell = sum(x.dtype.itemsize * math.prod(x.shape[2:]) for x in time_fields(first).values())
    memory.check_fits(
        number * longest * per_cell,
        f"batches: {number} trajectories, padded to the longest ({longest} steps),",
        "cut the longest, or keep the logs apart",
    )
    moved = []
    for i, batch in enumerate(batches):
        ids = {}
        for field, places in (("state", state.places), ("action", action.places)):
            if places is not None:  # padded cells may hold anything
                real = np.where(np.asarray(batch.mask), np.asarray(getattr(batch, field)), 0)
                ids[field] = jnp.asarray(places[i][real].astype(np.int32))
        moved.append(pad_to(batch.replace(**ids), longest))
    arrays = {
        name: jnp.concatenate([getattr(batch, name) for batch in moved])
        for name in time_fields(moved[0])
    }
    groups, truncated = first.groups, first.truncated
    if groups is not None:
        of_batches: list[Any] = [batch.groups for batch in batches]
        groups = {name: np.concatenate([of[name] for of in of_batches]) for name in groups}
    if truncated is not None:
        truncated = np.concatenate([np.asarray(batch.truncated) for batch in batches])
    fitted = dict.fromkeys(batch.fitted for batch in batches if batch.fitted is not None)
    return TrajectoryBatch(
        **arrays,
        num_states=state.number,
        num_actions=action.number,
        state_labels=state.labels,
        action_labels=action.labels,
        groups=groups,
        truncated=truncated,
        fitted=" ".join(fitted) or None,
        all_actions=all(batch.all_actions for batch in batches),
    )


def _check(batches: Any) -> None:
    if not isinstance(batches, Sequence) or not len(batches):
        raise ValueError("batches: expected a list of at least one TrajectoryBatch")
    for number, batch in enumerate(batches):
        if not isinstance(batch, TrajectoryBatch):
            raise ValueError(f"batches: log {number} is a {type(batch).__name__}")
        if batch.mask.ndim != 2:
            raise ValueError(f"batches: log {number} has axes {batch.mask.shape}, not [traj, time]")
        _check_like(batches[0], batch, number)


def _check_like(first: TrajectoryBatch, batch: TrajectoryBatch, number: int) -> None:
    """Refuses a log that has other fields than the first, or others of their kind."""
    for name, value in vars(first).items():
        other = getattr(batch, name)
        if name in (*STATIC, "state_labels", "action_labels", "fitted", "all_actions"):
            continue
        if (value is None) != (other is None):
            has, lacks = (0, number) if other is None else (number, 0)
            raise ValueError(f"{name}: log {has} has it and log {lacks} has not; {ALL}")
        if value is None or name in ("groups", "truncated"):
            continue
        if value.dtype != other.dtype or value.shape[2:] != other.shape[2:]:
            raise ValueError(
                f"{name}: log {number} has {other.dtype} of size {other.shape[2:]} per step, "
                f"log 0 {value.dtype} of size {value.shape[2:]}"
            )
    if {*(first.groups or {})} != {*(batch.groups or {})}:
        raise ValueError(
            f"groups: log {number} has {listed([*(batch.groups or {})])}, "
            f"log 0 {listed([*(first.groups or {})])}"
        )


class _Joined(NamedTuple):
    """How many ids there are together, their labels, and each log's ids among them, if others."""

    number: int
    labels: Labels | None
    places: list[np.ndarray] | None


def _join(batches: Sequence[TrajectoryBatch], field: str) -> _Joined:
    sizes = [getattr(batch, f"num_{field}s") for batch in batches]
    named: list[Labels | None] = [getattr(batch, f"{field}_labels") for batch in batches]
    same = len({*named}) == 1
    if getattr(batches[0], field) is None or (same and (named[0] is None or len({*sizes}) == 1)):
        return _Joined(max(sizes), named[0], None)
    for number, labels in enumerate(named):
        if is_text(labels) != is_text(named[0]):
            raise ValueError(
                f"{field}: log {number} calls its {field}s "
                f"{listed(labels or range(sizes[number]))}, log 0 "
                f"{listed(named[0] or range(sizes[0]))}: text and numbers cannot be joined"
            )
    own = [labels or tuple(range(size)) for labels, size in zip(named, sizes, strict=True)]
    if field == "action" and any(getattr(batches[0], name) is not None for name in POLICIES):
        for number, labels in enumerate(own):
            if labels != own[0]:
                raise ValueError(
                    f"action: log {number} has {listed(labels)}, log 0 {listed(own[0])}; "
                    "probabilities of all actions need the same actions in the same order"
                )
    if is_text(named[0]):
        together: Any = tuple(sorted(set().union(*own)))
        labels = together
    else:
        union = np.array(sorted(set().union(*own)), np.int64)
        _, labels = compacted(union, field)
        together = union.tolist() if labels is not None else range(int(union[-1]) + 1)
    place = {label: number for number, label in enumerate(together)}
    return _Joined(
        max(len(together), *sizes), labels, [np.array([place[x] for x in one]) for one in own]
    )
