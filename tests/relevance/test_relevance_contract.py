"""Laws that all relevance tests keep; a new line in the registry is tested at once.

`pytest -k NAME` tests one of them alone, these laws and its oracle.
"""

from functools import partial
from importlib import import_module

import jax
import numpy as np
import pytest
from composed import TEST_OPTIONS, TESTS, evidence, level_name, middle
from datasets import MAX_STEPS, NUM_STATES, load, poisoned, random_data, random_map, stacked
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj

SIZE = 6
LONGER = MAX_STEPS + 5
MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
BY_PVALUE = [test for test in TESTS if test not in oj.THRESHOLDS]
BY_THRESHOLD = [test for test in TESTS if test in oj.THRESHOLDS]

# Every known exception to a law, and why. That each is one is a test of its own, at the end.
EXCEPTIONS = {
    "order of trajectories": {"nn-q": "minibatches draw steps by their place"},
    "scale of rewards": {"nn-q": "the learning rate and the Huber loss have a scale"},
}
every_test = pytest.mark.parametrize("test", TESTS)
every_pvalue = pytest.mark.parametrize("test", BY_PVALUE)
every_threshold = pytest.mark.parametrize("test", BY_THRESHOLD)


def every_lawful(law):
    return pytest.mark.parametrize("test", [x for x in TESTS if x not in EXCEPTIONS[law]])


def make(seed=0, **kind):
    return load(random_data(seed, SIZE, **kind))


def assert_same(actual, expected, rounding=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rounding, atol=rounding)


def at_level(test, level, batch, name="is"):
    """An estimate after the test at this level."""
    options = {level_name(test): level, "discount": 0.9} | TEST_OPTIONS.get(test, {})
    return oj.estimate(batch, name, relevance=test, **options)


@every_test
def test_the_level_used_here_omits_some_and_keeps_some(test, double):
    kept = []
    for batch in map(make, range(3)):
        of_states = np.asarray(evidence(test, batch))
        level = middle(test)
        keep = of_states > level if test in oj.THRESHOLDS else of_states <= level
        kept.append(keep[np.asarray(batch.state)][np.asarray(batch.mask)])
    assert 0 < np.concatenate(kept).mean() < 1


@every_test
def test_vmap_of_evidence_is_a_loop(test, double):
    batches = [make(seed, zeros=0.1 * (seed % 2)) for seed in range(4)]
    together = jax.vmap(partial(evidence, test))(stacked(batches))
    loop = [evidence(test, batch) for batch in batches]
    np.testing.assert_allclose(together, np.stack(loop), rtol=1e-5, atol=1e-6)


@every_test
def test_one_trace_for_all_levels(test, all_kept):
    at_level(test, 0.1, make(0))
    evidence(test, make(0))
    traces = MODULE.values_of._cache_size(), MODULE._pvalues._cache_size()
    at_level(test, 0.7, make(1))
    evidence(test, make(1), 0.5, ddof=0)
    assert (MODULE.values_of._cache_size(), MODULE._pvalues._cache_size()) == traces


@every_test
def test_evidence_is_a_number_for_every_state(test, float_type):
    for seed in range(5):
        of_states = evidence(test, make(seed, coarse=True, zeros=0.1 * (seed % 2)))
        assert of_states.dtype == float_type
        assert of_states.shape == (NUM_STATES,)
        assert np.all(of_states >= 0)
        assert test in oj.THRESHOLDS or np.all(of_states <= 1)


@every_test
def test_padding_never_matters(test, double):
    data = random_data(1, SIZE)
    batch = load(data)
    assert not batch.mask.all()
    expected = evidence(test, batch)
    assert_same(evidence(test, poisoned(batch)), expected)
    assert_same(evidence(test, poisoned(load(data, LONGER))), expected)
    level = middle(test)
    assert_same(at_level(test, level, poisoned(batch)), at_level(test, level, batch))


def reordered(data):
    return [data[i] for i in [1, 2, 3, 4, 0, 5]]


@every_lawful("order of trajectories")
def test_the_order_of_trajectories_does_not_matter(test, double):
    data = random_data(2, SIZE)
    expected = evidence(test, load(data))
    for other in (data[::-1], reordered(data)):
        assert_same(evidence(test, load(other)), expected, 1e-11)


@every_lawful("scale of rewards")
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, -2.0, 1e6]))
def test_the_scale_of_rewards_does_not_matter(test, seed, factor):
    with jax.enable_x64(True):
        scaled, plain = make(seed, scale=factor), make(seed)
        assert_same(evidence(test, scaled), evidence(test, plain), 1e-9)


@every_pvalue
@pytest.mark.parametrize("seed", range(5))
def test_alpha_one_is_the_plain_estimator(test, seed, double):
    batch = make(seed, coarse=bool(seed % 2))
    assert_same(at_level(test, 1.0, batch), oj.estimate(batch, "is", discount=0.9))


@every_pvalue
@pytest.mark.parametrize("seed", range(5))
def test_alpha_zero_is_mc(test, seed, double):
    """Even where a p-value is 0, as with two constant groups that differ."""
    batch = make(seed, coarse=True)
    assert_same(at_level(test, 0.0, batch), oj.estimate(batch, "mc", discount=0.9))


@every_threshold
@pytest.mark.parametrize("seed", range(5))
def test_an_infinite_threshold_is_mc(test, seed, double):
    batch = make(seed, coarse=True)
    assert_same(at_level(test, np.inf, batch), oj.estimate(batch, "mc", discount=0.9))


@every_threshold
def test_a_threshold_keeps_what_is_above_it(test, double):
    batch, options = make(3), {"weighting": "to-go"} | TEST_OPTIONS.get(test, {})
    of_states = np.asarray(oj.relevance_pvalues(batch, test, **options))
    levels = np.array([0.0, *of_states])
    actual = oj.estimate(batch, "is", relevance=test, threshold=levels, **options)
    expected = [oj.estimate(batch, "is", relevance="oracle", keep=of_states > x) for x in levels]
    np.testing.assert_allclose(actual, np.array(expected), rtol=1e-12)
    assert len(set(np.round(expected, 9))) > 2


@every_test
def test_evidence_needs_states_and_ratios(test):
    batch = make()
    for field in ("state", "log_ratio"):
        with pytest.raises(ValueError, match=field):
            at_level(test, 0.1, batch.replace(**{field: None}), "wis")


def test_a_random_map_is_between_nothing_and_everything(double):
    batch = make(9)
    keep = random_map(1)
    assert 0 < keep.sum() < NUM_STATES
    value = oj.estimate(batch, "is", relevance="oracle", keep=keep)
    assert value not in (oj.estimate(batch, "is"), oj.estimate(batch, "mc"))


@pytest.mark.parametrize(("law", "test"), [(law, x) for law in EXCEPTIONS for x in EXCEPTIONS[law]])
def test_the_exceptions_are_exceptions(law, test, double):
    """None is declared that keeps its law on all of a few data sets."""
    kept = []
    for seed in range(4):
        data = random_data(seed, SIZE)
        other = load(reordered(data)) if law == "order of trajectories" else make(seed, scale=1e3)
        kept.append(np.allclose(evidence(test, other), evidence(test, load(data))))
    assert not all(kept)
