"""What relevance means: the size of the tests under each weighting, and their power."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import osiris_jax as oj

TRIALS, SIZE = 2000, 200
ACTION_PROBS = np.array([0.5, 0.5])
TARGET_PROBS = np.array([0.2, 0.8])


def bandits(effect):
    """Independent one-step data sets: reward 1 + effect * action + noise, [trial, traj, time]."""
    rng = np.random.default_rng(0)
    action = rng.choice(2, p=ACTION_PROBS, size=(TRIALS, SIZE, 1))
    reward = rng.normal(1 + effect * action)
    return oj.TrajectoryBatch(
        reward=jnp.asarray(reward, jnp.float32),
        mask=jnp.ones(action.shape, bool),
        log_ratio=jnp.asarray(np.log(TARGET_PROBS / ACTION_PROBS)[action], jnp.float32),
        action=jnp.asarray(action),
        state=jnp.zeros(action.shape, jnp.int32),
        num_states=1,
        num_actions=2,
    )


@cache
def pvalues(effect, **options):
    """[trial, state]"""
    return jax.vmap(lambda batch: oj.relevance_pvalues(batch, **options))(bandits(effect))


def rejection_rate(effect, alpha, **options):
    return float((pvalues(effect, **options) <= alpha).mean())


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.25])
@pytest.mark.parametrize("test", ["welch", "smirnov"])
def test_future_and_no_weights_keep_the_level(test, alpha):
    """With no effect the rejection rate is alpha; exact Smirnov, being discrete, is below."""
    error = np.sqrt(alpha * (1 - alpha) / TRIALS)
    for weighting in ("future", "none"):
        rate = rejection_rate(0.0, alpha, test=test, weighting=weighting)
        assert rate < alpha + 4 * error
        assert test == "smirnov" or rate > alpha - 4 * error


def test_weights_to_go_reject_a_true_null():
    """Algorithm 1 as printed compares rho(a) Q(s, a): even a constant Q is found relevant."""
    assert rejection_rate(0.0, 0.05, weighting="to-go") == 1.0


def test_an_effect_is_found():
    assert rejection_rate(1.0, 0.05, weighting="future") > 0.99
