"""A study's step on accelerators, forced on CPU devices: the values, and what they depend on."""

import dataclasses
import threading

import jax
import numpy as np
import pytest
from small_world import lean_study, small_study

import osiris_jax as oj
from osiris_jax.core import platforms
from osiris_jax.study import mesh, run, source
from osiris_jax.study.chunks import Chunks
from osiris_jax.study.engine import Engine
from osiris_jax.study.mesh import OnMesh
from osiris_jax.study.store import FolderStore

TRIALS = np.arange(20, dtype=np.uint32)
ESTIMATORS = ("is", "wis", "phwis", "rcis", "incris", "mis", "dm", "wdr", "osiris", "osirwis")


def everything(**changes):
    """Estimators of every kind and both tests in a small world."""
    settings = {"estimators": (*ESTIMATORS, "osiris-stepwise", "on-policy"), "sizes": (7,)}
    settings |= {"relevance": ("welch",), "discount": 0.9}
    return dataclasses.replace(small_study(), **settings | changes)


@pytest.fixture(scope="module")
def plan():
    return everything()


@pytest.fixture(scope="module")
def expected(plan):
    return Engine(plan).values(TRIALS)


def assert_close(found, expected, float_type="float32"):
    rounding = 2e-4 if float_type == "float32" else 1e-10
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding)


def on_mesh(plan):
    return OnMesh(plan, jax.local_devices()[:1])


@pytest.mark.parametrize("platform", [None, "cuda", "tpu"])
def test_values_are_those_of_a_cpu(plan, expected, platform, monkeypatch):
    """In the forms of each platform."""
    monkeypatch.setattr(platforms, "ASSUMED", platform)
    assert_close(on_mesh(plan).begin(TRIALS)(), expected)
    assert np.ptp(expected, axis=0).min() > 0


@pytest.fixture(scope="module")
def in_double():
    """A plan in float64 and its values on a CPU."""
    tests, estimators = ("welch", "smirnov"), ("wdr", "osirwis")
    plan = everything(dtype="float64", relevance=tests, estimators=estimators)
    with jax.enable_x64(True):
        return plan, Engine(plan).values(TRIALS)


@pytest.mark.parametrize("platform", [None, "tpu"])
def test_values_are_those_of_a_cpu_in_double(platform, in_double, monkeypatch, double):
    plan, expected = in_double
    monkeypatch.setattr(platforms, "ASSUMED", platform)
    assert_close(on_mesh(plan).begin(TRIALS)(), expected, "float64")


def test_what_a_program_does_not_hold_the_next_one_computes(monkeypatch):
    """The first is made for a tenth of the trials."""
    monkeypatch.setattr(source, "MANY_TRIALS", 0)
    monkeypatch.setattr(mesh, "SHARES_OF_LENGTHS", (0.1, 1.0))
    plan = dataclasses.replace(lean_study(), sizes=(2,))
    engine = on_mesh(plan)
    values = engine.begin(TRIALS)()
    assert len(engine.lengths) > 1
    assert set(engine._programs) == set(range(len(engine.lengths)))
    assert_close(values, Engine(plan).values(TRIALS))
    parts = [engine.begin(part)() for part in (TRIALS[:3], TRIALS[3:])]
    np.testing.assert_array_equal(np.concatenate(parts), values)


def test_a_call_fits_the_memory_of_a_device():
    plan = lean_study()
    roomy = on_mesh(plan)
    needed = roomy._program(0).memory()
    assert needed > 0
    tight = OnMesh(plan, jax.local_devices()[:1], memory=needed // 3)
    program = tight._program(0)
    assert program.trials < roomy._program(0).trials
    assert program.memory() <= needed // 3


def test_how_many_at_once_depends_on_the_study_alone():
    few, many = lean_study(), dataclasses.replace(lean_study(), trials=10**6)
    assert on_mesh(few).at_once(0) == mesh.LEAST_AT_ONCE
    wide = OnMesh(many, jax.local_devices()[:1], memory=2**40)
    assert wide.at_once(0) == 2 ** int(np.log2(mesh.LANES / many.sizes[0]))
    assert wide.keeps_values(2 * 10**6)
    assert not wide.keeps_values(10**4)
    assert on_mesh(few).keeps_values(20)
    assert not on_mesh(few).keeps_values(21)  # another pilot


def test_a_study_on_accelerators_runs_on_the_mesh(plan, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "are_accelerators", lambda devices: True)
    found = plan.run(out=tmp_path, chunk_size=8)
    np.testing.assert_allclose(found.store.values(), expected, rtol=2e-4, atol=2e-4)
    again = plan.run(out=tmp_path)
    np.testing.assert_array_equal(again.store.values(), found.store.values())


class Recorder:
    """An engine that tells what it is asked, of trials whose values are their numbers."""

    def __init__(self, cells, told, fails_at=None):
        self.cells, self.told, self.fails_at = cells, told, fails_at

    def most_trials(self, memory):
        return 4

    def keeps_values(self, trials):
        return True

    def begin(self, trials):
        chunk = int(trials[0]) // 4
        self.told.append(f"begin {chunk}")

        def values():
            if chunk == self.fails_at:
                raise KeyboardInterrupt
            self.told.append(f"read {chunk}")
            return np.tile(np.asarray(trials, float)[:, None], self.cells)

        return values


def test_a_chunk_is_begun_before_the_one_before_is_waited_for():
    study, told = lean_study(), []
    store = run.compute(study, Recorder(len(study.cells()), told))
    order = "begin 0, begin 1, read 0, begin 2, read 1, begin 3, read 2, begin 4, read 3, read 4"
    assert told == order.split(", ")
    np.testing.assert_array_equal(store.values()[:, 0], np.arange(20))


def test_chunks_are_written_in_a_thread_of_their_own_and_none_is_lost(tmp_path, monkeypatch):
    """The fourth chunk is interrupted; what was computed before is on disk, for the next run."""
    study, threads = lean_study(), set()
    write = FolderStore.write

    def writes(self, chunk, values):
        threads.add(threading.current_thread())
        write(self, chunk, values)

    monkeypatch.setattr(FolderStore, "write", writes)
    cells = len(study.cells())
    with pytest.raises(KeyboardInterrupt):
        run.compute(study, Recorder(cells, [], fails_at=3), out=tmp_path)
    assert threading.main_thread() not in threads
    chunks, told = Chunks(20, 4), []
    store = FolderStore(study, chunks, tmp_path)
    assert [store.has(chunk) for chunk in range(5)] == [True, True, True, False, False]
    seen = []
    run.compute(
        study, Recorder(cells, told), out=tmp_path, progress=lambda *step: seen.append(step)
    )
    assert told == ["begin 3", "begin 4", "read 3", "read 4"]
    assert seen == [("trials", done, 20) for done in (12, 16, 20)]


def test_a_world_that_is_played_keeps_the_engine_of_cpus(monkeypatch):
    monkeypatch.setattr(run, "are_accelerators", lambda devices: True)
    assert isinstance(run.engine_of(lean_study()), OnMesh)
    played = dataclasses.replace(lean_study(), world=Played())
    assert isinstance(run.engine_of(played), Engine)


class Played:
    """A world outside of JAX, as far as a plan looks at it."""

    name, horizon, size, num_states, num_actions = "played", 12, 5, 6, 2

    def rollout(self, *arguments, **options):
        return oj.make("waiting-room").rollout(*arguments, **options)
