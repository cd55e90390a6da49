"""The batch as a pytree, and how its shape is changed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_from_episodes import assert_same, good

import osiris_jax as oj

LENGTHS = range(1, 5001)
ARRAYS = 9  # fields that are arrays when every one is present


def stacked(count):
    """Several batches, [trial, traj, time], whose rewards are 1, 2, ... times the first's."""
    batch = oj.from_episodes(good())
    trials = [batch.replace(reward=batch.reward * (k + 1)) for k in range(count)]
    return jax.tree.map(lambda *fields: jnp.stack(fields), *trials)


# ----------------------------------------------------------------------------------- shapes


def test_padding_adds_zeros_outside_the_mask_and_trim_takes_them_away():
    batch = oj.from_episodes(good())
    padded = oj.pad_to(batch, 7)
    for field in jax.tree.leaves(padded):
        assert field.shape[:2] == (2, 7)
        assert not np.any(field[:, 3:])
    assert padded.lengths.tolist() == [3, 2]
    assert_same(oj.trim(padded), batch)
    assert_same(oj.trim(batch), batch)
    assert_same(oj.pad_to(batch, 3), batch)


def test_trim_does_not_look_into_the_padding():
    padded = oj.pad_to(oj.from_episodes(good()), 7)
    dirty = padded.replace(reward=jnp.where(padded.mask, padded.reward, jnp.nan))
    reward = oj.trim(dirty).reward
    np.testing.assert_array_equal(reward, [[1, 0, -2], [0.5, 3, np.nan]])


def test_padding_never_cuts():
    with pytest.raises(ValueError, match=r"^steps: 2 is below the batch's 3 steps"):
        oj.pad_to(oj.from_episodes(good()), 2)


def test_buckets_hold_waste_little_rise_and_are_few():
    buckets = np.array([oj.bucket_length(steps) for steps in LENGTHS])
    steps = np.array(LENGTHS)
    assert np.all(buckets >= steps)
    assert np.all((buckets - steps)[steps >= 4] < 0.25 * buckets[steps >= 4])
    assert np.all(np.diff(buckets) >= 0)
    distinct = np.unique(buckets)
    assert distinct[:10].tolist() == [4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    assert len(distinct) == 42
    assert [oj.bucket_length(int(bucket)) for bucket in distinct] == distinct.tolist()


@pytest.mark.parametrize("steps", [3, 4, 9])
def test_pad_to_bucket_trims_first(steps):
    batch = oj.from_episodes(good())
    assert_same(oj.pad_to_bucket(oj.pad_to(batch, steps)), oj.from_episodes(good(), bucket=True))


# ------------------------------------------------------------------------------------- type


def test_arrays_are_leaves_and_sizes_are_static():
    batch = oj.from_episodes(good())
    assert len(jax.tree.leaves(batch)) == ARRAYS
    assert len(jax.tree.leaves(oj.from_episodes(good(drop=["states", "log_ratio"])))) == ARRAYS - 1
    assert_same(jax.tree.map(lambda x: x, batch), batch)
    assert jax.tree.structure(batch) != jax.tree.structure(batch.replace(num_states=9))


def test_a_bare_batch_has_no_ids():
    batch = oj.TrajectoryBatch(reward=jnp.ones((2, 3)), mask=jnp.ones((2, 3), bool))
    assert (batch.num_states, batch.num_actions) == (0, 0)
    assert repr(batch).endswith("without log_ratio, state, action, observation)")


def test_vmap_runs_over_stacked_batches():
    def total(batch):
        assert batch.mask.shape == (2, 3)
        assert batch.num_states == 4
        return jnp.where(batch.mask, batch.reward, 0).sum(), batch.lengths

    totals, lengths = jax.vmap(total)(stacked(3))
    np.testing.assert_allclose(totals, [2.5, 5, 7.5])
    np.testing.assert_array_equal(lengths, [[3, 2]] * 3)
    np.testing.assert_array_equal(stacked(3).lengths, lengths)


def test_replace_copies():
    batch = oj.from_episodes(good())
    changed = batch.replace(reward=batch.reward + 1, num_states=9)
    np.testing.assert_array_equal(changed.reward - batch.reward, 1)
    assert (changed.num_states, batch.num_states) == (9, 4)
    assert changed.state is batch.state
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.reward = changed.reward
    with pytest.raises(TypeError, match="rewards"):
        batch.replace(rewards=batch.reward)


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("log_ratio", "behavior_prob and target_prob, or with log_ratio, .*with_policies"),
        ("state", "with states, .*with_states"),
        ("action", "with actions"),
        ("observation", "with observations"),
        ("target_probs", "with target_probs, .*with_policies"),
        ("behavior_probs", "with behavior_probs, .*with_policies"),
        ("behavior_log_prob", "with_policies"),
    ],
)
def test_require_says_what_needs_a_field_and_how_to_supply_it(field, remedy):
    batch = oj.from_episodes(good())
    assert batch.require(field, "this test") is getattr(batch, field)
    with pytest.raises(ValueError, match=f"^this test needs `{field}`, .*lacks: .*{remedy}"):
        batch.replace(**{field: None}).require(field, "this test")


def test_repr_says_size_and_what_is_absent():
    full = oj.from_episodes(good())
    assert repr(full) == "TrajectoryBatch(2x3 steps, num_states=4, num_actions=3, float32)"
    bare = full.replace(log_ratio=None, observation=None)
    assert repr(bare).endswith("float32, without log_ratio, observation)")
    assert repr(stacked(5)).startswith("TrajectoryBatch(5x2x3 steps")
    assert repr(jax.eval_shape(lambda batch: batch, full)) == repr(full)
    assert "'reward': 0" in repr(jax.tree.map(lambda _: 0, full))  # as vmap's in_axes
