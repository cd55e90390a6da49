"""Laws that all estimators and relevance tests keep; a new line in a registry is tested at once."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from composed import TEST_OPTIONS, TESTS, composes, estimate_all, gather, labels_for, middle
from datasets import MAX_STEPS, NUM_STATES, VARIANTS, poisoned, random_data, random_map
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.core.options import keywords
from osiris_jax.pipeline import compose

SIZE = 6
LONGER = MAX_STEPS + 5
MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
ROUNDING = {"float32": 1e-5, "float64": 1e-12}
# values of further options of the tests, each tried on every test that has it
FURTHER = {
    "first_visit": True,
    "classes": "return",
    "leave_one_out": True,
    "folds": 2,
    "shrink": False,
    "standardize": True,
}
BY_PVALUE = [test for test in TESTS if test not in oj.THRESHOLDS]
BY_THRESHOLD = [test for test in TESTS if test in oj.THRESHOLDS]

# Every known exception to a law, and why. That each is one is a test of its own, at the end.
FIT_BASELINE = "its baseline is that of the target policy, which ratios of one do not say"
FIT_FOLDS = "its Q-hat is fitted by folds, i mod 5"
NORMALISED = "an empty normaliser is NaN"
EXCEPTIONS = {
    "ratios of one give mc": {
        "cwpdis-drop": "those alive stand for all, also for the finished",
        "dr": FIT_BASELINE,
        "wdr": FIT_BASELINE,
        "dm": FIT_BASELINE,
        "stepwise-dr": FIT_BASELINE,
    },
    "nothing kept gives mc": {
        "cwpdis-drop": "those alive stand for all, also for the finished",
        "stepwise-dr": "the ratio of Q-hat is never omitted",
    },
    "order of trajectories": {
        "rcis": "weights are regressed by folds, i mod 5",
        "dr": FIT_FOLDS,
        "wdr": FIT_FOLDS,
        "dm": FIT_FOLDS,
        "stepwise-dr": FIT_FOLDS,
    },
    "order of trajectories, tests": {"nn-q": "minibatches draw steps by their place"},
    "sign of rewards": {"rcis": "its bins are closed on the right"},
    "scale of rewards, tests": {"nn-q": "the learning rate and the Huber loss have a scale"},
    "defined where all weights are zero": {
        label: NORMALISED
        for label, (name, options) in VARIANTS.items()
        if name in ("wis", "cwpdis", "phwis", "mis", "wdr") or "weighted" in options
    },
    "gradients": {"incris": "the length of its loop is data, which has no reverse derivative"},
    "gradients are not zero": {
        name: "it ignores ratios" for name, e in oj.ESTIMATORS.items() if not e.reads_ratios
    },
}


def lawful(law, labels):
    return [label for label in labels if label not in EXCEPTIONS[law]]


every_test = pytest.mark.parametrize("test", TESTS)
every_pvalue = pytest.mark.parametrize("test", BY_PVALUE)
every_threshold = pytest.mark.parametrize("test", BY_THRESHOLD)
with_and_without_omission = pytest.mark.parametrize("test", [None, *TESTS])


def level_name(test):
    return "threshold" if test in oj.THRESHOLDS else "alpha"


def load(data):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES), MAX_STEPS)


def make(seed=0, **kind):
    return load(random_data(seed, SIZE, **kind))


def assert_same(actual, expected, rounding, only=None):
    for label in expected if only is None else only:
        np.testing.assert_allclose(
            actual[label], expected[label], rtol=rounding, atol=rounding, err_msg=label
        )


def is_mc(values, law, rounding):
    assert_same(values, dict.fromkeys(lawful(law, values), values["mc"]), rounding)


@every_test
def test_the_level_used_here_omits_some_and_keeps_some(test, double):
    kept = []
    for batch in map(make, range(3)):
        found = gather(batch, test=test)
        found = compose.Evidence(found, by_threshold=test in oj.THRESHOLDS, by_lag=False)
        kept.append(compose.steps_at(batch, found, middle(test))[batch.mask])
    assert 0 < np.concatenate(kept).mean() < 1


def test_only_these_combinations_are_refused():
    refused = {(name, test) for name in oj.ESTIMATORS for test in TESTS if not composes(name, test)}
    by_lag = {name for name in oj.ESTIMATORS if compose.is_by_lag(name)}
    no_lags = {test for test in TESTS if oj.RELEVANCE[test].by_lag is None}
    expected = {("dm", test) for test in TESTS} | {(n, test) for n in by_lag for test in no_lags}
    assert refused == expected
    for name, test in refused:
        with pytest.raises(ValueError, match=f"relevance: .*`{name}`"):
            oj.estimate(make(), name, relevance=test, **TEST_OPTIONS.get(test, {}))


def test_compiled_is_eager(double):
    with jax.disable_jit():
        eager = estimate_all(make())
    assert_same(estimate_all(make()), eager, 1e-12)


@pytest.mark.parametrize("name", ["wis", "dr", "stepwise"])
def test_compiled_omission_is_eager(name, double):
    with jax.disable_jit():
        eager = oj.estimate(make(), f"osiris-{name}", alpha=0.5, discount=0.9)
    np.testing.assert_allclose(estimate_all(make(), test="welch")[name], eager, rtol=1e-12)


@every_test
def test_compiled_evidence_is_eager(test, double):
    with jax.disable_jit():
        eager = gather(make(), test=test)
    # a network's first weights are drawn in float32, whose last digit depends on the compiler
    rounding = 1e-4 if test == "nn-q" else 1e-12
    np.testing.assert_allclose(gather(make(), test=test), eager, rtol=rounding)


@pytest.mark.parametrize("test", [None, "welch"])
def test_vmap_is_a_loop(test, double):
    """Trials with ratios of zero and without are mixed: both paths of a kernel in one call."""
    batches = [make(seed, zeros=0.1 * (seed % 2)) for seed in range(4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    together = jax.vmap(partial(estimate_all, test=test))(stacked)
    loop = [estimate_all(batch, test=test) for batch in batches]
    assert_same(together, {k: jnp.stack([v[k] for v in loop]) for k in labels_for(test)}, 1e-11)


@every_test
def test_vmap_of_evidence_is_a_loop(test, float_type):
    batches = [make(seed, zeros=0.1 * (seed % 2)) for seed in range(4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    together = jax.vmap(partial(gather, test=test))(stacked)
    loop = [gather(batch, test=test) for batch in batches]
    np.testing.assert_allclose(together, np.stack(loop), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("label", VARIANTS)
def test_one_trace_per_shape_and_the_float_type_is_kept(label):
    name, options = VARIANTS[label]
    assert oj.estimate(make(0), name, **options).dtype == "float32"
    traces = MODULE.values_of._cache_size()
    numbers = {k: 2 * x for k, x in options.items() if isinstance(x, float)}
    oj.estimate(make(1), name, discount=0.3, **options | numbers)
    assert MODULE.values_of._cache_size() == traces


@every_test
def test_one_trace_for_all_levels(test):
    options = TEST_OPTIONS.get(test, {})
    oj.estimate(make(0), "is", relevance=test, **{level_name(test): 0.1}, **options)
    oj.relevance_pvalues(make(0), test, **options)
    traces = MODULE.values_of._cache_size(), MODULE._pvalues._cache_size()
    level = {level_name(test): 0.7}
    others = {"discount": 0.9} | ({"ddof": 0} if "ddof" in keywords(oj.RELEVANCE[test]) else {})
    oj.estimate(make(1), "is", relevance=test, **level, **options, **others)
    oj.relevance_pvalues(make(1), test, **options, **others)
    assert (MODULE.values_of._cache_size(), MODULE._pvalues._cache_size()) == traces


@with_and_without_omission
def test_the_float_type_is_kept(test, float_type):
    values = estimate_all(make(), test=test)
    assert {value.dtype for value in values.values()} == {jnp.dtype(float_type)}


@every_test
def test_evidence_is_a_number_for_every_state(test, float_type):
    for seed in range(5):
        found = gather(make(seed, coarse=True, zeros=0.1 * (seed % 2)), test=test)
        assert found.dtype == float_type
        assert found.shape == (NUM_STATES,)
        assert np.all(found >= 0)
        assert test in oj.THRESHOLDS or np.all(found <= 1)


@with_and_without_omission
def test_padding_never_matters(test, double):
    batch = make(1)
    assert not batch.mask.all()
    expected = estimate_all(batch, test=test)
    assert all(np.isfinite(value) for value in expected.values())
    assert_same(estimate_all(poisoned(batch), test=test), expected, 1e-12)
    longer = poisoned(oj.pad_to(batch, LONGER))
    assert_same(estimate_all(longer, test=test), expected, 1e-12)


@pytest.mark.parametrize(
    ("test", "option"),
    [(test, name) for test in TESTS for name in FURTHER if name in keywords(oj.RELEVANCE[test])],
)
def test_padding_never_matters_to_a_test_with_an_option(test, option, double):
    batch = make(1)
    options = TEST_OPTIONS.get(test, {}) | {option: FURTHER[option]}
    expected = oj.relevance_pvalues(oj.trim(batch), test, **options)
    actual = oj.relevance_pvalues(poisoned(batch), test, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_every_switch_and_word_of_a_test_is_tried():
    """But `weighting`, which the oracle's tests try, and what selects inputs of a network."""
    switches = {
        name
        for test in oj.RELEVANCE.values()
        for name, parameter in keywords(test).items()
        if isinstance(parameter.default, bool | str)
    }
    assert switches - set(FURTHER) == {"weighting", "inputs"}


def test_padding_never_matters_when_all_weights_vanish_at_the_end(double):
    """The last step forbids every action taken: nothing may be normalised after it."""
    data = random_data(1, SIZE, max_steps=MAX_STEPS - 1)
    for episode in data:
        episode["log_ratio"][-1] = -np.inf
    expected = estimate_all(load(data))
    assert_same(estimate_all(poisoned(oj.pad_to(load(data), LONGER))), expected, 1e-12)
    assert np.isfinite(expected["is"])
    assert all(np.isnan(expected[name]) for name in ("mis", "wdr"))


OTHER_FOLDS = [1, 2, 3, 4, 0, 5]


@pytest.mark.parametrize("test", [None, *lawful("order of trajectories, tests", TESTS)])
def test_the_order_of_trajectories_does_not_matter(test, double):
    """Reversed, the first and the last of six are still the pair that shares one fold of five."""
    data = random_data(2, SIZE)
    expected = estimate_all(load(data), test=test)
    assert_same(estimate_all(load(data[::-1]), test=test), expected, 1e-11)
    moved = estimate_all(load([data[i] for i in OTHER_FOLDS]), test=test)
    assert_same(moved, expected, 1e-11, only=lawful("order of trajectories", expected))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9, 0.0]))
def test_ratios_of_one_give_mc(seed, discount):
    with jax.enable_x64(True):
        values = estimate_all(make(seed, spread=0.0), discount=discount)
    is_mc(values, "ratios of one give mc", 1e-12)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, -2.0, 1e6]),
    st.sampled_from([None, *lawful("scale of rewards, tests", TESTS)]),
)
def test_scaling_rewards_scales_the_estimate(seed, factor, test):
    with jax.enable_x64(True):
        batch = make(seed)
        scaled = estimate_all(batch.replace(reward=batch.reward * factor), test=test)
        plain = estimate_all(batch, test=test)
        labels = lawful("sign of rewards", plain) if factor < 0 else None
        assert_same({k: x / factor for k, x in scaled.items()}, plain, 1e-9, only=labels)


@every_pvalue
@pytest.mark.parametrize("seed", range(5))
def test_alpha_one_is_the_plain_estimator(test, seed, float_type):
    batch = make(seed, coarse=bool(seed % 2))
    actual = estimate_all(batch, 1.0, test=test)
    assert_same(actual, estimate_all(batch), ROUNDING[float_type], only=labels_for(test))


@every_pvalue
@pytest.mark.parametrize("seed", range(5))
def test_alpha_zero_is_mc(test, seed, float_type):
    """Even where a p-value is 0, as with two constant groups that differ.

    The doubly robust too: at omitted steps their baseline is that of the action taken.
    """
    values = estimate_all(make(seed, coarse=True), 0.0, test=test)
    is_mc(values, "nothing kept gives mc", ROUNDING[float_type])


@every_threshold
@pytest.mark.parametrize("seed", range(5))
def test_an_infinite_threshold_is_mc(test, seed, float_type):
    values = estimate_all(make(seed, coarse=True), jnp.inf, test=test)
    is_mc(values, "nothing kept gives mc", ROUNDING[float_type])


@every_threshold
def test_a_threshold_keeps_what_is_above_it(test, double):
    batch, options = make(3), {"weighting": "to-go"} | TEST_OPTIONS.get(test, {})
    found = oj.relevance_pvalues(batch, test, **options)
    levels = np.array([0.0, *found])
    actual = oj.estimate(batch, "is", relevance=test, threshold=levels, **options)
    expected = [oj.estimate(batch, "is", relevance="oracle", keep=found > x) for x in levels]
    np.testing.assert_allclose(actual, np.array(expected), rtol=1e-12)
    assert len(set(np.round(expected, 9))) > 2


@pytest.mark.parametrize("name", ["wis", "incris", "mis", "dr", "stepwise"])
def test_a_grid_of_levels_is_a_loop_over_levels(name, double):
    batch = make(6, coarse=True)
    alphas = np.array([[0.0, 0.1], [0.5, 1.0]])
    grid = oj.estimate(batch, f"osiris-{name}", alpha=alphas, discount=0.9)
    assert grid.shape == alphas.shape
    loop = [estimate_all(batch, a, test="welch")[name] for a in alphas.ravel()]
    np.testing.assert_allclose(grid.ravel(), np.array(loop), rtol=1e-12)


@pytest.mark.parametrize("name", lawful("gradients", oj.ESTIMATORS))
def test_gradients_are_finite(name, double):
    batch = poisoned(make(7))
    gradient = jax.grad(lambda x: oj.ESTIMATORS[name](batch, x, discount=0.9))(batch.log_ratio)
    assert np.all(np.isfinite(gradient))
    assert np.all(gradient[~batch.mask] == 0)
    assert np.any(gradient != 0) == (name not in EXCEPTIONS["gradients are not zero"])


def test_all_weights_zero(float_type):
    """An empty normaliser is NaN; an average of zeros is zero, unless Q-hat adds to it."""
    data = random_data(8, SIZE)
    for episode in data:
        episode["log_ratio"][:] = -np.inf
    values = estimate_all(load(data))
    undefined = {label for label, value in values.items() if np.isnan(value)}
    assert undefined == set(EXCEPTIONS["defined where all weights are zero"])
    assert values["is"] == values["pdis"] == values["rcis"] == values["stepwise"] == 0
    for label in ("dr", "stepwise-dr"):
        np.testing.assert_allclose(values[label], values["dm"], rtol=ROUNDING[float_type])
    assert values["mc"] != 0


@every_test
def test_evidence_needs_states_and_ratios(test):
    batch = make()
    for field in ("state", "log_ratio"):
        lacking = batch.replace(**{field: None})
        with pytest.raises(ValueError, match=field):
            oj.estimate(lacking, "wis", relevance=test, **TEST_OPTIONS.get(test, {}))


def test_a_random_map_is_between_nothing_and_everything(double):
    batch = make(9)
    keep = random_map(1)
    assert 0 < keep.sum() < NUM_STATES
    value = oj.estimate(batch, "is", relevance="oracle", keep=keep)
    assert value not in (oj.estimate(batch, "is"), oj.estimate(batch, "mc"))


def test_the_exceptions_are_exceptions(double):
    """None is declared that keeps its law on all of a few data sets."""
    broken = {law: set() for law in EXCEPTIONS}

    def compare(law, values, expected):
        broken[law] |= {k for k in values if not np.allclose(values[k], expected[k])}

    for seed in range(4):
        data = random_data(seed, SIZE)
        batch, moved = load(data), load([data[i] for i in OTHER_FOLDS])
        values, at_moved = estimate_all(batch), estimate_all(moved)
        at_one = estimate_all(batch.replace(log_ratio=jnp.zeros_like(batch.log_ratio)))
        nothing_kept = estimate_all(batch, 0.0, test="welch")
        negative = estimate_all(batch.replace(reward=-batch.reward))
        compare("ratios of one give mc", at_one, dict.fromkeys(at_one, at_one["mc"]))
        compare("nothing kept gives mc", nothing_kept, dict.fromkeys(values, values["mc"]))
        compare("order of trajectories", at_moved, values)
        compare("sign of rewards", {k: -x for k, x in negative.items()}, values)
        for law, other in (
            ("order of trajectories, tests", moved),
            ("scale of rewards, tests", batch.replace(reward=batch.reward * 1e3)),
        ):
            found = [{test: gather(x, test=test) for test in TESTS} for x in (other, batch)]
            compare(law, *found)
    # the other laws are tested for equality with what is declared where they stand
    for law in [law for law in EXCEPTIONS if broken[law]]:
        assert broken[law] == set(EXCEPTIONS[law]), law
    assert sum(map(bool, broken.values())) == 6
    with pytest.raises(ValueError, match="everse-mode"):
        jax.grad(lambda x: oj.ESTIMATORS["incris"](batch, x))(batch.log_ratio)
