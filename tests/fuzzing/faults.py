"""Bad cells, bad lists and bad options, by name; each says which field must be named."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd

import osiris_jax as oj
from fuzzing import forms
from fuzzing.forms import ANYTHING, EITHER, REFUSAL, Case, arrays_of, episodes_of, pick, table_of
from fuzzing.truth import draw

NAN, INF = float("nan"), float("inf")
HUGE = 2**70
WRONG_NUMBERS = {
    "NaN": NAN,
    "inf": INF,
    "-inf": -INF,
    "None": None,
    "text": "oops",
    "complex": 1j,
    "bytes": b"1",
    "a list": [1.0],
    "a dict": {},
    "an object": object(),
    "a date": datetime.date(2024, 2, 29),
    "escape text": "\x1b[2J\nx",
    "pd.NA": pd.NA,
    "pd.NaT": pd.NaT,
    "1e400": 10**400,
}
WRONG_IDS = {
    "negative": -1,
    "half": 0.5,
    "NaN": NAN,
    "None": None,
    "inf": INF,
    "mixed text": "oops",
    "a list": [1],
    "an object": object(),
    "complex": 1j,
}
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
# what is odd but meaningful may be read as what it means: not compared
CELLS |= {
    (field, what): (value, ANYTHING)
    for field in ("state", "action")
    for what, value in ODD_IDS.items()
}
CELLS |= {("reward", "Decimal"): (Decimal(2), ANYTHING), ("reward", "'2'"): ("2", ANYTHING)}


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
    truth = draw(rng, size=3)
    field, what, value, expected, ratios = cell(rng)
    key = PLURAL.get(field, field)
    episodes = episodes_of(truth, ratios)
    episode = pick(rng, episodes)
    episode[key] = put(episode[key], rng.integers(len(episode[key])), value)
    name = f"from_episodes: {what} in {key}"
    return Case(name, lambda: oj.from_episodes(episodes), truth, expected, key)


def bad_cell_in_table(rng, folder):
    """One bad cell in a table, given as it is or through a file."""
    truth = draw(rng, size=3)
    field, what, value, expected, ratios = cell(rng)
    table = table_of(truth, ratios)
    table[field] = pd.Series(put(table[field], rng.integers(len(table)), value), dtype=object)
    if isinstance(value, float | int | str) and rng.random() < 0.5:
        call = table_through_csv(rng, table, folder)
        return Case(f"csv: {what} in {field}", call, truth, expected, field)
    name = f"from_dataframe: {what} in {field}"
    return Case(name, lambda: oj.from_dataframe(table), truth, expected, field)


def table_through_csv(rng, table, folder):
    """Writes the table; the call reads it."""
    path = forms.save(rng, folder, forms.csv_bytes(rng, table), ".csv")
    return lambda: oj.read_log(path)


def bad_cell_in_arrays(rng, folder):
    """One bad real cell in padded arrays, given as they are or through an .npz."""
    truth = draw(rng, size=3)
    field, what, value, expected, ratios = cell(rng)
    arrays = arrays_of(truth, ratios)
    place = rng.integers(len(truth.rewards)), 0
    numeric = isinstance(value, float | int) and not isinstance(value, bool) and value < 2**62
    array = arrays[field].astype(np.float64 if numeric else object)
    array[place] = None  # a list would be spread over the cells
    cells = array.reshape(-1)
    cells[place[0] * array.shape[1]] = value
    arrays[field] = array
    if numeric and rng.random() < 0.5:
        path = forms.save(rng, folder, forms.npz_bytes(arrays), ".npz")
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
    "an empty episode": (
        last(rewards=[], states=[], actions=[], behavior_prob=[], target_prob=[]),
        "rewards",
    ),
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
    "probabilities that do not sum": (
        wide(target_probs=lambda p: np.array(p) * 0.9),
        "target_prob",
    ),
    "negative wide probabilities": (
        wide(behavior_probs=lambda p: np.array(p) - 0.5),
        "behavior_prob",
    ),
    "wide NaN": (wide(target_probs=lambda p: np.array(p) * NAN), "target_prob"),
    "fewer actions": (wide(target_probs=lambda p: np.array(p)[:, :2]), "target_prob"),
    "flat wide": (wide(target_probs=lambda p: np.array(p)[:, 0]), "target_prob"),
    "contradiction": (wide(behavior_prob=lambda _: [0.123]), "behavior_prob"),
    "target beside no behaviour": (without("behavior_prob"), EITHER),
    "text states": (last(states=lambda s: [f"s{x}" for x in s]), "states"),
    "2-d states": (last(states=lambda s: [[x, x] for x in s]), "states"),
}


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


READ_OPTIONS = {
    "columns=3": ({"columns": 3}, "columns"),
    "columns='episode'": ({"columns": "episode"}, "columns"),
    "columns=[...]": ({"columns": ["episode"]}, "columns"),
    "columns by number": ({"columns": {3: "episode"}}, "columns"),
    "an unknown field": ({"columns": {"\x1b[2Jx": "episode"}}, "columns"),
    "an unknown column": ({"columns": {"episode": "\x1b[2Jx"}}, "columns"),
    "a column of a number": ({"columns": {"reward": 3}}, "columns"),
    "a list for one": ({"columns": {"reward": ["reward"]}}, "columns"),
    "no reward": ({"columns": {"reward": None}}, "reward"),
    "one column for two": ({"columns": {"state": "reward"}}, "state|reward"),
    "epsilon of a table": ({"target": np.ones((5, 3)) / 3, "epsilon": 0.5}, "epsilon"),
    "idle epsilon": ({"epsilon": 0.5}, "epsilon"),
    "target=3": ({"target": 3}, "target"),
    "behavior alone": ({"behavior": np.ones((5, 3)) / 3}, "behavior"),
}


def bad_reading(rng, folder):
    """A good file, read with bad options."""
    truth = draw(rng, size=3)
    truth.rewards[0][:1] = 0.5  # so that a reward is no state
    path = folder / "log.csv"
    table_of(truth).to_csv(path, index=False)
    what = pick(rng, READ_OPTIONS)
    options, field = READ_OPTIONS[what]
    return Case(f"read_log: {what}", lambda: oj.read_log(path, **options), truth, REFUSAL, field)


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
