"""A process that evaluates many logs: few compilations, released code, the same numbers."""

import functools
import gc
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data

import osiris_jax as oj
from osiris_jax.batch import bucket_length
from osiris_jax.core import compiled
from osiris_jax.inference.welch import plan_sizes

MAPS = Path("/proc/self/maps")
FEW = {"resamples": 20, "methods": "percentile"}


@pytest.fixture
def compilations(all_kept):
    """The seconds of every program that XLA compiled, or a cache on disk had."""
    found = []

    def listen(event, seconds, **_):
        if event.startswith("/jax/core/compile/backend_compile"):
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


def log(seed, size=30, max_steps=6, num_states=NUM_STATES):
    data = random_data(seed, size, max_steps=max_steps)
    return oj.pad_to(oj.from_episodes(data, num_states=num_states), max_steps)


def test_a_second_log_of_the_same_shape_compiles_nothing(compilations):
    oj.evaluate(log(0), ["osirwis", "wis"], **FEW)
    assert compilations
    for seed in (1, 2, 3):
        del compilations[:]
        batch = log(seed)
        oj.evaluate(batch, ["osirwis", "wis"], **FEW)
        assert not compilations, seed


def test_logs_of_nearby_lengths_and_numbers_of_states_share_intervals(compilations):
    assert bucket_length(9) == bucket_length(10) == 10
    first, other = log(0, max_steps=9, num_states=9), log(1, max_steps=10, num_states=10)
    oj.intervals(first, ["osirwis"], **FEW)
    del compilations[:]
    oj.intervals(other, ["osirwis"], **FEW)
    assert not compilations


ALL = ["osirwis", "osiris", "osiris-mis", "wis", "cwpdis", "mc"]


@pytest.mark.parametrize(
    ("relevance", "names"), [("welch", ALL), ("smirnov", ["osirwis"]), ("effect", ["osirwis"])]
)
def test_padded_shapes_change_no_number(relevance, names, double):
    """Against the estimate and the test of the log as it is."""
    batch = oj.trim(log(5, max_steps=11, num_states=NUM_STATES))
    steps = batch.mask.shape[1]
    assert bucket_length(steps) > steps
    level = {"threshold": 0.2} if relevance == "effect" else {"alpha": 0.3}
    found = oj.intervals(batch, names, relevance=relevance, discount=0.9, **level, **FEW)
    for name in names:
        own = level | {"relevance": relevance} if name.startswith("osir") else {}
        value = oj.estimate(batch, name, discount=0.9, **own)
        np.testing.assert_allclose(found[name].value, value, rtol=1e-12)
        defined = found[name].resampled
        assert np.isfinite(defined).all()
    evaluated = oj.evaluate(batch, names, relevance=relevance, discount=0.9, **level, **FEW)
    for row in evaluated.rows:
        np.testing.assert_allclose(row.value, found[row.estimator].value, rtol=1e-12)
        expected = found[row.estimator].intervals["percentile"]
        np.testing.assert_allclose(row.intervals["percentile"], expected, rtol=1e-9)
    assert len(evaluated.states.visits) == NUM_STATES
    assert evaluated.settings["states"] == NUM_STATES
    assert evaluated.settings["steps"] == int(batch.mask.sum())


@pytest.mark.parametrize("groups", [10, 100, 5000])
def test_sizes_hold_the_data_and_are_few(groups):
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(20):
        by_group = rng.integers(0, 300, size=(1, groups))
        blocks, columns, few = plan_sizes(by_group, 300, 4, 2**29)
        assert columns >= (by_group > few).sum()
        assert blocks >= np.where(by_group > few, 0, -(-by_group // 8)).sum()
        found.add((blocks, columns, few))
    assert len(found) == 1


def rising(x, *, power):
    """A kernel to compile for many shapes."""
    for _ in range(4):
        x = jnp.sort(jnp.sin(x)[::-1] * power).cumsum()
    return x


@pytest.fixture
def no_other_kernels(monkeypatch):
    """Releases what a test compiles itself, and not what later tests share with earlier ones."""
    monkeypatch.setattr(compiled, "_EVERY", weakref.WeakSet())


def test_what_was_compiled_is_released(monkeypatch, no_other_kernels):
    monkeypatch.setattr(compiled, "MOST_PROGRAMS", 10)
    kernel = compiled.compiled(rising, static_argnames="power")
    theirs = jax.jit(functools.partial(rising, power=3))
    theirs(np.ones(5, np.float32))
    expected = np.asarray(rising(jnp.ones(3), power=2))
    most, released = 0, 0
    for size in range(3, 40):
        before = compiled.programs()
        value = kernel(np.ones(size, np.float32), power=2)
        most, released = max(most, compiled.programs()), released + (compiled.programs() < before)
        if size == 3:
            np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert most <= compiled.MOST_PROGRAMS
    assert released >= 1
    assert theirs._cache_size() == 1


def test_what_takes_many_pieces_of_memory_is_released(monkeypatch, no_other_kernels):
    """However few programs that is: those of a study with many estimators are large."""
    kernel = compiled.compiled(rising, static_argnames="power")
    monkeypatch.setattr(compiled, "MOST_PIECES", compiled.pieces() // 2)
    for size in range(3, 6):
        kernel(np.ones(size, np.float32), power=2)
        assert compiled.programs() == 0
    monkeypatch.setattr(compiled, "MOST_PIECES", 10**9)
    kernel(np.ones(9, np.float32), power=2)
    assert compiled.programs() == 1


def test_released_code_is_unmapped(no_other_kernels):
    """As Linux counts it."""

    def maps():
        gc.collect()
        return len(MAPS.read_text().splitlines())

    kernel = compiled.compiled(rising, static_argnames="power")
    start = maps()
    for size in range(3, 23):
        kernel(np.ones(size, np.float32), power=2)
    held = maps() - start
    assert held > 40
    compiled.release_all()
    assert maps() - start < held / 4
