"""Policies against plain NumPy, and what they make of a log."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.data.policies import (
    EpsilonGreedy,
    Mixture,
    Softmax,
    Tabular,
    choose,
    epsilon_greedy_table,
    log_prob,
    mixture_table,
)

TABLE = np.array([[0.5, 0.25, 0.25], [0.0, 0.75, 0.25], [1.0, 0.0, 0.0], [0.125, 0.125, 0.75]])
OTHER = np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
WEIGHT = np.array([[1.0, -2.0, 0.5], [0.25, 0.5, -1.0]])
SEEN = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
STATES = np.array([[0, 1, 2], [3, 3, 0]])
LARGEST = float(np.nextafter(np.float32(1), np.float32(0)))
WIDTH = 6


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Linear:
    """Q = observation @ weight, the simplest Q-function that is a pytree."""

    weight: Any

    def __call__(self, observation):
        return observation @ jnp.asarray(self.weight)


LINEAR = Linear(WEIGHT)


def softmax(values):
    powers = np.exp(values - values.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def epsilon_greedy(values, epsilon):
    probabilities = np.full(values.shape, epsilon / values.shape[-1])
    for place in np.ndindex(values.shape[:-1]):
        best = max(range(values.shape[-1]), key=lambda action: values[place][action])
        probabilities[place][best] += 1 - epsilon
    return probabilities


Q = SEEN.astype(np.float64) @ WEIGHT
CASES = {
    "tabular": (Tabular(TABLE), STATES, TABLE[STATES]),
    "epsilon-greedy": (EpsilonGreedy(LINEAR, 0.3), SEEN, epsilon_greedy(Q, 0.3)),
    "greedy": (EpsilonGreedy(LINEAR, 0.0), SEEN, epsilon_greedy(Q, 0.0)),
    "softmax": (Softmax(LINEAR), SEEN, softmax(Q)),
    "softmax cold": (Softmax(LINEAR, 0.25), SEEN, softmax(Q / 0.25)),
    "mixture of tables": (
        Mixture((Tabular(TABLE), Tabular(OTHER)), (0.25, 0.75)),
        STATES,
        0.25 * TABLE[STATES] + 0.75 * OTHER[STATES],
    ),
    "mixture": (
        Mixture((EpsilonGreedy(LINEAR, 0.3), Softmax(LINEAR)), np.array([0.6, 0.4])),
        SEEN,
        0.6 * epsilon_greedy(Q, 0.3) + 0.4 * softmax(Q),
    ),
    "mixture with a weight of 0": (
        Mixture((EpsilonGreedy(LINEAR, 0.0), Softmax(LINEAR)), (1.0, 0.0)),
        SEEN,
        epsilon_greedy(Q, 0.0),
    ),
    "mixture of mixtures": (
        Mixture(
            (Mixture((Tabular(TABLE), Tabular(OTHER)), (0.5, 0.5)), Tabular(OTHER)), (0.5, 0.5)
        ),
        STATES,
        0.25 * TABLE[STATES] + 0.75 * OTHER[STATES],
    ),
}


# --------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize(("policy", "inputs", "expected"), CASES.values(), ids=CASES)
def test_probabilities_are_those_of_plain_numpy(policy, inputs, expected):
    probabilities = np.asarray(policy(jnp.asarray(inputs)))
    assert probabilities.shape == expected.shape
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(probabilities == 0, expected == 0)


@pytest.mark.parametrize(("policy", "inputs", "expected"), CASES.values(), ids=CASES)
def test_log_probabilities_are_logs_of_probabilities(policy, inputs, expected):
    with np.errstate(divide="ignore"):
        expected = np.log(expected)
    found = policy.log_probs(jnp.asarray(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_both_float_types(float_type):
    for name in ("tabular", "epsilon-greedy", "mixture"):
        policy, inputs, expected = CASES[name]
        inputs = jnp.asarray(inputs if inputs.dtype.kind == "i" else inputs.astype(float_type))
        tolerance = 1e-5 if float_type == "float32" else 1e-12
        found = policy(inputs)
        assert found.dtype == float_type
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_epsilon_greedy_gives_ties_to_the_first_action():
    values = jnp.array([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0], [0.0, -1.0, 0.0]])
    found = EpsilonGreedy(lambda observation: observation, 0.3)(values)
    np.testing.assert_allclose(found, 0.1 + 0.7 * np.eye(3)[[1, 0, 0]], rtol=1e-6)


def test_softmax_does_not_underflow():
    values = jnp.array([[0.0, -300.0, -1e6], [1e30, 0.0, 1e30]])
    policy = Softmax(lambda observation: observation)
    logs = np.asarray(policy.log_probs(values))
    np.testing.assert_allclose(logs[0], [0.0, -300.0, -1e6], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(logs[1], [-np.log(2), -1e30, -np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(policy(values), [[1, 0, 0], [0.5, 0, 0.5]], rtol=1e-6)
    cold = Softmax(lambda observation: observation, 1e-3).log_probs(jnp.array([0.0, -1.0]))
    np.testing.assert_allclose(cold, [0.0, -1000.0], rtol=1e-6)


def test_a_mixture_does_not_underflow():
    policy = Mixture((Softmax(lambda x: x), Softmax(lambda x: 2 * x)), (0.25, 0.75))
    logs = policy.log_probs(jnp.array([0.0, -300.0]))
    np.testing.assert_allclose(logs, [0.0, np.log(0.25) - 300.0], rtol=1e-6, atol=1e-6)


def test_a_mixture_is_checked():
    states, observations = Tabular(TABLE), Softmax(LINEAR)
    with pytest.raises(ValueError, match="policies: some read states and some observations"):
        Mixture((states, observations), (0.5, 0.5))
    with pytest.raises(ValueError, match=r"weights: 2 policies, weights of shape \(3,\)"):
        Mixture((states, states), (0.5, 0.25, 0.25))
    assert Mixture((states, states), (0.5, 0.5)).reads == "state"
    assert Mixture((observations,), (1.0,)).reads == "observation"


def test_tables_by_hand():
    found = epsilon_greedy_table(np.array([1, 0]), np.array([0.5, 0.2]), 4)
    expected = [[0.125, 0.625, 0.125, 0.125], [0.85, 0.05, 0.05, 0.05]]
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    found = mixture_table([TABLE, OTHER], [0.25, 0.75])
    np.testing.assert_allclose(found, 0.25 * TABLE + 0.75 * OTHER, rtol=1e-15)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: EpsilonGreedy(LINEAR, x),
        lambda x: Softmax(LINEAR, x + 0.1),
        lambda x: Tabular(jnp.full((5, 2), x)),
        lambda x: Softmax(Linear(WEIGHT * x)),
        lambda x: Mixture((EpsilonGreedy(LINEAR, x), Softmax(LINEAR)), jnp.array([x, 1 - x])),
    ],
    ids=["epsilon", "temperature", "table", "network", "weights"],
)
def test_numbers_in_a_policy_are_traced(make):
    traces = []

    @jax.jit
    def logs(policy, inputs):
        traces.append(policy)
        return policy.log_probs(inputs)

    inputs = jnp.arange(5) if make(0.5).reads == "state" else jnp.asarray(SEEN)
    results = [np.asarray(logs(make(x), inputs)) for x in (0.1, 0.5, 0.9)]
    assert len(traces) == 1
    expected = make(0.9).log_probs(inputs)
    np.testing.assert_allclose(results[2], expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(results[0], results[2])


# --------------------------------------------------------------------------------- choose


@st.composite
def distributions(draw):
    """Probabilities with zeros among them, and a uniform that may fall on a boundary."""
    parts = draw(
        st.lists(st.sampled_from([0, 0, 1, 2, 3, 7, 1000]), min_size=WIDTH, max_size=WIDTH)
    )
    parts[draw(st.integers(0, WIDTH - 1))] += 1
    probs = (np.array(parts) / np.sum(parts)).astype(np.float32)
    boundary = float(np.cumsum(probs)[draw(st.integers(0, WIDTH - 1))])
    uniform = draw(
        st.one_of(
            st.floats(0, LARGEST, width=32),
            st.sampled_from([0.0, LARGEST, min(boundary, LARGEST)]),
        )
    )
    return probs, np.float32(uniform)


@given(distributions())
@example((np.array([0, 0, 1, 0, 0, 0], np.float32), np.float32(0)))
@example((np.array([0, 0, 1, 0, 0, 0], np.float32), np.float32(LARGEST)))
@example((np.array([0.1] * 3 + [0.3, 0.3, 0], np.float32), np.float32(LARGEST)))
@example((np.array([0.3, 0.6, 0.0999, 0, 0, 0], np.float32), np.float32(LARGEST)))  # sum below 1
def test_choose_inverts_the_distribution_and_never_takes_what_is_forbidden(drawn):
    probs, uniform = drawn
    action = int(choose(jnp.asarray(probs), jnp.asarray(uniform)))
    assert probs[action] > 0
    passed = np.cumsum(probs)
    found = np.searchsorted(passed, uniform, side="right")
    last = np.flatnonzero(passed >= passed[-1])[0]
    assert action == min(found, last)


def test_choose_never_takes_what_is_forbidden_among_many():
    """Sums in blocks, as XLA makes them for long rows, may part where probabilities are 0."""
    rng = np.random.default_rng(0)
    probs = np.where(rng.random((5, 400)) < 0.4, 0, rng.random((5, 400)))
    probs = (probs / probs.sum(1, keepdims=True)).astype(np.float32)
    edges = np.asarray(jnp.cumsum(jnp.asarray(probs), -1)).T
    uniform = np.minimum(np.concatenate([edges, np.nextafter(edges, 0)]), np.float32(LARGEST))
    actions = choose(jnp.broadcast_to(probs, (800, 5, 400)), jnp.asarray(uniform))
    chosen = np.take_along_axis(probs, np.asarray(actions).T, 1)
    assert chosen.min() > 0


def test_choose_has_the_frequencies_asked_for():
    count = 40_000
    probs = np.array([0.1, 0.0, 0.2, 0.65, 0.05, 0.0])
    uniform = jax.random.uniform(jax.random.key(0), (count,))
    actions = choose(jnp.broadcast_to(jnp.asarray(probs), (count, 6)), uniform)
    share = np.bincount(np.asarray(actions), minlength=6) / count
    assert np.all(np.abs(share - probs) <= 4 * np.sqrt(probs * (1 - probs) / count))


# --------------------------------------------------------------------------- logs of steps

LENGTHS = (3, 1, 2)
LOGGED_STATES = [[0, 1, 2], [3], [1, 0]]
LOGGED_ACTIONS = [[0, 0, 0], [2], [1, 2]]  # the table forbids action 0 in state 1
FORBIDDEN = (0, 1)


def log(seen=None):
    """A ragged log with the states and actions above, and observations if given [step, dim]."""
    episodes, first = [], 0
    for states, actions in zip(LOGGED_STATES, LOGGED_ACTIONS, strict=True):
        episode = {"states": states, "actions": actions, "rewards": [1.0] * len(states)}
        if seen is not None:
            episode["observations"] = seen[first : first + len(states)]
        episodes.append(episode)
        first += len(states)
    return oj.from_episodes(episodes, num_states=4, num_actions=3)


OBSERVED = np.random.default_rng(1).normal(size=(6, 2)).astype(np.float32)


def with_rubbish(batch):
    """The same log with NaN, and with ids that do not exist, in the padding."""
    batch = oj.pad_to(batch, 5)
    real = batch.mask
    rubbish = {
        "observation": jnp.where(real[..., None], batch.observation, jnp.nan),
        "state": jnp.where(real, batch.state, -7),
        "action": jnp.where(real, batch.action, 99),
    }
    return batch.replace(**rubbish)


@pytest.mark.parametrize("name", ["tabular", "epsilon-greedy", "softmax cold", "mixture"])
def test_log_prob_is_a_loop_over_the_ragged_steps(name):
    policy = CASES[name][0]
    found = np.asarray(jax.jit(log_prob)(policy, with_rubbish(log(OBSERVED))))
    q, step = OBSERVED.astype(np.float64) @ WEIGHT, 0
    expected = np.zeros((3, 5))
    for i, states in enumerate(LOGGED_STATES):
        for t, state in enumerate(states):
            of_all = {
                "tabular": TABLE[state],
                "epsilon-greedy": epsilon_greedy(q[step], 0.3),
                "softmax cold": softmax(q[step] / 0.25),
                "mixture": 0.6 * epsilon_greedy(q[step], 0.3) + 0.4 * softmax(q[step]),
            }[name]
            with np.errstate(divide="ignore"):
                expected[i, t] = np.log(of_all[LOGGED_ACTIONS[i][t]])
            step += 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (found[FORBIDDEN] == -np.inf) == (name == "tabular")


def test_padding_stays_out_of_gradients():
    def total(weight, batch):
        return log_prob(Softmax(Linear(weight)), batch).sum()

    slope = jax.jit(jax.grad(total))
    weight = jnp.asarray(WEIGHT, jnp.float32)
    clean, dirty = oj.pad_to(log(OBSERVED), 5), with_rubbish(log(OBSERVED))
    np.testing.assert_array_equal(slope(weight, dirty), slope(weight, clean))
    assert np.all(np.isfinite(slope(weight, clean)))


def test_log_prob_says_what_a_log_lacks():
    with pytest.raises(ValueError, match="log_prob needs `observation`"):
        log_prob(Softmax(LINEAR), log())
    with pytest.raises(ValueError, match="log_prob needs `state`"):
        log_prob(Tabular(TABLE), log().replace(state=None))
    with pytest.raises(ValueError, match="log_prob needs `action`"):
        log_prob(Tabular(TABLE), log().replace(action=None))


def test_ratios_are_minus_infinity_where_the_target_forbids():
    filled = oj.with_policies(log(), target=Tabular(TABLE), behavior=Tabular(OTHER))
    with np.errstate(divide="ignore"):
        ratio = np.log(TABLE) - np.log(np.where(OTHER > 0, OTHER, 1))
    for i, states in enumerate(LOGGED_STATES):
        expected = ratio[states, LOGGED_ACTIONS[i]]
        np.testing.assert_allclose(filled.log_ratio[i, : len(states)], expected, rtol=1e-6)
    assert filled.log_ratio[FORBIDDEN] == -np.inf
    assert np.isneginf(filled.log_ratio).sum() == 1


def test_each_policy_reads_what_it_says():
    """A table is looked up by state though the log has observations; the other reads those."""
    filled = oj.with_policies(
        log(OBSERVED), target=EpsilonGreedy(LINEAR, 0.3), behavior=Tabular(OTHER)
    )
    mask = np.asarray(filled.mask)
    states = np.concatenate(LOGGED_STATES)
    expected = epsilon_greedy(OBSERVED.astype(np.float64) @ WEIGHT, 0.3)
    np.testing.assert_allclose(np.asarray(filled.behavior_probs)[mask], OTHER[states], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(filled.target_probs)[mask], expected, rtol=1e-6)


def test_a_policy_over_what_the_log_lacks_is_refused():
    with pytest.raises(ValueError, match="target: the policy reads `observation`, which this log"):
        oj.with_policies(log(), target=Softmax(LINEAR), behavior=Tabular(OTHER))


def test_ratios_of_probabilities_too_small_for_float32():
    values = np.array([[0.0, -200.0, -400.0]] * 6, np.float32)  # exp(-200) is 0 in float32
    batch = log(values)
    filled = oj.with_policies(
        batch, target=Softmax(lambda x: x, 1.0), behavior=Softmax(lambda x: x, 2.0)
    )
    q = np.array([0.0, -200.0, -400.0])
    for i, actions in enumerate(LOGGED_ACTIONS):
        found = filled.log_ratio[i, : len(actions)]
        np.testing.assert_allclose(found, (q - q / 2)[actions], rtol=1e-6, atol=1e-6)
    swapped = oj.with_policies(
        batch, target=Softmax(lambda x: x, 2.0), behavior=Softmax(lambda x: x, 1.0)
    )
    np.testing.assert_allclose(swapped.log_ratio, -np.asarray(filled.log_ratio), rtol=1e-6)
    np.testing.assert_allclose(swapped.log_ratio[1, 0], 200.0, rtol=1e-6)
