"""The one border that all data crosses: columns are checked, then padded into a batch."""

from __future__ import annotations

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
    logged_log_prob,
)
from osiris_jax.data.ids import read_ids

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
    steps = num_steps or (bucket_length(longest) if bucket else longest)
    _check_size(columns, steps, float_type)
    checked = {
        field: check_floats(columns, field, float_type)
        for field in (*FLOAT_FIELDS, *WIDE_FIELDS)
        if field in columns.fields
    }
    for field in ("reward", "action"):
        if field not in columns.fields:
            raise ValueError(f"{columns.name(field)}: missing")
    if not {"state", "observation"} & columns.fields.keys():
        raise ValueError(
            f"{columns.name('state')}: missing, and so is {columns.name('observation')}; "
            "one of the two is needed"
        )
    widths = {field: checked[field].shape[1] for field in POLICY_FIELDS if field in checked}
    state, state_count, state_labels = read_ids(columns, "state", num_states)
    action, action_count, action_labels = read_ids(columns, "action", num_actions, widths)
    behavior = logged_log_prob(columns, checked, action, "behavior")
    target = logged_log_prob(columns, checked, action, "target")
    log_ratio = checked.get("log_ratio")
    if log_ratio is None and behavior is not None and target is not None:
        log_ratio = log_ratio_of(target, behavior, float_type)
    is_hint = log_ratio is None and "target_probs" not in checked
    floats = {field: checked.get(field) for field in ("reward", *WIDE_FIELDS)}
    floats |= {"log_ratio": log_ratio, "behavior_log_prob": behavior}
    floats |= {"target_log_prob": target if is_hint else None}
    mask = np.arange(steps) < columns.lengths[:, None]
    cells: dict[str, Any] = {
        name: to_cells(of, mask, float_type) for name, of in floats.items() if of is not None
    }
    return TrajectoryBatch(
        **cells,
        mask=jnp.asarray(mask),
        state=None if state is None else to_cells(state, mask, np.int32),
        action=to_cells(action, mask, np.int32),
        num_states=state_count,
        num_actions=action_count,
        state_labels=state_labels,
        action_labels=action_labels,
        truncated=last_flags(columns, "truncated"),
        all_actions=num_actions is not None,
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
