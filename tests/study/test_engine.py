"""How a study is divided into workers and groups, and that this changes nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

import osiris_jax as oj
from osiris_jax.core.random_streams import uniforms
from osiris_jax.data.policies import choose
from osiris_jax.study import source
from osiris_jax.study.engine import Engine
from osiris_jax.study.kernel import estimates_of, of_data_set
from osiris_jax.study.source import DataSets, keys_of
from osiris_jax.worlds.tabular import passed_from

ESTIMATORS = ("is", "wis", "phwis", "incris", "mis", "osiris", "osirwis")
TRIALS = np.arange(24, dtype=np.uint32)


@pytest.fixture(autouse=True, scope="module")
def _lengths_as_with_many_trials():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("osiris_jax.study.source.MANY_TRIALS", 0)
        yield


def study(world="dilly-dallying", **changes):
    settings = {"sizes": (7,), "alphas": (0.3, 0.05, 1.0), "estimators": ESTIMATORS, "seed": 3}
    return oj.Study(world=world, trials=len(TRIALS), **settings | changes)


def by_one_call(plan, trials):
    """All data sets in one vmapped call, at the length of the longest of all."""
    keys = keys_of(plan.seed, trials)
    batch = plan.world.rollout(keys, max(plan.sizes))
    compute = partial(of_data_set, estimates_of(plan))
    return np.asarray(jax.jit(jax.vmap(compute))(DataSets(keys, batch, None)))


@pytest.fixture(scope="module")
def plan():
    return study()


@pytest.fixture(scope="module")
def values(plan):
    return Engine(plan).values(TRIALS)


@pytest.fixture(scope="module")
def lengths(plan):
    engine = Engine(plan)
    engine.values(TRIALS)
    return engine._lengths


def test_groups_are_one_call(plan, values):
    expected = by_one_call(plan, TRIALS)
    np.testing.assert_allclose(values, expected, rtol=2e-4, atol=2e-4)
    assert np.ptp(values, axis=0).min() > 0


def test_groups_are_one_call_in_double(double):
    plan = study(dtype="float64", sizes=(3, 7), estimators=("mis", "osirwis"))
    found, expected = Engine(plan).values(TRIALS), by_one_call(plan, TRIALS)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("number", [1, 3])
def test_neither_workers_nor_chunks_change_a_value(plan, values, number):
    engine = Engine(plan)
    engine.workers = engine.workers[:1] * number
    parts = [engine.values(TRIALS[:10]), engine.values(TRIALS[10:])]
    np.testing.assert_array_equal(np.concatenate(parts), values)
    np.testing.assert_array_equal(engine.values(TRIALS[::-1])[::-1], values)


def test_every_data_set_is_in_one_group_that_holds_it(plan, lengths, monkeypatch):
    monkeypatch.setattr("osiris_jax.study.engine.CELLS_IN_CACHE", 7 * 48 * 3)
    engine = Engine(plan)
    engine._lengths = lengths
    longest = engine.source.draw(keys_of(plan.seed, TRIALS), engine.workers[0]).longest
    groups = list(engine._groups(longest))
    assert sorted(np.concatenate([members for members, _ in groups])) == TRIALS.tolist()
    for members, steps in groups:
        assert len(members) <= engine._group_size(steps)
        shorter = [length for length in engine._lengths if length < steps]
        assert (longest[members] <= steps).all()
        assert (longest[members] > max(shorter, default=0)).all()
    assert len(groups) > 3
    assert engine._lengths[-1] == plan.world.horizon


@pytest.mark.parametrize("asked", [TRIALS[:1], TRIALS[:5], TRIALS[9:], TRIALS[::-1]])
def test_lengths_do_not_depend_on_the_trials_that_are_asked_for(plan, lengths, asked):
    engine = Engine(plan)
    engine.values(asked)
    assert engine._lengths == lengths


def test_few_trials_have_few_lengths(plan, lengths, monkeypatch):
    monkeypatch.setattr("osiris_jax.study.source.MANY_TRIALS", plan.trials + 1)
    engine = Engine(plan)
    engine.values(TRIALS)
    assert engine._lengths is not None
    assert set(engine._lengths) < set(lengths)
    assert engine._lengths[-1] == plan.world.horizon


@pytest.fixture(scope="module")
def lingering():
    """A state that is left with a chance of 1 in 20: no trajectory comes near the horizon."""
    stay = [0.95, 0.05]
    transition, reward = np.array([[stay, stay], np.eye(2)[[1, 1]]]), np.array([[1.0, -1], [0, 0]])
    behavior, target = np.full((2, 2), 0.5), np.tile([0.6, 0.4], (2, 1))
    return oj.TabularWorld(transition, reward, 0, behavior, target, horizon=600)


def test_each_data_set_is_simulated_once(lingering, monkeypatch):
    asked, simulated = [], []
    simulate, steps_needed = source._simulate, lingering.steps_needed

    def counted(leaves, keys, discount, **settings):
        simulated.append(len(keys))
        return simulate(leaves, keys, discount, **settings)

    def told(keys, size):
        asked.append(len(keys))
        return steps_needed(keys, size)

    monkeypatch.setattr("osiris_jax.study.source.PILOT_TRIALS", 12)
    monkeypatch.setattr(source, "_simulate", counted)
    monkeypatch.setattr(lingering, "steps_needed", told)
    engine = Engine(study(lingering, estimators=("wis", "osirwis")))
    engine.workers = engine.workers[:1]
    for part in (TRIALS[:12], TRIALS[12:]):
        engine.values(part)
    assert simulated == [12, 12]
    assert asked == [source.ASKED_FOR_LENGTHS]


def test_a_length_that_was_guessed_too_short_changes_nothing(lingering):
    plan = study(lingering, estimators=("wis", "osirwis"))
    expected = Engine(plan).values(TRIALS)
    misled = Engine(plan)
    misled.source.__dict__["steps_needed"] = 4
    np.testing.assert_array_equal(misled.values(TRIALS), expected)
    assert max(misled._lengths) == lingering.horizon


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_random_numbers_are_those_of_jax(kind):
    keys = random.split(random.key(7, impl=kind), 5)
    blocks = jnp.asarray([0, 1, 2, 77, 2**20], jnp.int32)
    found = jax.vmap(lambda key, block: uniforms(key, block, 16))(keys, blocks)
    expected = [
        random.uniform(random.fold_in(key, block), (16,), jnp.float32)
        for key, block in zip(keys, blocks, strict=True)
    ]
    if kind == "threefry2x32":
        np.testing.assert_array_equal(found, jnp.stack(expected))
    assert found.dtype == jnp.float32
    assert ((found >= 0) & (found < 1)).all()


@pytest.mark.parametrize("num_actions", [1, 2, 5, 25])
def test_a_table_of_what_is_passed_is_choose(num_actions):
    rng = np.random.default_rng(num_actions)
    weight = rng.random((40, num_actions)) * (rng.random((40, num_actions)) < 0.6)
    weight[:, rng.integers(num_actions)] += 0.01
    probs = jnp.asarray(weight / weight.sum(1, keepdims=True), jnp.float32)
    uniform = jnp.concatenate([jnp.linspace(0, 1, 200, endpoint=False), jnp.cumsum(probs[0])[:-1]])
    uniform = uniform.astype(jnp.float32)
    found = (passed_from(probs)[:, None] <= uniform[None, :, None]).sum(-1)
    expected = jax.vmap(lambda p: jax.vmap(partial(choose, p))(uniform))(probs)
    np.testing.assert_array_equal(found, expected)
    assert (np.take_along_axis(np.asarray(probs), np.asarray(found), 1) > 0).all()
