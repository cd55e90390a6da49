"""Flat columns and the checks of their numbers, on the border that all data crosses.

A column holds one entry per real step, trajectories one after another. Every error is a ValueError
that names the field, the trajectory and the step.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

FLOAT_FIELDS = ("reward", "log_ratio", "behavior_prob", "target_prob")
INTEGER_FIELDS = ("state", "action")
WIDE_FIELDS = ("observation", "behavior_probs", "target_probs")
FLAG_FIELDS = ("truncated",)
POLICY_FIELDS = WIDE_FIELDS[1:]
FIELDS = (*INTEGER_FIELDS, *FLOAT_FIELDS, *WIDE_FIELDS, *FLAG_FIELDS)
PROBABILITY_SLACK = 1e-3
LARGEST_ID = 2**31 - 2
MOST_CELLS = 2**31 - 1  # what 32-bit indices reach


@dataclasses.dataclass(frozen=True)
class Columns:
    """Raw columns by field name, how long each trajectory is, and how errors call things."""

    fields: Mapping[str, np.ndarray]
    lengths: np.ndarray
    name: Callable[[str], str] = str
    place_of: Callable[[int], str] | None = None

    def place(self, index: int) -> str:
        """Where a flat index is: as told, or by trajectory and step, both counted from 0."""
        if self.place_of is not None:
            return self.place_of(index)
        ends = np.cumsum(self.lengths)
        trajectory = int(np.searchsorted(ends, index, side="right"))
        step = index - int(ends[trajectory] - self.lengths[trajectory])
        return f"trajectory {trajectory}, step {step}"

    def fail_where(self, field: str, bad: np.ndarray, problem: str | Callable[[int], str]) -> None:
        """Raises for the first step at which `bad` holds, if any."""
        where = np.flatnonzero(bad.reshape(len(bad), -1).any(1)).tolist()
        if where:
            text = problem if isinstance(problem, str) else problem(where[0])
            more = f" (and {len(where) - 1} more)" if len(where) > 1 else ""
            raise ValueError(f"{self.name(field)}: {text} at {self.place(where[0])}{more}")


def as_array(value: Any) -> np.ndarray:
    """User data as an array; in a mixture with text or objects every entry stays as it was given.

    Raises:
      ValueError: NumPy's, for lists of unequal lengths.
    """
    array = np.asarray(value)
    if array.dtype.kind in "fiub":
        return array
    if jnp.issubdtype(array.dtype, jnp.floating):  # bfloat16 and its kin
        return array.astype(np.float64)
    return np.asarray(value, dtype=object)


def even_array(value: Any, name: str) -> np.ndarray:
    """`as_array` of what the user calls by this name."""
    try:
        return as_array(value)
    except ValueError:
        raise ValueError(f"{name}: rows of unequal length") from None


def refuse_traced(function: str, **fields: Any) -> None:
    """Raises a ValueError for the first field that jit, vmap or grad is tracing."""
    for name, value in fields.items():
        if isinstance(value, Tracer):
            raise ValueError(
                f"{name}: is being traced by jit, vmap or grad, and {function} checks values; call "
                f"it outside, or build the batch inside by TrajectoryBatch(...), which checks none"
            )


def odd_step(steps: Any, axes: int) -> int | None:
    """The first step whose shape is not what the first step and `axes` (1 or 2) demand."""
    if not isinstance(steps, Sequence | np.ndarray) or (
        isinstance(steps, np.ndarray) and not steps.ndim
    ):
        return None
    shapes = [_shape(entry) for entry in steps]
    odd = (step for step, s in enumerate(shapes) if len(s) != axes - 1 or s != shapes[0])
    return next(odd, None)


def _shape(entry: Any) -> tuple[int, ...]:
    try:
        return np.shape(entry)
    except ValueError:  # ragged inside, so of no shape that could be expected
        return (-1, -1, -1)


def suggest(name: Any, names: Iterable[str]) -> str:
    """What the user may have meant by a name that is not known."""
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"


def check_dtype(dtype: Any) -> np.dtype:
    """The float type asked for, or JAX's default one."""
    default = jnp.zeros(()).dtype
    try:
        chosen = default if dtype is None else np.dtype(dtype)
    except TypeError:
        raise ValueError(f"dtype: expected float32 or float64, got {dtype!r}") from None
    if chosen == np.float64 and default != np.float64:
        raise ValueError("dtype: float64 needs JAX's 64-bit mode: use `with jax.enable_x64():`")
    if chosen not in (np.float32, np.float64):
        raise ValueError(f"dtype: expected float32 or float64, got {chosen}")
    return chosen


def check_numbers(columns: Columns, field: str, column: np.ndarray) -> np.ndarray:
    """The field's column, objects converted to float64 if every one is a real number."""
    if column.dtype.kind in "fiub":
        return column
    odd = np.reshape([not _is_real(entry) for entry in column.ravel()], column.shape)
    columns.fail_where(
        field,
        odd,
        lambda i: f"expected a real number, got {reprlib.repr(_first(column[i], odd[i]))}",
    )
    return column.astype(np.float64)


def check_floats(columns: Columns, field: str, float_type: np.dtype) -> np.ndarray:
    """The column in float64, every value being one that the field may have."""
    column = check_numbers(columns, field, columns.fields[field]).astype(np.float64)
    columns.fail_where(field, np.isnan(column), "NaN")
    if field == "log_ratio":
        forbidden = "+inf (the behaviour forbids the logged action)"
        columns.fail_where(field, column == np.inf, forbidden)
    elif field in ("reward", "observation"):
        columns.fail_where(field, np.isinf(column), "not finite")
    else:
        outside = (column < 0) | (column > 1)
        columns.fail_where(
            field, outside, lambda i: f"{_first(column[i], outside[i])} is not in [0, 1]"
        )
    huge = np.isfinite(column) & (np.abs(column) > np.finfo(float_type).max)
    columns.fail_where(
        field, huge, lambda i: f"{_first(column[i], huge[i])} is too large for {float_type}"
    )
    return column


def _first(values: Any, where: np.ndarray) -> Any:
    return values[where][0] if np.ndim(where) else values


def _is_real(entry: Any) -> bool:
    if not isinstance(entry, numbers.Real | np.bool):
        return False
    try:
        float(entry)
    except OverflowError:
        return False
    return True


def logged_log_prob(
    columns: Columns, checked: Mapping[str, np.ndarray], action: np.ndarray, policy: str
) -> np.ndarray | None:
    """log pi(a|s) of the logged actions, from the narrow or the wide column; None without both."""
    narrow, wide = checked.get(f"{policy}_prob"), checked.get(f"{policy}_probs")
    field = f"{policy}_prob" if narrow is not None else f"{policy}_probs"
    if wide is not None:
        sums, wide_name = wide.sum(1), columns.name(f"{policy}_probs")
        columns.fail_where(
            f"{policy}_probs",
            np.abs(sums - 1) > PROBABILITY_SLACK,
            lambda i: f"probabilities sum to {sums[i]:.6g}",
        )
        of_action = np.take_along_axis(wide, action[:, None].astype(np.intp), 1)[:, 0]
        if narrow is None:
            narrow = of_action
        columns.fail_where(
            field,
            np.abs(narrow - of_action) > PROBABILITY_SLACK,
            lambda i: f"{narrow[i]:.6g} contradicts {of_action[i]:.6g} in {wide_name}",
        )
    if narrow is None:
        return None
    if policy == "behavior":
        impossible = "0 for the logged action, which then cannot be logged,"
        columns.fail_where(field, narrow == 0, impossible)
    with np.errstate(divide="ignore"):
        return np.log(narrow)
