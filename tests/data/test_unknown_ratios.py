"""A log-ratio that is no number: NaN in every estimate that uses it, and in no other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from composed import TESTS, plain
from datasets import NUM_STATES, VARIANTS, load, poisoned, random_data

import osiris_jax as oj
from osiris_jax.core import masked
from osiris_jax.core.options import default, keywords
from osiris_jax.inference.forms import values_of_rows
from osiris_jax.inference.resampler import Resampler
from osiris_jax.pipeline.spec import make_specs

SIZE, SEED = 6, 4
# `dm` has no ratios, and `stepwise-dr` never omits that of Q-hat
NEVER_OMITTED = ("auto", "dm", "stepwise-dr")
BY_COUNTS = [name for name, entry in oj.ESTIMATORS.items() if entry.of_counts is not None]
UNKNOWN = {"nan": np.nan, "inf": np.inf}


def place_of(kind, data):
    """A trajectory and a step of it: the first, the last, one with no reward, one after a zero."""
    longest = int(np.argmax([len(episode["rewards"]) for episode in data]))
    last = len(data[longest]["rewards"]) - 1
    assert last > 2
    return longest, {"first": 0, "last": last, "no reward": 1, "after a zero": 2}[kind]


def spoiled(kind, value):
    """A batch one of whose ratios is unknown, and the place."""
    data = random_data(SEED, SIZE)
    row, step = place_of(kind, data)
    if kind == "no reward":
        data[row]["rewards"][:] = 0
    batch = load(data)
    log_ratio = batch.log_ratio.at[row, step].set(value)
    if kind == "after a zero":
        log_ratio = log_ratio.at[row, 0].set(-jnp.inf)
    return batch.replace(log_ratio=log_ratio), (row, step)


def is_estimated_from_ratios(label):
    return oj.ESTIMATORS[VARIANTS[label][0]].reads_ratios


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("kind", ["first", "last", "no reward", "after a zero"])
def test_an_unknown_ratio_makes_every_estimate_nan(kind, value, float_type):
    batch, _ = spoiled(kind, value)
    for label in VARIANTS:
        assert np.isnan(plain(label, poisoned(batch))) == is_estimated_from_ratios(label), label


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
def test_all_ratios_unknown(value):
    batch = load(random_data(SEED, SIZE))
    batch = batch.replace(log_ratio=jnp.full_like(batch.reward, value))
    for label in VARIANTS:
        assert np.isnan(plain(label, batch)) == is_estimated_from_ratios(label), label


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("name", [name for name in oj.ESTIMATORS if name not in NEVER_OMITTED])
def test_what_an_omission_removes_does_not_matter(name, value, double):
    """The ratio is set to 1 whatever it was; only where the map keeps it is it asked for."""
    batch, place = spoiled("last", value)
    state = int(batch.state[place])
    by_lag = "theta" in keywords(oj.ESTIMATORS[name])
    without = np.arange(NUM_STATES) != state
    known = batch.replace(log_ratio=batch.log_ratio.at[place].set(-0.3))
    if by_lag:
        found, expected, kept = (
            oj.estimate(data, name, theta=theta)
            for data, theta in ((batch, without[None]), (known, without[None]), (batch, None))
        )
    else:
        found, expected, kept = (
            oj.estimate(data, name, relevance="oracle", keep=keep)
            for data, keep in ((batch, without), (known, without), (batch, ~without))
        )
    assert np.isfinite(expected)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(kept) == (name != "mc")


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("test", [test for test in TESTS if test not in ("oracle", "nn-q")])
def test_no_test_decides_by_an_unknown_ratio(test, value, float_type):
    """Classes and weights of visits are ratios; `undecided` is for too few of them."""
    batch, _ = spoiled("last", value)
    for weighting in ("none", "to-go"):
        assert np.isnan(oj.relevance_pvalues(batch, test, weighting=weighting)).all()
    assert np.isnan(oj.estimate(batch, "wis", relevance=test))


def test_a_network_of_unknown_weights_has_diverged():
    batch, _ = spoiled("last", np.nan)
    size = {"steps": 3, "hidden": 4, "minibatch": 64}
    assert np.isnan(oj.relevance_pvalues(batch, "nn-q", weighting="to-go", **size)).all()


@pytest.mark.parametrize("relevance", [None, "oracle", "welch"])
def test_resamples_with_an_unknown_ratio_are_nan_and_others_are_not(relevance, double):
    """The forms by counts agree with estimates of gathered trajectories."""
    batch, (row, _) = spoiled("after a zero", np.nan)
    names = [n if relevance is None else f"osiris-{n}" for n in BY_COUNTS]
    settings = {"alpha": default(0.5), "threshold": None, "discount": 0.9}
    settings |= {"weighting": default("none"), "ddof": default(1), "key": jax.random.key(0)}
    options = {"keep": np.arange(NUM_STATES) < NUM_STATES - 1} if relevance == "oracle" else {}
    specs = make_specs(batch, names, relevance, settings | options)
    others = [i for i in range(SIZE) if i != row]
    rows = np.array([[*others, others[0]], np.arange(SIZE), [row] * SIZE])
    prepared = Resampler(batch, specs).prepared
    found = jax.jit(values_of_rows)(batch, prepared, specs, jnp.asarray(rows))
    for label, values in found.items():
        for number, of_resample in enumerate(rows):
            gathered = jax.tree.map(lambda x, own=of_resample: x[own], batch)
            own = {"relevance": relevance} | options if relevance else {}
            own |= {"alpha": 0.5} if relevance else {}
            expected = oj.estimate(gathered, label, discount=0.9, **own)
            np.testing.assert_allclose(values[number], expected, rtol=1e-9, err_msg=label)
        assert np.isfinite(values[0]), label


def test_a_ratio_of_zero_in_a_long_trajectory_is_a_weight_of_zero(double):
    """Of more parts than are added plainly, where -inf met itself."""
    steps = 5000
    batch = oj.from_arrays(
        reward=np.ones((2, steps)),
        log_ratio=np.where(np.arange(steps)[None] == np.array([[10], [steps]]), -np.inf, 0.0),
        state=np.zeros((2, steps), int),
        action=np.zeros((2, steps), int),
    )
    value = oj.estimate(batch, "is", relevance="oracle", keep=np.ones(1, bool))
    np.testing.assert_allclose(value, steps / 2)
    assert np.isneginf(masked.log_weights(batch.log_ratio, batch.mask)[0])
