"""Every relevance test against its slow oracle, on random data; `-k NAME` for one alone."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from composed import TEST_OPTIONS, TESTS
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    golden,
    load,
    poisoned,
    ragged_data,
    random_data,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import entries

import osiris_jax as oj
from osiris_jax.core.options import keywords
from osiris_jax.core.random_streams import integers_below
from osiris_jax.models.layers import initial_params

# further options of a test, each case a compilation of its own
CASES = {
    "welch": [
        {"weighting": "to-go"},
        {"weighting": "future", "first_visit": True},
        {"classes": "return"},
        {"classes": "return", "first_visit": True},
        {"folds": 2},
        {"folds": 4, "classes": "return", "weighting": "future"},
        {"leave_one_out": True, "weighting": "to-go"},
        {"leave_one_out": True, "weighting": "future", "first_visit": True},
        {"leave_one_out": True, "classes": "return"},
    ],
    "smirnov": [
        {"weighting": "to-go"},
        {"weighting": "future", "first_visit": True},
        {"classes": "return", "weighting": "future"},
        {"folds": 3},
        {"folds": 2, "classes": "return"},
        {"leave_one_out": True, "weighting": "to-go"},
        {"leave_one_out": True, "weighting": "future", "first_visit": True},
    ],
    "effect": [
        {"shrink": False, "weighting": "future"},
        {"folds": 2, "first_visit": True},
        {"leave_one_out": True, "classes": "return", "weighting": "to-go"},
    ],
    "nn-q": [{"standardize": True}],
}


def name_of(x):
    """A test's name, or those of its options."""
    return x if isinstance(x, str) else "-".join(x) or "plain"


EVERY_CASE = [(test, {}) for test in TESTS]
EVERY_CASE += [(test, options) for test, cases in CASES.items() for options in cases]


def first_weights_and_minibatches(data, options):
    """What chance gives a network of one layer: the oracle is given the library's own."""
    weights_key, draw_key = random.split(random.key(0))
    layers = initial_params(weights_key, (NUM_STATES, options["hidden"], NUM_ACTIONS), "float64")
    steps = jnp.asarray(sum(len(traj["rewards"]) for traj in data))
    drawn = [
        integers_below(draw_key, t, options["minibatch"], steps) for t in range(options["steps"])
    ]
    return {
        "network": [(np.array(layer.kernel).T, np.array(layer.bias)) for layer in layers],
        "minibatches": [np.asarray(index) for index in drawn],
        "weighting": "none",
        "learning_rate": options["learning_rate"],
        "standardize": options.get("standardize", False),
    }


def slow_evidence(test, data, **options):
    """What the oracle says: [state], or [traj, state] by folds."""
    reference = entries.of_test(test)
    if test == "nn-q":
        given_by_chance = first_weights_and_minibatches(data, options)
        return reference(data, NUM_STATES, discount=options["discount"], **given_by_chance)
    folds = options.pop("folds", len(data) if options.pop("leave_one_out", False) else 0)
    if folds:
        return oracle.by_fold(reference, data, folds, NUM_STATES, **options)
    return reference(data, NUM_STATES, **options)


def both(test, data, **options):
    """Evidence of the library, with NaN in the padding, and of the oracle."""
    own = keywords(oj.RELEVANCE[test])
    options = {name: x for name, x in (TEST_OPTIONS.get(test, {}) | options).items() if name in own}
    batch = poisoned(load(data))
    return oj.relevance_pvalues(batch, test, **options), slow_evidence(test, data, **options)


@pytest.mark.parametrize("test", TESTS)
def test_every_switch_and_word_of_a_test_is_tried(test):
    """But what selects inputs of a network, which has tests of its own."""
    kinds = {name: type(p.default) for name, p in keywords(oj.RELEVANCE[test]).items()}
    switches = {name for name, kind in kinds.items() if kind in (bool, str)} - {"inputs"}
    tried = {name for options in CASES.get(test, []) for name in options}
    missing = switches - tried - ({"weighting"} if test == "nn-q" else set())
    assert not missing, f"add cases with other {missing} to CASES of tests/relevance/{__name__}.py"


@pytest.mark.parametrize("test", TESTS)
def test_every_test_has_an_oracle(test):
    assert callable(entries.of_test(test))


@pytest.mark.parametrize(
    ("test", "options"),
    EVERY_CASE,
    ids=name_of,
)
@settings(max_examples=25)
@given(
    ragged_data(sizes=(6,), max_steps=st.just(MAX_STEPS)),
    st.sampled_from([0, 1]),
    st.sampled_from([1.0, 0.9]),
    st.sampled_from([1.0, 0.3]),
)
def test_evidence(test, options, data, ddof, discount, undecided):
    options = options | {"ddof": ddof, "discount": discount, "undecided": undecided}
    with jax.enable_x64(True):
        actual, expected = both(test, data, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("test", "options"),
    [*((test, {}) for test in TESTS), ("welch", {"leave_one_out": True})],
    ids=name_of,
)
@settings(max_examples=40)
@given(ragged_data(sizes=(2,)), st.sampled_from([0, 1]))
def test_evidence_of_two_trajectories(test, options, data, ddof):
    with jax.enable_x64(True):
        actual, expected = both(test, data, ddof=ddof, discount=0.9, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("test", "options"),
    [
        ("welch", {"folds": 4, "classes": "return", "weighting": "future"}),
        ("smirnov", {"folds": 3}),
        ("effect", {"weighting": "none"}),
    ],
    ids=name_of,
)
def test_evidence_in_float32(test, options):
    actual, expected = both(test, random_data(3, 6), **options)
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
