"""Intervals: methods by their formulas and by plain loops, coverage where it is promised."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import MAX_STEPS, NUM_STATES, load, ragged_data, random_data, visits_most_groups
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import intervals as slow

import osiris_jax as oj
from osiris_jax.inference import INTERVALS, Interval, Sample
from osiris_jax.inference.resampling import draw_rows

SIZE, DISCOUNT, ALPHA = 7, 0.9, 0.4


def assert_close(actual, expected, rounding=1e-9):
    """Equal to rounding, relative to the largest, and NaN at the same places."""
    expected = np.asarray(expected, float)
    scale = np.max(np.abs(expected), initial=1.0, where=~np.isnan(expected))
    np.testing.assert_allclose(actual, expected, rtol=rounding, atol=rounding * scale)


ragged = ragged_data((SIZE,), zeros=(0.0, 0.0, 0.15, 0.6)).filter(visits_most_groups)


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
