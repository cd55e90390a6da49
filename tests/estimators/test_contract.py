"""Laws that all estimators keep; a new line in the registry is tested at once.

`pytest -k NAME` tests one of them alone, these laws and its oracle.
"""

from functools import partial
from importlib import import_module

import jax
import numpy as np
import oracles
import pytest
from composed import OMITTING, TEST_OPTIONS, TESTS, composes, omitted, plain, value
from datasets import MAX_STEPS, VARIANTS, load, poisoned, random_data, stacked
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import entries

import osiris_jax as oj
from osiris_jax.pipeline import compose

SIZE = 6
LONGER = MAX_STEPS + 5
OTHER_FOLDS = [1, 2, 3, 4, 0, 5]
MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
SEEDS = st.integers(0, 2**32 - 1)

# Every known exception to a law, and why. That each is one is a test of its own, at the end.
FIT_BASELINE = "its baseline is that of the target policy, which ratios of one do not say"
FIT_FOLDS = "its Q-hat is fitted by folds, i mod 5"
BY_PROBS = "it weighs by the target's probabilities, which ratios of one do not say"
NOT_CONSERVED = {
    "star-leave-out": "last visits that are left out do not lead to the end",
    "star-undiscounted": "late visits weigh as much as early ones, whose rewards count more",
    "star-sweeps": "it is the value of so many steps",
}
LOOP = "the length of its loop is data, which has no reverse derivative"
BLENDS = "its members differ, and `wdr` is only one of them"
UNSEEN = "where the other folds never were at that time its weight is 0"
EXCEPTIONS = {
    "ratios of one give mc": {
        "cwpdis-drop": "those alive stand for all, also for the finished",
        "dr": FIT_BASELINE,
        "wdr": FIT_BASELINE,
        "dm": FIT_BASELINE,
        "stepwise-dr": FIT_BASELINE,
        "star-average": BY_PROBS,
        "star-whole-average": BY_PROBS,
        **NOT_CONSERVED,
        "magic": FIT_BASELINE,
        "drl": FIT_BASELINE,
    },
    "nothing kept gives mc": {
        **NOT_CONSERVED,
        "cwpdis-drop": "those alive stand for all, also for the finished",
        "stepwise-dr": "the ratio of Q-hat is never omitted",
        "magic": BLENDS,
        "drl": UNSEEN,
    },
    "trajectories reversed": {"magic": "its resamples are of the rows as they come"},
    "order of trajectories": {
        "rcis": "weights are regressed by folds, i mod 5",
        "dr": FIT_FOLDS,
        "wdr": FIT_FOLDS,
        "dm": FIT_FOLDS,
        "stepwise-dr": FIT_FOLDS,
        "magic": FIT_FOLDS,
        "drl": "its Q-hat and its weights are fitted by folds, i mod 5",
    },
    "sign of rewards": {"rcis": "its bins are closed on the right"},
    "terms are declared": {"stepwise": "with omission its terms depend on each other"},
    "gradients": dict.fromkeys(("incris", "auto"), LOOP),
    "gradients are not zero": {
        name: "it ignores ratios" for name, e in oj.ESTIMATORS.items() if not e.reads_ratios
    },
}


def lawful(law, labels=VARIANTS):
    return [label for label in labels if label not in EXCEPTIONS[law]]


def every(labels):
    return pytest.mark.parametrize("label", labels)


def make(seed=0, **kind):
    return load(random_data(seed, SIZE, **kind))


def slow(label, data):
    """What the variant's oracle says."""
    name, options = VARIANTS[label]
    return entries.of_estimator(name)(data, discount=0.9, **options)


def assert_same(actual, expected, rounding=1e-12):
    np.testing.assert_allclose(actual, expected, rtol=rounding, atol=rounding)


def test_only_these_combinations_are_refused():
    refused = {(name, test) for name in oj.ESTIMATORS for test in TESTS if not composes(name, test)}
    by_lag = {name for name in oj.ESTIMATORS if compose.is_by_lag(name)}
    no_lags = {test for test in TESTS if oj.RELEVANCE[test].by_lag is None}
    expected = {(name, test) for name in ("dm", "auto") for test in TESTS} | {
        (n, test) for n in by_lag for test in no_lags
    }
    assert refused == expected
    for name, test in refused:
        with pytest.raises(ValueError, match=f"relevance: .*`{name}`"):
            oj.estimate(make(), name, relevance=test, **TEST_OPTIONS.get(test, {}))


def test_compiled_is_eager(double):
    """For one estimator and test: nothing is compiled for any that is not for them."""
    options = {"relevance": "welch", "alpha": 0.5, "discount": 0.9}
    with jax.disable_jit():
        eager = oj.estimate(make(), "wis", **options)
    assert_same(oj.estimate(make(), "wis", **options), eager)


@every(VARIANTS)
def test_one_trace_per_shape_and_the_float_type_is_kept(label, all_kept):
    name, options = VARIANTS[label]
    assert oj.estimate(make(0), name, **options).dtype == "float32"
    traces = MODULE.values_of._cache_size()
    numbers = {k: 2 * x for k, x in options.items() if isinstance(x, float)}
    oj.estimate(make(1), name, discount=0.3, **options | numbers)
    assert MODULE.values_of._cache_size() == traces


@every(OMITTING)
def test_the_float_type_is_kept_after_omission(label):
    after = jax.eval_shape(partial(omitted, label), make())
    assert (after.shape, after.dtype) == ((), "float32")


@every(VARIANTS)
def test_vmap_is_a_loop(label, double):
    """Trials with ratios of zero and without are mixed: both paths of a kernel in one call."""
    batches = [make(seed, zeros=0.1 * (seed % 2)) for seed in range(4)]
    together = jax.vmap(partial(value, label))(stacked(batches))
    assert_same(together, np.stack([value(label, batch) for batch in batches]), 1e-11)


@every(VARIANTS)
def test_padding_never_matters(label, double):
    batch = make(1)
    assert not batch.mask.all()
    expected = value(label, batch)
    assert np.isfinite(expected)
    assert_same(value(label, poisoned(batch)), expected)
    assert_same(value(label, poisoned(load(random_data(1, SIZE), LONGER))), expected)
    assert_same(plain(label, poisoned(batch)), plain(label, batch))


@every(VARIANTS)
def test_padding_never_matters_when_all_weights_vanish_at_the_end(label, double):
    """The last step forbids every action taken: nothing may be normalised after it."""
    data = random_data(1, SIZE, max_steps=MAX_STEPS - 1)
    for episode in data:
        episode["log_ratio"][-1] = -np.inf
    expected = value(label, load(data), "everything")
    assert_same(value(label, poisoned(load(data, LONGER)), "everything"), expected)
    assert np.isnan(expected) == np.isnan(slow(label, data))
    assert np.isnan(expected) or label not in ("mis", "wdr", "magic")


@every(VARIANTS)
def test_the_order_of_trajectories_does_not_matter(label, double):
    """Reversed, the first and the last of six are still the pair that shares one fold of five."""
    data = random_data(2, SIZE)
    for form in (plain, value):
        expected = form(label, load(data))
        if label in lawful("trajectories reversed"):
            assert_same(form(label, load(data[::-1])), expected, 1e-11)
        if label in lawful("order of trajectories"):
            assert_same(form(label, load([data[i] for i in OTHER_FOLDS])), expected, 1e-11)


@every(lawful("ratios of one give mc"))
@settings(max_examples=30)
@given(SEEDS, st.sampled_from([1.0, 0.9, 0.0]))
def test_ratios_of_one_give_mc(label, seed, discount):
    with jax.enable_x64(True):
        batch = make(seed, spread=0.0)
        assert_same(plain(label, batch, discount), plain("mc", batch, discount))


@every(VARIANTS)
@settings(max_examples=20)
@given(SEEDS, st.sampled_from([1e-6, -2.0, 1e6]))
def test_scaling_rewards_scales_the_estimate(label, seed, factor):
    if factor < 0 and label in EXCEPTIONS["sign of rewards"]:
        return
    with jax.enable_x64(True):
        for form in (plain, value):
            scaled = form(label, make(seed, scale=factor))
            assert_same(scaled / factor, form(label, make(seed)), 1e-9)


@every(OMITTING)
@pytest.mark.parametrize("seed", range(5))
def test_everything_kept_is_the_plain_estimator(label, seed, double):
    batch = make(seed, coarse=bool(seed % 2))
    found = omitted(label, batch, "everything")
    assert found.dtype == "float64"
    assert_same(found, plain(label, batch))


@every([label for label in OMITTING if label in lawful("nothing kept gives mc")])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_kept_is_mc(label, seed, double):
    """The doubly robust too: at omitted steps their baseline is that of the action taken."""
    batch = make(seed, coarse=True)
    assert_same(omitted(label, batch, "nothing"), plain("mc", batch))


@pytest.mark.parametrize("name", ["wis", "incris", "mis", "dr", "stepwise"])
def test_a_grid_of_levels_is_a_loop_over_levels(name, double):
    batch = make(6, coarse=True)
    alphas = np.array([[0.0, 0.1], [0.5, 1.0]])
    grid = oj.estimate(batch, f"osiris-{name}", alpha=alphas, discount=0.9)
    assert grid.shape == alphas.shape
    pvalues = oj.relevance_pvalues(batch, "welch", discount=0.9)
    for alpha, found in zip(alphas.ravel(), grid.ravel(), strict=True):
        if compose.is_by_lag(name):
            expected = oj.estimate(batch, name, relevance="welch", alpha=alpha, discount=0.9)
        else:
            expected = omitted(name, batch, oracles.keep_map(pvalues, alpha))
        assert_same(found, expected)


@pytest.mark.parametrize("name", lawful("gradients", oj.ESTIMATORS))
def test_gradients_are_finite(name, double):
    batch = poisoned(make(7))

    @jax.jit
    @jax.grad
    def slope(log_ratio):
        return oj.ESTIMATORS[name](batch, log_ratio, discount=0.9)

    gradient = slope(batch.log_ratio)
    assert np.all(np.isfinite(gradient))
    assert np.all(gradient[~batch.mask] == 0)
    assert np.any(gradient != 0) == (name not in EXCEPTIONS["gradients are not zero"])


@every(VARIANTS)
def test_an_unknown_ratio_makes_the_estimate_nan(label, double):
    data = random_data(4, SIZE)
    data[2]["log_ratio"][-1] = np.nan
    reads_ratios = oj.ESTIMATORS[VARIANTS[label][0]].reads_ratios
    assert np.isnan(plain(label, poisoned(load(data)))) == reads_ratios


def of_oracle(name, data, change=lambda number, traj: None):
    """What the definition says of data of one length, changed trajectory by trajectory."""
    steps = min(len(traj["rewards"]) for traj in data)
    data = [{field: np.array(x[:steps]) for field, x in traj.items()} for traj in data]
    for number, traj in enumerate(data):
        change(number, traj)
    return entries.of_estimator(name)(data, discount=0.9)


def alike(pairs):
    return all(np.allclose(*pair, rtol=1e-9) for pair in pairs)


CASES = [random_data(seed, SIZE) for seed in range(4)]
CASES = [data for data in CASES if min(len(traj["rewards"]) for traj in data) > 1]


@every(lawful("terms are declared", oj.ESTIMATORS))
def test_an_entry_says_whether_the_estimate_is_a_mean_of_terms(label):
    """`mean_of_terms`, by which exact bounds are allowed."""
    means = [np.mean([of_oracle(label, [traj]) for traj in data]) for data in CASES]
    # one trajectory of a data set is cut at its own length
    whole = [entries.of_estimator(label)(data, discount=0.9) for data in CASES]
    assert alike(zip(means, whole, strict=True)) == oj.ESTIMATORS[label].mean_of_terms


@every(oj.ESTIMATORS)
def test_an_entry_says_whether_weights_are_normalised(label):
    """`normalised`, by which the variance of a level is judged."""

    def double_the_first(_, traj):
        traj["log_ratio"][0] += np.log(2)

    pairs = [
        (of_oracle(label, data, double_the_first), 2 * of_oracle(label, data)) for data in CASES
    ]
    assert alike(pairs) == (not oj.ESTIMATORS[label].normalised)


@every([name for name, entry in oj.ESTIMATORS.items() if "target_probs" not in entry.reads])
def test_an_entry_says_whether_later_ratios_weigh_a_reward(label):
    """`per_decision`, by which bounds are of steps or of trajectories."""

    def no_last_reward(_, traj):
        traj["rewards"][-1] = 0

    def other_last_ratios(number, traj):
        no_last_reward(number, traj)
        traj["log_ratio"][-1] += 0.3 * number

    pairs = [
        [of_oracle(label, data, f) for f in (no_last_reward, other_last_ratios)] for data in CASES
    ]
    declared = oj.ESTIMATORS[label].per_decision
    assert declared is None or alike(pairs) == declared


@every(VARIANTS)
def test_all_weights_zero(label, float_type):
    """An empty normaliser is NaN; an average of zeros is zero, unless Q-hat adds to it."""
    data = random_data(8, SIZE)
    for episode in data:
        episode["log_ratio"][:] = -np.inf
    found = plain(label, load(data))
    assert np.isnan(found) == np.isnan(slow(label, data))
    assert np.isnan(found) or label not in ("wis", "cwpdis", "phwis", "mis", "wdr", "magic")
    if label in ("is", "pdis", "rcis", "stepwise"):
        assert found == 0
    if label in ("dr", "stepwise-dr"):
        rounding = {"float32": 1e-5, "float64": 1e-12}[float_type]
        assert_same(found, plain("dm", load(data)), rounding)
    assert label != "mc" or found != 0


def sides(law, label, seed):
    """What would be equal on this data set if the law held."""
    data = random_data(seed, SIZE)
    batch, in_other_folds = load(data), load([data[i] for i in OTHER_FOLDS])
    if law == "trajectories reversed":
        return plain(label, load(data[::-1])), plain(label, batch)
    if law == "order of trajectories":
        return plain(label, in_other_folds), plain(label, batch)
    if law == "sign of rewards":
        return -plain(label, make(seed, scale=-1.0)), plain(label, batch)
    if law == "nothing kept gives mc":
        return omitted(label, batch, "nothing"), plain("mc", batch)
    ones = make(seed, spread=0.0)
    return plain(label, ones), plain("mc", ones)


@pytest.mark.parametrize(
    ("law", "label"),
    # the other laws are tested for equality with what is declared where they stand
    [
        (law, label)
        for law in (
            "ratios of one give mc",
            "nothing kept gives mc",
            "trajectories reversed",
            "order of trajectories",
            "sign of rewards",
        )
        for label in EXCEPTIONS[law]
    ],
)
def test_the_exceptions_are_exceptions(law, label, double):
    """None is declared that keeps its law on all of a few data sets."""
    assert not all(np.allclose(*sides(law, label, seed)) for seed in range(4))


def test_incris_has_no_reverse_derivative():
    batch = make()
    with pytest.raises(ValueError, match="everse-mode"):
        jax.eval_shape(jax.grad(lambda x: oj.ESTIMATORS["incris"](batch, x)), batch.log_ratio)
