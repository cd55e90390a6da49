"""Tables and arrays of the wrong build, by name; each says which field must be named."""

import dataclasses

import numpy as np
import pandas as pd

import osiris_jax as oj
from fuzzing import forms
from fuzzing.faults import HUGE, NAN, put
from fuzzing.forms import ANYTHING, EITHER, REFUSAL, Case, arrays_of, pick, table_of
from fuzzing.truth import draw


def of_length(truth, steps):
    """The log with so many steps in every episode."""
    fields = ("states", "actions", "rewards")
    resized = {name: [np.resize(x, steps) for x in getattr(truth, name)] for name in fields}
    return dataclasses.replace(truth, **resized)


# -------------------------------------------------------------------------------- tables


def one_row(column, value):
    """The table with another value in its last row."""
    return lambda t: t.assign(
        **{column: pd.Series(put(t[column], len(t) - 1, value), dtype=object)}
    )


TABLES = {
    **{
        f"no {name}": (lambda t, name=name: t.drop(columns=name), name)
        for name in ("episode", "step", "state", "action", "reward")
    },
    "an empty table": (lambda t: t[:0], "episode"),
    "no columns": (lambda t: t[[]], "episode"),
    "a column twice": (lambda t: pd.concat([t, t[["reward"]]], axis=1), "reward"),
    "two columns of escapes": (lambda t: t.set_axis(["\x1b[2J"] * t.shape[1], axis=1), ""),
    "two levels of columns": (
        lambda t: t.set_axis(pd.MultiIndex.from_product([["a"], t.columns]), axis=1),
        "",
    ),
    "levels that repeat": (
        lambda t: t.set_axis(pd.MultiIndex.from_arrays([t.columns, t.columns]), axis=1),
        "",
    ),
    "numbers as columns": (lambda t: t.set_axis(range(t.shape[1]), axis=1), "episode"),
    "a dict": (lambda t: t.to_dict("list"), "table"),
    "a Series": (lambda t: t["reward"], "table"),
    "an array": (lambda t: t.to_numpy(), "table"),
    "None": (lambda t: None, "table"),
    "records": (lambda t: t.to_dict("records"), "table"),
    "a duplicate step": (lambda t: t.assign(step=t["step"].where(t["step"] != 1, 0)), "step"),
    "a gap": (lambda t: t.assign(step=t["step"].where(t["step"] != 2, 17)), "step"),
    "negative steps": (lambda t: t.assign(step=t["step"] - 1), "step"),
    "half steps": (lambda t: t.assign(step=t["step"] / 2), "step"),
    "steps beyond floats": (lambda t: t.assign(step=t["step"].astype(float) + 2**60), "step"),
    "a step of NaN": (one_row("step", NAN), "step"),
    "a step of text": (one_row("step", "x"), "step"),
    "a step of 2**70": (one_row("step", HUGE), "step"),
    "steps of times": (
        lambda t: t.assign(step=pd.to_datetime(t["step"], unit="s")),
        "step",
        EITHER,
    ),
    "steps of durations": (
        lambda t: t.assign(step=pd.to_timedelta(t["step"], unit="s")),
        "step",
        EITHER,
    ),
    "an episode of None": (one_row("episode", None), "episode"),
    "an episode of NaN": (one_row("episode", NAN), "episode"),
    "an episode that is a list": (one_row("episode", [1]), "episode"),
    "an episode that is a dict": (one_row("episode", {}), "episode"),
    "rewards of times": (lambda t: t.assign(reward=pd.Timestamp("2024-02-29")), "reward"),
    "rewards with a zone": (
        lambda t: t.assign(reward=pd.Timestamp("2024-02-29", tz="UTC")),
        "reward",
    ),
    "rewards of durations": (lambda t: t.assign(reward=pd.Timedelta(1, "s")), "reward"),
    "rewards of periods": (lambda t: t.assign(reward=pd.Period("2024-02")), "reward"),
    "rewards of intervals": (lambda t: t.assign(reward=pd.Interval(0, 1)), "reward"),
    "complex rewards": (lambda t: t.assign(reward=t["reward"] * 1j), "reward"),
    "rewards of text": (lambda t: t.assign(reward=t["reward"].astype(str) + "x"), "reward"),
    "text categories as rewards": (
        lambda t: t.assign(reward=pd.Categorical(["a"] * len(t))),
        "reward",
    ),
    "categories with a hole": (
        lambda t: t.assign(reward=pd.Categorical([1.0] * (len(t) - 1) + [None])),
        "reward",
    ),
    "nullable with a hole": (
        lambda t: t.assign(state=pd.array([*t["state"][:-1], None], dtype="Int64")),
        "state",
    ),
    "arrow with a hole": (
        lambda t: t.assign(reward=pd.array([*t["reward"][:-1], None], dtype="double[pyarrow]")),
        "reward",
    ),
    "sparse rewards": (
        lambda t: t.assign(reward=pd.arrays.SparseArray(t["reward"])),
        "reward",
        EITHER,
    ),
    "whole rewards": (lambda t: t.assign(reward=t["reward"].astype(object)), "reward", EITHER),
    "a hole in wide columns": (
        lambda t: t.assign(target_prob_0=0.5, target_prob_2=0.5),
        "target_prob",
    ),
    "a huge wide column": (
        lambda t: t.assign(**{"target_prob_99999999999999999999": 1.0}),
        "target_prob",
    ),
    "one wide column": (lambda t: t.assign(target_prob_0=1.0), "target_prob|action"),
    "text wide columns": (lambda t: t.assign(obs_0="x"), "obs"),
    "lists in a column": (lambda t: t.assign(obs_0=[[1.0]] * len(t)), "obs"),
    "states of text": (lambda t: t.assign(state=[f"s{x}" for x in t["state"]]), "state", "labels"),
    "states of True": (lambda t: t.assign(state=True), "state", ANYTHING),
    "target beside no behaviour": (
        lambda t: t.drop(columns="behavior_prob"),
        "behavior_prob",
        EITHER,
    ),
}


def bad_table(rng, folder):
    """A table of the wrong build, given as a DataFrame."""
    del folder
    truth, what = of_length(draw(rng, size=3), 4), pick(rng, TABLES)
    change, field, *others = TABLES[what]
    expected = others[0] if others else REFUSAL
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
    "a hole in the mask": (
        masked(lambda m: np.arange(m.shape[1]) != np.zeros((len(m), 1))),
        "mask",
    ),
    "a flat mask": (masked(lambda m: m[0]), "mask"),
    "a 0-d mask": (masked(lambda m: True), "mask"),
    "wide of two axes": (lambda a: {**a, "target_probs": a["reward"]}, "target_probs"),
    "wide of no actions": (
        lambda a: {**a, "target_probs": a["reward"][..., None][..., :0]},
        "target_probs|action",
    ),
    "observations of no width": (
        lambda a: {**a, "observation": a["reward"][..., None][..., :0]},
        "observation",
    ),
    "observations of NaN": (
        lambda a: {**a, "observation": a["reward"][..., None] * NAN},
        "observation",
    ),
}
NOT_IN_FILES = {
    *("a number", "ragged lists", "deeply ragged", "a dict", "a generator", "an unknown field"),
    *("objects", "text lengths", "no trajectories", "1-d rewards", "a 0-d reward", "structured"),
    *("text", "bytes"),
}


def bad_arrays(rng, folder):
    """Arrays of the wrong build, given as they are or through an .npz."""
    truth, what = of_length(draw(rng, size=3), 5), pick(rng, ARRAYS)
    change, field = ARRAYS[what]
    arrays = change(arrays_of(truth))
    expected = EITHER if what == "observations of no width" else REFUSAL
    if what not in NOT_IN_FILES and rng.random() < 0.4:
        path = forms.save(rng, folder, forms.npz_bytes(arrays), ".npz")
        return Case(f"padded npz: {what}", lambda: oj.read_log(path), truth, expected, field)
    return Case(f"from_arrays: {what}", lambda: oj.from_arrays(**arrays), truth, expected, field)
