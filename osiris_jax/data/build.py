"""The one border that all data crosses: columns are checked, then padded into a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from osiris_jax.batch import TrajectoryBatch, bucket_length, log_ratio_of, to_cells
from osiris_jax.core import memory
from osiris_jax.data.columns import (
    FLOAT_FIELDS,
    INTEGER_FIELDS,
    MOST_CELLS,
    POLICY_FIELDS,
    WIDE_FIELDS,
    Columns,
    check_dtype,
    check_floats,
    check_policies,
    logged_log_prob,
)
from osiris_jax.data.ids import Ids, read_ids

STORED = (  # what takes one float per cell, and from which fields it comes
    ("reward",),
    ("behavior_prob", "behavior_probs"),
    ("log_ratio", "target_prob", "target_probs"),
)
FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
FLAGS |= {"1.0": True, "0.0": False}


def to_batch(
    columns: Columns,
    *,
    num_states: int | None = None,
    num_actions: int | None = None,
    dtype: Any = None,
    num_steps: int | None = None,
    bucket: bool = False,
) -> TrajectoryBatch:
    """Checks every value and pads. The only place where user data becomes a TrajectoryBatch."""
    float_type = check_dtype(dtype)
    longest = int(columns.lengths.max())
    padded = num_steps or (bucket_length(longest) if bucket else longest)
    _check_size(columns, padded, float_type)
    checked = {
        field: check_floats(columns, field, float_type)
        for field in (*FLOAT_FIELDS, *WIDE_FIELDS)
        if field in columns.fields
    }
    _check_required(columns)
    widths = {field: checked[field].shape[1] for field in POLICY_FIELDS if field in checked}
    state = read_ids(columns, "state", num_states)
    action = read_ids(columns, "action", num_actions, widths)
    check_policies(columns, checked)
    batch = _padded(columns, checked, state, action, float_type, padded)
    return batch.replace(
        state_labels=state.labels,
        action_labels=action.labels,
        truncated=last_flags(columns, "truncated"),
        all_actions=num_actions is not None,
    )


def _padded(
    columns: Columns,
    checked: Mapping[str, np.ndarray],
    state: Ids,
    action: Ids,
    float_type: np.dtype,
    steps: int,
) -> TrajectoryBatch:
    assert action.column is not None, "its presence has been checked"
    with_action = {**checked, "action": action.column}
    behavior = logged_log_prob(columns, with_action, "behavior")
    target = logged_log_prob(columns, with_action, "target")
    log_ratio = checked.get("log_ratio")
    if log_ratio is None and behavior is not None and target is not None:
        log_ratio = log_ratio_of(target, behavior, float_type)
    only_hint = log_ratio is None and "target_probs" not in checked
    mask = np.arange(steps) < columns.lengths[:, None]

    def pad(column: np.ndarray | None, kind: Any = float_type) -> Any:
        return None if column is None else to_cells(column, mask, kind)

    return TrajectoryBatch(
        reward=pad(checked["reward"]),
        mask=jnp.asarray(mask),
        log_ratio=pad(log_ratio),
        action=pad(action.column, np.int32),
        state=pad(state.column, np.int32),
        observation=pad(checked.get("observation")),
        target_probs=pad(checked.get("target_probs")),
        behavior_probs=pad(checked.get("behavior_probs")),
        behavior_log_prob=pad(behavior),
        target_log_prob=pad(target) if only_hint else None,
        num_states=state.number,
        num_actions=action.number,
    )


def _check_size(columns: Columns, steps: int, float_type: np.dtype) -> None:
    """Refuses what would not fit, before a cell of it is allocated."""
    number = len(columns.lengths)
    longest = int(columns.lengths.argmax())
    there = columns.fields
    floats = sum(there[field].shape[1] for field in WIDE_FIELDS if field in there)
    for stored in STORED:
        floats += any(field in there for field in stored)
    integers = sum(field in there for field in INTEGER_FIELDS)
    per_cell = 1 + 4 * integers + float_type.itemsize * floats
    start = int(columns.lengths[:longest].sum())
    what = (
        f"{columns.name('episode')}: {number} trajectories, padded to the longest ({steps} steps "
        f"from {columns.place(start)} on),"
    )
    cure = "cut or leave out the longest, or split the log by length"
    if number * steps > MOST_CELLS:
        raise ValueError(f"{what} are more cells than 32-bit indices reach; {cure}")
    memory.check_fits(number * steps * per_cell, what, cure)


def _check_required(columns: Columns) -> None:
    for field in ("reward", "action"):
        if field not in columns.fields:
            raise ValueError(f"{columns.name(field)}: missing")
    if not {"state", "observation"} & columns.fields.keys():
        raise ValueError(
            f"{columns.name('state')}: missing, and so is {columns.name('observation')}; "
            "one of the two is needed"
        )


def last_flags(columns: Columns, field: str) -> np.ndarray | None:
    """[traj] the last step's yes or no; None without such a column."""
    if field not in columns.fields:
        return None
    column, last = columns.fields[field], np.cumsum(columns.lengths) - 1
    read = [read_flag(entry) for entry in column[last]]
    odd = np.zeros(len(column), bool)
    odd[last] = [entry is None for entry in read]
    columns.fail_where(
        field, odd, lambda i: f"expected true or false (1 or 0), got {str(column[i])!r:.80}"
    )
    return np.array(read, bool)


def read_flag(entry: Any) -> bool | None:
    """Whether an entry says yes or no; None if it says neither."""
    return FLAGS.get(str(entry).strip().lower())
