"""Estimates of resamples: the faster forms by plain loops, and by the plain estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import (
    MAX_STEPS,
    NUM_STATES,
    load,
    poisoned,
    ragged_data,
    random_data,
    visits_most_groups,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import intervals as slow

import osiris_jax as oj
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import default
from osiris_jax.inference import forms, welch
from osiris_jax.inference.forms import welch_by_counts
from osiris_jax.inference.resampler import Resampler
from osiris_jax.inference.resampling import counts_of, draw_rows, rows_without_groups
from osiris_jax.pipeline.estimate import values_of
from osiris_jax.pipeline.spec import make_specs

SIZE, RESAMPLES, DISCOUNT, ALPHA = 7, 9, 0.9, 0.4
BY_COUNTS = ("mc", "is", "wis", "pdis", "cwpdis", "phwis", "osiris-is", "osiris-wis")
OMITTING = ("osiris-is", "osiris-wis", "osiris-phwis", "osiris-mc")
SETTINGS = {"alpha": default(ALPHA), "threshold": None, "discount": DISCOUNT, "key": None}
SETTINGS |= {"weighting": default("none"), "ddof": default(1)}


def engine(data, names, *, relevance=None, options=None, memory=2**29, **settings_):
    batch = load(data) if isinstance(data, list) else data
    given_ = SETTINGS | settings_ | (options or {})
    return Resampler(batch, make_specs(batch, names, relevance, given_), memory)


_values_of_rows = compiled(forms.values_of_rows, quick=True)


def values_of_rows(found, rows):
    """Label -> [resample] estimates of the trajectories in these rows, each in its form."""
    return _values_of_rows(found.batch, found.prepared, found.specs, jnp.asarray(rows))


def some_rows(seed, size, number=RESAMPLES):
    """Rows of resamples; the first is the data as they are, the second one trajectory alone."""
    rows = np.random.default_rng([seed, 7]).integers(size, size=(number, size)).astype(np.int32)
    rows[0], rows[1] = np.arange(size), seed % size
    return rows


def assert_close(actual, expected, rounding=1e-9):
    """Equal to rounding, relative to the largest, and NaN at the same places."""
    expected = np.asarray(expected, float)
    scale = np.max(np.abs(expected), initial=1.0, where=~np.isnan(expected))
    np.testing.assert_allclose(actual, expected, rtol=rounding, atol=rounding * scale)


ragged = ragged_data((SIZE,), zeros=(0.0, 0.0, 0.15, 0.6)).filter(visits_most_groups)


@given(ragged, st.integers(0, 2**16))
@settings(max_examples=25)
def test_resamples_by_loops(double, data, seed):
    rows = some_rows(seed, SIZE)
    found = engine(data, BY_COUNTS)
    assert set(found.prepared.parts) == set(BY_COUNTS)
    for name, values in values_of_rows(found, rows).items():
        expected = slow.resampled(data, rows, name, NUM_STATES, alpha=ALPHA, discount=DISCOUNT)
        assert_close(values, expected)


@pytest.mark.parametrize(
    ("weighting", "options"),
    [
        ("none", {"clip": 1.5}),
        ("future", {"ddof": 0, "undecided": 0.0}),
        ("to-go", {"first_visit": True, "undecided": 0.0}),
    ],
)
def test_omission_is_found_anew_by_loops(double, weighting, options):
    """Every weighting and variance; undecided states; few visits, so that groups are constant."""
    test = {"weighting": weighting, **{k: v for k, v in options.items() if k != "clip"}}
    ddof = {"ddof": options["ddof"]} if "ddof" in options else {}
    further = {k: v for k, v in options.items() if k != "ddof"}
    for seed in range(4):
        data = random_data(seed, SIZE, coarse=seed % 2 == 1, zeros=0.1 * (seed == 2))
        rows = some_rows(seed, SIZE)
        found = engine(data, OMITTING[:2], weighting=weighting, options=further, **ddof)
        assert all(map(welch_by_counts, found.specs.values()))
        own = {"clip": 1.5} if "clip" in options else {}
        for name, values in values_of_rows(found, rows).items():
            expected = slow.resampled(
                data, rows, name, NUM_STATES, alpha=ALPHA, discount=DISCOUNT, test=test, **own
            )
            assert_close(values, expected)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cwpdis", {"finished": "drop"}),
        ("cwpdis", {"finished": "share", "clip": 1.2}),
        ("cwpdis", {"finished": "keep", "clip": 1.2}),
        ("pdis", {"clip": 1.2}),
        ("phwis", {"clip": 1.2}),
    ],
)
def test_options_of_estimators_by_loops(double, name, options):
    for seed in range(3):
        data = random_data(seed, SIZE, zeros=0.2 * (seed == 1))
        rows = some_rows(seed, SIZE)
        expected = slow.resampled(data, rows, name, NUM_STATES, discount=DISCOUNT, **options)
        assert_close(values_of_rows(engine(data, [name], options=options), rows)[name], expected)


def gathered(found, rows):
    """The estimates of resamples by the plain estimators, on the gathered trajectories."""

    def one(row, spec):
        return float(values_of(jax.tree.map(lambda x: x[row], found.batch), spec))

    return {label: [one(row, spec) for row in rows] for label, spec in found.specs.items()}


def many(seed, *, coarse=False, size=260, spread=0.3, scale=1.0, shift=0.0):
    """Enough trajectories that groups of visits are columns; one state is rare."""
    data = random_data(seed, size, coarse=coarse, spread=spread, scale=scale, max_steps=6)
    for number, traj in enumerate(data):
        traj["rewards"][-1] += shift
        if number >= 20:
            traj["states"][traj["states"] == 4] = 3
    return data


@pytest.mark.parametrize("kind", [{}, {"coarse": True}, {"shift": 1e6}, {"spread": 2.0}])
@pytest.mark.parametrize("weighting", ["to-go", "none"])
def test_columns_and_lists_are_the_plain_form(double, kind, weighting):
    data = many(3, **kind)
    found = engine(data, OMITTING[1:2], weighting=weighting)
    assert (found.prepared.by_state.visited.columns.group < 2 * NUM_STATES).sum() > 1
    assert (found.prepared.by_state.visited.listed.group < 2 * NUM_STATES).sum() > 1
    rows = some_rows(3, len(data), number=5)[[0, 2, 3, 4]]
    assert pvalues(found, rows)[1]
    expected = gathered(found, rows)
    for name, values in values_of_rows(found, rows).items():
        assert_close(values, expected[name], 1e-8 if "shift" in kind else 1e-9)


@jax.jit
def pvalues_of(visited, counts):
    return welch.pvalues_by_counts(visited, counts, NUM_STATES, ddof=1, undecided=1.0)


def pvalues(found, rows):
    """Of every resample and state, and whether they are trusted."""
    batch = found.batch
    counts = counts_of(jnp.asarray(rows), len(batch.reward), batch.dtype)
    return pvalues_of(found.prepared.by_state.visited, counts)


@pytest.mark.parametrize("kind", [{}, {"coarse": True}, {"scale": 1e6}, {"spread": 1.0}])
def test_pvalues_in_both_float_types(float_type, kind):
    data = many(5, **kind)
    rows = some_rows(5, len(data), number=5)[[0, 2, 3, 4]]
    for weighting in ("to-go", "none"):
        found = engine(data, OMITTING[:1], weighting=weighting, discount=1.0)
        actual, trusted = pvalues(found, rows)
        assert trusted
        for row, p in zip(rows, actual, strict=True):
            expected = oracle.pvalues([data[i] for i in row], NUM_STATES, weighting=weighting)
            np.testing.assert_allclose(p, expected, atol=1e-3 if float_type == "float32" else 1e-9)


@pytest.mark.parametrize("number", [6, 300])
def test_equal_samples_have_no_variance(double, number):
    """Sums of 0.1 are not multiples of it; two groups of 0.1 are undecided, not different."""
    data = []
    for i in range(number):
        reward = 0.1 if i % 6 < 4 else (0.7, -0.7)[i % 2]
        episode = {"states": [0], "actions": [0], "rewards": [reward]}
        data.append(episode | {"log_ratio": [0.3 if i % 2 else -0.3]})
    data = [{name: np.asarray(x) for name, x in episode.items()} for episode in data]
    found = engine(data, OMITTING[:1], weighting="none")
    columns = found.prepared.by_state.visited.columns.group < 2 * NUM_STATES
    assert columns.sum() == (2 if number > 6 else 0)
    rows = np.array([[0, 0, 0, 1, 1, 1, 3], [0, 2, 2, 1, 1, 3, 5], [0, 1, 0, 4, 5, 1, 3]])
    actual, trusted = pvalues(found, rows)
    assert trusted
    for row, p in zip(rows, actual, strict=True):
        expected = oracle.pvalues([data[i] for i in row], NUM_STATES, weighting="none")
        np.testing.assert_allclose(p, expected, atol=1e-9)
    assert actual[0, 0] == 1
    assert actual[1, 0] < 1


@pytest.mark.parametrize("spread", [3.0, 8.0])
def test_weights_that_vanish_beside_others_are_computed_plainly(float_type, spread):
    """A resample without the heaviest trajectory: its weights vanish on the scale of all data."""
    data = many(1, spread=spread)
    data[0]["log_ratio"] = np.full_like(
        data[0]["log_ratio"], 600 if float_type == "float64" else 60
    )
    found = engine(data, ["wis", "cwpdis", *OMITTING[:2]])
    rows = some_rows(1, len(data), number=4)
    rows[2:][rows[2:] == 0] = 1
    expected = gathered(found, rows)
    for name, values in values_of_rows(found, rows).items():
        expected_now = np.asarray(expected[name])
        np.testing.assert_allclose(
            values, expected_now, rtol=1e-3 if float_type == "float32" else 1e-8, err_msg=name
        )


@pytest.mark.parametrize("kind", ["far cluster", "tiny samples"])
def test_doubt_is_seen(double, kind):
    """What would lose the digits of a variance, or its square, is not trusted."""
    data = many(2)
    for number, traj in enumerate(data):
        traj["states"][:], traj["log_ratio"][:] = 0, np.where(traj["log_ratio"] > 0, 0.1, -0.1)
        if kind == "far cluster":
            traj["rewards"][:] = 0
            traj["rewards"][-1] = 1e8 * (number >= 130) + traj["log_ratio"][0] * (1 + number / 260)
        else:
            traj["log_ratio"][-1] = 700 if number == 0 else -0.1
    found = engine(data, OMITTING[:1], weighting="to-go")
    assert (found.prepared.by_state.visited.columns.group < 2 * NUM_STATES).sum() > 0
    everything = np.arange(len(data))[None]
    assert pvalues(found, everything)[1]
    alone = np.where(everything < 130, everything, 1)
    alone = np.where(alone == 0, 2, alone) if kind == "tiny samples" else alone
    assert not pvalues(found, alone)[1]
    values = values_of_rows(found, alone)["osiris-is"]
    assert_close(values, gathered(found, alone)["osiris-is"])


@pytest.mark.parametrize(
    ("name", "relevance", "settings_", "options"),
    [
        ("incris", None, {}, {}),
        ("osiris", "smirnov", {}, {}),
        ("osirwis", "effect", {"threshold": 0.2}, {}),
        ("osirwis", None, {}, {"folds": 2}),
        ("osirwis", None, {}, {"max_kept": 2}),
        ("osirwis", None, {"alpha": "auto"}, {}),
    ],
)
def test_all_else_is_the_estimate_of_gathered_trajectories(
    double, name, relevance, settings_, options
):
    data = random_data(11, SIZE)
    found = engine(data, [name], relevance=relevance, options=options, **settings_)
    assert not found.prepared.parts
    rows = some_rows(11, SIZE, number=3)
    given_ = {"relevance": relevance, "discount": DISCOUNT, "alpha": ALPHA} | settings_ | options
    given_ |= {"weighting": SETTINGS["weighting"]}
    if "threshold" in settings_ or name == "incris":
        del given_["alpha"]
    for row, value in zip(rows, values_of_rows(found, rows)[name], strict=True):
        batch = jax.tree.map(lambda x, row=row: x[row], found.batch)
        assert_close(value, oj.estimate(batch, name, **given_))


def test_a_given_map_stays_as_it_is(double):
    data = random_data(4, SIZE)
    for shape in (NUM_STATES, (SIZE, NUM_STATES)):
        keep = np.random.default_rng(1).random(shape) < 0.5
        names = ["osiris-wis", "osiris-pdis", "osiris-cwpdis"]
        found = engine(data, names, relevance="oracle", options={"keep": keep})
        kept = oracle.omit(data, keep)
        rows = some_rows(4, SIZE)
        for name, values in values_of_rows(found, rows).items():
            plain = name.removeprefix("osiris-")
            assert_close(values, slow.resampled(kept, rows, plain, NUM_STATES, discount=DISCOUNT))


def test_padding_never_matters(float_type):
    batch = load(random_data(8, SIZE))
    names = ["wis", "pdis", "cwpdis", "phwis", "osirwis"]
    options = {"resamples": 20, "alpha": 0.4}
    clean = oj.intervals(batch, names, **options)
    bad = oj.intervals(poisoned(oj.pad_to(batch, MAX_STEPS + 3)), names, **options)
    rounding = 1e-4 if float_type == "float32" else 1e-10
    for name in names:
        np.testing.assert_allclose(clean[name].resampled, bad[name].resampled, rtol=rounding)
        np.testing.assert_allclose(
            clean[name].intervals["bca"], bad[name].intervals["bca"], rtol=rounding
        )


def test_pieces_do_not_matter_and_the_key_does(double):
    batch = load(random_data(9, SIZE))
    names = ["wis", "osirwis", "incris"]
    whole = oj.intervals(batch, names, resamples=21, key=random.key(5))
    seen = []
    options = {"resamples": 21, "key": random.key(5)}
    small = oj.intervals(
        batch, names, memory=20_000, progress=lambda *step: seen.append(step), **options
    )
    assert len(seen) > 2
    assert seen[-1] == ("resamples", 21, 21)
    other = oj.intervals(batch, names, resamples=21, key=random.key(6))
    for name in names:
        np.testing.assert_allclose(small[name].resampled, whole[name].resampled, rtol=1e-12)
        for method, ends in whole[name].intervals.items():
            assert small[name].intervals[method] == pytest.approx(ends, rel=1e-9)
        assert not np.array_equal(other[name].resampled, whole[name].resampled)


def test_draws_are_uniform_and_their_own():
    rows = np.asarray(draw_rows(random.key(0), jnp.arange(400), 50))
    counts = np.bincount(rows.ravel(), minlength=50)
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400)
    again = np.asarray(draw_rows(random.key(0), jnp.arange(7, 9), 50))
    np.testing.assert_array_equal(again, rows[7:9])


@pytest.mark.parametrize("number", [1, 2, 5, 200, 201, 455])
def test_groups_of_the_jackknife(number):
    found = rows_without_groups(number)
    expected = slow.without_groups(number) if number > 1 else []
    assert sorted(map(list, (row for rows in found for row in rows))) == sorted(expected)
    assert len(found) <= 2
    left = [number - len(row) for rows in found for row in rows]
    assert max(left, default=0) - min(left, default=0) <= 1
    assert len(left) == (min(200, number) if number > 1 else 0)
