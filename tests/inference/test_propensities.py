"""Propensities against their log: definitions by loops, level where they are right, power."""

import math

import numpy as np
import pytest
from datasets import poisoned
from oracles import propensities as oracle_checks

import osiris_jax as oj
from osiris_jax.inference.propensities import check_propensities

STATES, ACTIONS, STEPS = 3, 3, 8


def draw_episodes(seed, number, *, hidden=0.0, wrong=0.0):
    """Episodes whose behaviour may follow a hidden bit, or have other propensities logged."""
    rng = np.random.default_rng(seed)
    logits, tilt, pull = rng.normal(size=(3, STATES, ACTIONS))

    def policy(x):
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    logged, target = policy(logits + wrong * tilt), policy(logits + 0.5 * tilt)
    episodes = []
    for _ in range(number):
        steps = rng.integers(1, STEPS + 1)
        states = rng.integers(STATES, size=steps)
        really = policy(logits + hidden * rng.choice([-1, 1]) * pull)
        actions = np.array([rng.choice(ACTIONS, p=really[s]) for s in states])
        episodes.append(
            {
                "states": states,
                "actions": actions,
                "rewards": rng.normal(size=steps),
                "behavior_probs": logged[states],
                "target_probs": target[states],
            }
        )
    return episodes


def load(episodes):
    return oj.from_episodes(episodes, num_states=STATES, num_actions=ACTIONS)


@pytest.mark.parametrize("seed", range(5))
def test_both_checks_by_loops(seed, double):
    episodes = draw_episodes(seed, 60, hidden=0.5, wrong=0.3)
    found = check_propensities(load(episodes))
    mean, error = oracle_checks.mean_ratio(episodes)
    assert found.mean_ratio == pytest.approx(mean, rel=1e-9)
    assert found.mean_ratio_error == pytest.approx(error, rel=1e-9)
    assert found.repeats == pytest.approx(oracle_checks.repeats(episodes), rel=1e-9)


def test_propensities_of_the_logged_actions_are_enough(double):
    """Where they depend on state and action alone, and all actions were seen in all states."""
    episodes = draw_episodes(3, 200, hidden=0.5)
    whole = check_propensities(load(episodes)).repeats
    for episode in episodes:
        rows = np.arange(len(episode["actions"]))
        for name in ("behavior", "target"):
            episode[f"{name}_prob"] = episode.pop(f"{name}_probs")[rows, episode["actions"]]
    batch = load(episodes)
    assert check_propensities(batch).repeats == pytest.approx(whole, rel=1e-9)
    other = batch.behavior_log_prob.at[0, 0].add(-0.1)
    assert check_propensities(batch.replace(behavior_log_prob=other)).repeats is None


def test_what_cannot_be_told_is_none(double):
    batch = load(draw_episodes(0, 60))
    assert check_propensities(batch.replace(log_ratio=None)) is None
    for field in ("state", "action"):
        assert check_propensities(batch.replace(**{field: None})).repeats is None
    unknown = batch.replace(behavior_probs=None, behavior_log_prob=None)
    assert check_propensities(unknown).repeats is None
    assert check_propensities(load(draw_episodes(0, 5))).repeats is None


def test_padding_never_matters(double):
    batch = load(draw_episodes(1, 60, hidden=0.5))
    assert check_propensities(poisoned(oj.pad_to(batch, 20))) == check_propensities(batch)


def test_right_propensities_pass():
    """300 logs: both statistics have mean 0 and variance 1 within 4 standard errors."""
    number = 300
    found = [check_propensities(load(draw_episodes([7, i], 80))) for i in range(number)]
    ratio = np.array([(one.mean_ratio - 1) / one.mean_ratio_error for one in found])
    repeats = np.array([one.repeats for one in found])
    for z in (ratio, repeats):
        assert abs(z.mean()) < 4 / math.sqrt(number)
        assert abs((z**2).mean() - 1) < 4 * math.sqrt(2 / number)


def test_a_hidden_cause_shows_in_repeats_and_wrong_propensities_in_ratios():
    hidden = check_propensities(load(draw_episodes(0, 1000, hidden=1.0)))
    assert hidden.repeats > 6
    wrong = check_propensities(load(draw_episodes(0, 400, wrong=1.0)))
    assert abs(wrong.mean_ratio - 1) > 6 * wrong.mean_ratio_error
