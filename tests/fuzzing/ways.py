"""Every way in: the truth written down as lists, tables, arrays and files, then read."""

import dataclasses
import gzip
import io
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import osiris_jax as oj
from fuzzing.truth import (
    ACTION_IDS,
    EPISODE_NAMES,
    INTEGER_IDS,
    MAX_STEPS,
    NUM_ACTIONS,
    TEXT_IDS,
    Truth,
    draw,
)
from osiris_jax.policies import Tabular

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
    return [
        {key: list(parts[i]) for key, parts in columns.items()} for i in range(len(truth.rewards))
    ]


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
    arrays = {}
    for field, parts in columns.items():
        arrays[field] = np.zeros(shape + parts[0].shape[1:], parts[0].dtype)
        for i, part in enumerate(parts):
            arrays[field][i, : len(part)] = part
    return arrays | {"lengths": np.array(truth.lengths)}


# --------------------------------------------------------------------------------- Python


def by_episodes(rng, truth, folder):
    """Lists, tuples or arrays of several types."""
    del folder
    episodes = episodes_of(truth, pick(rng, RATIOS))
    kind = pick(rng, ["lists", "tuples", "arrays", "narrow types", "objects", "jax"])
    change = {
        "lists": lambda key, x: x,
        "tuples": lambda key, x: tuple(map(tuple, x)) if np.ndim(x) == 2 else tuple(x),
        "arrays": lambda key, x: np.asarray(x),
        "narrow types": lambda key, x: np.asarray(x, np.int8 if key in ("states", "actions") else
                                                  np.float64),
        "objects": lambda key, x: np.asarray(x, object),
        "jax": lambda key, x: jnp.asarray(x) if key in ("states", "actions") else x,
    }[kind]  # fmt: skip
    given = [{key: change(key, x) for key, x in episode.items()} for episode in episodes]
    options = pick(rng, [{}, {"num_states": 5, "num_actions": 3}, {"bucket": True}])
    return f"from_episodes, {kind}", lambda: oj.from_episodes(given, **options)


TYPES = {
    "as they are": {},
    "nullable": {"state": "Int64", "action": "Int8", "step": "UInt16", "reward": "Float64"},
    "categories": {"state": "category", "action": "category", "episode": "category"},
    "arrow": {"state": "int64[pyarrow]", "action": "uint8[pyarrow]", "reward": "double[pyarrow]"},
    "objects": {"state": object, "action": object, "reward": object, "episode": object},
    "whole floats": {"state": float, "action": float, "step": float},
    "small types": {"state": "uint8", "action": "int8", "step": "int16"},
}


def by_dataframe(rng, truth, folder):
    """A table with rows and columns in any order, and columns of several types."""
    del folder
    table = table_of(truth, pick(rng, RATIOS), first_step=int(rng.choice([0, 1, 2**40])))
    kind = pick(rng, TYPES)
    if kind in ("small types", "nullable") and table["step"].max() > 2**14:
        kind = "as they are"
    table = table.astype(TYPES[kind])
    if kind == "categories":
        table["state"] = table["state"].cat.add_categories([4321])
        table["episode"] = table["episode"].cat.add_categories(["nobody"])
    table = table.iloc[rng.permutation(len(table))]
    order = list(pd.unique(table["episode"]))
    rows = np.argsort([order.index(name) for name in truth.names])
    extra = pick(rng, ["<b>x</b>", "\x1b[1m", 7, ("a", "b"), "obs"])
    table.insert(int(rng.integers(3)), extra, "*" * 3)
    if rng.random() < 0.2:
        table.index = pd.MultiIndex.from_arrays([table["step"], table["step"]])
    return f"from_dataframe, {kind}", lambda: oj.from_dataframe(table), reordered(truth, rows)


def reordered(truth, rows):
    """The same log with its episodes in another order."""
    lists = {
        field: [getattr(truth, field)[i] for i in rows]
        for field in ("states", "actions", "rewards", "names")
    }
    return dataclasses.replace(truth, **lists | {"names": tuple(lists["names"])})


def by_arrays(rng, truth, folder):
    """Padded arrays, NaN and absurd ids in the padding."""
    del folder
    arrays = arrays_of(truth, pick(rng, RATIOS), steps=pick(rng, [None, MAX_STEPS + 1]))
    lengths = arrays.pop("lengths")
    mask = np.arange(arrays["reward"].shape[1]) < lengths[:, None]
    if max(truth.lengths) > MAX_STEPS:
        return "from_arrays", lambda: oj.from_arrays(**arrays_of(truth))
    for name, array in arrays.items():
        array[~mask] = np.nan if array.dtype.kind == "f" else -7
        if name == "reward" and rng.random() < 0.3:
            arrays[name] = array.tolist()
    given = {"mask": mask} if rng.random() < 0.5 else {"lengths": lengths}
    return "from_arrays", lambda: oj.from_arrays(**arrays, **given)


# ---------------------------------------------------------------------------------- files


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


def strip_steps(rng, table, names):
    """The table, in half of the cases without its step column, the rows then in order."""
    if rng.random() < 0.5:
        return table.drop(columns="step"), names
    order = rng.permutation(len(table))
    table = table.iloc[order]
    seen = list(dict.fromkeys(table["episode"]))
    return table, np.argsort([seen.index(name) for name in names])


def by_file(rng, truth, folder, kind):
    """A file in long format, with or without a step column."""
    ratios = "narrow" if truth.text_actions else pick(rng, RATIOS)
    table, order = strip_steps(rng, table_of(truth, ratios), truth.names)
    if "step" in table:
        truth = reordered(truth, order)
    if kind == "csv":
        content = csv_bytes(rng, table)
        zipped = rng.random() < 0.2
        content = gzip.compress(content) if zipped else content
        path = save(rng, folder, content, ".csv.gz" if zipped else pick(rng, [".csv", ".tsv"]))
    elif kind == "parquet":
        path = save(rng, folder, parquet_bytes(arrow_types(rng, table)), ".parquet")
    else:
        content = npz_bytes(long_arrays(table), compress=rng.random() < 0.5)
        path = save(rng, folder, content, ".npz")
    return f"read_log, {kind}", lambda: read(path), truth


def arrow_types(rng, table):
    """The table as Arrow's, text in one of its several types."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    text = pick(rng, [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    for place, field in enumerate(arrow.schema):
        if field.type in (pa.string(), pa.large_string()):
            arrow = arrow.set_column(place, field.name, arrow.column(place).cast(text))
    return arrow


def by_csv(rng, truth, folder):
    return by_file(rng, truth, folder, "csv")


def by_parquet(rng, truth, folder):
    return by_file(rng, truth, folder, "parquet")


def by_npz(rng, truth, folder):
    return by_file(rng, truth, folder, "npz")


def by_padded_npz(rng, truth, folder):
    """The arrays of `from_arrays` in a file."""
    path = save(rng, folder, npz_bytes(arrays_of(truth, pick(rng, RATIOS))), ".npz")
    return "read_log, padded npz", lambda: oj.read_log(path)


# ------------------------------------------------------------------------------- policies


def named_table(truth, table):
    """A DataFrame by the log's own names."""
    return pd.DataFrame(table, index=list(truth.state_ids), columns=list(truth.action_ids))


def integer_table(truth, table, spare=0):
    """Rows by the log's own integers, those that nobody visits uniform."""
    rows = np.full((max(truth.state_ids) + 1 + spare, NUM_ACTIONS), 1 / NUM_ACTIONS)
    rows[list(truth.state_ids)] = table
    return rows


def asked(truth, table, batch):
    """A function of the log's own integers or of the ids of its labels, as the library says."""
    if truth.text_states:
        known = {number: label for number, label in enumerate(batch.state_labels)}
        row_of = {number: truth.state_ids.index(label) for number, label in known.items()}
    else:
        row_of = {label: index for index, label in enumerate(truth.state_ids)}
    columns = list(range(NUM_ACTIONS))
    if truth.text_actions:
        columns = [truth.action_ids.index(label) for label in batch.action_labels]
    return lambda states: table[[row_of[int(s)] for s in np.asarray(states)]][:, columns]


def shuffled(rng, frame):
    """The rows and columns in another order, which must not matter."""
    return frame.iloc[rng.permutation(len(frame)), rng.permutation(frame.shape[1])]


def policy_file(rng, truth, table, folder, *, named):
    """A table in an .npz, by the log's integers or by name."""
    path = folder / "policy.npz"
    if not named:
        np.savez(path, integer_table(truth, table))
        return path
    frame = shuffled(rng, named_table(truth, table))
    np.savez(path, table=frame.to_numpy(), states=np.array(list(frame.index)),
             actions=np.array(list(frame.columns)))  # fmt: skip
    return path


def policy_for(rng, truth, table, folder):
    """(form, function from a batch to a policy): some form of the table that fits the log."""
    forms = {"function": lambda batch: asked(truth, table, batch)}
    text = truth.text_states or truth.text_actions
    if text:
        forms["DataFrame"] = lambda batch: shuffled(rng, named_table(truth, table))
    elif max(truth.state_ids) < 1000:
        spare = int(rng.integers(3))
        forms["table"] = lambda batch: integer_table(truth, table, spare)
        forms["lists"] = lambda batch: integer_table(truth, table).tolist()
        forms["Tabular"] = lambda batch: Tabular(integer_table(truth, table, spare))
    form = pick(rng, forms)
    return form, forms[form]


def by_policies(rng, truth, folder):
    """A log without its target, or without both, and policies given afterwards."""
    knows_behavior = bool(rng.random() < 0.5)
    ratios = "behavior" if knows_behavior else "none"
    if truth.text_states or truth.text_actions or rng.random() < 0.4:
        path = save(rng, folder, csv_bytes(rng, table_of(truth, ratios)), ".csv")
        load = lambda: oj.read_log(path)  # noqa: E731
    else:
        load = lambda: oj.from_episodes(episodes_of(truth, ratios))  # noqa: E731
    form, target = policy_for(rng, truth, truth.target, folder)
    _, behavior = policy_for(rng, truth, truth.behavior, folder)

    def call():
        batch = load()
        made = None if knows_behavior else behavior(batch)
        return oj.with_policies(batch, target=target(batch), behavior=made)

    return f"with_policies, {form}", call


def by_policy_file(rng, truth, folder):
    """`read_log(..., target="policy.npz")`."""
    path = save(rng, folder, csv_bytes(rng, table_of(truth, "behavior")), ".csv")
    named = truth.text_states or truth.text_actions
    policy = policy_file(rng, truth, truth.target, folder, named=named)
    name = f"read_log with a policy file{', by name' if named else ''}"
    return name, lambda: read(path, target=str(policy))


def by_observations(rng, truth, folder):
    """States that are made from observations."""
    del folder
    low, high = rng.normal(size=2)
    episodes = episodes_of(truth)
    for episode in episodes:
        states = episode.pop("states")
        episode["observations"] = [[s + 0.25, low if s % 2 else high] for s in states]
    bins = oj.LinearBins([[1, 2, 3, 4], []])
    discretisers = [bins, lambda seen: np.floor(np.asarray(seen)[:, 0]).astype(int)]
    discretiser = pick(rng, discretisers)
    call = lambda: oj.with_states(  # noqa: E731
        oj.from_episodes(episodes), discretiser, relabel=False
    )
    return "with_states", call


# ----------------------------------------------------------------------------- valid cases

PYTHON_WAYS = (by_episodes, by_dataframe, by_arrays, by_observations, by_padded_npz)
FILE_WAYS = (by_csv, by_parquet, by_npz)
LABELLED_WAYS = (*FILE_WAYS, by_policies, by_policy_file)
NAMES_OF = {
    by_csv: set(EPISODE_NAMES) - {"decimals", "fractions", "times", "times with a zone"},
    by_parquet: set(EPISODE_NAMES),
    by_npz: set(EPISODE_NAMES) - {"decimals", "fractions", "times", "times with a zone"},
    by_dataframe: set(EPISODE_NAMES),
}


def finished(case, truth, way, what, expected=ANSWER):
    """A case of what a way in gave."""
    name, call, *changed = case
    return Case(f"{name}{what}", call, changed[0] if changed else truth, expected)


def plain(rng, folder):
    """Dense ids, through any way in."""
    truth = draw(rng)
    way = pick(rng, (*PYTHON_WAYS, *LABELLED_WAYS))
    return finished(way(rng, truth, folder), truth, way, "")


def named_episodes(rng, folder):
    """Episodes with names that are easily merged."""
    truth, way = draw(rng), pick(rng, NAMES_OF)
    style = pick(rng, sorted(NAMES_OF[way]))
    truth = dataclasses.replace(truth, names=tuple(EPISODE_NAMES[style](len(truth.rewards))))
    return finished(way(rng, truth, folder), truth, way, f"; episodes: {style}")


def text_ids(rng, folder):
    """States that are text, and in half of the cases actions too."""
    style, words = pick(rng, TEXT_IDS), rng.random() < 0.5
    actions = ACTION_IDS["words" if words else "dense"]
    truth = dataclasses.replace(draw(rng), state_ids=TEXT_IDS[style], action_ids=actions)
    way = pick(rng, LABELLED_WAYS)
    what = f"; states: {style}" + ("; actions: words" if words else "")
    return finished(way(rng, truth, folder), truth, way, what)


def integer_ids(rng, folder):
    """Integers with gaps, and far apart."""
    style = pick(rng, [name for name in INTEGER_IDS if name != "dense"])
    truth = dataclasses.replace(draw(rng), state_ids=INTEGER_IDS[style])
    ways = [by_parquet, by_npz, by_csv, by_policies, by_padded_npz, by_arrays]
    way = pick(rng, [*ways, by_policy_file] if style == "gaps" else ways)
    return finished(way(rng, truth, folder), truth, way, f"; states: {style}")


def sparse_actions(rng, folder):
    """Actions far apart, with the probabilities of the logged ones alone."""
    truth = dataclasses.replace(draw(rng), action_ids=ACTION_IDS["sparse"])
    table = table_of(truth, pick(rng, ["narrow", "log_ratio"]))
    path = save(rng, folder, parquet_bytes(table), ".parquet")
    call = pick(rng, [lambda: oj.from_dataframe(table), lambda: read(path)])
    return Case("actions: sparse", call, truth)


def long_and_short(rng, folder):
    """One trajectory a thousand times longer than the rest."""
    truth = draw(rng, long=True)
    way = pick(rng, [by_episodes, by_dataframe, by_csv, by_parquet, by_npz])
    return finished(way(rng, truth, folder), truth, way, "; one a thousand times longer")


VALID = {plain: 8, named_episodes: 8, text_ids: 7, integer_ids: 5, sparse_actions: 1}
VALID |= {long_and_short: 1}


def valid_case(rng, folder):
    """A log that must be read, and its truth."""
    weights = np.array(list(VALID.values()), float)
    kind = list(VALID)[rng.choice(len(VALID), p=weights / weights.sum())]
    return kind(rng, folder)
