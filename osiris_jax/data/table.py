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
    WIDE_FIELDS,
    Columns,
    check_numbers,
)
from osiris_jax.data.guess import WIDE_PREFIX, as_tuple, listed

if TYPE_CHECKING:
    import pandas as pd


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
    narrow = (*INTEGER_FIELDS, *FLOAT_FIELDS, *FLAG_FIELDS)
    chosen: dict[str, Any] = {field: field for field in narrow if field in table.columns}
    wide = {field: _wide_names(table, prefix) for field, prefix in WIDE_PREFIX.items()}
    chosen |= {field: names for field, names in wide.items() if names}
    batch, _ = rows_to_batch(
        table["episode"],
        table["step"],
        read_fields(table, chosen, parse=False),
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


def read_fields(
    data: Mapping[str, Any] | pd.DataFrame, chosen: Mapping[str, Any], *, parse: bool
) -> dict[str, np.ndarray]:
    """[row] or [row, width] by field but `episode` and `step`, from the columns chosen for each.

    Where texts are parsed they may be numbers, except those of ids and flags.
    """
    fields = {}
    for field, of in chosen.items():
        if field in WIDE_FIELDS and isinstance(of, str) and np.ndim(data[of]) > 1:
            if np.ndim(data[of]) != 2:
                raise ValueError(f"{of}: expected a vector per row, got shape {np.shape(data[of])}")
            fields[field] = np.asarray(data[of])
        elif field in WIDE_FIELDS:
            parts = [numbers(one_column(data, name), parse=parse) for name in as_tuple(of)]
            fields[field] = np.stack(parts, axis=1)
        elif field not in ("episode", "step"):
            is_number = field not in (*INTEGER_FIELDS, *FLAG_FIELDS)
            fields[field] = numbers(one_column(data, of), parse=parse and is_number)
    return fields


def one_column(data: Mapping[str, Any] | pd.DataFrame, name: str) -> Any:
    """The column of this name, a vector."""
    if np.ndim(data[name]) != 1:
        raise ValueError(f"{name}: expected one value per row, got shape {np.shape(data[name])}")
    return data[name]


def rows_to_batch(
    episode: Any,
    step: Any,
    fields: Mapping[str, np.ndarray],
    *,
    name: Callable[[str], str] = str,
    **options: Any,
) -> tuple[TrajectoryBatch, Any]:
    """A batch from columns with one entry per row, and the label of each trajectory.

    Errors call a field by `name`, `episode` and `step` included; the options are `to_batch`'s.
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
    if getattr(episode.dtype, "kind", "") == "f":
        # above 2^53 floats skip integers: two episodes may have become one before we see them
        values = episode.to_numpy(np.float64, na_value=np.nan)
        for row in np.flatnonzero(np.abs(values) >= 2**53):
            raise ValueError(
                f"{name('episode')}: {episode.iloc[row]} at row {row} is a float, which cannot "
                "tell large ids apart; keep ids as whole numbers or text"
            )

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


def numbers(series: Any, *, parse: bool = False) -> np.ndarray:
    """The column as NumPy numbers, pandas' missing values as NaN; text stays text.

    Where texts are parsed, categories that are written as numbers are become numbers; others stay
    text, to be named by the checks.
    """
    import pandas as pd

    is_coded = isinstance(series.dtype, pd.CategoricalDtype)
    categories = series.cat.categories if is_coded else pd.Index([])
    kind = categories.dtype.kind
    whole = kind in "iu" and categories.to_numpy().max(initial=0) < 2**53
    if is_coded and (parse or whole or kind == "f"):
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


def _steps(series: Any, place: Callable[[int], str], name: Callable[[str], str]) -> np.ndarray:
    columns = Columns({}, np.array([len(series)]), name, place)
    step = check_numbers(columns, "step", numbers(series))
    if step.dtype.kind == "f":
        whole = (np.abs(step) < 2**53) & (step == np.floor(step))
        columns.fail_where("step", ~whole, lambda row: f"{step[row]} is not an integer")
    return step.astype(np.int64)


def _check_steps(columns: Columns, trajectory: np.ndarray, step: np.ndarray) -> None:
    columns.fail_where("step", step < 0, "negative")
    same = np.append(False, trajectory[1:] == trajectory[:-1])
    jump = np.append(0, np.diff(step))
    columns.fail_where("step", same & (jump == 0), "duplicate step")
    columns.fail_where("step", same & (jump > 1), lambda i: f"gap after step {step[i - 1]}")


def _wide_names(table: pd.DataFrame, prefix: str) -> list[str]:
    pattern = re.compile(rf"{prefix}_(\d+)")
    numbers = {int(m[1]): name for name in table.columns if (m := pattern.fullmatch(str(name)))}
    for number in range(len(numbers)):
        if number not in numbers:
            raise ValueError(f"{prefix}_{number}: missing column, though {prefix}_* go beyond it")
    return [numbers[number] for number in range(len(numbers))]
