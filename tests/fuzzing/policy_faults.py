"""Policies and discretisers that do not fit the log, by name."""

import dataclasses

import numpy as np
import pandas as pd

import osiris_jax as oj
from fuzzing import ways
from fuzzing.faults import INF, NAN
from fuzzing.forms import REFUSAL, Case, episodes_of, pick, table_of
from fuzzing.truth import ACTION_IDS, NUM_ACTIONS, TEXT_IDS, draw, draw_all


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
    **{
        f"{form}: {what}": make(change)
        for form, make in (("table", table_policy), ("function", function_policy))
        for what, change in {
            "NaN": at(NAN),
            "negative": at(-0.1),
            "above 1": at(1.5),
            "inf": at(INF),
            "sums": lambda p: p * 0.5,
            "fewer actions": lambda p: p[:, :2] / p[:, :2].sum(1)[:, None],
            "flat": lambda p: p[:, 0],
            "3-d": lambda p: p[None],
            "text": lambda p: p.astype(str),
            "objects": lambda p: np.full(p.shape, None),
            "complex": lambda p: p * 1j,
            "None": lambda p: None,
            "a word": lambda p: "x",
            "no actions": lambda p: p[:, :0],
            "ragged": lambda p: [[1.0], [0.5, 0.5]],
            "a dict": lambda p: {"a": 1},
            "an object": lambda p: object(),
            "a number": lambda p: 0.5,
            "empty": lambda p: [],
            "times": lambda p: p.astype("timedelta64[s]"),
            "structured": lambda p: np.zeros(len(p), [("a", float)]),
        }.items()
    },
    "table: fewer states": table_policy(lambda p: p[:2]),
    "table: no states": table_policy(lambda p: p[:0]),
    "function: fewer steps": function_policy(lambda p: p[1:]),
    "function: more steps": function_policy(lambda p: np.concatenate([p, p])),
    "function: one row": function_policy(lambda p: p[:1]),
    "function: turned": function_policy(lambda p: np.concatenate([p, p]).T),
}


def bad_policy(rng, folder):
    """A policy of the wrong build."""
    del folder
    truth = draw(rng, size=3)
    truth.states[0][:1], truth.actions[0][:1] = 4, 2
    what = pick(rng, POLICIES)
    policy, which = POLICIES[what](truth), pick(rng, ["target", "behavior"])
    given = {"target": truth.target, "behavior": truth.behavior} | {which: policy}

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
    # every state and action is seen, so the policy must know them all
    truth = dataclasses.replace(
        draw_all(rng), state_ids=TEXT_IDS[style], action_ids=ACTION_IDS["words"]
    )
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
    path = folder / "named policy.npz"
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
