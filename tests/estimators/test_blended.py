"""MAGIC beside its members, on data and on what is known of it by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import MAX_STEPS, NUM_ACTIONS, NUM_STATES, load, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import blended as oracle
from oracles import doubly_robust as oracle_dr
from scipy import optimize

import osiris_jax as oj
from osiris_jax.estimators import blended
from osiris_jax.worlds import make

LD = np.longdouble
SEEDS = st.integers(0, 1000)
estimate = jax.jit(lambda name, *x, **options: oj.ESTIMATORS[name](*x, **options), static_argnums=0)


def table_of(seed, shape=(NUM_STATES, NUM_ACTIONS)):
    return np.random.default_rng([seed, 7]).normal(size=shape)


def members_of(data, table, discount=0.9):
    """[traj, member] from the definition, of a table of Q."""
    found = oracle.tables(data, oracle_dr.from_table(data, table))
    return oracle.member_terms(*found, discount)


def of(name, data, steps=MAX_STEPS, discount=0.9, **options):
    batch = load(data, steps)
    return float(estimate(name, batch, batch.log_ratio, discount=discount, **options))


@settings(max_examples=40)
@given(ragged_data(), SEEDS, st.sampled_from([1.0, 0.9, 0.0]))
def test_it_lies_between_its_members(data, seed, discount):
    table = table_of(seed)
    with jax.enable_x64(True):
        found = of("magic", data, discount=discount, q=table)
    weight = oracle.tables(data, oracle_dr.from_table(data, table))[0]
    assert np.isnan(found) == (not weight.sum(0).all())
    if np.isfinite(found):
        values = members_of(data, table, discount).sum(0).astype(float)
        rounding = 1e-12 * np.abs(values).max()
        assert values.min() - rounding <= found <= values.max() + rounding


@pytest.mark.parametrize("longest", [1, 2, 3, 4, 5, 8, 9, 12])
def test_members_are_powers_of_two_and_the_longest(longest, double):
    """Whatever the padding; the last is `wdr`, the first the direct method."""
    data = random_data(3, 5, max_steps=longest)
    data[1] = {k: np.resize(x, (longest, *x.shape[1:])) for k, x in data[1].items()}
    table = table_of(longest)
    expected = members_of(data, table)
    for steps in (longest, 12, 17):
        batch = load(data, steps)
        value = blended.fitted_values(batch, q=jnp.asarray(table))
        steps_of = blended._weighted_steps(batch, batch.log_ratio, value, 0.9)
        members = blended._members(batch, steps_of)
        exists = np.asarray(members.exists)
        assert exists.sum() == len(oracle.member_lengths(longest))
        np.testing.assert_allclose(members.terms[:, exists], expected.astype(float), atol=1e-13)
        for member, name in ((0, "dm"), (-1, "wdr")):
            one = of(name, data, steps, q=table)
            np.testing.assert_allclose(members.value[member], one, rtol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_its_weights_are_as_good_as_those_of_scipy(seed, double):
    """By x' (Omega + b b') x without any error of their own, within a millionth."""
    data, table = random_data(seed, 30, spread=0.4), table_of(seed)
    qhat = oracle_dr.from_table(data, table)
    terms, ends = oracle.parts(data, qhat, 0.9)
    matrix = oracle.error_matrix(terms, *ends, own_error=0).astype(float)
    batch = load(data)
    value = blended.fitted_values(batch, q=jnp.asarray(table))
    steps = blended._weighted_steps(batch, batch.log_ratio, value, 0.9)
    counts = blended._resampled(None, 200, 30, batch.dtype)
    members = blended._members(batch, steps)
    share = np.asarray(blended.blend(members, blended._of_resamples(counts, steps, batch.mask)))
    share = share[np.asarray(members.exists)]
    found = optimize.minimize(
        lambda x: x @ matrix @ x / (share @ matrix @ share),
        np.full(len(share), 1 / len(share)),
        bounds=[(0, 1)] * len(share),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert found.success
    assert found.fun >= 1 - 1e-6
    np.testing.assert_allclose(found.fun, 1, rtol=1e-3)  # SciPy's error is far larger


def test_resamples_are_those_of_the_key(double):
    data, table = random_data(6, 12), table_of(6)
    qhat = oracle_dr.from_table(data, table)
    found = {}
    for seed, resamples in ((0, 200), (3, 200), (3, 37)):
        given_key = {"key": jax.random.key(seed), "resamples": resamples}
        rows = oracle.drawn_rows(12, resamples, seed)
        expected = oracle.magic(data, qhat, 0.9, rows=rows)
        batch = load(data)
        value = oj.estimate(batch, "magic", discount=0.9, q=table, **given_key)
        np.testing.assert_allclose(value, expected, rtol=1e-9)
        found[seed, resamples] = float(value)
    assert len(set(found.values())) == 3
    assert found[0, 200] == oj.estimate(load(data), "magic", discount=0.9, q=table)


def test_each_resample_is_wdr_of_its_trajectories(float_type):
    """Also where it lacks the longest, or the heaviest, or has no weight at a step."""
    data, table = random_data(2, 5, zeros=0.2), table_of(2)
    data[0]["log_ratio"][0] += 30
    rows = np.array([[0, 1, 2, 3, 4], [1, 1, 2, 4, 4], [3, 3, 3, 3, 3], [0, 0, 0, 0, 2]])
    batch = load(data)
    value = blended.fitted_values(batch, q=jnp.asarray(table, batch.dtype))
    steps = blended._weighted_steps(batch, batch.log_ratio, value, 0.9)
    counts = np.array([np.bincount(row, minlength=5) for row in rows], batch.dtype)
    found = blended._of_resamples(jnp.asarray(counts), steps, batch.mask)
    expected = [of("wdr", [data[i] for i in row], q=table) for row in rows]
    rounding = {"float32": 1e-4, "float64": 1e-11}[float_type]
    np.testing.assert_allclose(found, expected, rtol=rounding)
    assert 0 < np.isnan(expected).sum() < 4


def test_what_vanishes_beside_the_heaviest_of_all(float_type):
    """It matters only as long as a resample runs; then the resample is left out."""
    heavy = {"float32": 90.0, "float64": 720.0}[float_type]
    data, table = random_data(2, 3, max_steps=1), table_of(2)
    for number in (1, 2):
        data[number] = {k: np.resize(x, (3, *x.shape[1:])) for k, x in data[number].items()}
    data[1]["log_ratio"] = np.array([0.1, 0.2, heavy])
    batch = load(data)
    value = blended.fitted_values(batch, q=jnp.asarray(table, batch.dtype))
    steps = blended._weighted_steps(batch, batch.log_ratio, value, 0.9)
    counts = jnp.asarray([[3, 0, 0], [1, 1, 1], [1, 0, 2]], batch.dtype)
    found = np.asarray(blended._of_resamples(counts, steps, batch.mask))
    expected = [of("wdr", some, q=table) for some in ([data[0]] * 3, data)]
    np.testing.assert_allclose(found[:2], expected, rtol=1e-4)
    assert np.isnan(found[2])


@pytest.mark.parametrize("side", [-1, 1])
def test_the_interval_holds_wdr(side, double):
    """Where all resamples are on one side of it, `wdr` has no bias, and others less."""
    terms = np.random.default_rng(3).normal(size=(9, 5)) / 9
    value = terms.sum(0)
    resampled = value[-1] + side * np.linspace(1, 3, 50)
    low, high = oracle.interval(resampled, value[-1])
    assert value[-1] in (low, high)
    members = blended.Members(jnp.asarray(value), jnp.ones(5, bool), jnp.asarray(terms))
    expected = oracle.least_shares(oracle.error_matrix(terms.astype(LD), low, high))
    found = blended.blend(members, jnp.asarray(resampled))
    np.testing.assert_allclose(found, expected.astype(float), atol=1e-9)
    unknown = blended.blend(members, jnp.full(50, jnp.nan))
    expected = oracle.least_shares(oracle.error_matrix(terms.astype(LD), value[-1], value[-1]))
    np.testing.assert_allclose(unknown, expected.astype(float), atol=1e-9)


def q_of_the_data(data, discount):
    """[time, state, action] the mean of r + gamma V at each time, by one policy."""
    longest = max(len(traj["rewards"]) for traj in data)
    policy = np.random.default_rng(1).dirichlet(np.ones(NUM_ACTIONS), NUM_STATES)
    table = np.zeros((MAX_STEPS, NUM_STATES, NUM_ACTIONS))
    for traj in data:
        traj["target_probs"] = policy[traj["states"]]
    for t in reversed(range(longest)):
        came = {}
        for traj in data:
            if t < len(traj["rewards"]):
                state, last = traj["states"], t + 1 == len(traj["rewards"])
                ahead = 0 if last else policy[state[t + 1]] @ table[t + 1, state[t + 1]]
                pair = int(state[t]), int(traj["actions"][t])
                came.setdefault(pair, []).append(traj["rewards"][t] + discount * ahead)
        for pair, values in came.items():
            table[(t, *pair)] = np.mean(values)
    return table


@pytest.mark.parametrize("seed", range(4))
def test_all_members_coincide_where_q_is_that_of_the_data(seed, double):
    """With ratios of one: what Q-hat misses is nothing on the average of each time."""
    data = random_data(seed, 8, spread=0.0)
    table = q_of_the_data(data, 0.9)
    values = members_of(data, table).sum(0).astype(float)
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
    found = of("magic", data, q=table)
    np.testing.assert_allclose(found, of("dm", data, q=table), rtol=1e-12)
    np.testing.assert_allclose(found, of("wdr", data, q=table), rtol=1e-12)
    assert not np.isclose(found, of("wdr", data, q=0.9 * table))


def test_where_q_is_right_it_is_the_model(double):
    """Steps of Dilly-Dallying are deterministic, and so is what the true Q says of each."""
    world = make("dilly-dallying")
    exact = world.exact()
    batch = world.rollout(jax.random.key(3), 10, probs=True)
    table = exact.action_values_by_time("target")
    right = oj.estimate(batch, "magic", q=table)
    np.testing.assert_allclose(right, exact.value, rtol=1e-9)
    assert abs(oj.estimate(batch, "magic", q=table + 3) - exact.value) > 1e-3


def test_a_wrong_model_has_less_weight_the_more_data_there_are():
    """Its bias stays, while the variance of `wdr` falls."""
    world = make("waiting-room")
    exact = world.exact()
    wrong = exact.action_values_by_time("target") + 1
    error = {}

    @partial(jax.jit, static_argnames="size")
    def mean_error(key, size):
        batches = world.rollout(jax.random.split(key, 50), size, probs=True)
        one = lambda batch: oj.ESTIMATORS["magic"](batch, batch.log_ratio, q=wrong)  # noqa: E731
        return jnp.sqrt(jnp.mean((jax.vmap(one)(batches) - exact.value) ** 2))

    for size in (10, 1000):
        error[size] = float(mean_error(jax.random.key(1), size))
    assert error[1000] < error[10] / 3


def test_a_single_trajectory_is_wdr(double):
    data = random_data(1, 1)
    np.testing.assert_allclose(of("magic", data), of("wdr", data), rtol=1e-12)


def test_intervals_and_choices_pass_by_its_own_resamples():
    """Their `resamples` are not those of the estimator, which has its usual number."""
    batch = load(random_data(4, 6))
    found = oj.intervals(batch, ["magic"], methods="percentile", resamples=7)["magic"]
    assert len(found.resampled) == 7
    np.testing.assert_allclose(found.value, oj.estimate(batch, "magic"), rtol=1e-6)
