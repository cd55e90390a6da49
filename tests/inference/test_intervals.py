"""Intervals: resamples by plain loops, methods by their formulas, coverage where it is promised."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import oracle_intervals as slow
import pytest
from datasets import MAX_STEPS, NUM_STATES, poisoned, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import osiris_jax as oj
from osiris_jax.core.options import default
from osiris_jax.inference import INTERVALS, Interval, Sample, welch
from osiris_jax.inference.forms import welch_by_counts
from osiris_jax.inference.resampling import counts_of, draw_rows, rows_without_groups
from osiris_jax.inference.run import Resampler, specs_to_resample
from osiris_jax.pipeline.estimate import values_of

SIZE, RESAMPLES, DISCOUNT, ALPHA = 7, 9, 0.9, 0.4
BY_COUNTS = ("mc", "is", "wis", "pdis", "cwpdis", "phwis", "osiris-is", "osiris-wis")
OMITTING = ("osiris-is", "osiris-wis", "osiris-phwis", "osiris-mc")
SETTINGS = {"alpha": default(ALPHA), "threshold": None, "discount": DISCOUNT, "key": None}
SETTINGS |= {"weighting": default("none"), "ddof": default(1)}


def load(data, **kind):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES, **kind), MAX_STEPS)


def engine(data, names, *, relevance=None, options=None, memory=2**29, **settings_):
    batch = load(data) if isinstance(data, list) else data
    given_ = SETTINGS | settings_ | (options or {})
    return Resampler(batch, specs_to_resample(batch, names, relevance, given_), memory)


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


ragged = st.builds(
    random_data,
    st.integers(0, 2**32 - 1),
    st.just(SIZE),
    coarse=st.booleans(),
    zeros=st.sampled_from([0.0, 0.0, 0.15, 0.6]),
    scale=st.sampled_from([1.0, 1e3]),
)


@given(ragged, st.integers(0, 2**16))
@settings(max_examples=25)
def test_resamples_by_loops(double, data, seed):
    rows = some_rows(seed, SIZE)
    found = engine(data, BY_COUNTS)
    assert found.by_counts == set(BY_COUNTS)
    for name, values in found.values_of_rows(rows).items():
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
        for name, values in found.values_of_rows(rows).items():
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
        assert_close(engine(data, [name], options=options).values_of_rows(rows)[name], expected)


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
    assert (found.prepared.by_state.visited.column_group < 2 * NUM_STATES).sum() > 1
    assert (found.prepared.by_state.visited.listed_group < 2 * NUM_STATES).sum() > 1
    rows = some_rows(3, len(data), number=5)[[0, 2, 3, 4]]
    assert pvalues(found, rows)[1]
    expected = gathered(found, rows)
    for name, values in found.values_of_rows(rows).items():
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
    columns = found.prepared.by_state.visited.column_group < 2 * NUM_STATES
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
    for name, values in found.values_of_rows(rows).items():
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
    assert (found.prepared.by_state.visited.column_group < 2 * NUM_STATES).sum() > 0
    everything = np.arange(len(data))[None]
    assert pvalues(found, everything)[1]
    alone = np.where(everything < 130, everything, 1)
    alone = np.where(alone == 0, 2, alone) if kind == "tiny samples" else alone
    assert not pvalues(found, alone)[1]
    values = found.values_of_rows(alone)["osiris-is"]
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
    assert not found.by_counts
    rows = some_rows(11, SIZE, number=3)
    given_ = {"relevance": relevance, "discount": DISCOUNT, "alpha": ALPHA} | settings_ | options
    given_ |= {"weighting": SETTINGS["weighting"]}
    if "threshold" in settings_ or name == "incris":
        del given_["alpha"]
    for row, value in zip(rows, found.values_of_rows(rows)[name], strict=True):
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
        for name, values in found.values_of_rows(rows).items():
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
    assert max(left) - min(left) <= 1
    assert len(left) == min(200, number)


@given(ragged, st.integers(0, 2**16), st.sampled_from([0.5, 0.9, 0.95]))
@settings(max_examples=12)
def test_percentile_and_bca_by_loops(double, data, seed, confidence):
    names = ["is", "wis", "osiris-wis"]
    key = random.key(seed)
    found = oj.intervals(
        load(data), names, alpha=ALPHA, discount=DISCOUNT, resamples=30, key=key,
        confidence=confidence,
    )  # fmt: skip
    rows = np.asarray(draw_rows(random.fold_in(key, 2**32 - 11), jnp.arange(30), SIZE))
    for name in names:
        one, options = found[name], {"alpha": ALPHA, "discount": DISCOUNT}
        value = slow.estimate(data, name, NUM_STATES, **options)
        values = slow.resampled(data, rows, name, NUM_STATES, **options)
        assert one.undefined == np.isnan(values).sum()
        assert_close(one.resampled, values)
        assert_close(one.value, value)
        defined = [x for x in values if not np.isnan(x)]
        if np.isnan(value):
            assert np.isnan([*one.intervals["bca"], *one.intervals["percentile"]]).all()
            continue
        if not defined:
            continue
        if len(defined) > 1:
            assert_close(one.standard_error, np.std(defined, ddof=1), 1e-8)
        assert_close(one.intervals["percentile"], slow.percentile(values, confidence))
        left_out = slow.resampled(data, slow.without_groups(SIZE), name, NUM_STATES, **options)
        if np.std([x for x in left_out if np.isfinite(x)] or [0]) > 1e-9 * abs(value):
            expected = slow.bca(value, values, left_out, confidence)
            assert_close(one.intervals["bca"], expected, 1e-7)


def sample_of(values, value=0.0, left_out=(0.0, 1.0)):
    return Sample("wis", np.asarray(value), np.asarray(values), np.asarray(left_out))


@pytest.mark.parametrize(
    ("values", "value", "left_out", "expected"),
    [
        ([2.0] * 9, 2.0, [2.0] * 9, (2, 2)),
        ([2.0, np.nan], 2.0, [np.nan, 2.0], (2, 2)),
        ([np.nan] * 3, 2.0, [np.nan] * 3, (-np.inf, np.inf)),
        ([1.0, 2.0], np.nan, [1.0, 2.0], (np.nan, np.nan)),
        ([np.inf, np.inf], np.inf, [np.inf, 1.0], (np.inf, np.inf)),
    ],
)
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_degenerate_resamples(method, values, value, left_out, expected):
    found = INTERVALS[method](sample_of(values, value, left_out), 0.9)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("value", [-5.0, 5.0])
@pytest.mark.parametrize("skew", [-1.0, 0.0, 1.0])
def test_an_infinite_correction_stays_within_the_resamples(value, skew):
    values = np.linspace(-1, 1, 101)
    left_out = np.append(np.zeros(199), skew)
    low, high = INTERVALS["bca"](sample_of(values, value, left_out), 0.95)
    assert -1 <= low <= high <= 1
    assert (low > 0) == (value > 0)


def test_a_correction_moves_towards_the_estimate():
    values = np.random.default_rng(0).exponential(size=4000)
    plain = INTERVALS["percentile"](sample_of(values, 1.5), 0.9)
    corrected = INTERVALS["bca"](sample_of(values, 1.5, np.zeros(5)), 0.9)
    assert corrected.low > plain.low
    assert corrected.high > plain.high


@pytest.mark.parametrize("name", ["mc", "is", "pdis", "wis"])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_methods_from_terms_by_their_formulas(double, name, confidence):
    data = [t | {"rewards": np.abs(t["rewards"])} for t in random_data(21, 30, max_steps=5)]
    batch, bounds, weight = load(data), (0.0, 20.0), 1e3
    methods = ["t"] if name == "wis" else ["t", "hoeffding", "bernstein", "hcope"]
    given_ = {"methods": methods, "confidence": confidence, "discount": DISCOUNT}
    known = {} if name == "wis" else {"return_bounds": bounds}
    known |= {"weight_bound": weight} if name in ("is", "pdis") else {}
    found = oj.intervals(batch, name, **given_, **known)[name]
    if name == "wis":
        terms = slow.linear_terms_of_wis(data, DISCOUNT)
    else:
        terms = slow.terms(data, name, DISCOUNT)
    assert_close(found.intervals["t"], slow.student(terms, confidence))
    assert np.isnan(found.standard_error)
    if name == "wis":
        return
    most = bounds[1] * (1 if name == "mc" else weight)
    for method in ("hoeffding", "bernstein"):
        expected = getattr(slow, method)(terms, 0.0, most, confidence)
        assert_close(found.intervals[method], np.clip(expected, *bounds))
    low, high = found.intervals["hcope"]
    assert high == np.inf
    assert_close(low, max(slow.hcope(terms, confidence), 0.0))


def test_bounds_of_negative_returns_are_by_shift(double):
    """`hcope` of g >= -3 is that of g + 3, less 3; ranges of terms include 0, a weight of 0."""
    data = random_data(22, 60, max_steps=2, spread=0.1)
    for traj in data:
        traj["rewards"] = np.clip(traj["rewards"], -1.5, 1.5)
    found = oj.intervals(load(data), "is", methods="hcope", return_bounds=(-3, np.inf))["is"]
    shifted = [float(np.prod(oracle.ratios(t)) * (oracle.returns(t) + 3)) for t in data]
    assert_close(found.intervals["hcope"].low, slow.hcope(shifted, 0.95) - 3)
    sample = Sample("is", np.zeros(()), weight_bound=10.0, return_bounds=(2.0, 3.0))
    assert sample.range_of_terms() == (0.0, 30.0)
    sample = dataclasses.replace(sample, return_bounds=(-3.0, -2.0))
    assert sample.range_of_terms() == (-30.0, 0.0)


def covered(rng, method, trials, number, confidence):
    """Share of trials in which the interval of a mean of bounded, skewed terms holds 1 / 3."""
    terms = rng.beta(0.5, 1.0, size=(trials, number))
    bounds = {"weight_bound": 1.0, "return_bounds": (0.0, 1.0)}
    weights = np.ones_like(terms)
    sample = Sample("is", terms.mean(1), terms=terms, weights=weights, **bounds)
    low, high = INTERVALS[method](sample, confidence)
    assert (low <= high).all()
    return np.mean((low <= 1 / 3) & (high >= 1 / 3))


@pytest.mark.parametrize("method", ["bernstein", "hoeffding", "hcope"])
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_what_is_guaranteed_is_covered(method, confidence):
    trials = 4000
    rate = covered(np.random.default_rng(0), method, trials, 60, confidence)
    assert rate >= confidence - 3 * np.sqrt(confidence * (1 - confidence) / trials)


def test_hoeffding_shrinks_with_the_root_of_n():
    def width(number):
        sample = Sample("mc", np.zeros(()), terms=np.zeros(number), return_bounds=(-1e9, 1e9))
        low, high = INTERVALS["hoeffding"](sample, 0.95)
        return high - low

    assert width(100) == pytest.approx(2e9 * np.sqrt(2 * np.log(40) / 100))
    assert width(100) / width(400) == pytest.approx(2)


@pytest.mark.parametrize("method", ["t", "percentile", "bca"])
def test_coverage_of_a_mean_of_normal_returns(double, method):
    """Means of 60 normal returns: t is exact, the bootstrap nearly so."""
    trials, number, confidence = 1000, 60, 0.9
    terms = np.random.default_rng(2).normal(2.0, 1.0, size=(trials, number))
    rows = np.random.default_rng(3).integers(number, size=(400, number))
    resampled = np.stack([terms[:, row].mean(1) for row in rows], axis=1)
    left_out = (terms.sum(1, keepdims=True) - terms) / (number - 1)
    sample = Sample("mc", terms.mean(1), resampled, left_out, terms)
    low, high = INTERVALS[method](sample, confidence)
    rate = np.mean((low <= 2) & (high >= 2))
    slack = 0.0 if method == "t" else 0.02
    assert abs(rate - confidence) < 3 * np.sqrt(confidence * (1 - confidence) / trials) + slack


BAD = {
    "methods": [(), ("jackknife",), "z"],
    "confidence": [0.0, 1.0, 95, "0.9"],
    "resamples": [1, 0, 2.5, True],
    "memory": [0, 1.5],
    "weight_bound": [0.5, float("nan"), float("inf"), "1"],
    "return_bounds": [(1, 0), 3, (1, 2, 3), (0, float("nan")), ("a", "b")],
    "alpha": [np.array([0.1, 0.2]), 1.5, "best"],
    "key": [3],
    "colour": ["red"],
    "q_steps": [np.zeros((SIZE, MAX_STEPS, 3))],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, vs in BAD.items() for v in vs])
def test_what_is_wrong_is_named(field, value):
    batch = load(random_data(0, SIZE))
    names = ["osirwis", "dr"] if field == "q_steps" else ["is", "osirwis"]
    with pytest.raises(ValueError, match=f"^{field}: "):
        oj.intervals(batch, names, **{"resamples": 3, field: value})


@pytest.mark.parametrize(
    ("name", "method", "known", "problem"),
    [
        ("osiris", "t", {}, "methods: `t` is not available for `osiris`: after omission"),
        ("cwpdis", "t", {}, "methods: `t` is not available for `cwpdis`: only mc, is, pdis, wis"),
        ("wis", "hoeffding", {}, "methods: `hoeffding` is not available for `wis`"),
        ("is", "hoeffding", {}, "return_bounds: `hoeffding` needs"),
        ("is", "bernstein", {"return_bounds": (-99, 99)}, "weight_bound: `bernstein` needs"),
        ("is", "bernstein", {"return_bounds": (-99, np.inf), "weight_bound": 9}, "return_bounds: "),
        ("is", "hcope", {"return_bounds": (-np.inf, 9)}, "return_bounds: `hcope` needs finite"),
        ("is", "hcope", {"return_bounds": (0, 99)}, "return_bounds: the data have a return of -"),
        ("pdis", "hcope", {"return_bounds": (-99, 99)}, "methods: `hcope` is not available"),
        ("pdis", "hoeffding", {"return_bounds": (-1, 99), "weight_bound": 1e9}, "return_bounds: "),
        ("is", "hoeffding", {"return_bounds": (-99, 99), "weight_bound": 1}, "weight_bound: the"),
        ("is", "hoeffding", {"return_bounds": (-9, 9), "weight_bound": 9, "clip": 2}, "methods: "),
    ],
)
def test_what_a_method_lacks_is_said(name, method, known, problem):
    batch = load(random_data(0, 20))
    with pytest.raises(ValueError, match=f"^{problem}"):
        oj.intervals(batch, name, methods=method, **known)


def test_without_estimators_there_is_nothing():
    with pytest.raises(ValueError, match=r"^estimators: none"):
        oj.intervals(load(random_data(0, SIZE)), [])


def test_the_registry_says_what_each_method_is():
    for name, method in INTERVALS.items():
        first_line = method.__doc__.splitlines()[0]
        assert first_line.endswith("."), name
        assert len(first_line) > 20, name


def test_a_result_says_what_it_is(double):
    data = random_data(0, SIZE, zeros=0.6)
    one = oj.intervals(load(data), "wis", resamples=50)["wis"]
    assert isinstance(one.intervals["bca"], Interval)
    assert one.undefined > 0
    assert f"{one.undefined} resamples undefined" in str(one)
    assert len(one.resampled) == 50
