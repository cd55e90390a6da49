"""Estimators and p-values against the slow oracle, on random ragged data sets."""

import jax
import numpy as np
import oracle
import pytest
from datasets import MAX_STEPS, NUM_STATES, VARIANTS, golden, ragged_data, random_data, random_map
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.estimators.incremental import choose_cuts

_choose_cuts = jax.jit(choose_cuts, static_argnames="variance")


def load(data):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES, num_actions=3), MAX_STEPS)


def test_the_oracle_knows_every_estimator():
    assert set(oracle.ESTIMATORS) == set(oj.ESTIMATORS)


@settings(max_examples=200)
@given(ragged_data(), st.sampled_from([1.0, 0.9, 0.0]), st.integers(0, 2**32 - 1))
def test_estimators(data, discount, seed):
    """Each estimator, plain and after omission by a random map of states."""
    keep = random_map(seed)
    omitted = oracle.omit(data, keep)
    with jax.enable_x64(True):
        batch = load(data)
        for name, options in VARIANTS.values():
            reference = oracle.ESTIMATORS[name]
            plain = oj.estimate(batch, name, discount=discount, **options)
            expected = reference(data, discount, **options)
            np.testing.assert_allclose(plain, expected, rtol=1e-9, atol=1e-12, err_msg=name)
            value = oj.estimate(
                batch, name, relevance="oracle", keep=keep, discount=discount, **options
            )
            expected = reference(omitted, discount, **options)
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_one_trajectory(double):
    """Nothing can be learnt from N = 1: INCRIS then ignores all ratios, the weighted do too."""
    data = random_data(1, 1)
    batch = load(data)
    for name, options in VARIANTS.values():
        expected = oracle.ESTIMATORS[name](data, **options)
        np.testing.assert_allclose(oj.estimate(batch, name, **options), expected, rtol=1e-12)
        if name not in ("is", "pdis", "mis"):
            np.testing.assert_allclose(expected, oracle.mc(data), rtol=1e-12)


@settings(max_examples=200)
@given(
    ragged_data(),
    st.sampled_from(["to-go", "future", "none"]),
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
@given(ragged_data(), st.sampled_from(["to-go", "future", "none"]), st.booleans())
def test_leave_one_out(data, weighting, first_visit):
    options = {"weighting": weighting, "first_visit": first_visit}
    for test in ("welch", "smirnov"):
        with jax.enable_x64(True):
            actual = oj.relevance_pvalues(load(data), test, leave_one_out=True, **options)
        expected = oracle.pvalues_leave_one_out(data, NUM_STATES, test=test, **options)
        np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-12, err_msg=test)


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


@settings(max_examples=100)
@given(ragged_data(), st.sampled_from([1.0, 0.9]))
def test_float32_follows_where_weights_are_moderate(data, discount):
    weights = [np.sum(episode["log_ratio"]) for episode in data]
    batch = load(data)
    for name, options in VARIANTS.values():
        expected = oracle.ESTIMATORS[name](data, discount, **options)
        actual = oj.estimate(batch, name, discount=discount, **options)
        scale = np.mean(
            [np.abs(e["rewards"]).sum() * np.exp(w) for e, w in zip(data, weights, strict=True)]
        )
        if name != "incris":
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5 * (1 + scale))


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
