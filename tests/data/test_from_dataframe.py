"""Tables in long format to a batch."""

import numpy as np
import pandas as pd
import pytest
from test_from_episodes import BAD_CELLS, NARROW, OTHER_FORM, WIDE, assert_same, good

import osiris_jax as oj

PREFIX = {
    "observation": "obs",
    "behavior_probs": "behavior_prob",
    "target_probs": "target_prob",
}
SINGULAR = {name: name[:-1] for name in ("states", "actions", "rewards", "observations")}


def table_of(episodes, labels="ab"):
    """One row per step, vectors spread over numbered columns."""
    parts = []
    for label, episode in zip(labels, episodes, strict=True):
        part = {"episode": label, "step": range(len(episode["actions"]))}
        for key, steps in episode.items():
            field = SINGULAR.get(key, key)
            if field in PREFIX:
                vectors = np.asarray(steps)
                part |= {f"{PREFIX[field]}_{i}": column for i, column in enumerate(vectors.T)}
            else:
                part[field] = steps
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def columns_of(table, field):
    """The names of the columns that hold a field."""
    if field not in PREFIX:
        return [field]
    return [name for name in table if name.startswith(f"{PREFIX[field]}_") and name[-1].isdigit()]


# ------------------------------------------------------------------------------- good input

UNCHANGED = {
    "as it is": lambda t: t,
    "rows out of order": lambda t: t.sort_values(["step", "episode"], ascending=False),
    "any index": lambda t: t.set_axis([7, 7, 0, 0, 3]),
    "numbers as labels": lambda t: t.assign(episode=t["episode"].map({"a": 12, "b": -3})),
    "categories as labels": lambda t: t.assign(episode=pd.Categorical(t["episode"], ["b", "a"])),
    "mixed labels": lambda t: t.assign(episode=t["episode"].map({"a": (1, 2), "b": "b"})),
    "steps from 1": lambda t: t.assign(step=t["step"] + 1),
    "steps from 5 and 2": lambda t: t.assign(step=t["step"] + np.where(t["episode"] == "a", 5, 2)),
    "large steps": lambda t: t.assign(step=t["step"] + 5_000_000_000),
    "float steps": lambda t: t.assign(step=t["step"].astype(float)),
    "object steps": lambda t: t.assign(step=t["step"].astype(object)),
    "nullable types": lambda t: t.convert_dtypes(),
    "Int64, Float64": lambda t: t.astype({"step": "Int64", "state": "Int64", "obs_0": "Float64"}),
    "UInt8": lambda t: t.astype({"step": "UInt8", "state": "UInt8", "action": "uint8"}),
    "float ids": lambda t: t.astype({"state": "float16", "action": "float32"}),
    "categories as ids": lambda t: t.astype({"state": "category"}),
    "object columns": lambda t: t.astype({"state": object, "reward": object, "obs_1": object}),
    "boolean actions": lambda t: t.astype({"action": bool}),
    "nullable booleans": lambda t: t.astype({"action": "boolean"}),
    "sparse rewards": lambda t: t.astype({"reward": pd.SparseDtype(float, 0.0)}),
    "extra columns": lambda t: t.assign(note="x", obs=None, obs_x=None, target_prob_=np.nan),
    "columns reversed": lambda t: t[t.columns[::-1]],
    "column of no text": lambda t: t.assign(**{"extra": 1}).rename(columns={"extra": 0}),
}  # fmt: skip


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED)
def test_how_the_table_is_written_does_not_matter(change):
    assert_same(oj.from_dataframe(change(table_of(good()))), oj.from_episodes(good()))


@pytest.mark.parametrize(
    "drop",
    [["state"], ["observation"], ["log_ratio", *NARROW], ["log_ratio", *WIDE], [*NARROW, *WIDE],
     ["log_ratio", "target_prob", "target_probs"], ["log_ratio", *NARROW, *WIDE]],
    ids=" ".join,
)  # fmt: skip
def test_any_choice_of_columns_loads_as_episodes_do(drop):
    table = table_of(good())
    table = table.drop(columns=[name for field in drop for name in columns_of(table, field)])
    keys = [f"{field}s" if field in ("state", "observation") else field for field in drop]
    assert_same(oj.from_dataframe(table), oj.from_episodes(good(drop=keys)))


def test_options_are_passed_on():
    options = {"num_states": 9, "num_actions": 3, "dtype": "float32", "bucket": True}
    batch = oj.from_dataframe(table_of(good()), **options)
    assert_same(batch, oj.from_episodes(good(), **options))


def test_more_than_ten_wide_columns_keep_their_order():
    values = np.arange(24.0).reshape(2, 12)
    wide = {f"obs_{i}": values[:, i] for i in range(12)}
    table = pd.DataFrame({"episode": 0, "step": [0, 1], "action": 0, "reward": 0.0, **wide})
    shuffled = table[sorted(table.columns)]
    np.testing.assert_array_equal(oj.from_dataframe(shuffled).observation[0], values)


def test_the_table_is_left_alone():
    table = table_of(good()).sample(frac=1, random_state=0)
    before = table.copy()
    oj.from_dataframe(table)
    pd.testing.assert_frame_equal(table, before)


def test_200_000_rows_load():
    rng = np.random.default_rng(0)
    episodes, steps = 5_000, 40
    table = pd.DataFrame(
        {
            "episode": np.repeat(np.arange(episodes), steps),
            "step": np.tile(np.arange(steps), episodes),
            "state": rng.integers(100, size=episodes * steps),
            "action": rng.integers(4, size=episodes * steps),
            "reward": rng.normal(size=episodes * steps).astype(np.float32),
            "log_ratio": rng.normal(size=episodes * steps),
        }
    )
    shuffled = table.sample(frac=1, random_state=0)
    batch = oj.from_dataframe(shuffled)
    first = shuffled["episode"].drop_duplicates()
    expected = table["reward"].to_numpy().reshape(episodes, steps)[first]
    np.testing.assert_array_equal(batch.reward, expected)
    assert np.all(batch.mask)


# -------------------------------------------------------------------------------- bad input

PLACE = "trajectory 1 \\(episode 'b'\\), step 1\\b"


def put(field, value, *, keep_other_form=False):
    """Puts the value in the row of episode b, step 1, the column kept numeric where it can be."""

    def mutate(table):
        column = columns_of(table, field)[0]
        other = [] if keep_other_form else columns_of(table, OTHER_FORM.get(field, ""))
        number = isinstance(value, int | float) and abs(value) != 10**400
        table = table.drop(columns=other, errors="ignore")
        table = table.astype({column: float if number else object})
        table.at[4, column] = value
        return table

    return mutate


def column(**columns):
    """Replaces whole columns."""
    return lambda table: table.assign(**columns)


def dropping(*columns):
    """Drops columns; a name that ends in _ stands for all the numbered ones."""
    return lambda t: t[[c for c in t if c not in columns and c.rstrip("0123456789") not in columns]]


BAD = [
    *((f"{field}={value!r:.12}", put(field, value),
       f"{PREFIX[field] + '_.' if field in PREFIX else field}: {said}.*{PLACE}")
      for field, value, said in BAD_CELLS),
    ("not a table", lambda t: t.to_dict("list"), "table: expected a pandas DataFrame, got a dict"),
    ("no table", lambda _: None, "table: expected a pandas DataFrame, got a NoneType"),
    ("no rows", lambda t: t[:0], "episode: the table has no rows"),
    ("no columns", lambda _: pd.DataFrame(), "episode: missing column; there are none"),
    ("no episode", dropping("episode"), "episode: missing column; there are step, state"),
    ("no step", dropping("step"), "step: missing column; there are episode, state"),
    ("no reward", dropping("reward"), "reward: missing"),
    ("no action", dropping("action"), "action: missing"),
    ("no state", dropping("state", "obs_"), "state: missing, and so is obs_.;"),
    ("hole", dropping("obs_0"), "obs_0: missing column, though obs_. go beyond"),
    ("wide hole", dropping("target_prob_1"), "target_prob_1: missing column"),
    ("twice", lambda t: pd.concat([t, t[["reward"]]], axis=1), "reward: this column appears twice"),
    ("step twice", lambda t: pd.concat([t, t[["step"]]], axis=1), "step: .*twice"),
    ("missing episode", column(episode=[*"aaab", None]), "episode: missing at row 4 \\(step 1\\)"),
    ("NaN episode", column(episode=[1, 1, 1, np.nan, 2]), "episode: missing at row 3 \\(step 0\\)"),
    ("lists as episodes", column(episode=[[1]] * 5), "episode: expected labels.*unhashable"),
    ("duplicate", column(step=[0, 1, 2, 1, 1]), f"step: duplicate step at {PLACE}"),
    ("gap", column(step=[0, 1, 2, 0, 2]), "step: gap after step 0 at .*episode 'b'\\), step 2"),
    ("gap of labels", column(step=[3, 9, 4, 0, 1]), "step: gap after step 4 at .*'a'\\), step 9"),
    ("negative step", column(step=[0, 1, 2, 0, -1]), "step: negative at .*'b'\\), step -1"),
    *((f"step {value!r:.9}", column(step=pd.Series([0, 1, 2, 0, value])),
       f"step: {said} at trajectory 1 \\(episode 'b'\\), row 4")
      for value, said in [(0.5, "0.5 is not an integer"), (np.nan, "nan is not an integer"),
                          (np.inf, "inf is not an integer"), (1e300, "1e\\+300 is not an integer"),
                          ("1", "expected a real number, got '1'"), ([1], ".*\\[1\\]")]),
    ("NA step", column(step=pd.array([0, 1, 2, 0, None], "Int64")), "step: nan .*'b'\\), row 4"),
    ("NA reward", column(reward=pd.array([0, 1, 2, 0, None], "Float64")), f"reward: NaN .*{PLACE}"),
    ("NA state", column(state=pd.array([0, 1, 2, 0, None], "Int64")), f"state: NaN at {PLACE}"),
    ("NA flag", column(action=pd.array([1, 0, 0, 1, None], "boolean")), f"action: NaN at {PLACE}"),
    ("object NA", put("reward", pd.NA), f"reward: expected a real number, got <NA> at {PLACE}"),
    ("list", put("reward", [1, 2]), f"reward: expected a real number, got \\[1, 2\\] at {PLACE}"),
    ("list in obs", put("observation", [1, 2]), f"obs_.: .*\\[1, 2\\] at {PLACE}"),
    ("text among numbers", column(state=[*"0123x"]), f"state: .*real number, got 'x' at {PLACE}"),
    ("two levels", lambda t: t.set_axis(pd.MultiIndex.from_product([["x"], t.columns]), axis=1),
     "table: its columns have 2 levels"),
    ("rounded episodes", column(episode=[2.0**53, 2.0**53, 1, 1, 1]),
     "episode: 9007199254740992.0 at row 0 is a float"),
    ("dates", column(reward=pd.Timestamp(0)), "reward: .*Timestamp.* at trajectory 0"),
    ("complex", column(reward=1j), "reward: .*1j at trajectory 0"),
    ("action beyond", put("action", 3), f"action: 3 is not below .* 3, at {PLACE}"),
    ("widths", dropping("target_prob_2"), "target_prob_.: 2 actions where 3 are expected"),
    ("contradiction", put("behavior_prob", 0.3, keep_other_form=True),
     f"behavior_prob: 0.3 contradicts 0.5 in behavior_prob_. at {PLACE}"),
    ("numbered from 1, out of order", lambda t: put("reward", np.nan)(
        t.assign(step=t["step"] + 1, episode=t["episode"].map({"a": 12, "b": 7})))[::-1],
     "reward: NaN at trajectory 0 \\(episode 7\\), step 2"),
]  # fmt: skip


@pytest.mark.parametrize(("mutate", "message"), [pytest.param(*row, id=id) for id, *row in BAD])
def test_bad_input_is_named(mutate, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.from_dataframe(mutate(table_of(good())))
