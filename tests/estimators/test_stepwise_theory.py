"""The theorem on step-wise OSIRIS: unbiased where relevance by lag is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import enumeration

import osiris_jax as oj
from osiris_jax.estimators.lagged import stepwise, stepwise_dr_from_values

estimate = jax.jit(stepwise, static_argnames=("weighted", "exact_lags"))
estimate_dr = jax.jit(stepwise_dr_from_values, static_argnames="exact_lags")


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
