"""Step-wise OSIRIS: p-values by lag and the estimators, against the oracle and the theorem."""

from functools import partial

import enumeration
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import oracle_lagged
import pytest
from datasets import MAX_STEPS, NUM_STATES, poisoned, random_data
from hypothesis import given, settings
from hypothesis import strategies as st

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
discounts = st.sampled_from([1.0, 0.9, 0.0])
seeds = st.integers(0, 2**32 - 1)


def ragged_data():
    return st.builds(
        random_data,
        seeds,
        st.just(SIZE),
        coarse=st.booleans(),
        zeros=st.sampled_from([0.0, 0.15]),
        scale=st.sampled_from([1.0, 1e3]),
    )


def load(data, steps=MAX_STEPS):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES, num_actions=3), steps)


def random_theta(seed, rows):
    return np.random.default_rng(seed).random((rows, NUM_STATES)) < 0.5


def random_values(seed, data):
    """q and v along each trajectory."""
    rng = np.random.default_rng(seed)
    return [[rng.normal(size=len(e["rewards"])) for e in data] for _ in range(2)]


def padded(rows, steps=MAX_STEPS):
    return jnp.array([np.pad(row, (0, steps - len(row)), constant_values=np.nan) for row in rows])


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
@given(ragged_data(), st.sampled_from(WEIGHTINGS), st.sampled_from([0, 1]), discounts)
def test_pvalues(data, weighting, ddof, discount):
    options = {"weighting": weighting, "ddof": ddof, "discount": discount}
    with jax.enable_x64(True):
        actual = welch(load(data), exact_lags=EXACT, **options)
    expected = oracle_lagged.pvalues(data, NUM_STATES, BINS, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(ragged_data(), st.sampled_from([0.0, 0.3]))
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
        mask=batch.mask & (jnp.arange(MAX_STEPS)[None] < 1), state=jnp.zeros_like(batch.state)
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
@given(ragged_data(), discounts, seeds, st.sampled_from([(EXACT, BINS), (16, None)]))
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
        plain = pdis(batch, batch.log_ratio, discount=0.9)
        weighted = cwpdis(batch, batch.log_ratio, discount=0.9)
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


@pytest.mark.parametrize("weighted", [False, True])
def test_from_pvalues_to_estimate(weighted, double):
    """alpha = 1 is the plain estimator, alpha = 0 is MC, between them the oracle decides."""
    data = random_data(0, SIZE)
    batch = load(data)
    p = welch(batch, weighting="future", exact_lags=EXACT)
    expected_p = oracle_lagged.pvalues(data, NUM_STATES, BINS, "future")
    values = []
    for alpha in (0.0, 0.1, 0.5, 1.0):
        value = estimate(
            batch,
            batch.log_ratio,
            theta=relevant(p, alpha),
            weighted=weighted,
            exact_lags=EXACT,
        )
        theta = oracle.keep_map(expected_p, alpha)
        expected = oracle_lagged.stepwise(data, theta, BINS, weighted=weighted)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        values.append(float(value))
    np.testing.assert_allclose(values[0], oj.estimate(batch, "mc"), rtol=1e-12)
    name = "cwpdis" if weighted else "pdis"
    np.testing.assert_allclose(values[-1], oj.estimate(batch, name), rtol=1e-12)
    assert len(set(values)) == 4


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
    expected = everything(trimmed, padded(q, steps), padded(v, steps))
    actual = everything(longer, padded(q, MAX_STEPS + 20), padded(v, MAX_STEPS + 20))
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

    for gradient in jax.jit(jax.jacrev(both))(batch.log_ratio):
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[~batch.mask] == 0)
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


# The theorem ------------------------------------------------------------------------------------


def phased_mdp():
    """Three phases of two states each, in turn; what is done matters at few lags only.

    In phase 0 (states 0, 1) the action chooses the state of phase 1 and nothing else. In phase 1
    (2, 3) it makes the reward, which also depends on the state, and chooses the state of
    phase 2, on which the reward there (4, 5) depends; in phase 2 it does nothing. So phase 0
    is relevant at lag 1, phase 1 at lags 0 and 1, phase 2 never. State 6 is the end.
    """
    rng = np.random.default_rng(0)
    transition, reward = np.zeros((7, 2, 7)), np.zeros((7, 2, 7))
    transition[0:2, :, 2:4] = [[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]]
    transition[2:4, :, 4:6] = [[0.8, 0.2], [0.1, 0.9]]
    transition[4:6, :, [0, 1, 6]] = [0.5, 0.3, 0.2]
    transition[6, :, 6] = 1
    reward[0:2] = rng.normal(size=(2, 1, 1))
    reward[2:4] = rng.normal(size=(2, 2, 1))
    reward[4:6] = rng.normal(size=(2, 1, 1))
    target = np.tile([[0.85, 0.15]], (7, 1))
    target[0] = [0.4, 0.6]
    return enumeration.Mdp(
        transition=transition,
        reward=reward,
        start=np.array([0.5, 0.2, 0.2, 0, 0.1, 0, 0]),
        terminal=np.arange(7) == 6,
        behavior=np.tile([[0.45, 0.55]], (7, 1)),
        target=target,
        horizon=5,
        discount=0.9,
    )


def true_theta(mdp):
    """[lag, state] whether E[r_{t+dt} | s, a] under the target policy depends on the action."""
    theta = np.zeros((mdp.horizon, len(mdp.start)), bool)
    for state in np.flatnonzero(~mdp.terminal):
        by_action = [
            enumeration.Paths(mdp.starting(state), mdp.target, action) for action in range(2)
        ]
        first, second = (paths.probability @ paths.rewards for paths in by_action)
        theta[:, state] = np.abs(first - second) > 1e-12
    return theta


@pytest.fixture(scope="module")
def world():
    """The MDP, its trajectories under the behaviour policy, each as data set of its own."""
    mdp = phased_mdp()
    paths = enumeration.Paths(mdp, mdp.behavior)
    with jax.enable_x64(True), np.errstate(divide="ignore"):
        batches = oj.TrajectoryBatch(
            reward=jnp.array(paths.rewards)[:, None],
            log_ratio=jnp.array(np.log(paths.ratios))[:, None],
            state=jnp.array(paths.states)[:, None],
            mask=jnp.array(paths.mask)[:, None],
            num_states=len(mdp.start),
            num_actions=2,
        )
    return mdp, paths, batches


def test_the_phases_are_relevant_where_they_should_be(world):
    expected = np.zeros((5, 7), bool)
    expected[1, [0, 1]] = expected[0, [2, 3]] = expected[1, [2, 3]] = True
    np.testing.assert_array_equal(true_theta(world[0]), expected)


def test_step_wise_osiris_is_unbiased(world, double):
    """Theorem 3 by every trajectory; a map that lacks a relevant lag is biased."""
    mdp, paths, batches = world
    theta, value = true_theta(mdp), enumeration.value(mdp, mdp.target)

    def moments(theta):
        each = jax.vmap(lambda b: estimate(b, b.log_ratio, theta=theta, discount=mdp.discount))
        estimates = np.asarray(each(batches))
        return paths.mean(estimates), paths.variance(estimates)

    mean, variance = moments(theta)
    assert abs(mean - value) < 1e-12
    pdis_mean, pdis_variance = moments(None)
    assert abs(pdis_mean - value) < 1e-12
    assert variance < 0.8 * pdis_variance
    assert abs(moments(theta & (np.arange(5) != 1)[:, None])[0] - value) > 1e-2
    assert abs(enumeration.value(mdp, mdp.behavior) - value) > 1e-2


def test_step_wise_dr_is_unbiased_whatever_q_is(world, double):
    """And it would not be, if at theta_0 = 0 the ratio of Q-hat were omitted with the reward's."""
    mdp, paths, batches = world
    theta, value = true_theta(mdp), enumeration.value(mdp, mdp.target)
    table = np.random.default_rng(1).normal(size=(7, 2))
    q = np.where(paths.mask, table[paths.states, paths.actions], np.nan)
    v = np.where(paths.mask, (mdp.target * table).sum(1)[paths.states], np.nan)

    @jax.vmap
    def dr(batch, q, v):
        return estimate_dr(batch, batch.log_ratio, theta, q[None], v[None], discount=mdp.discount)

    assert abs(paths.mean(np.asarray(dr(batches, q, v))) - value) < 1e-12

    def literal(row):
        """sum_t gamma^(t-1) W_{<t} [rho_t^theta_0 (r_t - q_t) + v_t] of one trajectory."""
        total = 0.0
        for at in range(paths.lengths[row]):
            state, ratio = paths.states[row], paths.ratios[row]
            kept = [ratio[t] ** theta[at - t, state[t]] for t in range(at + 1)]
            inner = kept[at] * (paths.rewards[row, at] - q[row, at]) + v[row, at]
            total += mdp.discount**at * np.prod(kept[:at]) * inner
        return total

    literally = np.array([literal(row) for row in range(len(paths.lengths))])
    assert abs(paths.mean(literally) - value) > 1e-2
