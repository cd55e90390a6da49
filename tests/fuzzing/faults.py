"""Named ways to spoil lists, tables, arrays and policies; each says which field must be named."""

import dataclasses
import datetime
from decimal import Decimal

import numpy as np
import pandas as pd

import osiris_jax as oj
from fuzzing import ways
from fuzzing.truth import NUM_ACTIONS, TEXT_IDS, draw
from fuzzing.ways import EITHER, REFUSAL, Case, arrays_of, episodes_of, pick, table_of

NAN, INF = float("nan"), float("inf")
HUGE = 2**70
WRONG_NUMBERS = {
    "NaN": NAN, "inf": INF, "-inf": -INF, "None": None, "text": "oops", "complex": 1j,
    "bytes": b"1", "a list": [1.0], "a dict": {}, "an object": object(), "a date": datetime.date(2024, 2, 29),
    "escape text": "\x1b[2J\nx", "pd.NA": pd.NA, "pd.NaT": pd.NaT, "1e400": 10**400,
}  # fmt: skip
WRONG_IDS = {
    "negative": -1, "half": 0.5, "NaN": NAN, "None": None, "inf": INF, "mixed text": "oops",
    "a list": [1], "an object": object(), "complex": 1j,
}  # fmt: skip
ODD_IDS = {"2**63": 2**63, "2**70": HUGE, "Decimal": Decimal(1), "True": True, "'1'": "1"}
WRONG_PROBABILITIES = {"negative": -0.01, "above 1": 1.01, "NaN": NAN, "inf": INF, "text": "50%"}
PLURAL = {"state": "states", "action": "actions", "reward": "rewards"}

CELLS = {
    (field, what): (value, REFUSAL)
    for field, values in (
        ("reward", WRONG_NUMBERS),
        ("state", WRONG_IDS),
        ("action", WRONG_IDS),
        ("behavior_prob", WRONG_PROBABILITIES | {"zero": 0.0}),
        ("target_prob", WRONG_PROBABILITIES),
        ("log_ratio", {"NaN": NAN, "inf": INF, "text": "x", "None": None}),
    )
    for what, value in values.items()
}
CELLS |= {
    (field, what): (value, EITHER)
    for field in ("state", "action")
    for what, value in ODD_IDS.items()
}
CELLS |= {("reward", what): (v, EITHER) for what, v in {"Decimal": Decimal(2), "'2'": "2"}.items()}


def cell(rng):
    """(field, what, value, expected, ratios): one bad cell."""
    field, what = pick(rng, CELLS)
    value, expected = CELLS[field, what]
    return field, what, value, expected, "log_ratio" if field == "log_ratio" else "narrow"


def put(values, place, value):
    """The values as a list with one replaced."""
    values = list(values)
    values[place] = value
    return values


def bad_cell_in_episodes(rng, folder):
    """One bad cell among the lists."""
    del folder
    truth = draw(rng)
    field, what, value, expected, ratios = cell(rng)
    key = PLURAL.get(field, field)
    episodes = episodes_of(truth, ratios)
    episode = pick(rng, episodes)
    episode[key] = put(episode[key], rng.integers(len(episode[key])), value)
    # what is odd but meaningful may be read as what it means: not compared
    expected = ways.ANYTHING if expected == EITHER else expected
    name = f"from_episodes: {what} in {key}"
    return Case(name, lambda: oj.from_episodes(episodes), truth, expected, key)


def bad_cell_in_table(rng, folder):
    """One bad cell in a table, given as it is or through a file."""
    truth = draw(rng)
    field, what, value, expected, ratios = cell(rng)
    table = table_of(truth, ratios)
    table[field] = pd.Series(put(table[field], rng.integers(len(table)), value), dtype=object)
    expected = ways.ANYTHING if expected == EITHER else expected
    if isinstance(value, float | int | str) and rng.random() < 0.5:
        call = table_through_csv(rng, table, folder)
        return Case(f"csv: {what} in {field}", call, truth, expected, field)
    name = f"from_dataframe: {what} in {field}"
    return Case(name, lambda: oj.from_dataframe(table), truth, expected, field)


def table_through_csv(rng, table, folder):
    """Writes the table; the call reads it."""
    path = ways.save(rng, folder, ways.csv_bytes(rng, table), ".csv")
    return lambda: oj.read_log(path)


def bad_cell_in_arrays(rng, folder):
    """One bad real cell in padded arrays, given as they are or through an .npz."""
    truth = draw(rng)
    field, what, value, expected, ratios = cell(rng)
    arrays = arrays_of(truth, ratios)
    expected = ways.ANYTHING if expected == EITHER else expected
    place = rng.integers(len(truth.rewards)), 0
    numeric = isinstance(value, float | int) and not isinstance(value, bool) and value < 2**62
    array = arrays[field].astype(np.float64 if numeric else object)
    array[place] = None  # a list would be spread over the cells
    cells = array.reshape(-1)
    cells[place[0] * array.shape[1]] = value
    arrays[field] = array
    if numeric and rng.random() < 0.5:
        path = ways.save(rng, folder, ways.npz_bytes(arrays), ".npz")
        return Case(f"npz: {what} in {field}", lambda: oj.read_log(path), truth, expected, field)
    name = f"from_arrays: {what} in {field}"
    return Case(name, lambda: oj.from_arrays(**arrays), truth, expected, field)


# --------------------------------------------------------------------------------- lists


def without(key):
    """Leaves a key out of every dict."""
    return lambda episodes: [{k: v for k, v in e.items() if k != key} for e in episodes]


def last(**changes):
    """Changes the last episode; a function gets the old entry."""

    def change(episodes):
        new = {k: v(episodes[-1].get(k)) if callable(v) else v for k, v in changes.items()}
        return [*episodes[:-1], {**episodes[-1], **new}]

    return change


def wide(**changes):
    """As `last`, with the probabilities of all actions in every episode."""
    return "wide", last(**changes)


LISTS = {
    "no rewards": (without("rewards"), "rewards"),
    "no actions": (without("actions"), "actions"),
    "no states": (without("states"), "states"),
    "an unknown key": (last(colour=[1]), "colour"),
    "an unknown key with escapes": (last(**{"\x1b[2J*": [1]}), "not a field"),
    "a key that is no text": (lambda e: [*e[:-1], {**e[-1], 7: [1]}], "7"),
    "a 0-d reward": (last(rewards=np.float64(1.0)), "rewards"),
    "a 0-d array": (last(rewards=np.array(1.0)), "rewards"),
    "a 0-d state": (last(states=3), "states"),
    "rewards of None": (last(rewards=None), "rewards"),
    "rewards of text": (last(rewards="text"), "rewards"),
    "rewards of a dict": (last(rewards={0: 1.0}), "rewards"),
    "rewards of a generator": (last(rewards=iter([1.0])), "rewards"),
    "rewards of a set": (last(rewards={1.0}), "rewards"),
    "nested rewards": (last(rewards=lambda r: [[x] for x in r]), "rewards"),
    "ragged rewards": (last(rewards=lambda r: [[1.0, 2.0], *r]), "rewards"),
    "complex rewards": (last(rewards=lambda r: np.array(r) * 1j), "rewards"),
    "rewards of times": (last(rewards=lambda r: np.array(r, "timedelta64[s]")), "rewards"),
    "structured rewards": (last(rewards=lambda r: np.zeros(len(r), [("a", float)])), "rewards"),
    "one step more": (last(rewards=lambda r: [*r, 0.0]), "rewards|states|actions|prob"),
    "one step less": (last(actions=lambda a: a[:-1]), "actions"),
    "an empty episode": (last(rewards=[], states=[], actions=[], behavior_prob=[],
                              target_prob=[]), "rewards"),
    "an episode without keys": (lambda e: [*e, {}], "missing"),
    "an episode of None": (lambda e: [*e, None], "episodes"),
    "an episode as a list": (lambda e: [*e, [1, 2]], "episodes"),
    "no episodes": (lambda e: [], "episodes"),
    "episodes of None": (lambda e: None, "episodes"),
    "one dict": (lambda e: e[0], "episodes"),
    "a number": (lambda e: 3, "episodes"),
    "a text": (lambda e: "text", "episodes"),
    "a generator": (lambda e: iter(e), "episodes"),
    "a 0-d array of episodes": (lambda e: np.array(3), "episodes"),
    "probabilities that do not sum": (wide(target_probs=lambda p: np.array(p) * 0.9), "target_prob"),
    "negative wide probabilities": (wide(behavior_probs=lambda p: np.array(p) - 0.5), "behavior_prob"),
    "wide NaN": (wide(target_probs=lambda p: np.array(p) * NAN), "target_prob"),
    "fewer actions": (wide(target_probs=lambda p: np.array(p)[:, :2]), "target_prob"),
    "flat wide": (wide(target_probs=lambda p: np.array(p)[:, 0]), "target_prob"),
    "contradiction": (wide(behavior_prob=lambda _: [0.123]), "behavior_prob"),
    "target beside no behaviour": (without("behavior_prob"), EITHER),
    "text states": (last(states=lambda s: [f"s{x}" for x in s]), "states"),
    "2-d states": (last(states=lambda s: [[x, x] for x in s]), "states"),
}  # fmt: skip


def bad_lists(rng, folder):
    """Lists of the wrong build."""
    del folder
    truth = draw(rng, size=3)
    what = pick(rng, LISTS)
    change, field = LISTS[what]
    ratios, change = change if isinstance(change, tuple) else ("narrow", change)
    given = change(episodes_of(truth, ratios))
    expected, field = (EITHER, "") if field == EITHER else (REFUSAL, field)
    return Case(f"from_episodes: {what}", lambda: oj.from_episodes(given), truth, expected, field)


OPTIONS = {
    "num_states=0": ({"num_states": 0}, "num_states"),
    "num_states=-1": ({"num_states": -1}, "num_states"),
    "num_states=2.5": ({"num_states": 2.5}, "num_states"),
    "num_states='3'": ({"num_states": "3"}, "num_states"),
    "num_states=[3]": ({"num_states": [3]}, "num_states"),
    "num_states=nan": ({"num_states": NAN}, "num_states"),
    "num_states too small": ({"num_states": 1}, "state"),
    "num_actions=0": ({"num_actions": 0}, "num_actions"),
    "num_actions too small": ({"num_actions": 1}, "action"),
    "dtype=int32": ({"dtype": "int32"}, "dtype"),
    "dtype=float16": ({"dtype": np.float16}, "dtype"),
    "dtype=nonsense": ({"dtype": "nonsense\x1b"}, "dtype"),
    "dtype=object()": ({"dtype": object()}, "dtype"),
}


def bad_options(rng, folder):
    """Good data, bad options."""
    truth = draw(rng, size=8)
    truth.states[0][:1], truth.actions[0][:1] = 4, 2  # so that one state and action are too few
    what = pick(rng, OPTIONS)
    options, field = OPTIONS[what]
    path = folder / "log.csv"
    table_of(truth).to_csv(path, index=False)
    calls = {
        "from_episodes": lambda: oj.from_episodes(episodes_of(truth), **options),
        "from_dataframe": lambda: oj.from_dataframe(table_of(truth), **options),
        "from_arrays": lambda: oj.from_arrays(**arrays_of(truth), **options),
        "read_log": lambda: oj.read_log(path, **options),
    }
    way = pick(rng, calls)
    return Case(f"{way}: {what}", calls[way], truth, REFUSAL, field)


# -------------------------------------------------------------------------------- tables


def one_row(column, value):
    """The table with another value in its last row."""
    return lambda t: t.assign(**{column: pd.Series(put(t[column], len(t) - 1, value), dtype=object)})


TABLES = {
    **{f"no {name}": (lambda t, name=name: t.drop(columns=name), name, REFUSAL)
       for name in ("episode", "step", "state", "action", "reward")},
    "an empty table": (lambda t: t[:0], "episode", REFUSAL),
    "no columns": (lambda t: t[[]], "episode", REFUSAL),
    "a column twice": (lambda t: pd.concat([t, t[["reward"]]], axis=1), "reward", REFUSAL),
    "two columns of escapes": (lambda t: t.set_axis(["\x1b[2J"] * t.shape[1], axis=1), "", REFUSAL),
    "two levels of columns": (lambda t: t.set_axis(pd.MultiIndex.from_product([["a"], t.columns]), axis=1), "", REFUSAL),
    "levels that repeat": (lambda t: t.set_axis(pd.MultiIndex.from_arrays([t.columns, t.columns]), axis=1), "", REFUSAL),
    "numbers as columns": (lambda t: t.set_axis(range(t.shape[1]), axis=1), "episode", REFUSAL),
    "a dict": (lambda t: t.to_dict("list"), "table", REFUSAL),
    "a Series": (lambda t: t["reward"], "table", REFUSAL),
    "an array": (lambda t: t.to_numpy(), "table", REFUSAL),
    "None": (lambda t: None, "table", REFUSAL),
    "records": (lambda t: t.to_dict("records"), "table", REFUSAL),
    "a duplicate step": (lambda t: t.assign(step=t["step"].where(t["step"] != 1, 0)), "step", REFUSAL),
    "a gap": (lambda t: t.assign(step=t["step"].where(t["step"] != 2, 17)), "step", REFUSAL),
    "negative steps": (lambda t: t.assign(step=t["step"] - 1), "step", REFUSAL),
    "half steps": (lambda t: t.assign(step=t["step"] / 2), "step", REFUSAL),
    "steps beyond floats": (lambda t: t.assign(step=t["step"].astype(float) + 2**60), "step", REFUSAL),
    "a step of NaN": (one_row("step", NAN), "step", REFUSAL),
    "a step of text": (one_row("step", "x"), "step", REFUSAL),
    "a step of 2**70": (one_row("step", HUGE), "step", REFUSAL),
    "steps of times": (lambda t: t.assign(step=pd.to_datetime(t["step"], unit="s")), "step", EITHER),
    "steps of durations": (lambda t: t.assign(step=pd.to_timedelta(t["step"], unit="s")), "step", EITHER),
    "an episode of None": (one_row("episode", None), "episode", REFUSAL),
    "an episode of NaN": (one_row("episode", NAN), "episode", REFUSAL),
    "an episode that is a list": (one_row("episode", [1]), "episode", REFUSAL),
    "an episode that is a dict": (one_row("episode", {}), "episode", REFUSAL),
    "rewards of times": (lambda t: t.assign(reward=pd.Timestamp("2024-02-29")), "reward", REFUSAL),
    "rewards with a zone": (lambda t: t.assign(reward=pd.Timestamp("2024-02-29", tz="UTC")), "reward", REFUSAL),
    "rewards of durations": (lambda t: t.assign(reward=pd.Timedelta(1, "s")), "reward", REFUSAL),
    "rewards of periods": (lambda t: t.assign(reward=pd.Period("2024-02")), "reward", REFUSAL),
    "rewards of intervals": (lambda t: t.assign(reward=pd.Interval(0, 1)), "reward", REFUSAL),
    "complex rewards": (lambda t: t.assign(reward=t["reward"] * 1j), "reward", REFUSAL),
    "rewards of text": (lambda t: t.assign(reward=t["reward"].astype(str) + "x"), "reward", REFUSAL),
    "text categories as rewards": (lambda t: t.assign(reward=pd.Categorical(["a"] * len(t))), "reward", REFUSAL),
    "categories with a hole": (lambda t: t.assign(reward=pd.Categorical([1.0] * (len(t) - 1) + [None])), "reward", REFUSAL),
    "nullable with a hole": (lambda t: t.assign(state=pd.array([*t["state"][:-1], None], dtype="Int64")), "state", REFUSAL),
    "arrow with a hole": (lambda t: t.assign(reward=pd.array([*t["reward"][:-1], None], dtype="double[pyarrow]")), "reward", REFUSAL),
    "sparse rewards": (lambda t: t.assign(reward=pd.arrays.SparseArray(t["reward"])), "reward", EITHER),
    "whole rewards": (lambda t: t.assign(reward=t["reward"].astype(object)), "reward", EITHER),
    "a hole in wide columns": (lambda t: t.assign(target_prob_0=0.5, target_prob_2=0.5), "target_prob", REFUSAL),
    "a huge wide column": (lambda t: t.assign(**{"target_prob_99999999999999999999": 1.0}), "target_prob", REFUSAL),
    "one wide column": (lambda t: t.assign(target_prob_0=1.0), "target_prob|action", REFUSAL),
    "text wide columns": (lambda t: t.assign(obs_0="x"), "obs", REFUSAL),
    "lists in a column": (lambda t: t.assign(obs_0=[[1.0]] * len(t)), "obs", REFUSAL),
    "states of text": (lambda t: t.assign(state=[f"s{x}" for x in t["state"]]), "state", "labels"),
    "states of True": (lambda t: t.assign(state=True), "state", ways.ANYTHING),
    "target beside no behaviour": (lambda t: t.drop(columns="behavior_prob"), "behavior_prob", EITHER),
}  # fmt: skip


def bad_table(rng, folder):
    """A table of the wrong build, given as a DataFrame."""
    del folder
    truth = draw(rng, size=3)
    truth = dataclasses.replace(truth, states=[np.resize(s, 4) for s in truth.states],
                                actions=[np.resize(a, 4) for a in truth.actions],
                                rewards=[np.resize(r, 4) for r in truth.rewards])  # fmt: skip
    what = pick(rng, TABLES)
    change, field, expected = TABLES[what]
    table = change(table_of(truth))
    if expected == "labels":
        expected = EITHER
        truth = dataclasses.replace(truth, state_ids=tuple(f"s{x}" for x in truth.state_ids))
    return Case(f"from_dataframe: {what}", lambda: oj.from_dataframe(table), truth, expected, field)


# -------------------------------------------------------------------------------- arrays


def field_of(name, change):
    """Replaces one array."""
    return lambda a: {**a, name: change(a[name])}


def masked(change):
    """A mask in place of the lengths."""
    return lambda a: {
        **{k: v for k, v in a.items() if k != "lengths"},
        "mask": change(np.arange(a["reward"].shape[1]) < a["lengths"][:, None]),
    }


ARRAYS = {
    "no reward": (lambda a: {k: v for k, v in a.items() if k != "reward"}, "reward"),
    "no action": (lambda a: {k: v for k, v in a.items() if k != "action"}, "action"),
    "no state": (lambda a: {k: v for k, v in a.items() if k != "state"}, "state"),
    "a 0-d reward": (field_of("reward", lambda r: np.array(1.0)), "reward"),
    "a 0-d state": (field_of("state", lambda r: np.array(1)), "state"),
    "a number": (field_of("state", lambda r: 1), "state"),
    "1-d rewards": (field_of("reward", lambda r: r[0]), "reward"),
    "3-d rewards": (field_of("reward", lambda r: r[..., None]), "reward"),
    "another shape": (field_of("action", lambda r: r[:, :1]), "action"),
    "turned": (field_of("state", lambda r: r[:2, :3]), "state"),
    "no trajectories": (lambda a: {k: v[:0] for k, v in a.items()}, "reward"),
    "no steps": (field_of("reward", lambda r: r[:, :0]), "reward"),
    "text": (field_of("reward", lambda r: r.astype(str)), "reward"),
    "bytes": (field_of("reward", lambda r: r.astype("S")), "reward"),
    "times": (field_of("reward", lambda r: r.astype("datetime64[s]")), "reward"),
    "complex": (field_of("reward", lambda r: r * 1j), "reward"),
    "structured": (field_of("reward", lambda r: np.zeros(r.shape, [("a", float)])), "reward"),
    "objects": (field_of("reward", lambda r: np.full(r.shape, None)), "reward"),
    "ragged lists": (field_of("reward", lambda r: [[1.0], [1.0, 2.0], [1.0]]), "reward"),
    "deeply ragged": (field_of("reward", lambda r: [[[1.0], 2.0], [3.0], 4.0]), "reward"),
    "a dict": (field_of("reward", lambda r: {"a": 1}), "reward"),
    "a generator": (field_of("reward", lambda r: iter([1.0])), "reward"),
    "an unknown field": (lambda a: {**a, "rewrd": a["reward"]}, "rewrd"),
    "mask and lengths": (lambda a: {**a, "mask": a["reward"] < 9}, "mask"),
    "lengths of 0": (field_of("lengths", lambda n: n * 0), "lengths"),
    "lengths beyond": (field_of("lengths", lambda n: n + 100), "lengths"),
    "negative lengths": (field_of("lengths", lambda n: -n), "lengths"),
    "float lengths": (field_of("lengths", lambda n: n * 1.0), "lengths"),
    "text lengths": (field_of("lengths", lambda n: "abc"), "lengths"),
    "a 0-d length": (field_of("lengths", lambda n: 2), "lengths"),
    "too many lengths": (field_of("lengths", lambda n: [*n, 1]), "lengths"),
    "a float mask": (masked(lambda m: m * 1.0), "mask"),
    "an empty row": (masked(lambda m: m & False), "mask"),
    "a hole in the mask": (masked(lambda m: np.arange(m.shape[1]) != np.zeros((len(m), 1))), "mask"),
    "a flat mask": (masked(lambda m: m[0]), "mask"),
    "a 0-d mask": (masked(lambda m: True), "mask"),
    "wide of two axes": (lambda a: {**a, "target_probs": a["reward"]}, "target_probs"),
    "wide of no actions": (lambda a: {**a, "target_probs": a["reward"][..., None][..., :0]}, "target_probs|action"),
    "observations of no width": (lambda a: {**a, "observation": a["reward"][..., None][..., :0]}, "observation"),
    "observations of NaN": (lambda a: {**a, "observation": a["reward"][..., None] * NAN}, "observation"),
}  # fmt: skip
NOT_IN_FILES = {
    *("a number", "ragged lists", "deeply ragged", "a dict", "a generator", "an unknown field"),
    *("objects", "text lengths", "no trajectories", "1-d rewards", "a 0-d reward", "structured"),
    *("text", "bytes"),
}


def bad_arrays(rng, folder):
    """Arrays of the wrong build, given as they are or through an .npz."""
    truth = draw(rng, size=3)
    truth = dataclasses.replace(truth, states=[np.resize(s, 5) for s in truth.states],
                                actions=[np.resize(a, 5) for a in truth.actions],
                                rewards=[np.resize(r, 5) for r in truth.rewards])  # fmt: skip
    what = pick(rng, ARRAYS)
    change, field = ARRAYS[what]
    arrays = change(arrays_of(truth))
    expected = EITHER if what == "observations of no width" else REFUSAL
    if what not in NOT_IN_FILES and rng.random() < 0.4:
        path = ways.save(rng, folder, ways.npz_bytes(arrays), ".npz")
        return Case(f"padded npz: {what}", lambda: oj.read_log(path), truth, expected, field)
    return Case(f"from_arrays: {what}", lambda: oj.from_arrays(**arrays), truth, expected, field)


# ------------------------------------------------------------------------------ policies


def table_policy(change):
    """A table that was changed."""
    return lambda truth: change(truth.target.copy())


def function_policy(change):
    """A function whose answer was changed."""
    return lambda truth: lambda states: change(truth.target[np.asarray(states)])


def at(value):
    """One entry of the table or of the answer replaced."""

    def change(p):
        p[:, 0] = value
        return p

    return change


POLICIES = {
    **{f"{form}: {what}": make(change)
       for form, make in (("table", table_policy), ("function", function_policy))
       for what, change in {
           "NaN": at(NAN), "negative": at(-0.1), "above 1": at(1.5), "inf": at(INF),
           "sums": lambda p: p * 0.5, "fewer actions": lambda p: p[:, :2] / p[:, :2].sum(1)[:, None],
           "flat": lambda p: p[:, 0], "3-d": lambda p: p[None], "text": lambda p: p.astype(str),
           "objects": lambda p: np.full(p.shape, None), "complex": lambda p: p * 1j,
           "None": lambda p: None, "a word": lambda p: "x", "no actions": lambda p: p[:, :0],
           "ragged": lambda p: [[1.0], [0.5, 0.5]], "a dict": lambda p: {"a": 1},
           "an object": lambda p: object(), "a number": lambda p: 0.5, "empty": lambda p: [],
           "times": lambda p: p.astype("timedelta64[s]"), "structured": lambda p: np.zeros(len(p), [("a", float)]),
       }.items()},
    "table: fewer states": table_policy(lambda p: p[:2]),
    "table: no states": table_policy(lambda p: p[:0]),
    "function: fewer steps": function_policy(lambda p: p[1:]),
    "function: more steps": function_policy(lambda p: np.concatenate([p, p])),
    "function: one row": function_policy(lambda p: p[:1]),
    "function: turned": function_policy(lambda p: np.concatenate([p, p]).T),
}  # fmt: skip


def bad_policy(rng, folder):
    """A policy of the wrong build."""
    del folder
    truth = draw(rng, size=3)
    truth.states[0][:1], truth.actions[0][:1] = 4, 2
    what = pick(rng, POLICIES)
    policy, which = POLICIES[what](truth), pick(rng, ["target", "behavior"])
    given = {"target": truth.target, "behavior": truth.behavior} | {which: policy}
    if which == "behavior" and policy is None:
        which = "behavior"

    def call():
        return oj.with_policies(oj.from_episodes(episodes_of(truth, "none")), **given)

    return Case(f"with_policies, {what}", call, truth, REFUSAL, which)


def relabelled(change):
    """A DataFrame by name whose names were changed."""
    return lambda truth: change(ways.named_table(truth, truth.target))


def repeated(frame):
    return frame.iloc[[0, 0, 1, 2, 3, 4]]


NAMED = {
    "without names": lambda truth: truth.target,
    "without names, more rows": lambda truth: np.full((12, NUM_ACTIONS), 1 / NUM_ACTIONS),
    "fewer states": relabelled(lambda f: f.iloc[:1]),
    "other states": relabelled(lambda f: f.set_axis([f"x{k}" for k in range(len(f))])),
    "other actions": relabelled(lambda f: f.set_axis([*"xyz"], axis=1)),
    "numbers for names": relabelled(lambda f: f.reset_index(drop=True)),
    "a state twice": relabelled(repeated),
    "an action twice": relabelled(lambda f: f.set_axis(["wait", "wait", "drug"], axis=1)),
    "fewer actions": relabelled(lambda f: f[["wait"]].assign(wait=1.0)),
    "NaN": relabelled(lambda f: f * NAN),
    "sums": relabelled(lambda f: f * 0.5),
    "text": relabelled(lambda f: f.astype(str)),
    "two levels": relabelled(lambda f: f.set_axis(pd.MultiIndex.from_product([["a"], f.index]))),
    "empty": relabelled(lambda f: f.iloc[:0]),
}


def bad_named_policy(rng, folder):
    """A log with text labels, and a policy that does not fit its names."""
    style = pick(rng, TEXT_IDS)
    truth = dataclasses.replace(draw(rng, size=8), state_ids=TEXT_IDS[style],
                                action_ids=("wait", "Drug|*", "drug"))  # fmt: skip
    for number in range(5):  # every state and action is seen, so none may be missing
        truth.states[number][:1], truth.actions[number][:1] = number, number % NUM_ACTIONS
    path = folder / "log.parquet"
    table_of(truth, "behavior").to_parquet(path)
    what = pick(rng, NAMED)
    policy = NAMED[what](truth)
    call = lambda: oj.with_policies(oj.read_log(path), target=policy)  # noqa: E731
    name = f"with_policies by name, {what}"
    if rng.random() < 0.5 and "levels" not in what and "text" not in what:
        file = policy_file(policy, folder)
        call = lambda: oj.read_log(path, target=file)  # noqa: E731
        name = f"policy file by name, {what}"
    return Case(name, call, truth, REFUSAL, "target|policy")


def policy_file(policy, folder):
    """The table in an .npz, with its names if it has any."""
    path = folder / "named.npz"
    if isinstance(policy, pd.DataFrame):
        np.savez(path, table=policy.to_numpy(), states=np.array(list(policy.index)),
                 actions=np.array(list(policy.columns)))  # fmt: skip
    else:
        np.savez(path, table=policy)
    return str(path)


DISCRETISERS = {
    "negative": lambda seen: np.full(len(seen), -1),
    "float": lambda seen: np.zeros(len(seen)),
    "two axes": lambda seen: np.zeros((len(seen), 1), int),
    "short": lambda seen: np.zeros(max(0, len(seen) - 1), int),
    "long": lambda seen: np.zeros(len(seen) + 1, int),
    "None": lambda seen: None,
    "text": lambda seen: ["x"] * len(seen),
    "a number": lambda seen: 3,
    "ragged": lambda seen: [[1], [1, 2]],
    "an object": lambda seen: object(),
    "bins of other dimensions": oj.LinearBins([[0.0], [0.0], [0.0]]),
}


def bad_discretiser(rng, folder):
    """States by a function of the wrong build."""
    del folder
    truth = draw(rng, size=3)
    episodes = episodes_of(truth)
    for episode in episodes:
        episode["observations"] = [[float(s), 0.0] for s in episode.pop("states")]
    what = pick(rng, DISCRETISERS)

    def call():
        return oj.with_states(oj.from_episodes(episodes), DISCRETISERS[what])

    field = "observation" if "dimensions" in what else "discretiser"
    return Case(f"with_states: {what}", call, truth, REFUSAL, field)
