"""Every estimator against its slow oracle, on random ragged data sets; `-k NAME` for one alone."""

import chex
import jax
import numpy as np
import oracles as oracle
import pytest
from composed import OMITTING, omitted, plain
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    VARIANTS,
    load,
    poisoned,
    ragged_data,
    random_data,
    random_map,
    random_probs,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import doubly_robust as oracle_dr
from oracles import entries
from oracles import lagged as oracle_lagged

import osiris_jax as oj
from osiris_jax.core.options import keywords
from osiris_jax.estimators.incremental import choose_cuts
from osiris_jax.pipeline import compose

_choose_cuts = jax.jit(choose_cuts, static_argnames="variance")
EVERYTHING = np.ones(NUM_STATES, bool)
DISCOUNTS = st.sampled_from([1.0, 0.9, 0.0])
every_label = pytest.mark.parametrize("label", VARIANTS)


def expect(label, found, data, discount=0.9, *, rtol=1e-9, atol=1e-12):
    """Compares a variant with its slow form."""
    name, options = VARIANTS[label]
    expected = entries.of_estimator(name)(data, discount=discount, **options)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", oj.ESTIMATORS)
def test_every_estimator_has_an_oracle(name):
    assert callable(entries.of_estimator(name))


@pytest.mark.parametrize("name", oj.ESTIMATORS)
def test_every_option_of_an_estimator_is_tried(name):
    """Numbers and switches are by themselves; for each word there must be a variant."""
    kinds = {option: type(p.default) for option, p in keywords(oj.ESTIMATORS[name]).items()}
    words = {option for option, kind in kinds.items() if kind is str} - {"fit"}
    tried = {option for of, options in VARIANTS.values() if of == name for option in options}
    assert words <= tried, f"add a variant with another {words - tried} to tests/datasets.py"


def test_what_to_write_for_an_entry_without_an_oracle_is_said():
    with pytest.raises(LookupError, match=r"`my_is\(data, .* tests/oracles/estimators.py.* ESTIM"):
        entries.of_estimator("my-is")
    with pytest.raises(LookupError, match=r"`mine\(data, .* tests/oracles/relevance.py.* RELEV"):
        entries.of_test("mine")


def test_tests_load_what_users_load(float_type):
    data = random_data(3, 6)
    expected = oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES), MAX_STEPS)
    chex.assert_trees_all_equal(load(data), expected)
    chex.assert_trees_all_equal_dtypes(load(data), expected)
    assert (expected.num_states, expected.num_actions) == (NUM_STATES, NUM_ACTIONS)


@every_label
@settings(max_examples=50)
@given(ragged_data(), DISCOUNTS, st.integers(0, 2**32 - 1), st.booleans())
def test_estimators(label, data, discount, seed, omits):
    """Plain and after omission by a random map of states; NaN in the padding."""
    name, _ = VARIANTS[label]
    by_state = label in OMITTING and not compose.is_by_lag(name)
    keep = random_map(seed) if by_state and omits else EVERYTHING
    with jax.enable_x64(True):
        batch = poisoned(load(data))
        if by_state and omits:
            found = omitted(label, batch, keep, discount)
        else:
            found = plain(label, batch, discount)
    scale = max(np.abs(e["rewards"]).max() for e in data)
    expect(label, found, oracle.omit(data, keep), discount, atol=1e-12 * scale)


@pytest.mark.parametrize("label", oj.ESTIMATORS)
def test_one_trajectory(label, double):
    """Nothing can be learnt from N = 1: INCRIS then ignores all ratios, the weighted do too."""
    data = random_data(1, 1)
    found = plain(label, load(data), 1.0)
    expect(label, found, data, 1.0, rtol=1e-12)
    assert np.isnan(found) == (label == "rcis")
    if label in ("wis", "cwpdis", "phwis", "incris"):
        np.testing.assert_allclose(found, oracle.mc(data), rtol=1e-12)


@pytest.mark.parametrize("clip", [0.3, 1.0])
@pytest.mark.parametrize("label", [x for x, (_, options) in VARIANTS.items() if "clip" in options])
def test_weights_are_cut_at_any_limit(label, clip, double):
    data, name = random_data(2, 6, max_steps=2), VARIANTS[label][0]
    found = oj.estimate(load(data), name, clip=clip, discount=0.9)
    expected = entries.of_estimator(name)(data, 0.9, clip=clip)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert not np.isclose(found, plain(name, load(data)))


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


@pytest.mark.parametrize(
    ("name", "test", "leave_one_out", "weighting"),
    [
        ("is", "welch", False, "to-go"),
        ("wis", "welch", False, "none"),
        ("wis", "smirnov", True, "none"),
        ("pdis", "welch", True, "none"),
        ("pdis", "smirnov", False, "to-go"),
        ("mis", "welch", True, "to-go"),
    ],
)
def test_osiris_from_data_to_estimate(name, test, leave_one_out, weighting, double):
    """The whole way, p-values included, over a grid of levels."""
    alphas, options = np.array([0.0, 0.05, 0.3, 0.5, 0.8, 1.0]), {"weighting": weighting}
    data = random_data(7, 20, coarse=True)
    p = oracle.pvalues(data, NUM_STATES, test=test, **options)
    if leave_one_out:
        p = oracle.by_fold(oracle.pvalues, data, len(data), NUM_STATES, test=test, **options)
    reference = entries.of_estimator(name)
    expected = [reference(oracle.omit(data, oracle.keep_map(p, a))) for a in alphas]
    options |= {"relevance": test, "leave_one_out": leave_one_out}
    actual = oj.estimate(load(data), f"osiris-{name}", alpha=alphas, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-13)
    assert len(set(np.round(expected, 9))) > 2


@pytest.mark.parametrize("label", [x for x in VARIANTS if VARIANTS[x][0] != "incris"])
@settings(max_examples=20)
@given(ragged_data(sizes=(6,)), st.sampled_from([1.0, 0.9]))
def test_float32_follows_where_weights_are_moderate(label, data, discount):
    weights = [np.exp(np.max(np.cumsum([0.0, *episode["log_ratio"]]))) for episode in data]
    scale = np.mean([np.abs(e["rewards"]).sum() * w for e, w in zip(data, weights, strict=True)])
    found = plain(label, load(data), discount)
    expect(label, found, data, discount, rtol=1e-3, atol=1e-5 * (1 + scale))


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
