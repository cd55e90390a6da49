"""Studies: every value recomputed one by one, summaries by hand, nothing lost on the way."""

import dataclasses
import errno
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest
from jax import random

import osiris_jax as oj
from osiris_jax.core.faces import to_json
from osiris_jax.core.files import is_abandoned, write_whole
from osiris_jax.models.networks import QNetwork
from osiris_jax.study import engine, experiment, run, store, summary
from osiris_jax.worlds.lunar_lander import LunarLander

ESTIMATORS = ("wis", "cwpdis:finished=drop", "on-policy", "osirwis", "osiris-pdis")
RELEVANCE = ("welch", "welch:weighting=none:ddof=0", "oracle", "true:tolerance=0.2")
OPTIONS = {"cwpdis:finished=drop": {"finished": "drop"}}


def small_world(target=None):
    """Six states in a line, two actions, some chance; the last state ends a trajectory."""
    rng = np.random.default_rng(1)
    transition = rng.dirichlet(np.ones(6), (6, 2))
    transition[-1] = np.eye(6)[-1]
    reward = rng.normal(size=(6, 2))
    reward[-1] = 0
    behavior = rng.dirichlet((4, 4), 6)
    target = rng.dirichlet((4, 4), 6) if target is None else target
    keep = np.array([1, 0, 1, 0, 1, 0], bool)
    return oj.TabularWorld(transition, reward, 0, behavior, target, horizon=12, oracle=keep)


@pytest.fixture(scope="module")
def study():
    return oj.Study(
        world=small_world(),
        trials=20,
        sizes=(5, 9),
        alphas=(0.1, 1.0),
        estimators=ESTIMATORS,
        relevance=RELEVANCE,
        discount=0.9,
        seed=3,
    )


@pytest.fixture(scope="module")
def lean(study):
    """The same with little to compile."""
    return dataclasses.replace(
        study, sizes=(5,), estimators=("wis", "osirwis"), relevance=("welch",)
    )


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    """A finished study in a folder."""
    out = tmp_path_factory.mktemp("study") / "run"
    study.run(out=out, chunk_size=8)
    return out


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the finished study, to be spoilt."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def by_cell(frame, trial):
    """(estimator, relevance, alpha, size) -> value of one trial."""
    rows = frame[frame.trial == trial].replace({np.nan: None})
    keys = zip(rows.estimator, rows.relevance, rows.alpha, rows["size"], strict=True)
    return dict(zip(keys, rows.value, strict=True))


def test_every_value_is_that_of_estimate_on_the_trial_s_own_data(study, folder):
    frame = study.run(out=folder).trials()
    assert len(frame) == 20 * len(study.cells())
    world, exact = study.world, study.world.exact(0.9)
    maps = {"oracle": world.oracle, "true:tolerance=0.2": exact.relevance(0.2)}
    weightings = {"welch": ("none", 1), "welch:weighting=none:ddof=0": ("none", 0)}
    for trial in (0, 13, 19):
        found = by_cell(frame, trial)
        key = random.fold_in(random.key(3), trial)
        for size in (5, 9):
            batch = world.rollout(key, size)
            for name in ("wis", "cwpdis:finished=drop"):
                plain = name.split(":")[0]
                value = oj.estimate(batch, plain, discount=0.9, **OPTIONS.get(name, {}))
                assert found.pop((name, None, None, size)) == pytest.approx(float(value), rel=1e-4)
            for name in ("osirwis", "osiris-pdis"):
                for test, (weighting, ddof) in weightings.items():
                    for alpha in (0.1, 1.0):
                        options = {"weighting": weighting, "ddof": ddof, "alpha": alpha}
                        value = oj.estimate(batch, name, discount=0.9, **options)
                        assert found.pop((name, test, alpha, size)) == pytest.approx(
                            float(value), rel=1e-4, abs=1e-5
                        )
                for test, keep in maps.items():
                    options = {"relevance": "oracle", "keep": keep, "alpha": 0.5}
                    value = oj.estimate(batch, name, discount=0.9, **options)
                    assert found.pop((name, test, None, size)) == pytest.approx(
                        float(value), rel=1e-4, abs=1e-5
                    )
        assert {key[0] for key in found} == {"on-policy"}


def test_on_policy_values_are_means_of_the_target_s_returns():
    world = small_world()
    frame = oj.Study(world=world, trials=400, sizes=(20,), estimators=("on-policy",)).run().trials()
    exact = world.exact()
    assert exact.behavior_value != pytest.approx(exact.value, rel=0.01)
    error = frame.value.std() / math.sqrt(len(frame))
    assert abs(frame.value.mean() - exact.value) < 4 * error


def test_the_summary_is_what_the_trials_say(study, folder):
    """Moments by NumPy; standard errors by the delta method, written out."""
    result = study.run(out=folder)
    table, trials = result.summary(), result.trials()
    truth = study.world.exact(0.9).value
    assert list(table.columns) == list(summary.COLUMNS)
    for _, row in table.replace({np.nan: None}).iterrows():
        same = trials.replace({np.nan: None})
        for field in ("estimator", "relevance", "alpha", "size"):
            same = same[[entry == row[field] for entry in same[field]]]
        x = same.value.to_numpy(float)
        assert len(x) == row.trials == 20
        assert row.truth == truth
        assert row["mean"] == pytest.approx(x.mean())
        assert row.bias == pytest.approx(x.mean() - truth)
        assert row["std"] == pytest.approx(x.std())
        assert row.rmse == pytest.approx(np.sqrt(((x - truth) ** 2).mean()))
        assert row.mean_se == row.bias_se == pytest.approx(x.std() / np.sqrt(20))
        spread, error = (x - x.mean()) ** 2, (x - truth) ** 2
        assert row.std_se == pytest.approx(spread.std() / np.sqrt(20) / (2 * x.std()))
        assert row.rmse_se == pytest.approx(error.std() / np.sqrt(20) / (2 * row.rmse))


def test_standard_errors_cover_what_repetition_shows():
    """3,000 summaries of 50 normal trials: the errors predict the spread of mean, std and RMSE."""
    rng = np.random.default_rng(0)
    rows = []
    one = oj.Study(world=small_world(), trials=50, sizes=(5,), estimators=("wis",))
    truth = summary.Truth(1.5, 0.0, 0)
    for _ in range(3000):
        values = rng.normal(1, 2, (50, 1))
        moments = summary.cell_moments(lambda values=values: [values[:20], values[20:]], 1.5)
        rows += summary.rows_of(one, moments, truth)
    table = pandas.DataFrame(rows)
    for field in ("mean", "bias", "std", "rmse"):
        assert table[f"{field}_se"].mean() == pytest.approx(table[field].std(), rel=0.06)


def test_an_uncertain_truth_widens_bias_and_rmse():
    one = oj.Study(world=small_world(), trials=4, sizes=(5,), estimators=("wis",))
    values = np.array([[1.0], [2.0], [3.0], [5.0]])
    moments = summary.cell_moments(lambda: [values], 2.0)
    (exact,) = summary.rows_of(one, moments, summary.Truth(2.0, 0.0, 0))
    (rough,) = summary.rows_of(one, moments, summary.Truth(2.0, 0.3, 100))
    assert rough["bias_se"] == pytest.approx(math.hypot(exact["bias_se"], 0.3))
    pull = 0.3 * exact["bias"] / exact["rmse"]
    assert rough["rmse_se"] == pytest.approx(math.hypot(exact["rmse_se"], pull))
    assert rough["mean_se"] == exact["mean_se"]


def test_undefined_trials_are_counted_and_left_out():
    """A target that never does what the data shows: all weights are zero in some trials."""
    target = np.tile([1.0, 0.0], (6, 1))
    result = oj.Study(
        world=small_world(target), trials=60, sizes=(2,), estimators=("wis", "is")
    ).run()
    trials = result.trials()
    undefined = int(trials[trials.estimator == "wis"].value.isna().sum())
    assert 0 < undefined < 60
    wis, plain = result.rows
    assert (wis["nan_trials"], plain["nan_trials"]) == (undefined, 0)
    assert wis["mean"] == pytest.approx(trials[trials.estimator == "wis"].value.mean())
    assert any("undefined" in note and str(undefined) in note for note in result.notes)
    assert json.loads(to_json([{"mean": math.nan, "std": 1.0}])) == [{"mean": None, "std": 1.0}]


def test_chunks_change_values_by_rounding_alone(lean):
    other = lean.run(chunk_size=20).trials()
    same = lean.run(chunk_size=8).trials()
    np.testing.assert_allclose(other.value, same.value, rtol=2e-5, atol=1e-5)
    columns = ["estimator", "relevance", "alpha", "size", "trial"]
    pandas.testing.assert_frame_equal(other[columns], same[columns])


def test_float64_agrees_with_float32_and_is_finer(lean):
    double = dataclasses.replace(lean, dtype="float64").run()
    single = lean.run(chunk_size=20)
    one, two = double.trials().value, single.trials().value
    np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)
    assert (one != two).any()


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "trials").iterdir())}


def test_a_study_that_stopped_goes_on_and_ends_the_same(study, folder, tmp_path, monkeypatch):
    out, written = tmp_path / "run", []
    write = store.FolderStore.write

    def stop_after_one(self, chunk, values):
        if written:
            raise KeyboardInterrupt
        written.append(chunk)
        write(self, chunk, values)

    monkeypatch.setattr(store.FolderStore, "write", stop_after_one)
    with pytest.raises(KeyboardInterrupt):
        study.run(out=out, chunk_size=8)
    assert list(files(out)) == ["chunk-00000.parquet"]
    monkeypatch.setattr(store.FolderStore, "write", write)
    study.run(out=out, chunk_size=5)
    assert files(out) == files(folder)
    assert json.loads((out / "study.json").read_text())["chunk_size"] == 8


def test_a_finished_study_computes_nothing(study, folder, monkeypatch):
    monkeypatch.setattr(engine.Engine, "values", None)
    assert len(study.run(out=folder).rows) == len(study.cells())


def begun(folder, process):
    """What a process has begun to write."""
    host = re.sub(r"[^\w-]", "_", platform.node())
    name = f".chunk-00001.parquet.{process}@{host}.x7"
    (folder / "trials" / name).write_bytes(b"half")
    return folder / "trials" / name


def test_what_a_killed_run_began_to_write_is_removed(study, folder, copy):
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    begun(copy, killed.pid)
    ancient = copy / "trials" / ".chunk-00001.parquet.x7"
    ancient.write_bytes(b"half")
    os.utime(ancient, (0, 0))
    study.run(out=copy)
    assert files(copy) == files(folder)


def test_what_a_living_run_writes_is_left_alone(study, copy):
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    paths = [begun(copy, living.pid), copy / "trials" / ".chunk-00002.parquet.1@elsewhere.x7"]
    paths[1].write_bytes(b"half")
    study.run(out=copy)
    assert [path.read_bytes() for path in paths] == [b"half", b"half"]
    living.communicate(b"\n")


def test_a_file_is_written_under_a_name_that_tells_the_writer(tmp_path):
    seen = []

    def write(file):
        seen.extend(tmp_path.iterdir())
        assert not is_abandoned(seen[0])
        file.write(b"whole")

    write_whole(tmp_path / "chunk-00001.parquet", write)
    assert f".{os.getpid()}@" in seen[0].name
    assert [path.name for path in tmp_path.iterdir()] == ["chunk-00001.parquet"]


def test_trials_may_be_raised_to_the_same_result(study, tmp_path):
    few = oj.Study(world=small_world(), trials=70, sizes=(100,), estimators=("wis", "osirwis"))
    many = dataclasses.replace(few, trials=85)
    few.run(out=tmp_path / "raised", chunk_size=20)
    before = files(tmp_path / "raised")
    found = many.run(out=tmp_path / "raised")
    fresh = many.run(out=tmp_path / "fresh", chunk_size=20)
    assert files(tmp_path / "raised") == files(tmp_path / "fresh")
    assert {k: v for k, v in files(tmp_path / "raised").items() if before.get(k) == v}.keys() == {
        f"chunk-0000{number}.parquet" for number in range(3)
    }
    assert found.rows == fresh.rows
    assert [row["trials"] for row in found.rows] == [85, 85]
    with pytest.raises(ValueError, match="differs in trials: 85 cannot be lowered to 70"):
        few.run(out=tmp_path / "raised")


def test_trials_are_not_raised_where_values_would_differ(study, copy):
    before = files(copy)
    with pytest.raises(ValueError, match=r"^trials: .* holds 20, and in a study of 21"):
        dataclasses.replace(study, trials=21).run(out=copy)
    assert files(copy) == before


def test_other_versions_are_named_and_not_mixed(study, copy, monkeypatch):
    other = store.versions() | {"jaxlib": "0.0.1", "numpy": "0.0.2"}
    monkeypatch.setattr(store, "versions", lambda: other)
    assert len(study.run(out=copy).rows) == len(study.cells())  # nothing is left to compute
    (copy / "trials" / "chunk-00002.parquet").unlink()
    before = files(copy)
    with pytest.raises(ValueError, match=r"begun with jaxlib .*, and this is 0\.0\.1"):
        study.run(out=copy)
    assert files(copy) == before
    monkeypatch.undo()
    unimportant = store.versions() | {"numpy": "0.0.2"}
    monkeypatch.setattr(store, "versions", lambda: unimportant)
    assert len(study.run(out=copy).rows) == len(study.cells())


def damage(path, how):
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        middle = len(content) // 3
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    elif how == "swapped":
        shutil.copy(path.with_name("chunk-00000.parquet"), path)
    else:
        path.write_bytes(b"")


@pytest.mark.parametrize("how", ["cut", "flipped", "swapped", "empty"])
def test_a_damaged_chunk_is_named_and_computed_again(study, folder, copy, how):
    damage(copy / "trials" / "chunk-00001.parquet", how)
    with pytest.warns(UserWarning, match=r"chunk-00001\.parquet: will be computed again"):
        study.run(out=copy)
    assert files(copy) == files(folder)


def test_numbers_of_any_kind_are_the_same_study(lean):
    plain = dataclasses.replace(lean, alphas=(0.1, 1.0))
    for alphas in ([0.1, 1], np.array([0.1, 1.0], np.float32), jax.numpy.array([0.1, 1.0])):
        other = dataclasses.replace(
            lean, alphas=alphas, sizes=np.int64(5), trials=np.int32(20), discount=np.float64(0.9)
        )
        assert other.settings() == plain.settings()
        assert other.to_toml() == plain.to_toml()


def test_worlds_that_differ_in_horizon_or_bins_are_told_apart(lean):
    digests = {store.world_identity(lean)["world_digest"]}
    shorter = small_world()
    shorter.horizon = 5
    digests.add(store.world_identity(dataclasses.replace(lean, world=shorter))["world_digest"])
    q = QNetwork.create(random.key(0), (4,), 4, np.ones(8))
    for horizon in (30, 40):
        world = LunarLander(q, horizon=horizon, cache=None)
        one = dataclasses.replace(lean, world=world)
        digests.add(store.world_identity(one)["world_digest"])
    assert len(digests) == 4


def test_one_trial_has_no_standard_errors():
    one = oj.Study(world=small_world(), trials=1, sizes=(5,), estimators=("wis",))
    moments = summary.cell_moments(lambda: [np.array([[2.0]])], 1.0)
    (row,) = summary.rows_of(one, moments, summary.Truth(1.0, 0.0, 0))
    assert row["rmse"] == 1.0
    assert all(math.isnan(row[f"{name}_se"]) for name in ("mean", "bias", "std", "rmse"))


def test_equal_trials_have_standard_errors_of_zero():
    one = oj.Study(world=small_world(), trials=3, sizes=(5,), estimators=("wis",))
    moments = summary.cell_moments(lambda: [np.full((3, 1), 2.7)], 1.1)
    (row,) = summary.rows_of(one, moments, summary.Truth(1.1, 0.0, 0))
    assert row["rmse_se"] == row["std_se"] == 0


def test_another_study_in_the_folder_is_refused(study, copy):
    before = files(copy)
    for change in ({"alphas": (0.2,)}, {"seed": 4}):
        other = dataclasses.replace(study, **change)
        with pytest.raises(ValueError, match=f"holds another study.*{next(iter(change))}"):
            other.run(out=copy)
    stranger = dataclasses.replace(study, world=small_world(np.full((6, 2), 0.5)))
    with pytest.raises(ValueError, match="world_digest"):
        stranger.run(out=copy)
    (copy / "study.json").write_text("{")
    with pytest.raises(ValueError, match="not a study's description"):
        study.run(out=copy)
    (copy / "study.json").unlink()
    with pytest.raises(ValueError, match=r"no study\.json"):
        study.run(out=copy)
    assert files(copy) == before


def test_a_full_disk_is_reported_by_name_and_leaves_what_was_there(study, copy, monkeypatch):
    path = copy / "trials" / "chunk-00002.parquet"
    path.unlink()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("osiris_jax.core.files.os.fsync", full)
    with pytest.raises(OSError, match=r"chunk-00002\.parquet: .*No space left"):
        study.run(out=copy)
    assert sorted(files(copy)) == ["chunk-00000.parquet", "chunk-00001.parquet"]
    monkeypatch.undo()
    study.run(out=copy)
    assert path.exists()


def test_too_little_memory_halves_the_chunk_before_anything_is_written(lean, tmp_path, monkeypatch):
    sizes, values = [], engine.Engine.values

    def scarce(self, trials):
        sizes.append(len(trials))
        if len(trials) > 5:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return values(self, trials)

    monkeypatch.setattr(engine.Engine, "values", scarce)
    lean.run(out=tmp_path / "run", chunk_size=20)
    assert sizes == [20, 10, *[5] * 4]
    assert json.loads((tmp_path / "run" / "study.json").read_text())["chunk_size"] == 5


def test_chunks_fit_the_memory_that_is_given(study):
    computing = engine.Engine(study)
    one = computing.bytes_per_trial()
    assert run._chunk_size(study, computing, 7 * one, None) == 7
    assert run._chunk_size(study, computing, one // 2, None) == 1
    assert run._chunk_size(study, computing, None, None) == study.trials
    assert run.free_memory() > 2**20


@pytest.mark.parametrize(
    ("variables", "distributed", "joins"),
    [
        ({}, None, False),
        ({"SLURM_STEP_NUM_TASKS": "4"}, None, True),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None, False),
        ({"SLURM_STEP_NUM_TASKS": "4"}, False, False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, None, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, None, True),
        ({}, True, True),
    ],
)
def test_a_cluster_is_joined_where_there_is_one(monkeypatch, variables, distributed, joins):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *given: calls.append(given))
    run.start_devices(distributed=distributed)
    assert calls == [()] * joins


def test_toml_says_the_same_study(study, tmp_path):
    named = oj.Study(world="express", trials=7, alphas=(0.1, 1), relevance=("welch", "true"))
    path = tmp_path / "study.toml"
    path.write_text(named.to_toml())
    again = oj.Study.from_toml(path)
    assert again.settings() == named.settings()
    assert oj.Study.from_toml(path, trials=9).trials == 9
    path.write_text(named.to_toml().replace("trials", "trails"))
    with pytest.raises(ValueError, match=r"study\.toml: 'trails' is not a field; did you mean"):
        oj.Study.from_toml(path)
    path.write_text("trials = 3\nworld express")
    with pytest.raises(ValueError, match=r"study\.toml: .*line 2"):
        oj.Study.from_toml(path)


BAD = {
    "world": {"world": "mars"},
    "trials": {"trials": 0},
    "sizes": {"sizes": (0,)},
    "sizes: 5": {"sizes": (5, 5)},
    "alphas: must be": {"alphas": (0.1, 1.2)},
    "alphas: none": {"alphas": ()},
    "alphas: 0.1 is": {"alphas": (0.1, 0.1)},
    "estimator: 'wiss'": {"estimators": ("wiss",)},
    "estimators: none": {"estimators": ()},
    "estimators: expected option": {"estimators": ("cwpdis:finished",)},
    "kept: not an option": {"estimators": ("cwpdis:kept=1",)},
    "finished": {"estimators": ("cwpdis:finished=3",)},
    "finished: 'never'": {"estimators": ("cwpdis:finished=never",)},
    "relevance: 'walch'": {"relevance": ("walch",)},
    "relevance: none": {"relevance": ()},
    "wait: not an option": {"relevance": ("welch:wait=1",)},
    "ddof": {"ddof": 3},
    "weighting: 'x'": {"weighting": "x", "relevance": ("oracle",)},
    "the discount is the whole": {"estimators": ("is:discount=0.5",)},
    "trials: expected an integer from": {"trials": 10**12},
    "seed: expected": {"seed": 2**64},
    "world: expected a name": {"world": 3},
    "weighting": {"weighting": "heavy"},
    "discount": {"discount": 1.5},
    "dtype": {"dtype": "float16"},
    "seed": {"seed": -1},
    "tolerance": {"relevance": ("true:tolerance=-1",)},
    "relevance: 'true' has no option": {"relevance": ("true:alpha=1",)},
    "truth_episodes": {"truth_episodes": 0},
    "alphas: expected a number or one of auto": {"alphas": (0.1, "best")},
    "alphas: 'auto' is given twice": {"alphas": ("auto", "auto")},
    "thresholds: must be in": {"thresholds": (-0.1,), "relevance": ("effect",)},
    "thresholds: must be .*'auto'": {"thresholds": ("auto",), "relevance": ("effect",)},
    "thresholds: 0.2 is given twice": {"thresholds": (0.2, 0.2), "relevance": ("effect",)},
    "shrinks: not an option": {"relevance": ("effect:shrinks=true",)},
    "shrink: expected bool": {"relevance": ("effect:shrink=3",)},
    "relevance: max_kept: expected an integer": {"relevance": ("welch:max_kept=-1",)},
    "max_kept: expected an integer": {"relevance": ("welch:max_kept=2.5",)},
    "fit: 'other' is unknown": {"estimators": ("dr:fit=other",)},
    "smoothing: must be 0 or more": {"estimators": ("dr:smoothing=-1",)},
    "q_folds: expected a whole number": {"estimators": ("wdr:q_folds=-2",)},
    "relevance: 'effect' has no form by lag": {
        "estimators": ("osiris-stepwise",),
        "relevance": ("effect",),
    },
    "alphas: the method `model` needs relevance by state": {
        "estimators": ("osiris-stepwise",),
        "alphas": ("auto",),
    },
}


@pytest.mark.parametrize("problem", BAD)
def test_a_study_that_cannot_be_run_is_refused_at_once(problem):
    with pytest.raises(ValueError, match=problem):
        oj.Study(**{"world": small_world(), "sizes": (5,), **BAD[problem]})


def test_a_world_without_an_oracle_or_exact_answers_says_so():
    world = small_world()
    world.oracle = None
    with pytest.raises(ValueError, match="no oracle"):
        oj.Study(world=world, relevance=("oracle",))
    lander = LunarLander(QNetwork.create(random.key(0), (4,), 4, np.ones(8)), cache=None)
    with pytest.raises(ValueError, match="tabular"):
        oj.Study(world=lander, relevance=("true",))


def test_a_world_without_states_takes_what_needs_none():
    from osiris_jax.data.policies import EpsilonGreedy
    from osiris_jax.worlds.cartpole import OBSERVATION_SCALE, environment

    q = QNetwork.create(random.key(0), (4,), 2, OBSERVATION_SCALE)
    policies = EpsilonGreedy(q, 0.3), EpsilonGreedy(q, 0.2)
    world = oj.GymnaxWorld(environment(), *policies, horizon=30)
    for name in ("osirwis", "mis"):
        with pytest.raises(ValueError, match=f"estimators: '{name}' needs states"):
            oj.Study(world=world, estimators=(name,))
    batch = world.rollout(random.key(0), 3)
    assert (batch.state, batch.num_states) == (None, 0)
    result = oj.Study(
        world=world, trials=4, sizes=(3,), estimators=("wis",), truth_episodes=10
    ).run()
    batch = world.rollout(random.fold_in(random.key(0), 2), 3)
    expected = float(oj.estimate(batch, "wis"))
    assert result.trials().value[2] == pytest.approx(expected, rel=1e-4)


def test_a_world_that_is_played_feeds_the_same_engine():
    """Lunar Lander, untrained and cut short: each value is that of estimate on its rollout."""
    q = QNetwork.create(random.key(0), (4,), 4, np.ones(8))
    world = LunarLander(q, horizon=40, cache=None, processes=1, progress=False)
    study = oj.Study(
        world=world,
        trials=3,
        sizes=(4,),
        alphas=(1.0,),
        estimators=("wis", "osirwis", "on-policy"),
        truth_episodes=5,
    )
    result = study.run(chunk_size=2)
    found = by_cell(result.trials(), 1)
    batch = world.rollout(random.fold_in(random.key(0), 1), 4)
    expected = float(oj.estimate(batch, "wis"))
    assert found[("wis", None, None, 4)] == pytest.approx(expected, rel=1e-4)
    assert found[("osirwis", "welch", 1.0, 4)] == pytest.approx(expected, rel=1e-4)
    assert result.truth.episodes == 5
    assert result.rows[0]["truth_se"] > 0


def test_the_rows_of_a_study_are_its_cells(study):
    cells = study.cells()
    assert len(set(cells)) == len(cells) == 2 * (3 + 2 * (2 * 2 + 2))
    assert cells[0] == experiment.Cell("wis", None, None, None, 5)
    assert experiment.Cell("osiris-pdis", "oracle", None, None, 9) in cells
    assert experiment.Cell("osiris-pdis", "welch", 0.1, None, 9) in cells


# Chosen levels, thresholds, Q-hat and omission by lag -------------------------------------------

NETWORK = "dr:fit=nn-q:q_folds=2"
LIMITED = "welch:weighting=none:max_kept=2"
TESTS = {
    LIMITED: {"relevance": "welch", "weighting": "none", "max_kept": 2},
    "effect": {"relevance": "effect"},
    "welch": {"relevance": "welch", "weighting": "none"},
}
PLAIN = {
    "dr": {},
    "wdr:q_folds=2": {"q_folds": 2},
    NETWORK: {"fit": "nn-q", "q_folds": 2},
    "dm": {},
    "stepwise": {},
    "stepwise-dr": {},
    "rcis": {},
}


@pytest.fixture(scope="module")
def by_state():
    return oj.Study(
        world=small_world(),
        trials=24,
        sizes=(6,),
        alphas=("auto",),
        thresholds=(0.05, 0.4),
        estimators=("dr", "wdr:q_folds=2", "osiris-dr"),
        relevance=(LIMITED, "effect"),
        discount=0.9,
        seed=5,
    )


@pytest.fixture(scope="module")
def by_lag():
    return oj.Study(
        world=small_world(),
        trials=24,
        sizes=(6,),
        alphas=(0.3, "lepski", 1),
        estimators=("dm", NETWORK, "stepwise", "stepwise-dr", "rcis", "osiris-stepwise"),
        weighting="none",
        discount=0.9,
        seed=5,
    )


@pytest.fixture(scope="module")
def finished(by_state, by_lag, tmp_path_factory):
    """The two studies' folders and values."""
    out = tmp_path_factory.mktemp("chosen")
    results = {
        name: one.run(out=out / name, chunk_size=8)
        for name, one in (("state", by_state), ("lag", by_lag))
    }
    return out, results


def own_keys(study, size):
    """[trial] the keys of the data, and those of what is random in a method, a stream apart."""
    keys = jax.vmap(random.fold_in, (None, 0))(random.key(study.seed), np.arange(study.trials))
    apart = jax.vmap(lambda key: random.fold_in(random.fold_in(key, 2**32 - 5), size))(keys)
    return keys, apart


def expected_values(study, cell, *, swapped=False):
    """[trial] of a cell, from `estimate` on each trial's own data and key, or the next one's."""
    keys, apart = own_keys(study, cell.size)
    data = study.world.rollout(keys, cell.size, probs=True)
    options = {"discount": 0.9}
    if cell.relevance is None:
        options |= PLAIN[cell.estimator]
    else:
        test, _, chosen = cell.relevance.partition(":alpha=")
        options |= TESTS[test]
        name = "threshold" if test == "effect" else "alpha"
        options[name] = chosen or getattr(cell, name)

    @jax.jit
    @jax.vmap
    def values(batch, key):
        return oj.estimate(batch, cell.estimator.split(":")[0], key=key, **options)

    return np.asarray(values(data, jax.numpy.roll(apart, 1) if swapped else apart))


def values_of(study, result):
    """Cell -> [trial]."""
    frame = result.trials()
    return dict(zip(study.cells(), frame.value.to_numpy().reshape(-1, study.trials), strict=True))


@pytest.mark.parametrize("name", ["state", "lag"])
def test_every_kind_of_row_is_what_estimate_says(name, by_state, by_lag, finished):
    study = {"state": by_state, "lag": by_lag}[name]
    for cell, found in values_of(study, finished[1][name]).items():
        expected = expected_values(study, cell)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=str(cell))


def test_the_rows_say_which_level_was_chosen_how(by_state, by_lag):
    found = [tuple(cell[:4]) for cell in by_state.cells()]
    assert found == [
        ("dr", None, None, None),
        ("wdr:q_folds=2", None, None, None),
        ("osiris-dr", f"{LIMITED}:alpha=auto", None, None),
        ("osiris-dr", "effect", None, 0.05),
        ("osiris-dr", "effect", None, 0.4),
        ("osiris-dr", "effect:alpha=auto", None, None),
    ]
    lagged = [tuple(cell) for cell in by_lag.cells() if cell.estimator == "osiris-stepwise"]
    levels = [("welch", 0.3, None), ("welch", 1.0, None), ("welch:alpha=lepski", None, None)]
    assert lagged == [("osiris-stepwise", *level, 6) for level in levels]


def test_a_summary_has_a_row_for_every_threshold(finished):
    table = finished[1]["state"].summary()
    effect = table[table.relevance == "effect"]
    assert effect.threshold.tolist() == [0.05, 0.4]
    assert effect.alpha.isna().all()


def test_what_is_random_differs_between_trials(by_lag, finished):
    """A fitted network depends on its key: each trial has the one of its own, no other's."""
    found = values_of(by_lag, finished[1]["lag"])
    cell = next(cell for cell in found if cell.estimator == NETWORK)
    other = expected_values(by_lag, cell, swapped=True)
    assert not np.isclose(found[cell], other, rtol=4e-3, atol=4e-4).any()


@pytest.mark.parametrize("name", ["state", "lag"])
def test_chosen_levels_resume_to_the_same_bytes(name, by_state, by_lag, finished, tmp_path):
    study = {"state": by_state, "lag": by_lag}[name]
    out = Path(shutil.copytree(finished[0] / name, tmp_path / "copy"))
    for number in (0, 2):
        (out / "trials" / f"chunk-0000{number}.parquet").unlink()
    study.run(out=out)
    assert files(out) == files(finished[0] / name)


def test_a_default_threshold_is_the_test_s_own():
    one = oj.Study(world=small_world(), sizes=(5,), alphas=(), relevance=("effect", "nn-q"))
    found = {cell.relevance: cell.threshold for cell in one.cells() if cell.relevance}
    assert found == oj.THRESHOLDS
