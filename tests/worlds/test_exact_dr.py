"""Exact moments of the doubly robust estimators, by enumeration and by simulation."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_cases import COVERED, SEEDS, agree, case, gridworld, some_maps, waiting_world, world_of
from oracles import enumeration

import osiris_jax as oj
from osiris_jax.estimators.doubly_robust import dr

# Every trajectory of small worlds -------------------------------------------------------------


def random_q(mdp, seed, *, by_time):
    shape = (mdp.horizon + 2,) * by_time + mdp.behavior.shape
    return np.random.default_rng([seed, 11]).normal(size=shape)


def dr_of_paths(paths, q, theta=None):
    """[path] sum_t gamma^(t-1) [W_t (r_t - Q(s_t, a_t)) + W_{t-1} sum_a pi(a|s_t) Q(s_t, a)]."""
    mdp, result = paths.mdp, np.zeros(len(paths.probability))
    theta = np.ones(len(mdp.start), bool) if theta is None else theta
    policy = np.where(np.asarray(theta)[:, None], mdp.target, mdp.behavior)
    weight = np.cumprod(paths.kept_ratios(theta), 1)
    for row, length in enumerate(paths.lengths):
        for t in range(length):
            state, action = paths.states[row, t], paths.actions[row, t]
            now = q if q.ndim == 2 else q[t]
            before = weight[row, t - 1] if t else 1.0
            surprise = weight[row, t] * (paths.rewards[row, t] - now[state, action])
            baseline = before * (policy[state] @ now[state])
            result[row] += mdp.discount**t * (surprise + baseline)
    return result


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_action_values_by_time(seed):
    mdp, exact, _ = case(seed)
    for policy in (mdp.target, mdp.behavior):
        found = exact.action_values_by_time(policy)
        assert found.shape == (mdp.horizon, *mdp.behavior.shape)
        for time, table in enumerate(found):
            shorter = dataclasses.replace(mdp, horizon=mdp.horizon - time)
            agree(table, enumeration.action_values(shorter, policy))
        agree(found[0], exact.action_values(policy))


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_moments(seed):
    """For tables that are no policy's values: what DR costs depends on Q-hat, its mean does not."""
    mdp, exact, paths = case(seed)
    true, maps, sizes = exact.value, some_maps(mdp), np.array([1, 25])
    q = random_q(mdp, seed, by_time=bool(seed % 2))
    x = dr_of_paths(paths, q)
    mean, variance = paths.mean(x), paths.variance(x) / sizes
    found = exact.moments("dr", q=q, n=sizes)
    bias = np.full(2, mean - true)
    for field, expected in zip(
        found, (bias + true, bias, np.sqrt(variance), np.sqrt(variance + bias**2)), strict=True
    ):
        agree(field, expected, scale=1.0)
    together = exact.moments("osiris-dr", keep=maps, q=q, n=1)
    for number, theta in enumerate(maps):
        x = dr_of_paths(paths, q, theta)
        agree(together.mean[number], paths.mean(x), scale=1.0)
        agree(together.std[number], np.sqrt(paths.variance(x)))
        alone = exact.moments("osiris-dr", keep=theta, q=q, n=1)
        agree([field[number] for field in together], alone, scale=1.0)
        if seed in COVERED:
            composite = exact.policy_value(exact.composite(theta))
            agree(together.mean[number], composite, scale=1.0)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_exact_moments_without_q_hat_are_those_of_importance_sampling(seed):
    mdp, exact, _ = case(seed)
    nothing, maps = np.zeros(mdp.behavior.shape), some_maps(mdp)
    agree(exact.moments("dr", q=nothing), exact.moments("pdis"))
    agree(exact.moments("osiris-dr", keep=maps, q=nothing), exact.moments("osiris-pdis", keep=maps))


@pytest.mark.parametrize("name", ["dilly-dallying", "express"])
def test_the_true_values_leave_no_variance_where_steps_are_deterministic(name):
    _, exact, _ = gridworld(name)
    found = exact.moments("dr", q=exact.action_values_by_time("target"))
    agree(found.mean, exact.value)
    assert found.std < 1e-12
    assert exact.moments("dr", q=exact.action_values_by_time("behavior")).std > 0.1


def test_variances_beyond_float64_are_infinite():
    """E[rho^2] is about 9.8^400; what follows the action that the target forbids counts nothing."""
    policies = {"behavior": np.array([[0.1, 0.8, 0.1]]), "target": np.array([[0.99, 0.01, 0.0]])}
    world = oj.TabularWorld(
        np.zeros((1, 3), int), np.array([[1, -1, 0]]), 0, **policies, horizon=400, terminal=[False]
    )
    nothing = np.zeros((1, 3))
    found = world.exact().moments("dr", q=nothing)
    agree(found.mean, 400 * 0.98)
    assert found.std == found.rmse == np.inf
    assert world.exact(0.0).moments("dr", q=nothing).std < 10
    assert world.exact().moments("osiris-dr", q=nothing, keep=[False]).std < 10


def test_exact_moments_refuse_what_does_not_fit():
    exact = waiting_world().exact()
    for estimator, q in (("dr", None), ("is", np.zeros((4, 2)))):
        with pytest.raises(ValueError, match=rf"^q: '{estimator}' "):
            exact.moments(estimator, q=q)
    for shape in ((4,), (2, 4), (23, 4, 2), (1, 24, 4, 2)):
        with pytest.raises(ValueError, match=r"^q: expected .*got shape"):
            exact.moments("dr", q=np.zeros(shape))
    with pytest.raises(ValueError, match=r"^keep: 'osiris-dr' needs"):
        exact.moments("osiris-dr", q=np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"^keep: 'dr' takes no"):
        exact.moments("dr", q=np.zeros((4, 2)), keep=np.ones(4))
    with pytest.raises(ValueError, match=r"^estimator: 'dr' has no exact moments"):
        exact.power_means("dr")


# The kernels in these worlds ------------------------------------------------------------------


def batch_of(paths, policy, log_ratio=None):
    """All trajectories as one batch, whose target policy at each step is [state, action]."""
    states, actions = (np.where(paths.mask, x, 0) for x in (paths.states, paths.actions))
    with np.errstate(divide="ignore"):
        log_ratio = np.log(paths.ratios) if log_ratio is None else log_ratio
    return oj.TrajectoryBatch(
        reward=jnp.asarray(paths.rewards),
        mask=jnp.asarray(paths.mask),
        log_ratio=jnp.asarray(log_ratio),
        action=jnp.asarray(actions),
        state=jnp.asarray(states),
        target_probs=jnp.asarray(policy[states] if policy.ndim == 2 else policy),
        num_states=policy.shape[0] if policy.ndim == 2 else len(paths.mdp.start),
        num_actions=policy.shape[-1],
    )


@partial(jax.jit, static_argnames="folds")
def one_by_one(batches, discount, q=None, *, folds=2):
    """`dr` of each data set [set, traj, time]."""
    return jax.vmap(
        lambda batch: dr(batch, batch.log_ratio, discount=discount, q=q, q_folds=folds)
    )(batches)


def alone(batch):
    return jax.tree.map(lambda x: x[:, None], batch)


@pytest.mark.parametrize("seed", [5, 6, 7])
def test_the_mean_over_every_trajectory(seed, double):
    """Unbiased for the composite policy only if an omitted step averages over the behaviour."""
    mdp, exact, paths = case(seed)
    assert seed in COVERED
    q = random_q(mdp, seed, by_time=True)
    plain = np.asarray(one_by_one(alone(batch_of(paths, mdp.target)), mdp.discount, q))
    expected = exact.moments("dr", q=q, n=1)
    agree([paths.mean(plain), np.sqrt(paths.variance(plain))], expected[::2])
    agree(paths.mean(plain), exact.value, scale=1.0)
    theta = np.arange(len(mdp.start)) % 2 == 0
    with np.errstate(divide="ignore"):
        log_ratio = np.log(paths.kept_ratios(theta))
    kept = paths.is_kept(theta)[..., None]
    states, actions = (np.where(paths.mask, x, 0) for x in (paths.states, paths.actions))
    goal = exact.policy_value(exact.composite(theta))
    for omitted, unbiased in (
        (mdp.behavior[states], True),
        (np.eye(mdp.behavior.shape[1])[actions], True),
        (mdp.target[states], False),
    ):
        policy = np.where(kept, mdp.target[states], omitted)
        batch = alone(batch_of(paths, policy, log_ratio))
        mean = paths.mean(np.asarray(one_by_one(batch, mdp.discount, q)))
        assert (abs(mean - goal) < 1e-9) == unbiased
    composite = alone(batch_of(paths, exact.composite(theta), log_ratio))
    found = np.asarray(one_by_one(composite, mdp.discount, q))
    expected = exact.moments("osiris-dr", keep=theta, q=q, n=1)
    agree([paths.mean(found), np.sqrt(paths.variance(found))], expected[::2], scale=1.0)


@pytest.mark.parametrize("folds", [0, 2])
def test_the_mean_over_every_pair_of_trajectories(folds, double):
    """With Q-hat from the other trajectory `dr` is unbiased, with Q-hat from both it is not."""
    mdp = dataclasses.replace(enumeration.random_mdp(1), horizon=3)
    paths = enumeration.Paths(mdp, mdp.behavior)
    assert mdp.covered
    first, second = (x.ravel() for x in np.indices((len(paths.lengths),) * 2))
    batch = batch_of(paths, mdp.target)
    pairs = jax.tree.map(lambda x: jnp.stack([x[first], x[second]], 1), batch)
    found = np.asarray(one_by_one(pairs, mdp.discount, folds=folds))
    mean = np.sum(paths.probability[first] * paths.probability[second] * found)
    bias = mean - enumeration.value(mdp, mdp.target)
    assert abs(bias) < 1e-9 if folds else abs(bias) > 1e-3


# Simulation -----------------------------------------------------------------------------------


def simulated(world, q, discount, size):
    batch = world.rollout(jax.random.key(12), size)
    probs = jnp.asarray(world.target_probs)[batch.state]
    batch = alone(batch.replace(target_probs=probs))
    return np.asarray(one_by_one(batch, discount, q))


def mild_world(seed):
    """A random world of 12 steps whose policies are near each other, so that tails are light."""
    mdp = enumeration.random_mdp(seed)
    target = 0.75 * mdp.behavior + 0.25 * mdp.target
    return world_of(mdp, horizon=12, target=target)


@pytest.mark.parametrize("name", ["without end", "with an end", "express"])
def test_simulated_moments(name, double):
    """Mean and variance of 30,000 trajectories, within 4 standard errors of the exact ones."""
    if name == "express":
        world, exact, _ = gridworld(name)
        discount, q = 1.0, 0.8 * exact.q
    else:
        world, discount = mild_world(0 if name == "without end" else 1), 0.95
        exact = world.exact(discount)
        q = exact.action_values_by_time("target")
    x = simulated(world, q, discount, 30_000)
    expected = exact.moments("dr", q=q, n=1)
    centred = x - x.mean()
    variance = np.mean(centred**2)
    error = np.sqrt((np.mean(centred**4) - variance**2) / len(x))
    assert abs(x.mean() - exact.value) < 4 * expected.std / np.sqrt(len(x))
    assert abs(variance - expected.std**2) < 4 * error
    assert 0 < error < 0.05 * variance, "too heavy a tail to tell"
    assert expected.std < 0.9 * exact.moments("pdis", n=1).std


def test_simulation_with_the_true_values_has_no_variance(double):
    world, exact, _ = gridworld("express")
    x = simulated(world, exact.action_values_by_time("target"), 1.0, 1000)
    np.testing.assert_allclose(x, exact.value, rtol=1e-9)
