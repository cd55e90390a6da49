"""Step-wise OSIRIS: p-values by lag and the estimators, against the oracle and the theorem."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import MAX_STEPS, NUM_STATES, in_numpy, load, poisoned, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import lagged as oracle_lagged

import osiris_jax as oj
from osiris_jax.estimators.lagged import stepwise, stepwise_dr_from_values
from osiris_jax.estimators.per_decision import cwpdis, pdis
from osiris_jax.relevance import relevant
from osiris_jax.relevance.lagged import lag_edges, lagged_welch

SIZE, EXACT = 5, 3
BINS = oracle_lagged.lag_ranges(MAX_STEPS, EXACT)
WEIGHTINGS = ("to-go", "future", "none")
ROUNDING = {"float32": 1e-5, "float64": 1e-12}
welch = jax.jit(lagged_welch, static_argnames=("weighting", "first_visit", "exact_lags"))
estimate = jax.jit(stepwise, static_argnames=("weighted", "exact_lags"))
estimate_dr = jax.jit(stepwise_dr_from_values, static_argnames="exact_lags")


@jax.jit
def per_decision(batch):
    return [kernel(batch, batch.log_ratio, discount=0.9) for kernel in (pdis, cwpdis)]


discounts = st.sampled_from([1.0, 0.9, 0.0])
seeds = st.integers(0, 2**32 - 1)


def random_theta(seed, rows):
    return np.random.default_rng(seed).random((rows, NUM_STATES)) < 0.5


def random_values(seed, data):
    """q and v along each trajectory."""
    rng = np.random.default_rng(seed)
    return [[rng.normal(size=len(e["rewards"])) for e in data] for _ in range(2)]


def padded(rows, steps=MAX_STEPS):
    return np.array([np.pad(row, (0, steps - len(row)), constant_values=np.nan) for row in rows])


# Bins -------------------------------------------------------------------------------------------


def test_lag_edges():
    assert lag_edges(10, exact=3) == (0, 1, 2, 3, 5, 8)
    assert lag_edges(4, exact=3, growth=1.0) == (0, 1, 2, 3)
    assert lag_edges(5) == lag_edges(5, exact=5) == (0, 1, 2, 3, 4)
    assert lag_edges(1, exact=1) == (0,)
    for steps in range(1, 60):
        for exact in (1, 4, 16):
            expected = tuple(lags.start for lags in oracle_lagged.lag_ranges(steps, exact))
            assert lag_edges(steps, exact=exact) == expected
            assert lag_edges(1000, exact=exact)[: len(expected)] == expected
    assert len(lag_edges(5000)) < 40


def test_bins_that_cannot_be():
    with pytest.raises(ValueError, match="exact_lags"):
        lag_edges(5, exact=0)
    with pytest.raises(ValueError, match="growth"):
        lag_edges(5, growth=0.9)


# P-values ---------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(ragged_data((SIZE,)), st.sampled_from(WEIGHTINGS), st.sampled_from([0, 1]), discounts)
def test_pvalues(data, weighting, ddof, discount):
    options = {"weighting": weighting, "ddof": ddof, "discount": discount}
    with jax.enable_x64(True):
        actual = welch(load(data), exact_lags=EXACT, **options)
    expected = oracle_lagged.pvalues(data, NUM_STATES, BINS, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(ragged_data((SIZE,)), st.sampled_from([0.0, 0.3]))
def test_pvalues_of_every_lag_and_of_first_visits(data, undecided):
    with jax.enable_x64(True):
        actual = welch(load(data), weighting="future", first_visit=True, undecided=undecided)
    bins = oracle_lagged.lag_ranges(MAX_STEPS, MAX_STEPS)
    expected = oracle_lagged.pvalues(
        data, NUM_STATES, bins, weighting="future", first_visit=True, undecided=undecided
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_the_oracle_meets_every_kind_of_pvalue():
    """Guards the tests above: constant groups that differ, undecided states and ordinary ones."""
    found = [
        oracle_lagged.pvalues(random_data(seed, SIZE, coarse=True), NUM_STATES, BINS, "none")
        for seed in range(40)
    ]
    single, wide = np.array(found)[:, :EXACT], np.array(found)[:, EXACT:]
    for rows in (single, wide):
        assert np.any(rows == 0)
        assert np.mean(rows == 1) > 0.1
        assert np.mean((rows > 0) & (rows < 1)) > 0.3


def test_lag_zero_of_single_steps_is_algorithm_one(double):
    batch = load(random_data(1, SIZE, coarse=True))
    one_step = batch.replace(
        mask=jnp.asarray(np.asarray(batch.mask) & (np.arange(MAX_STEPS)[None] < 1)),
        state=jnp.asarray(np.zeros_like(batch.state)),
    )
    plain = oj.relevance_pvalues(one_step)
    assert 0 < plain[0] < 1
    np.testing.assert_allclose(welch(one_step, exact_lags=EXACT)[0], plain, rtol=1e-12)


def wild(seed, steps):
    """Log-ratios of up to 50 in size, some ratios of zero, rewards over ten orders."""
    rng = np.random.default_rng(seed)
    data = random_data(seed, SIZE, max_steps=steps, zeros=0.05)
    for e in data:
        size = len(e["rewards"])
        e["log_ratio"] = np.where(
            np.isinf(e["log_ratio"]), -np.inf, rng.uniform(-50, 50, size=size)
        )
        e["rewards"] = e["rewards"] * 10.0 ** rng.integers(-5, 6, size=size)
    return data


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_huge_and_vanishing_ratios(weighting, float_type):
    for seed in range(5):
        data = wild(seed, MAX_STEPS)
        actual = welch(load(data), weighting=weighting, exact_lags=EXACT)
        expected = oracle_lagged.pvalues(data, NUM_STATES, BINS, weighting)
        tolerance = 1e-9 if float_type == "float64" else 1e-3
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


# The estimators ---------------------------------------------------------------------------------


@settings(max_examples=150)
@given(ragged_data((SIZE,)), discounts, seeds, st.sampled_from([(EXACT, BINS), (16, None)]))
def test_estimators(data, discount, seed, schedule):
    exact, bins = schedule
    bins = bins or oracle_lagged.lag_ranges(MAX_STEPS, exact)
    theta = random_theta(seed, len(bins))
    q, v = random_values(seed, data)
    with jax.enable_x64(True):
        batch = load(data)
        options = {"discount": discount, "exact_lags": exact}
        plain = estimate(batch, batch.log_ratio, theta=theta, **options)
        weighted = estimate(batch, batch.log_ratio, theta=theta, weighted=True, **options)
        dr = estimate_dr(batch, batch.log_ratio, theta, padded(q), padded(v), **options)
    expected = oracle_lagged.stepwise(data, theta, bins, discount)
    np.testing.assert_allclose(plain, expected, rtol=1e-9, atol=1e-12)
    expected = oracle_lagged.stepwise(data, theta, bins, discount, weighted=True)
    np.testing.assert_allclose(weighted, expected, rtol=1e-9, atol=1e-12)
    expected = oracle_lagged.stepwise_dr(data, theta, bins, q, v, discount)
    np.testing.assert_allclose(dr, expected, rtol=1e-9, atol=1e-11)


def test_special_maps(float_type):
    """No map and the map of everything are PDIS and CWPDIS; the map of nothing is MC."""
    close = partial(np.testing.assert_allclose, rtol=ROUNDING[float_type])
    options = {"discount": 0.9, "exact_lags": EXACT}
    everything = np.ones((len(BINS), NUM_STATES), bool)
    for seed in range(8):
        data = random_data(seed, SIZE, zeros=0.15 * (seed % 2))
        batch = load(data)
        q, v = random_values(seed, data)
        plain, weighted = per_decision(batch)
        assert plain != weighted
        dr = oracle_lagged.ordinary_dr(data, q, v, 0.9)
        for theta in (None, everything):
            close(estimate(batch, batch.log_ratio, theta=theta, **options), plain)
            close(estimate(batch, batch.log_ratio, theta=theta, weighted=True, **options), weighted)
            q_and_v = (padded(q).astype(float_type), padded(v).astype(float_type))
            close(estimate_dr(batch, batch.log_ratio, theta, *q_and_v, **options), dr, atol=1e-5)
        for switch in (False, True):
            value = estimate(batch, batch.log_ratio, theta=~everything, weighted=switch, **options)
            close(value, oj.estimate(batch, "mc", discount=0.9))
            assert value.dtype == float_type


def test_rows_of_a_map(double):
    """Few rows: one for each lag, the last for all later ones. Other numbers are refused."""
    data = random_data(4, SIZE)
    batch = load(data)
    few = random_theta(0, 4)
    by_lag = np.concatenate([few, np.repeat(few[-1:], MAX_STEPS - 4, axis=0)])
    expected = estimate(batch, batch.log_ratio, theta=by_lag)
    for exact in (4, 7, 16):
        value = estimate(batch, batch.log_ratio, theta=few, exact_lags=exact)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    numbers = few.astype(float)
    np.testing.assert_allclose(
        estimate(batch, batch.log_ratio, theta=numbers), expected, rtol=1e-12
    )
    for rows in (4, 5, 7, 12, 0):
        with pytest.raises(ValueError, match=rf"theta: {rows} rows.*exact_lags={rows}"):
            stepwise(batch, batch.log_ratio, theta=random_theta(0, rows), exact_lags=3)
    with pytest.raises(ValueError, match="5 states"):
        stepwise(batch, batch.log_ratio, theta=np.ones((3, 4), bool))
    with pytest.raises(ValueError, match="state"):
        stepwise(batch.replace(state=None), batch.log_ratio, theta=few)


@jax.jit
def everything(batch, q, v):
    """P-values and all estimates, compiled together."""
    found = {}
    for weighting in ("to-go", "none"):
        p = lagged_welch(batch, weighting=weighting, exact_lags=EXACT, discount=0.9)
        found[weighting, "p"] = p
        arguments = {"theta": relevant(p, 0.5), "exact_lags": EXACT}
        for weighted in (False, True):
            value = stepwise(batch, batch.log_ratio, weighted=weighted, **arguments)
            found[weighting, f"weighted={weighted}"] = value
        found[weighting, "dr"] = stepwise_dr_from_values(
            batch, batch.log_ratio, q_logged=q, v=v, **arguments
        )
    return found


def test_padding_never_matters(double):
    data = random_data(1, SIZE)
    steps = max(len(e["rewards"]) for e in data)
    num_bins = len(lag_edges(steps, exact=EXACT))
    q, v = random_values(0, data)
    trimmed, longer = load(data, steps), poisoned(load(data, MAX_STEPS + 20))
    assert 8 < steps < MAX_STEPS + 20
    assert not trimmed.mask.all()
    expected = in_numpy(everything(trimmed, padded(q, steps), padded(v, steps)))
    actual = in_numpy(everything(longer, padded(q, MAX_STEPS + 20), padded(v, MAX_STEPS + 20)))
    for name, value in expected.items():
        assert np.all(np.isfinite(value))
        if np.ndim(value):
            assert np.all(actual[name][num_bins:] == 1)
            actual[name] = actual[name][:num_bins]
        np.testing.assert_allclose(actual[name], value, rtol=1e-12, err_msg=str(name))


def test_an_empty_normaliser(float_type):
    """Only where a trajectory still runs does a step without weight make the estimate NaN."""
    steps = {"states": [0, 1], "actions": [0, 0], "rewards": [1.0, 2.0]}
    data = [steps | {"log_ratio": [0.3, -np.inf]}, steps | {"log_ratio": [-0.2, -np.inf]}]
    batch = poisoned(load(data))
    kept_now, kept_later = np.zeros((2, 2, NUM_STATES), bool)
    kept_now[0] = kept_later[1] = True
    assert np.isnan(estimate(batch, batch.log_ratio, theta=kept_now[:2], weighted=True))
    assert np.isfinite(estimate(batch, batch.log_ratio, theta=kept_later, weighted=True))
    assert estimate(batch, batch.log_ratio, theta=kept_now) == pytest.approx(
        np.mean(np.exp([0.3, -0.2])), rel=1e-6
    )


def test_gradients_are_finite(double):
    batch = poisoned(load(random_data(7, SIZE)))

    def both(log_ratio):
        value = partial(stepwise, batch, log_ratio, theta=random_theta(0, 6), exact_lags=EXACT)
        return jnp.stack([value(), value(weighted=True)])

    for gradient in np.asarray(jax.jit(jax.jacrev(both))(batch.log_ratio)):
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[~np.asarray(batch.mask)] == 0)
        assert np.any(gradient != 0)


def test_a_long_horizon():
    """5,000 steps: float32 follows float64, whose own errors are far below."""
    steps, rng = 5000, np.random.default_rng(0)
    data = [
        {
            "states": rng.integers(NUM_STATES, size=length),
            "actions": np.zeros(length, int),
            "rewards": rng.normal(1.0, 1.0, size=length),
            "log_ratio": rng.choice([0.03, -0.0315], size=length),
        }
        for length in rng.integers(steps // 2, steps + 1, size=8)
    ]
    theta = random_theta(0, len(lag_edges(steps)))
    found = {}
    for double in (False, True):
        with jax.enable_x64(double):
            batch = load(data, steps)
            p = welch(batch, weighting="future")
            values = [
                estimate(batch, batch.log_ratio, theta=theta, weighted=weighted)
                for weighted in (False, True)
            ]
            found[double] = np.array(p, float), np.array(values, float)
    assert np.all(np.isfinite(found[True][1]))
    assert found[True][0].shape == (len(lag_edges(steps)), NUM_STATES)
    assert 0.2 < np.mean(found[True][0] < 0.5) < 0.8
    np.testing.assert_allclose(found[False][0], found[True][0], rtol=0, atol=2e-3)
    np.testing.assert_allclose(found[False][1], found[True][1], rtol=1e-4)
