"""DRL: against what dynamic programming says of its variance, and where it is another estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import MAX_STEPS, NUM_ACTIONS, NUM_STATES, load, poisoned, ragged_data, random_data
from exact_cases import agree, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import doubly_robust as oracle_dr
from oracles import enumeration
from oracles import marginal as oracle

import osiris_jax as oj

estimate = jax.jit(
    lambda name, *x, **options: oj.ESTIMATORS[name](*x, **options),
    static_argnums=0,
    static_argnames="q_folds",
)


def of(name, data, steps=MAX_STEPS, discount=0.9, **options):
    batch = poisoned(load(data, steps))
    return float(estimate(name, batch, batch.log_ratio, discount=discount, **options))


def tables_of(seed):
    """Q [time, state, action] and marginals [time, state], some of them 0, of any length."""
    rng = np.random.default_rng([seed, 3])
    marginals = rng.exponential(size=(MAX_STEPS + 2, NUM_STATES))
    marginals[rng.random(marginals.shape) < 0.1] = 0
    return rng.normal(size=(MAX_STEPS + 3, NUM_STATES, NUM_ACTIONS)), marginals


@settings(max_examples=40)
@given(
    ragged_data(),
    st.integers(0, 1000),
    st.sampled_from([1.0, 0.9, 0.0]),
    st.sampled_from([0, 2, 5]),
)
def test_supplied_and_fitted_in_any_combination(data, seed, discount, folds):
    table, marginals = tables_of(seed)
    given_q = oracle_dr.from_table(data, table)
    fitted_q = oracle_dr.fitted(data, NUM_ACTIONS, discount=discount, folds=folds, smoothing=0.1)
    given_m = [[marginals[t, s] for t, s in enumerate(traj["states"])] for traj in data]
    fitted_m = oracle.fitted_weights(data, folds)
    scale = max(np.abs(traj["rewards"]).max() for traj in data)
    for options, qhat, weights in (
        ({"q": table, "marginals": marginals}, given_q, given_m),
        ({"q": table}, given_q, fitted_m),
        ({"marginals": marginals}, fitted_q, given_m),
        ({}, fitted_q, fitted_m),
    ):
        with jax.enable_x64(True):
            found = of("drl", data, discount=discount, q_folds=folds, **options)
        expected = oracle.drl(data, qhat, weights, discount)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11 * scale)


@settings(max_examples=30)
@given(ragged_data(), st.integers(0, 1000))
def test_without_q_and_folds_it_is_mis(data, seed):
    nothing = np.zeros((NUM_STATES, NUM_ACTIONS))
    with jax.enable_x64(True):
        found, expected = of("drl", data, q=nothing, q_folds=0), of("mis", data)
    if np.isfinite(expected):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_one_step_without_folds_is_dr(seed, double):
    """Where nothing came before, weights of states are 1."""
    data, table = random_data(seed, 7, max_steps=1), tables_of(seed)[0]
    found, expected = (of(name, data, q=table, q_folds=0) for name in ("drl", "dr"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_where_every_trajectory_is_in_a_state_of_its_own_it_is_that_of_paths(double):
    """Without folds: the marginals are then the weights of paths, over their sum at each time."""
    rng = np.random.default_rng(0)
    data = [
        {
            "states": np.arange(4) + 4 * i,
            "actions": rng.integers(NUM_ACTIONS, size=4),
            "rewards": rng.normal(size=4),
            "log_ratio": rng.normal(size=4),
            "target_probs": rng.dirichlet(np.ones(NUM_ACTIONS), 4),
        }
        for i in range(5)
    ]
    batch = load(data, 6, num_states=20)
    found = oj.estimate(batch, "drl", q=np.zeros((20, NUM_ACTIONS)), q_folds=0)
    np.testing.assert_allclose(found, oj.estimate(batch, "mis"), rtol=1e-12)
    weights = np.exp(np.cumsum([traj["log_ratio"] for traj in data], axis=1))
    before = np.hstack([np.ones((5, 1)), weights[:, :-1]])
    share = weights / before.sum(0)
    by_hand = sum((share * [traj["rewards"] for traj in data]).sum(0))
    np.testing.assert_allclose(found, by_hand, rtol=1e-12)


def test_a_state_that_the_others_never_saw_has_no_weight(double):
    """Two trajectories and two folds: each is weighed by the other alone."""
    data = random_data(0, 2, max_steps=1)
    for state, traj in enumerate(data):
        traj["states"][:] = state
    table = tables_of(0)[0]
    found = of("drl", data, q=table, q_folds=2)
    np.testing.assert_allclose(found, of("dm", data, q=table), rtol=1e-12)
    data[1]["states"][:] = 0
    found, expected = (of(name, data, q=table, q_folds=2) for name in ("drl", "dr"))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_weights_beyond_the_float_type_are_not_lost(float_type):
    """A thousand steps of ratios e and 1/e, in two states that never meet; d is 1/2 in each."""
    steps = 1001
    signs = np.repeat([1.0, -1.0, 0.0], [500, 500, 1])
    data = [
        {
            "states": np.full(steps, state),
            "actions": np.zeros(steps, int),
            "rewards": np.where(np.arange(steps) == steps - 1, 1.0 + state, 0.0),
            "log_ratio": signs if state else -signs,
            "target_probs": np.full((steps, 2), 0.5),
        }
        for state in (0, 0, 1, 1)
    ]
    batch = load(data, steps, num_states=2)
    found = oj.estimate(batch, "drl", q=np.zeros((2, 2)), q_folds=2)
    np.testing.assert_allclose(found, 1.5, rtol={"float32": 1e-3, "float64": 1e-10}[float_type])


def test_no_weight_is_undefined_only_where_it_is_needed(float_type):
    """At the last step weights divide nothing any more."""
    data = random_data(8, 6, max_steps=3)
    longest = max(len(traj["rewards"]) for traj in data)
    for first, undefined in ((longest - 1, False), (0, True)):
        for traj in data:
            traj["log_ratio"][first:] = -np.inf
        assert np.isnan(of("drl", data)) == undefined


@pytest.mark.parametrize(
    "shape", [(NUM_STATES,), (MAX_STEPS - 1, NUM_STATES), (MAX_STEPS, 2), (1, 12, 5)]
)
def test_marginals_of_the_wrong_shape_are_refused(shape):
    batch = load(random_data(0, 2))
    with pytest.raises(ValueError, match=r"^marginals: expected \[time, state\].*got shape"):
        oj.estimate(batch, "drl", marginals=np.ones(shape))


# Against dynamic programming ------------------------------------------------------------------


def marginals_and_bound(mdp, exact):
    """Ratios of occupancy [time, state], and the variance of one term, by its own recursion.

    Var V(s_1) + sum_t gamma^(2(t-1)) E[mu_t^2 Var(r_t + gamma V(s_{t+1}) | s_t, a_t)].
    """
    here, there = exact.occupancy("behavior"), exact.occupancy("target")
    marginals = np.divide(there, here, out=np.zeros_like(here), where=here > 0)
    q = exact.action_values_by_time("target")
    value = np.append((exact.target * q).sum(-1), np.zeros((1, q.shape[1])), axis=0)
    value[:, mdp.terminal] = 0
    variance = mdp.start @ value[0] ** 2 - (mdp.start @ value[0]) ** 2
    for t in range(exact.horizon):
        gain = mdp.reward + mdp.discount * value[t + 1]
        mean = (mdp.transition * gain).sum(-1)
        noise = (mdp.transition * (gain - mean[..., None]) ** 2).sum(-1)
        weight = marginals[t][:, None] * exact.ratio
        variance += mdp.discount ** (2 * t) * (
            here[t] @ (exact.behavior * weight**2 * noise).sum(-1)
        )
    return q, marginals, variance


def small_mdp(seed, horizon=6):
    """Four states, the last an end; several starts, and rewards that differ by successor."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(4, 0.7), (4, 2))
    behavior, target = rng.dirichlet(np.full(2, 3.0), (2, 4))
    return enumeration.Mdp(
        transition=transition,
        reward=rng.normal(size=(4, 2, 4)),
        start=np.array([0.5, 0.3, 0.2, 0.0]),
        terminal=np.array([False, False, False, True]),
        behavior=behavior,
        target=target,
        horizon=horizon,
        discount=0.9,
    )


@pytest.mark.parametrize("seed", range(3))
def test_with_the_right_q_and_marginals_its_variance_is_the_bound(seed, double):
    """Mean and variance over many data sets, within 4 standard errors; `dr` varies more."""
    mdp, size, number = small_mdp(seed), 5, 4000
    world = world_of(mdp)
    exact = world.exact(mdp.discount)
    q, marginals, bound = marginals_and_bound(mdp, exact)
    batches = world.rollout(jax.random.split(jax.random.key(seed), number), size, probs=True)

    @jax.jit
    def values(batch):
        given = {"discount": 0.9, "q": q}
        return (
            oj.ESTIMATORS["drl"](batch, batch.log_ratio, marginals=marginals, **given),
            oj.ESTIMATORS["dr"](batch, batch.log_ratio, **given),
        )

    found, path = map(np.asarray, jax.vmap(values)(batches))
    assert abs(found.mean() - exact.value) < 4 * found.std() / np.sqrt(number)
    squares = (found - exact.value) ** 2
    error = squares.std() / np.sqrt(number)
    assert error < 0.1 * bound / size
    assert abs(squares.mean() - bound / size) < 4 * error
    of_paths = exact.moments("dr", q=q, n=size).std ** 2
    assert bound / size < of_paths
    assert abs(path.var() - of_paths) < 4 * ((path - path.mean()) ** 2).std() / np.sqrt(number)


@pytest.mark.parametrize("seed", [0, 6, 15])
def test_the_bound_is_that_of_every_trajectory(seed, double):
    """Exactly: the estimates of all possible trajectories, one by one, with their chances."""
    mdp = enumeration.random_mdp(seed)
    exact = world_of(mdp).exact(mdp.discount)
    q, marginals, bound = marginals_and_bound(mdp, exact)
    chances, values = [], []
    for chance, states, actions, rewards in enumeration.trajectories(mdp, mdp.behavior):
        states, actions = np.array(states, int), np.array(actions, int)
        with np.errstate(divide="ignore"):
            log_ratio = np.log(exact.ratio[states, actions])
        one = {"states": states, "actions": actions, "rewards": np.array(rewards)}
        one |= {"log_ratio": log_ratio, "target_probs": mdp.target[states]}
        batch = load([one], mdp.horizon, num_states=len(mdp.start))
        given = {"discount": mdp.discount, "q": q, "marginals": marginals}
        values.append(float(estimate("drl", batch, batch.log_ratio, **given)))
        chances.append(chance)
    chances, values = np.array(chances), np.array(values)
    assert abs(chances.sum() - 1) < 1e-12
    mean = chances @ values
    agree(mean, exact.value)
    agree(chances @ (values - mean) ** 2, bound)


def test_with_what_is_fitted_it_comes_to_the_truth():
    """As data grow; where `dr` needs the weights of paths."""
    world, number = world_of(small_mdp(5, horizon=12)), 100
    exact = world.exact(1.0)
    errors = {}
    for size in (20, 500):
        batches = world.rollout(jax.random.split(jax.random.key(size), number), size, probs=True)
        for name in ("drl", "mis"):
            one = jax.jit(jax.vmap(lambda b, name=name: oj.ESTIMATORS[name](b, b.log_ratio)))
            error = np.asarray(one(batches)) - exact.value
            errors[name, size] = np.sqrt(np.mean(error**2))
            if size == 500:
                assert abs(error.mean()) < 4 * error.std() / np.sqrt(number)
    assert errors["drl", 500] < errors["drl", 20] / 3
    assert jnp.isfinite(errors["mis", 500])
