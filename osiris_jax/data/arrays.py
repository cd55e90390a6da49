"""Arrays that are already padded to a TrajectoryBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.text import printable
from osiris_jax.data.build import to_batch
from osiris_jax.data.columns import (
    FIELDS,
    FLAG_FIELDS,
    WIDE_FIELDS,
    Columns,
    even_array,
    odd_step,
    refuse_traced,
    suggest,
)


def from_arrays(
    *,
    reward: Any = None,
    action: Any = None,
    mask: Any = None,
    lengths: Any = None,
    num_states: int | None = None,
    num_actions: int | None = None,
    dtype: Any = None,
    **fields: Any,
) -> TrajectoryBatch:
    """A batch from arrays [traj, time], padded already.

    Args:
      reward: [traj, time].
      action: [traj, time] integer ids, or text.
      mask: [traj, time] boolean, True = real step, a prefix of each row; or give `lengths`.
      lengths: [traj] number of real steps. Without both, every step is real.
      num_states: number of state ids; by default the largest + 1, or as many as there are where
        they are sparse (see `TrajectoryBatch.state_labels`).
      num_actions: number of action ids; by default the policies' width, or likewise.
      dtype: float32 or float64; by default JAX's.
      **fields: `state` [traj, time] or `observation` [traj, time, dim] or both; `log_ratio`, or
        `behavior_prob` and `target_prob` of the logged actions [traj, time], or `behavior_probs`
        and `target_probs` [traj, time, action]; `truncated` [traj] or [traj, time] (the last real
        step counts): the log ends though the episode had not.

    Raises:
      ValueError: names the field, the trajectory and the step.

    Example:
      >>> oj.from_arrays(reward=r, action=a, state=s, log_ratio=l, lengths=[3, 5, 2])
    """
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        name = min(unknown)
        raise ValueError(f"{printable(name)}: not a field; {suggest(name, FIELDS)}")
    if reward is None:
        raise ValueError("reward: missing")
    given = {"reward": reward, "action": action, **fields}
    refuse_traced("from_arrays", **given, mask=mask, lengths=lengths)
    arrays = {name: _array(name, value) for name, value in given.items() if value is not None}
    shape = _common_shape(arrays)
    real = _check_mask(shape, mask, lengths)
    row_lengths = real.sum(1)
    flat = {
        name: array[real] if array.ndim > 1 else np.repeat(array, row_lengths)
        for name, array in arrays.items()
    }
    sizes = {"num_states": num_states, "num_actions": num_actions, "num_steps": shape[1]}
    return to_batch(Columns(flat, row_lengths), **sizes, dtype=dtype)


def _common_shape(arrays: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    shape = arrays["reward"].shape
    if len(shape) != 2:
        raise ValueError(f"reward: expected axes [traj, time], got shape {shape}")
    if 0 in shape:
        raise ValueError(f"reward: no trajectory or no step in shape {shape}")
    for name, array in arrays.items():
        axes = 3 if name in WIDE_FIELDS else 2
        if name in FLAG_FIELDS and array.shape == shape[:1]:
            continue
        if array.ndim != axes or array.shape[:2] != shape:
            raise ValueError(
                f"{name}: shape {array.shape} does not fit reward's {shape}"
                + (" and one more axis" if axes == 3 else "")
            )
    return shape


def _array(name: str, rows: Any) -> np.ndarray:
    try:
        return even_array(rows, name)
    except ValueError as error:
        sizes = [len(row) if isinstance(row, Sequence | np.ndarray) else 0 for row in rows]
        for trajectory, (row, size) in enumerate(zip(rows, sizes, strict=True)):
            step = odd_step(row, 2 if name in WIDE_FIELDS else 1)
            step = step if size == sizes[0] else min(size, sizes[0])
            if step is not None:
                raise ValueError(f"{error} at trajectory {trajectory}, step {step}") from None
        raise


def _check_mask(shape: tuple[int, ...], mask: Any, lengths: Any) -> np.ndarray:
    if mask is not None and lengths is not None:
        raise ValueError("mask: give either mask or lengths, not both")
    if lengths is not None:
        count = _array("lengths", lengths)
        if count.shape != shape[:1] or count.dtype.kind not in "iu":
            raise ValueError(f"lengths: expected {shape[0]} integers, got {lengths!r}")
        for trajectory in np.flatnonzero((count < 1) | (count > shape[1])):
            raise ValueError(
                f"lengths: {count[trajectory]} at trajectory {trajectory} is not in "
                f"1..{shape[1]}, the steps there are"
            )
        return np.arange(shape[1]) < count[:, None]
    real = np.ones(shape, bool) if mask is None else _array("mask", mask)
    if real.shape != shape:
        raise ValueError(f"mask: shape {real.shape} does not fit reward's {shape}")
    if real.dtype != bool:
        raise ValueError(f"mask: expected booleans, got {real.dtype}")
    for trajectory in np.flatnonzero(~real.any(1)):
        raise ValueError(f"mask: empty trajectory {trajectory}, no real step from step 0 on")
    for trajectory, step in np.argwhere(real[:, 1:] & ~real[:, :-1]):
        raise ValueError(
            f"mask: True after False at trajectory {trajectory}, step {step + 1}; "
            "real steps must be a prefix of the row"
        )
    return real
