"""Every way in: the truth written down as lists, tables, arrays and files, then read."""

import dataclasses
import gzip

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa

import osiris_jax as oj
from fuzzing.forms import (
    RATIOS,
    arrays_of,
    csv_bytes,
    episodes_of,
    long_arrays,
    npz_bytes,
    parquet_bytes,
    pick,
    read,
    save,
    table_of,
)
from fuzzing.truth import MAX_STEPS, NUM_ACTIONS
from osiris_jax.data.policies import Tabular

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
    } | {"truncated": truth.truncated and tuple(truth.truncated[i] for i in rows)}
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
        if kind == "parquet" and rng.random() < 0.3:
            zone = pick(rng, [None, "UTC", "Asia/Kolkata"])
            table = table.assign(step=pd.to_datetime(table["step"], unit="h").dt.tz_localize(zone))
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
    if truth.text_states and batch.state_labels is not None:
        labels = enumerate(batch.state_labels)
        row_of = {number: truth.state_ids.index(label) for number, label in labels}
    else:
        seen = {index for path in truth.states for index in path.tolist()}
        row_of = {int(truth.state_ids[index]): index for index in seen}
    columns = list(range(NUM_ACTIONS))
    if truth.text_actions:
        columns = [truth.action_ids.index(label) for label in batch.action_labels]
    return lambda states: table[[row_of[int(s)] for s in np.asarray(states)]][:, columns]


def with_strangers(truth, frame):
    """The table with rows of states that the log never shows."""
    names = ["stranger 0", "0stranger"] if truth.text_states else [123_456, 5_000_000]
    more = pd.DataFrame(1 / frame.shape[1], index=names, columns=frame.columns)
    return pd.concat([frame, more])


def shuffled(rng, frame):
    """The rows and columns in another order, which must not matter."""
    return frame.iloc[rng.permutation(len(frame)), rng.permutation(frame.shape[1])]


def policy_file(rng, truth, table, folder, *, named):
    """A table in an .npz, by the log's integers or by name."""
    path = folder / "policy.npz"
    if not named:
        np.savez(path, integer_table(truth, table))
        return path
    frame = shuffled(rng, with_strangers(truth, named_table(truth, table)))
    np.savez(path, table=frame.to_numpy(), states=np.array(list(frame.index)),
             actions=np.array(list(frame.columns)))  # fmt: skip
    return path


def policy_for(rng, truth, table, folder):
    """(form, function from a batch to a policy): some form of the table that fits the log."""
    forms = {}
    # a function numbers the actions as the log does, so it can name only those the log shows
    if not truth.text_actions or len(np.unique(np.concatenate(truth.actions))) == NUM_ACTIONS:
        forms["function"] = lambda batch: asked(truth, table, batch)
    forms["DataFrame"] = lambda batch: shuffled(rng, named_table(truth, table))
    if not (truth.text_states or truth.text_actions) and max(truth.state_ids) < 1000:
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
    named = truth.text_states or truth.text_actions or max(truth.state_ids) > 1000
    named = named or rng.random() < 0.3
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


def by_labelled_python(rng, truth, folder):
    """Text for states and actions, given as lists, tables or arrays."""
    del folder
    table = table_of(truth)
    kind = pick(rng, ["object", "category", "string"])
    calls = {
        "from_episodes": lambda: oj.from_episodes(episodes_of(truth)),
        "from_arrays": lambda: oj.from_arrays(**arrays_of(truth)),
        f"from_dataframe, {kind}": lambda: oj.from_dataframe(table.astype({"state": kind})),
    }
    way = pick(rng, calls)
    return way, calls[way]
