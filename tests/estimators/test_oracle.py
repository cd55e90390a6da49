"""Estimators and p-values against the slow oracle, on random ragged data sets."""

import jax
import numpy as np
import oracle
import oracle_dr
import oracle_lagged
import pytest
from composed import labels_for, omitted, plain
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    VARIANTS,
    golden,
    ragged_data,
    random_data,
    random_map,
    random_probs,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.estimators.incremental import choose_cuts

_choose_cuts = jax.jit(choose_cuts, static_argnames="variance")
BINS = oracle_lagged.lag_ranges(MAX_STEPS)
EVERYTHING = np.ones((len(BINS), NUM_STATES), bool)
BY_MAP = tuple(labels_for("oracle"))
DISCOUNTS = st.sampled_from([1.0, 0.9, 0.0])
WEIGHTINGS = st.sampled_from(["to-go", "future", "none"])


def load(data):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES), MAX_STEPS)


def q_and_v(data, qhat):
    """Q-hat of the actions taken, and V-hat, for each trajectory."""
    return zip(*oracle_dr.step_values(data, qhat), strict=True)


# estimators that need a Q-hat: functions of the data, Q-hat and the discount
WITH_Q = oracle_dr.ESTIMATORS | {
    "stepwise-dr": lambda data, qhat, discount: oracle_lagged.stepwise_dr(
        data, EVERYTHING, BINS, *q_and_v(data, qhat), discount
    )
}
WITHOUT_Q = oracle.ESTIMATORS | {
    "stepwise": lambda data, discount, **options: oracle_lagged.stepwise(
        data, EVERYTHING, BINS, discount, **options
    )
}


def expect(found, data, discount, *, rtol=1e-9, atol=1e-12, only=None):
    """Compares variants with their slow forms."""
    fitting = {"discount": discount, "folds": 5, "smoothing": 0.1}
    qhat = oracle_dr.fitted(data, NUM_ACTIONS, **fitting)
    for label, value in found.items():
        name, options = VARIANTS[label]
        if name in WITH_Q:
            expected = WITH_Q[name](data, qhat, discount)
        else:
            expected = WITHOUT_Q[name](data, discount=discount, **options)
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=atol, err_msg=label)


def test_the_oracle_knows_every_estimator():
    assert set(WITH_Q) | set(WITHOUT_Q) == set(oj.ESTIMATORS)


@settings(max_examples=150)
@given(ragged_data(), DISCOUNTS, st.integers(0, 2**32 - 1))
def test_estimators(data, discount, seed):
    """Each estimator, plain and after omission by a random map of states."""
    keep = random_map(seed)
    with jax.enable_x64(True):
        batch = load(data)
        values = plain(batch, discount)
        after = omitted(batch, np.where(keep, 0.0, 1.0), 0.5, discount, labels=BY_MAP)
    scale = max(np.abs(e["rewards"]).max() for e in data)
    expect(values, data, discount, atol=1e-12 * scale)
    expect(after, oracle.omit(data, keep), discount, atol=1e-12 * scale)


def test_one_trajectory(double):
    """Nothing can be learnt from N = 1: INCRIS then ignores all ratios, the weighted do too."""
    data = random_data(1, 1)
    values = plain(load(data), 1.0)
    expect(values, data, 1.0, rtol=1e-12)
    assert np.isnan(values["rcis"])
    for label in ("wis", "cwpdis", "phwis", "incris", "stepwise-weighted"):
        np.testing.assert_allclose(values[label], oracle.mc(data), rtol=1e-12)


@pytest.mark.parametrize("clip", [0.3, 1.0])
def test_weights_are_cut_at_any_limit(clip, double):
    data = random_data(2, 6, max_steps=2)
    for label, (name, options) in VARIANTS.items():
        if "clip" in options:
            value = oj.estimate(load(data), name, clip=clip, discount=0.9)
            expected = WITHOUT_Q[name](data, 0.9, clip=clip)
            np.testing.assert_allclose(value, expected, rtol=1e-9, err_msg=label)
            assert not np.isclose(value, oj.estimate(load(data), name, discount=0.9))


@settings(max_examples=200)
@given(
    ragged_data(),
    WEIGHTINGS,
    st.sampled_from([0, 1]),
    st.sampled_from([1.0, 0.9]),
    st.booleans(),
)
def test_pvalues(data, weighting, ddof, discount, first_visit):
    options = {"weighting": weighting, "discount": discount, "first_visit": first_visit}
    with jax.enable_x64(True):
        batch = load(data)
        welch = oj.relevance_pvalues(batch, "welch", ddof=ddof, **options)
        smirnov = oj.relevance_pvalues(batch, "smirnov", **options)
    expected = oracle.pvalues(data, NUM_STATES, "welch", ddof=ddof, **options)
    np.testing.assert_allclose(welch, expected, rtol=1e-9, atol=1e-12)
    expected = oracle.pvalues(data, NUM_STATES, "smirnov", **options)
    np.testing.assert_allclose(smirnov, expected, rtol=1e-9)


@settings(max_examples=40)
@given(ragged_data(), WEIGHTINGS)
def test_leave_one_out(data, weighting):
    options = {"weighting": weighting, "first_visit": weighting == "future"}
    for test in ("welch", "smirnov"):
        with jax.enable_x64(True):
            actual = oj.relevance_pvalues(load(data), test, leave_one_out=True, **options)
        expected = oracle.pvalues_leave_one_out(data, NUM_STATES, test=test, **options)
        np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-12, err_msg=test)


WITH_OPTIONS = {
    "welch by return": ("welch", {"classes": "return"}),
    "welch by return, first visits": (
        "welch",
        {"classes": "return", "first_visit": True, "weighting": "none"},
    ),
    "smirnov by return": ("smirnov", {"classes": "return", "weighting": "future"}),
    "welch by folds": ("welch", {"folds": 2}),
    "welch by return and folds": (
        "welch",
        {"folds": 4, "classes": "return", "weighting": "future"},
    ),
    "welch by return, one left out": ("welch", {"leave_one_out": True, "classes": "return"}),
    "smirnov by folds": ("smirnov", {"folds": 3}),
    "smirnov by return and folds": (
        "smirnov",
        {"folds": 2, "classes": "return", "weighting": "none"},
    ),
    "effect": ("effect", {}),
    "effect not shrunk": ("effect", {"shrink": False, "weighting": "future"}),
    "effect by folds": ("effect", {"folds": 2, "weighting": "none"}),
    "effect by return, one left out": ("effect", {"leave_one_out": True, "classes": "return"}),
}


@pytest.mark.parametrize("case", WITH_OPTIONS)
@settings(max_examples=40)
@given(ragged_data(sizes=(6,), max_steps=st.just(MAX_STEPS)), st.sampled_from([1.0, 0.9]))
def test_evidence_with_options(case, data, discount):
    test, options = WITH_OPTIONS[case]
    with jax.enable_x64(True):
        actual = oj.relevance_pvalues(load(data), test, discount=discount, **options)
    options = {"discount": discount, **options}
    folds = len(data) if options.pop("leave_one_out", False) else options.pop("folds", 0)
    if folds:
        expected = oracle.evidence_by_fold(data, NUM_STATES, test, folds, **options)
    else:
        expected = oracle.evidence(data, NUM_STATES, test, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("case", ["welch by return and folds", "smirnov by folds", "effect"])
def test_evidence_with_options_in_float32(case):
    test, options = WITH_OPTIONS[case]
    data = random_data(3, 6)
    actual = oj.relevance_pvalues(load(data), test, **options)
    options, folds = dict(options), options.get("folds", 1)
    options.pop("folds", None)
    expected = oracle.evidence(data, NUM_STATES, test, **options)
    if folds > 1:
        expected = oracle.evidence_by_fold(data, NUM_STATES, test, folds, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=60)
@given(
    ragged_data(sizes=(6,)),
    st.sampled_from(["welch", "effect"]),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.integers(0, 4),
)
def test_the_most_relevant_ratios_of_a_trajectory(data, test, level, max_kept):
    """From evidence that is checked elsewhere, for rounding decides between equal p-values."""
    name = "threshold" if test == "effect" else "alpha"
    with jax.enable_x64(True):
        batch, relevance = load(data), {"relevance": test, "weighting": "none", "folds": 2}
        found = np.asarray(oj.relevance_pvalues(batch, test, weighting="none", folds=2))
        value = oj.estimate(batch, "pdis", max_kept=max_kept, **{name: level}, **relevance)
    keep = found > level if test == "effect" else oracle.keep_map(found, level)
    badness = -found if test == "effect" else found
    kept = [
        oracle.most_relevant(*row, max_kept)
        for row in zip(oracle.at_steps(data, keep), oracle.at_steps(data, badness), strict=True)
    ]
    assert all(row.sum() <= max_kept for row in kept)
    expected = oracle.pdis(oracle.omit_steps(data, kept))
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", ["dr", "wdr"])
def test_the_baseline_at_omitted_steps(name, known, double):
    """That of the behaviour policy if it is known, else Q-hat of the action taken."""
    data, rng = random_data(4, 6), np.random.default_rng(4)
    if known:
        for episode in data:
            steps = len(episode["rewards"])
            episode["behavior_probs"] = random_probs(rng, steps)
    # given beside log_ratio, probabilities of both policies would have to agree with it
    bare = [{k: v for k, v in e.items() if k != "behavior_probs"} for e in data]
    batch = load(bare)
    if known:
        probs = np.full((*batch.mask.shape, NUM_ACTIONS), np.nan)
        for row, episode in zip(probs, data, strict=True):
            row[: len(episode["rewards"])] = episode["behavior_probs"]
        batch = batch.replace(behavior_probs=jax.numpy.asarray(probs))
    keep, table = random_map(1), rng.normal(size=(NUM_STATES, NUM_ACTIONS))
    composite = oracle.omit(data, keep)
    options = {"relevance": "oracle", "keep": keep, "discount": 0.9}
    for given_q, qhat in (
        ({"q": table}, oracle_dr.from_table(data, table)),
        ({"q_folds": 2}, oracle_dr.fitted(composite, NUM_ACTIONS, discount=0.9, smoothing=0.1)),
    ):
        value = oj.estimate(batch, name, **options, **given_q)
        expected = oracle_dr.ESTIMATORS[name](composite, qhat, 0.9)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        wrong = [
            {**new, "target_probs": old["target_probs"]}
            for new, old in zip(composite, data, strict=True)
        ]
        assert not np.isclose(value, oracle_dr.ESTIMATORS[name](wrong, qhat, 0.9))


@pytest.mark.parametrize("weighting", ["to-go", "none"])
def test_osiris_by_lag_from_data_to_estimate(weighting, double):
    """The level, the weighting, the discount and the bins reach the test and the estimator."""
    data, alphas = random_data(7, 20, coarse=True), np.array([0.0, 0.3, 0.7, 1.0])
    bins = oracle_lagged.lag_ranges(MAX_STEPS, 3)
    options = {"weighting": weighting, "discount": 0.9}
    p = oracle_lagged.pvalues(data, NUM_STATES, bins, ddof=0, **options)
    expected = [oracle_lagged.stepwise(data, oracle.keep_map(p, a), bins, 0.9) for a in alphas]
    options |= {"ddof": 0, "exact_lags": 3}
    actual = oj.estimate(load(data), "osiris-stepwise", alpha=alphas, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)
    assert len(set(np.round(expected, 9))) == len(alphas)


@pytest.mark.parametrize("test", ["welch", "smirnov"])
@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("weighting", ["to-go", "none"])
def test_osiris_from_data_to_estimate(test, leave_one_out, weighting, double):
    """The whole way, p-values included, over a grid of levels."""
    alphas = np.array([0.0, 0.05, 0.3, 0.5, 0.8, 1.0])
    options = {"weighting": weighting}
    data = random_data(7, 20, coarse=True)
    pvalues = oracle.pvalues_leave_one_out if leave_one_out else oracle.pvalues
    p = pvalues(data, NUM_STATES, test=test, **options)
    for name in ("is", "wis", "pdis", "mis"):
        reference = oracle.ESTIMATORS[name]
        expected = [reference(oracle.omit(data, oracle.keep_map(p, a))) for a in alphas]
        actual = oj.estimate(
            load(data),
            f"osiris-{name}",
            relevance=test,
            alpha=alphas,
            leave_one_out=leave_one_out,
            **options,
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-13)
        assert len(set(np.round(expected, 9))) > 2


GRIDWORLD = golden()["GridworldDD-0-25"][0]


@pytest.mark.parametrize("weighting", ["to-go", "future", "none"])
@pytest.mark.parametrize("test", ["welch", "smirnov"])
def test_pvalues_of_a_gridworld(test, weighting, float_type):
    """Products of the same ratios in another order are ties, and must stay ties."""
    batch = oj.from_episodes(GRIDWORLD, num_states=98)
    actual = oj.relevance_pvalues(batch, test, weighting=weighting)
    expected = oracle.pvalues(GRIDWORLD, 98, test, weighting=weighting)
    tolerance = 1e-9 if float_type == "float64" else 1e-4
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


@settings(max_examples=60)
@given(ragged_data(sizes=(6,)), st.sampled_from([1.0, 0.9]))
def test_float32_follows_where_weights_are_moderate(data, discount):
    values = plain(load(data), discount)
    weights = [np.exp(np.max(np.cumsum([0.0, *episode["log_ratio"]]))) for episode in data]
    scale = np.mean([np.abs(e["rewards"]).sum() * w for e, w in zip(data, weights, strict=True)])
    values = {label: x for label, x in values.items() if VARIANTS[label][0] != "incris"}
    expect(values, data, discount, rtol=1e-3, atol=1e-5 * (1 + scale))


@settings(max_examples=60)
@given(ragged_data(), st.sampled_from(["of-one", "of-mean"]))
def test_incris_in_float32_chooses_nearly_the_best_cut(data, variance):
    batch = load(data)
    cuts = np.asarray(_choose_cuts(batch, batch.log_ratio, variance=variance).cut)
    for t in range(1, oracle.horizon(data) + 1):
        scores = [score for score, _ in oracle.incris_scores(data, 1.0, t, variance)]
        chosen = scores[t - cuts[t - 1]]
        largest = max(abs(e["rewards"]).max() for e in data)
        assert chosen <= min(scores) * (1 + 1e-3) + 1e-6 * largest**2


def test_phwis_with_known_lengths(double):
    data = random_data(5, 20, max_steps=4)
    lengths = sorted({len(episode["rewards"]) for episode in data})
    assert lengths == [1, 2, 3, 4]
    probs = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    expected = oracle.phwis(data, length_probs=dict(enumerate(probs)))
    batch = oj.from_episodes(data)
    for width in (5, 9):
        padded = np.pad(probs, (0, width - 5))
        value = oj.estimate(batch, "phwis", length_probs=padded)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    unseen = np.append(probs * 0.9, 0.1)
    assert np.isnan(oj.estimate(batch, "phwis", length_probs=unseen))
