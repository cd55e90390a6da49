"""Tables in long format, one row per step, to a TrajectoryBatch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.text import printable
from osiris_jax.data.build import to_batch
from osiris_jax.data.columns import (
    FLAG_FIELDS,
    FLOAT_FIELDS,
    INTEGER_FIELDS,
    Columns,
    Place,
    check_numbers,
)
from osiris_jax.data.guess import listed

if TYPE_CHECKING:
    import pandas as pd

WIDE_PREFIX = {"observation": "obs", "behavior_probs": "behavior_prob"}
WIDE_PREFIX |= {"target_probs": "target_prob"}


def from_dataframe(
    table: pd.DataFrame,
    *,
    num_states: int | None = None,
    num_actions: int | None = None,
    dtype: Any = None,
    bucket: bool = False,
) -> TrajectoryBatch:
    """A batch from a pandas DataFrame with one row per step, rows in any order.

    Args:
      table: columns `episode` (any label), `step` (integers without gaps within an episode),
        `state` or `obs_0`, `obs_1`, ... or both, `action`, `reward`, and the ratios:
        `behavior_prob` and `target_prob` of the action taken, or `log_ratio`, or
        `behavior_prob_0`, ... and `target_prob_0`, ... of all actions; `truncated` (true in an
        episode's last row: the log ends though the episode had not). Other columns are ignored.
        States and actions are whole numbers or text, which is numbered in sorted order.
        Trajectories are numbered in the order in which their episodes first appear.
      num_states, num_actions, dtype, bucket: as for `from_episodes`.

    Raises:
      ValueError: names the column, the trajectory with its episode, and the step.

    Example:
      >>> oj.from_dataframe(pd.read_csv("log.csv"))
    """
    _check_table(table)
    fields = {
        field: numbers(table[field])
        for field in (*INTEGER_FIELDS, *FLOAT_FIELDS, *FLAG_FIELDS)
        if field in table.columns
    }
    for field, prefix in WIDE_PREFIX.items():
        names = _wide_names(table, prefix)
        if names:
            fields[field] = np.stack([numbers(table[name]) for name in names], axis=1)
    batch, _ = rows_to_batch(
        table["episode"],
        table["step"],
        fields,
        name=lambda field: f"{WIDE_PREFIX[field]}_*" if field in WIDE_PREFIX else field,
        num_states=num_states,
        num_actions=num_actions,
        dtype=dtype,
        bucket=bucket,
    )
    return batch


def _check_table(table: Any) -> None:
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"table: expected a pandas DataFrame, got a {type(table).__name__}")
    if table.columns.nlevels > 1:
        raise ValueError(
            f"table: its columns have {table.columns.nlevels} levels; give it plain names, "
            "as by table.columns = [...]"
        )
    for name in ("episode", "step"):
        if name not in table.columns:
            there = listed([printable(column) for column in table.columns])
            raise ValueError(f"{name}: missing column; there are {there}")
    if table.columns.has_duplicates:
        twice = table.columns[table.columns.duplicated()][0]
        raise ValueError(f"{printable(twice)}: this column appears twice")


def rows_to_batch(
    episode: Any,
    step: Any,
    fields: Mapping[str, np.ndarray],
    *,
    name: Callable[[str], str] = str,
    **options: Any,
) -> tuple[TrajectoryBatch, Any]:
    """A batch from columns with one entry per row, and the label of each trajectory.

    Args:
      episode: label of each row's episode.
      step: its step.
      fields: [row] or [row, width] by field.
      name: what errors call a field, `episode` and `step` included.
      **options: of `to_batch`.
    """
    import pandas as pd

    if not len(episode):
        raise ValueError(f"{name('episode')}: the table has no rows")
    try:
        trajectory, episodes = pd.factorize(episode)
    except TypeError as error:
        raise ValueError(
            f"{name('episode')}: expected labels such as numbers or text: {error}"
        ) from None
    for row in np.flatnonzero(trajectory < 0):
        raise ValueError(f"{name('episode')}: missing at row {row} (step {step.iloc[row]})")
    _check_floats(episode, name("episode"))

    def label_of(number: int) -> str:
        label = episodes[number]
        label = label.item() if isinstance(label, np.generic) else label
        return f"trajectory {number} (episode {label!r})"

    whole = _steps(step, lambda row: f"{label_of(trajectory[row])}, row {row}", name)
    order = np.lexsort((whole, trajectory))
    sorted_trajectory, sorted_step = trajectory[order], whole[order]
    columns = Columns(
        {field: column[order] for field, column in fields.items()},
        np.bincount(trajectory),
        name,
        lambda index: f"{label_of(sorted_trajectory[index])}, step {sorted_step[index]}",
    )
    _check_steps(columns, sorted_trajectory, sorted_step)
    return to_batch(columns, **options), pd.Index(episodes)


def _check_floats(episode: Any, name: str) -> None:
    """Above 2^53 floats skip integers: two episodes may have become one before we see them."""
    if getattr(episode.dtype, "kind", "") != "f":
        return
    for row in np.flatnonzero(np.abs(episode.to_numpy(np.float64, na_value=np.nan)) >= 2**53):
        raise ValueError(
            f"{name}: {episode.iloc[row]} at row {row} is a float, which cannot tell large ids "
            "apart; keep ids as whole numbers or text"
        )


def numbers(series: Any, *, parse: bool = False) -> np.ndarray:
    """The column as NumPy numbers, pandas' missing values as NaN; text stays text.

    Where texts are parsed, categories that are written as numbers are become numbers; others stay
    text, to be named by the checks.
    """
    import pandas as pd

    categories = getattr(series.dtype, "categories", None)
    if categories is not None and (parse or _exact(categories)):
        # by code: one entry after another would take a second for a million
        values = np.asarray(pd.to_numeric(categories, errors="coerce"), np.float64)
        codes = series.cat.codes.to_numpy()
        column = np.append(values, np.nan)[codes]
        odd = np.isnan(column) & (codes >= 0)
        if odd.any():
            column = column.astype(object)
            column[odd] = categories.to_numpy(dtype=object)[codes[odd]]
        return column
    if series.dtype.kind in "fiub":
        if series.hasnans:
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        return series.to_numpy()
    return series.to_numpy(dtype=object)


def _exact(categories: Any) -> bool:
    """Whether the categories are numbers that floats can tell apart."""
    if categories.dtype.kind in "iu":
        return not len(categories) or categories.max() < 2**53
    return categories.dtype.kind == "f"


def _steps(series: Any, place: Place, name: Callable[[str], str]) -> np.ndarray:
    columns = Columns({"step": numbers(series)}, np.array([len(series)]), name, place)
    step = check_numbers(columns, "step")
    if step.dtype.kind == "f":
        whole = (np.abs(step) < 2**53) & (step == np.floor(step))
        columns.fail_where("step", ~whole, lambda row: f"{step[row]} is not an integer")
    return step.astype(np.int64)


def _check_steps(columns: Columns, trajectory: np.ndarray, step: np.ndarray) -> None:
    columns.fail_where("step", step < 0, lambda _: "negative")
    same = np.append(False, trajectory[1:] == trajectory[:-1])
    jump = np.append(0, np.diff(step))
    columns.fail_where("step", same & (jump == 0), lambda _: "duplicate step")
    columns.fail_where("step", same & (jump > 1), lambda i: f"gap after step {step[i - 1]}")


def _wide_names(table: pd.DataFrame, prefix: str) -> list[str]:
    pattern = re.compile(rf"{prefix}_(\d+)")
    numbers = {int(m[1]): name for name in table.columns if (m := pattern.fullmatch(str(name)))}
    for number in range(len(numbers)):
        if number not in numbers:
            raise ValueError(f"{prefix}_{number}: missing column, though {prefix}_* go beyond it")
    return [numbers[number] for number in range(len(numbers))]
