"""What a case is, and the truth in the forms that the library reads: lists, tables, bytes."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import osiris_jax as oj
from fuzzing.truth import NUM_ACTIONS, Truth

ANSWER, REFUSAL, EITHER, ANYTHING = "answer", "refusal", "either", "anything"
FILE_NAMES = ("log", "my log", "l\u00f6g*|`x`", "esc\x1b[2Jape", "[red]log", "$(x);&", "-log")
RATIOS = ("narrow", "log_ratio", "wide", "both")


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to do, and what must come of it.

    Attributes:
      name: the way in and what is special about it; outcomes are counted by it.
      call: gives a batch, or (batch, names of its episodes), or raises.
      truth: what the batch must hold.
      expected: "answer": the truth; "refusal": a ValueError; "either"; "anything": those, or a
        batch that need not hold the truth, for files damaged in ways that may not show.
      field: a pattern that a refusal must match.
    """

    name: str
    call: Callable[[], Any]
    truth: Truth
    expected: str = ANSWER
    field: str = ""


def pick(rng, options):
    """One of a sequence or of a dict's keys, as it is."""
    options = list(options)
    return options[rng.integers(len(options))]


# ------------------------------------------------------------------------ forms of the truth


def ratio_columns(truth, ratios):
    """Field -> per episode, the columns that tell the ratios."""
    columns = {}
    if ratios in ("narrow", "both"):
        columns["behavior_prob"] = truth.logged(truth.behavior)
        columns["target_prob"] = truth.logged(truth.target)
    if ratios in ("wide", "both"):
        columns["behavior_probs"] = [truth.behavior[states] for states in truth.states]
        columns["target_probs"] = [truth.target[states] for states in truth.states]
    if ratios == "log_ratio":
        columns["log_ratio"] = truth.log_ratios()
    if ratios == "behavior":
        columns["behavior_prob"] = truth.logged(truth.behavior)
    return columns


def own(ids, indices):
    """The log's own ids of indices."""
    return [ids[index] for index in indices]


def episodes_of(truth, ratios="narrow"):
    """The list that `from_episodes` takes."""
    columns = {
        "states": [own(truth.state_ids, path) for path in truth.states],
        "actions": [own(truth.action_ids, path) for path in truth.actions],
        "rewards": truth.rewards,
    } | ratio_columns(truth, ratios)
    if truth.truncated is not None:
        columns["truncated"] = marks(truth)
    return [
        {key: list(parts[i]) for key, parts in columns.items()} for i in range(len(truth.rewards))
    ]


def marks(truth):
    """For each episode at every step whether it is cut off there."""
    ends = zip(truth.lengths, truth.truncated, strict=True)
    return [np.arange(1, length + 1) * cut == length for length, cut in ends]


def table_of(truth, ratios="narrow", *, first_step=0):
    """The DataFrame that `from_dataframe` takes, rows in order."""
    steps = [range(first_step, first_step + length) for length in truth.lengths]
    names = [name for name, n in zip(truth.names, truth.lengths, strict=True) for _ in range(n)]
    columns = {
        "episode": pd.Series(names),
        "step": np.concatenate(steps),
        "state": own(truth.state_ids, np.concatenate(truth.states)),
        "action": own(truth.action_ids, np.concatenate(truth.actions)),
        "reward": np.concatenate(truth.rewards),
    }
    if truth.truncated is not None:
        columns["truncated"] = np.concatenate(marks(truth))
    for field, parts in ratio_columns(truth, ratios).items():
        values = np.concatenate(parts)
        if values.ndim == 1:
            columns[field] = values
        else:
            prefix = field.removesuffix("s")
            columns |= {f"{prefix}_{k}": values[:, k] for k in range(NUM_ACTIONS)}
    return pd.DataFrame(columns)


def arrays_of(truth, ratios="narrow", steps=None):
    """The padded arrays that `from_arrays` takes, with lengths."""
    shape = len(truth.rewards), steps or max(truth.lengths)
    columns = {
        "state": [np.array(own(truth.state_ids, path)) for path in truth.states],
        "action": [np.array(own(truth.action_ids, path)) for path in truth.actions],
        "reward": truth.rewards,
    } | ratio_columns(truth, ratios)
    if truth.truncated is not None:
        columns["truncated"] = marks(truth)
    arrays = {}
    for field, parts in columns.items():
        arrays[field] = np.zeros(shape + parts[0].shape[1:], np.concatenate(parts).dtype)
        for i, part in enumerate(parts):
            arrays[field][i, : len(part)] = part
    return arrays | {"lengths": np.array(truth.lengths)}


# ---------------------------------------------------------------------------------- bytes


def parquet_bytes(table):
    """The table as Parquet, or a dict of arrow arrays."""
    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, preserve_index=False)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def npz_bytes(arrays, compress=False):
    """The arrays as an .npz."""
    buffer = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(buffer, **arrays)
    return buffer.getvalue()


def csv_bytes(rng, table):
    """The table as CSV, with one of the signs, line ends and quotings that are common."""
    sign = pick(rng, ",;\t")
    quoting = pick(rng, [0, 1])  # what needs it, or everything
    end = pick(rng, ["\n", "\r\n"])
    text = table.to_csv(index=False, sep=sign, quoting=quoting, lineterminator=end)
    return text.encode() + pick(rng, [b"", end.encode()])


def long_arrays(table):
    """The columns as NumPy arrays that need no pickle."""
    arrays = {}
    for name in table:
        values = table[name].tolist()
        text = isinstance(values[0], str)
        arrays[name] = np.array(values) if text else table[name].to_numpy()
    return arrays


def save(rng, folder, content, ending):
    """The bytes in a file whose name may be strange."""
    path = folder / (pick(rng, FILE_NAMES) + ending)
    path.write_bytes(content)
    return path


def read(path, **options):
    """The batch and what the log calls its episodes."""
    log = oj.load_log(path, **options)
    return log.batch, log.episodes
