"""A fitted network comes near a Q that is known."""

import jax
import numpy as np
import pytest
from jax import random
from oracles import networks as oracle_nnq

import osiris_jax as oj
from osiris_jax.models.neural import fit_q, q_table

STATIC = ("weighting", "hidden", "layers", "steps", "minibatch", "standardize", "inputs")

compiled_fit = jax.jit(fit_q, static_argnames=STATIC)

BEHAVIOR, TARGET = np.full(3, 1 / 3), np.array([0.4, 0.35, 0.25])

REWARD = np.array([[-0.2, 0.0, 0.2], [0.2, 0.0, -0.2]])


def two_steps(size, *, level=0.0, unit=1.0):
    """Episodes: state 0, then state 1, then the end; three actions, logged uniformly."""
    rng = np.random.default_rng(0)
    data = []
    for _ in range(size):
        actions = rng.integers(3, size=2)
        rewards = REWARD[[0, 1], actions] + rng.uniform(-0.2, 0.2, 2)
        data.append(
            {
                "states": np.array([0, 1]),
                "actions": actions,
                "rewards": np.array([0, level]) + unit * rewards,
                "log_ratio": np.log(TARGET / BEHAVIOR)[actions],
            }
        )
    return data


def q_of_two_steps(policy, *, level=0.0, unit=1.0):
    """Q of a policy, [state, action]."""
    return level + unit * np.array([REWARD[0] + policy @ REWARD[1], REWARD[1]])


def standard_errors(data, weighting):
    """Of the mean target in every [state, action]."""
    samples = [[[] for _ in range(3)] for _ in range(2)]
    for traj in data:
        for t, value in enumerate(oracle_nnq.targets(traj, weighting, 1.0)):
            samples[t][traj["actions"][t]].append(value)
    return np.array([[np.std(x, ddof=1) / np.sqrt(len(x)) for x in row] for row in samples])


@pytest.mark.parametrize(("layers", "x64"), [(0, True), (1, False)])
def test_a_known_q_is_recovered(layers, x64):
    """No error exceeds 1, so Huber's minimum is each cell's mean, which errs by its std. error."""
    data, q = two_steps(300), q_of_two_steps(TARGET)
    with jax.enable_x64(x64):
        batch = oj.from_episodes(data)
        fit = compiled_fit(random.key(0), batch, weighting="future", layers=layers, steps=3000)
        fitted, loss = np.asarray(q_table(fit)), np.asarray(fit.loss)
    bound = 5 * standard_errors(data, "future")
    assert np.ptp(q, axis=1).min() > 3 * bound.max()
    assert np.all(np.abs(fitted - q) < bound)
    assert loss[-100:].mean() < loss[:100].mean()


def test_large_returns_need_standardised_targets():
    """Adam moves a weight by 1e-3 a step, and 500 steps do not reach a Q of 600."""
    size = {"level": 600.0, "unit": 100.0}
    data, q = two_steps(300, **size), q_of_two_steps(BEHAVIOR, **size)
    batch = oj.from_episodes(data)
    raw, scaled = (
        q_table(compiled_fit(random.key(0), batch, standardize=standardize))
        for standardize in (False, True)
    )
    assert np.all(np.abs(raw) < 0.1 * q)
    assert np.all(np.abs(scaled - q) < 5 * standard_errors(data, "none"))
