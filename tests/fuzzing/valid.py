"""Logs that must be read, each with what is special about it."""

import dataclasses

import numpy as np

import osiris_jax as oj
from fuzzing.forms import Case, parquet_bytes, pick, read, save, table_of
from fuzzing.truth import ACTION_IDS, EPISODE_NAMES, INTEGER_IDS, TEXT_IDS, draw, draw_all
from fuzzing.ways import (
    by_arrays,
    by_csv,
    by_dataframe,
    by_episodes,
    by_labelled_python,
    by_npz,
    by_observations,
    by_padded_npz,
    by_parquet,
    by_policies,
    by_policy_file,
    reordered,
)

PYTHON_WAYS = (by_episodes, by_dataframe, by_arrays, by_observations, by_padded_npz)
FILE_WAYS = (by_csv, by_parquet, by_npz)
LABELLED_WAYS = (*FILE_WAYS, by_labelled_python, by_policies, by_policy_file)
# text that is a number unless its neighbours show that it is not
AMBIGUOUS = {"zeros and numbers", "minus zero"}
TYPED = {"decimals", "fractions", "times", "times with a zone", "numbers and text", "trailing NULs"}
NAMES_OF = {
    by_csv: set(EPISODE_NAMES) - TYPED - {"whole floats", "floats"},
    by_parquet: set(EPISODE_NAMES) - {"numbers and text"},
    by_npz: set(EPISODE_NAMES) - TYPED,
    by_dataframe: set(EPISODE_NAMES),
}


def finished(case, truth, what):
    """A case of what a way in gave."""
    name, call, *changed = case
    return Case(f"{name}{what}", call, changed[0] if changed else truth)


def plain(rng, folder):
    """Dense ids, through any way in."""
    truth = draw(rng)
    way = pick(rng, (*PYTHON_WAYS, *LABELLED_WAYS))
    return finished(way(rng, truth, folder), truth, "")


def with_names(rng, folder, way, style):
    """A log whose episodes are named in this style."""
    truth = draw(rng)
    truth = dataclasses.replace(truth, names=tuple(EPISODE_NAMES[style](len(truth.rewards))))
    return finished(way(rng, truth, folder), truth, f"; episodes: {style}")


def named_episodes(rng, folder):
    """Episodes with names that are easily merged."""
    way = pick(rng, NAMES_OF)
    return with_names(rng, folder, way, pick(rng, sorted(NAMES_OF[way])))


def with_states_called(rng, folder, way, style, actions="dense"):
    """A log whose states are called in this style."""
    ids = (TEXT_IDS | INTEGER_IDS)[style]
    drawn = draw_all(rng) if style in AMBIGUOUS else draw(rng)
    truth = dataclasses.replace(drawn, state_ids=ids, action_ids=ACTION_IDS[actions])
    what = f"; states: {style}" + ("" if actions == "dense" else f"; actions: {actions}")
    return finished(way(rng, truth, folder), truth, what)


def text_ids(rng, folder):
    """States that are text, and in half of the cases actions too."""
    actions = pick(rng, ["words", "dense"])
    return with_states_called(rng, folder, pick(rng, LABELLED_WAYS), pick(rng, TEXT_IDS), actions)


def integer_ids(rng, folder):
    """Integers with gaps, and far apart."""
    style = pick(rng, [name for name in INTEGER_IDS if name != "dense"])
    ways = [by_parquet, by_npz, by_csv, by_policies, by_padded_npz, by_arrays]
    way = pick(rng, [*ways, by_policy_file])
    return with_states_called(rng, folder, way, style)


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
    return finished(way(rng, truth, folder), truth, "; one a thousand times longer")


def cut_off(rng, folder):
    """A log that says which episodes were cut off."""
    truth = draw(rng)
    flags = tuple(bool(flag) for flag in rng.random(len(truth.rewards)) < 0.5)
    truth = dataclasses.replace(truth, truncated=flags)
    way = pick(rng, [by_csv, by_parquet, by_npz, by_episodes, by_arrays, by_padded_npz])
    return finished(way(rng, truth, folder), truth, "; cut off")


def taken_apart(rng, folder):
    """Two logs that know some of the labels each, joined; or rows of one log."""
    names = [ids for style, ids in TEXT_IDS.items() if style not in AMBIGUOUS]
    ids = pick(rng, [*names, INTEGER_IDS["gaps"], INTEGER_IDS["beyond floats"]])
    actions = pick(rng, [ACTION_IDS["dense"], ACTION_IDS["words"]])
    truth = dataclasses.replace(draw(rng, size=8), state_ids=ids, action_ids=actions)
    truth = dataclasses.replace(truth, truncated=pick(rng, [None, (True, False) * 4]))

    def load(part, name):
        table_of(part, "narrow").to_parquet(folder / name)
        return oj.read_log(folder / name)

    if rng.random() < 0.5:
        parts = [reordered(truth, range(5)), reordered(truth, range(5, 8))]
        join = lambda: oj.concatenate([load(part, f"{i}.parquet") for i, part in enumerate(parts)])  # noqa: E731
        return Case("concatenate", join, truth)
    rows = rng.integers(8, size=3)
    forms = [rows, rows.tolist(), slice(2, 5), np.arange(8) % 3 == 0]
    form = pick(rng, forms)
    chosen = reordered(truth, np.arange(8)[form])
    return Case("batch[rows]", lambda: load(truth, "whole.parquet")[form], chosen)


VALID = {plain: 8, named_episodes: 8, text_ids: 7, integer_ids: 5, sparse_actions: 1}
VALID |= {long_and_short: 1, cut_off: 2, taken_apart: 2}


def valid_case(rng, folder):
    """A log that must be read, and its truth."""
    weights = np.array(list(VALID.values()), float)
    kind = list(VALID)[rng.choice(len(VALID), p=weights / weights.sum())]
    return kind(rng, folder)
