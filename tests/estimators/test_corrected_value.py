"""The chain's value corrected by the trajectories, against loops over ragged lists."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, load, poisoned, random_data
from hypothesis import given
from hypothesis import strategies as st
from oracles import selection as slow

import osiris_jax as oj
from osiris_jax.pipeline.selection import corrected_value

_corrected_value = jax.jit(corrected_value)


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
    found = float(_corrected_value(poisoned(load(data)), by_state, discount))
    expected = float(slow.corrected_value(data, by_state, discount))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_all_three_cases_of_shrinkage_occur(double):
    """Nothing left, something left, undefined: the cases that the loops above are to cover."""
    left = []
    for seed in range(60):
        data = random_data(seed, 6, zeros=0.2)
        correction, squared_error = slow.correction(data, np.full(NUM_STATES, 3.0), 1.0)
        left.append(correction if np.isnan(correction) else slow.shrunk(correction, squared_error))
    left = np.array(left, float)
    assert np.isnan(left).any()
    assert (left == 0).any()
    assert (np.abs(left) > 0.1).sum() > 10


def test_right_values_are_hardly_corrected_and_wrong_ones_are(double):
    """In waiting-room, from V of the target and from a V that is 0 everywhere."""
    world = oj.make("waiting-room")
    exact = world.exact()
    batch = world.rollout(jax.random.key(0), 2000)
    right = float(_corrected_value(batch, jnp.asarray(exact.state_values("target")), 1.0))
    wrong = float(_corrected_value(batch, jnp.asarray(exact.state_values("target") + 5), 1.0))
    assert right == pytest.approx(exact.value, abs=0.15)
    assert wrong == pytest.approx(exact.value, abs=0.5)
