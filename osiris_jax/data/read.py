"""A log in a file, Parquet, CSV or .npz, to a TrajectoryBatch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.labels import is_text, shown
from osiris_jax.core.options import EPSILON
from osiris_jax.core.text import one_line
from osiris_jax.data.arrays import from_arrays
from osiris_jax.data.build import read_flag
from osiris_jax.data.columns import FLAG_FIELDS, INTEGER_FIELDS
from osiris_jax.data.formats import MISSING, Source, open_source
from osiris_jax.data.guess import Say, as_tuple, choose_columns, listed
from osiris_jax.data.policy_files import refuse_idle_epsilons, with_given_policies
from osiris_jax.data.table import numbers, one_column, read_fields, rows_to_batch

PADDED_ONLY = ("mask", "lengths")


@dataclasses.dataclass(frozen=True)
class Log:
    """A log that was read, and what was decided on the way.

    Attributes:
      batch: the data.
      columns: for each field the file's column, or the tuple of columns of a vector.
      labels: for `state` and `action`, if ids are not the file's own integers: what each was
        called (the same as `batch.state_labels` and `batch.action_labels`).
      episodes: for each trajectory what its episode was called; empty where there are no names.
      notes: what was guessed or changed, a line each.
    """

    batch: TrajectoryBatch
    columns: Mapping[str, str | tuple[str, ...]]
    labels: Mapping[str, tuple[Any, ...]]
    episodes: tuple[Any, ...]
    notes: tuple[str, ...]


def read_log(path: str | Path, **options: Any) -> TrajectoryBatch:
    """A batch from a file with one row per step: Parquet, CSV (also .csv.gz) or NumPy's .npz.

    The same as `load_log(path, **options).batch`, which also keeps the names of the episodes.

    Example:
      >>> oj.read_log("log.parquet", columns={"episode": "patient_id"}, say=print)
      >>> oj.read_log("log.csv", target="policy.npz", epsilon=0.05)
    """
    return load_log(path, **options).batch


def load_log(
    path: str | Path,
    *,
    columns: Mapping[str, Any] | None = None,
    target: Any = None,
    behavior: Any = None,
    epsilon: float = EPSILON,
    behavior_epsilon: float = EPSILON,
    num_states: int | None = None,
    num_actions: int | None = None,
    dtype: Any = None,
    bucket: bool = False,
    say: Say | None = None,
) -> Log:
    """A log from a file with one row per step, with the names of its states, actions and episodes.

    Columns are those of `from_dataframe`; common other names are guessed, and `say` is told. Text
    in `state` or `action` becomes ids in sorted order, and so do sparse integers;
    `batch.state_labels` and `batch.action_labels` say which is which. Text that is written as
    integers are is integers; "007" is text. Episodes are told apart as the file writes them. Only
    the columns needed are read, and nothing is ever unpickled. An .npz holds the columns as
    arrays, or the arrays of `from_arrays`.

    Args:
      path: the file; its name ends in .parquet, .csv, .csv.gz, .tsv or .npz.
      columns: field to column name, as in `{"episode": "patient_id"}`; for `observation`,
        `behavior_probs` and `target_probs` a list of columns, what stands before their numbers, or
        one column of vectors; None for a field that is not to be read.
      target: the policy to evaluate, instead of what the log says: as in `with_policies`, or the
        path of a file for `load_policy`.
      behavior: the policy that made the log, likewise.
      epsilon, behavior_epsilon: of a target, or a behaviour policy, read from a Q-network.
      num_states, num_actions, dtype, bucket: as for `from_episodes`.
      say: called with a line of text for every guess.

    Raises:
      OSError: the file cannot be opened.
      ValueError: one line that names the file, the column, the trajectory and the step.
    """
    epsilons = (epsilon, behavior_epsilon)
    refuse_idle_epsilons(target, behavior, epsilons)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(one_line(line))
        if say is not None:
            say(notes[-1])

    sizes = {"num_states": num_states, "num_actions": num_actions, "dtype": dtype}
    skip = ["log_ratio", "target_prob", "target_probs"] if target is not None else []
    skip += ["behavior_prob", "behavior_probs"] if behavior is not None else []
    try:
        log = _load(open_source(path), columns, skip, note, bucket=bucket, **sizes)
    except ValueError as error:
        raise ValueError(one_line(f"{path}: {error}")) from None
    batch = with_given_policies(log.batch, target, behavior, epsilons, note)
    return dataclasses.replace(log, batch=batch, notes=tuple(notes))


def _load(
    source: Source,
    columns: Mapping[str, Any] | None,
    skip: Sequence[str],
    note: Say,
    *,
    bucket: bool,
    **sizes: Any,
) -> Log:
    """The log as the file has it; what is guessed is noted elsewhere."""
    chosen: dict[str, Any] = choose_columns(source.names, columns, note, skip)
    if source.kind != ".npz":
        chosen = _by_row(chosen)
    _require(source, chosen, "reward")
    ids = [n for field in ("episode", *INTEGER_FIELDS) for n in as_tuple(chosen.get(field, ()))]
    data = source.read([name for of in chosen.values() for name in as_tuple(of)], ids)
    for field in FLAG_FIELDS:  # what was taken for flags by its name alone may be something else
        of = chosen.get(field, field)
        if of != field and field not in (columns or {}):
            values = np.unique(np.asarray(data[of]).astype(str))
            if not all(read_flag(value) is not None or value in MISSING for value in values):
                note(f"{field}: {of} holds other things than true and false, and is not read")
                del chosen[field]
    if source.kind == ".npz" and np.ndim(data[chosen["reward"]]) == 2:
        arrays = {
            field: np.asarray(data[of])
            for field, of in chosen.items()
            if isinstance(of, str) and field not in ("episode", "step")
        }
        batch, episodes = from_arrays(**arrays, **sizes), ()
    else:
        chosen = _by_row(chosen)
        batch, episodes = _long(source, chosen, data, sizes | {"bucket": bucket}, note)
    return Log(batch, chosen, _labels(batch, note), tuple(episodes), ())


def _by_row(chosen: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that only padded arrays have."""
    return {field: of for field, of in chosen.items() if field not in PADDED_ONLY}


def _require(source: Source, chosen: Mapping[str, Any], field: str) -> None:
    if field not in chosen:
        raise ValueError(
            f"{field}: no column looks like it; there are {listed(source.names)}; "
            f"say which by columns, as in {{{field!r}: ...}}"
        )


def _long(
    source: Source, chosen: Mapping[str, Any], data: Mapping[str, Any], options: dict, note: Say
) -> tuple[TrajectoryBatch, Any]:
    """The batch and its episodes' names, from one entry per row in every column."""
    _require(source, chosen, "episode")
    _require(source, chosen, "action")
    reward = data[chosen["reward"]]
    if np.ndim(reward) == 0:
        raise ValueError(f"{chosen['reward']}: a single number, where one per row is expected")
    for name, column in data.items():
        if np.ndim(column) == 0 or len(column) != len(reward):
            size = f"{len(column)} rows" if np.ndim(column) else "no rows"
            raise ValueError(f"{name}: {size} where {chosen['reward']} has {len(reward)}")
    fields = read_fields(data, chosen, parse=True)
    episode = one_column(data, chosen["episode"])
    if episode.is_unique and len(episode) > 1:
        note(f"episode: every value of {chosen['episode']} is different, so each episode is a step")
    step = _step(episode, data, chosen, note)
    return rows_to_batch(
        episode, step, fields, name=lambda field: _called(field, chosen), **options
    )


def _labels(batch: TrajectoryBatch, note: Say) -> dict[str, tuple[Any, ...]]:
    """What the file calls states and actions where ids are others; and a note of each."""
    both = {"state": batch.state_labels, "action": batch.action_labels}
    renamed = {field: labels for field, labels in both.items() if labels is not None}
    for field, labels in renamed.items():
        what = "labels" if is_text(labels) else "sparse ids"
        note(f"{field}: {len(labels)} {what} became ids in sorted order: {shown(labels)}")
    return renamed


def _called(field: str, chosen: Mapping[str, Any]) -> str:
    of = chosen.get(field, field)
    if not isinstance(of, str):
        return f"{field} ({of[0]}, ...)"
    return field if of == field else f"{field} ({of})"


def _step(episode: Any, data: Mapping[str, Any], chosen: Mapping[str, Any], note: Say) -> Any:
    """The step of every row: as logged, by time, or in the order of the rows."""
    import pandas as pd

    if "step" in chosen:
        step = one_column(data, chosen["step"])
        if step.dtype.kind != "M":
            return pd.Series(numbers(step, parse=True))
        for row in np.flatnonzero(step.isna()):
            raise ValueError(f"{_called('step', chosen)}: missing at row {row}")
        note(f"step: the order of the times in {chosen['step']} within each episode")
        return step.groupby(episode.to_numpy(), sort=False).rank(method="dense") - 1
    code = pd.factorize(episode)[0]
    changes = int(np.count_nonzero(np.diff(code))) + 1
    if changes > len(np.unique(code)):
        raise ValueError(
            "step: no column looks like it, and the rows of an episode are scattered, so their "
            "order says nothing; add a step column or say which by columns"
        )
    note("step: no such column; the rows of an episode are taken to be in order")
    return pd.Series(code).groupby(code).cumcount()
