"""The chain's value corrected by the trajectories, against loops over ragged lists."""

import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, poisoned, random_data
from hypothesis import given
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.pipeline.selection import corrected_value


def corrected(data, by_state, discount):
    """(mean V of the first states, correction, its squared standard error), by loops."""
    number, horizon = len(data), max(len(traj["rewards"]) for traj in data)
    correction, influence = 0.0, np.zeros(number)
    for t in range(horizon):
        weight, surprise = np.zeros(number), np.zeros(number)
        for i, traj in enumerate(data):
            weight[i] = np.prod(np.exp(traj["log_ratio"][: t + 1]))  # after the end, the final one
            if t < len(traj["rewards"]):
                ended = t + 1 == len(traj["rewards"])
                following = 0.0 if ended else by_state[traj["states"][t + 1]]
                surprise[i] = traj["rewards"][t] + discount * following
                surprise[i] -= by_state[traj["states"][t]]
        if weight.sum() == 0:
            return np.mean([by_state[traj["states"][0]] for traj in data]), np.nan, np.nan
        mean = (weight * surprise).sum() / weight.sum()
        correction += discount**t * mean
        influence += discount**t * weight / weight.sum() * (surprise - mean)
    first = np.mean([by_state[traj["states"][0]] for traj in data])
    return first, correction, (influence**2).sum()


def shrunk(correction, squared_error):
    """James and Stein: nothing is left of a correction below its standard error."""
    if np.isnan(correction) or correction**2 <= 2 * squared_error:
        return 0.0
    return correction - 2 * squared_error / correction


def padded(data):
    return poisoned(oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES, num_actions=3), 16))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 6]),
    st.sampled_from([1.0, 0.8, 0.0]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 3.0]),
)
def test_it_is_what_the_loops_say(double, seed, size, discount, zeros, shift):
    data = random_data(seed, size, zeros=zeros)
    by_state = np.random.default_rng(seed).normal(shift, size=NUM_STATES)
    first, correction, squared_error = corrected(data, by_state, discount)
    found = float(corrected_value(padded(data), jnp.asarray(by_state), discount))
    assert found == pytest.approx(first + shrunk(correction, squared_error), rel=1e-9, abs=1e-9)


def test_all_three_cases_of_shrinkage_occur(double):
    """Nothing left, something left, undefined: the cases that the loops above are to cover."""
    left = []
    for seed in range(60):
        data = random_data(seed, 6, zeros=0.2)
        _, correction, squared_error = corrected(data, np.full(NUM_STATES, 3.0), 1.0)
        left.append(np.nan if np.isnan(correction) else shrunk(correction, squared_error))
    left = np.array(left)
    assert np.isnan(left).any()
    assert (left == 0).any()
    assert (np.abs(left) > 0.1).sum() > 10


def test_right_values_are_hardly_corrected_and_wrong_ones_are(double):
    """In waiting-room, from V of the target and from a V that is 0 everywhere."""
    import jax

    world = oj.make("waiting-room")
    exact = world.exact()
    batch = world.rollout(jax.random.key(0), 2000)
    right = float(corrected_value(batch, jnp.asarray(exact.state_values("target")), 1.0))
    wrong = float(corrected_value(batch, jnp.asarray(exact.state_values("target") + 5), 1.0))
    assert right == pytest.approx(exact.value, abs=0.15)
    assert wrong == pytest.approx(exact.value, abs=0.5)
