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
from datasets import load, ragged
from jax import random
from small_world import lean_study, small_study, small_world

import osiris_jax as oj
from osiris_jax.core.files import is_abandoned, write_whole
from osiris_jax.models.networks import QNetwork
from osiris_jax.study import engine, store, summary
from osiris_jax.worlds.lunar_lander import LunarLander

OPTIONS = {"cwpdis:finished=drop": {"finished": "drop"}}


@pytest.fixture(scope="module")
def study():
    return small_study()


@pytest.fixture(scope="module")
def lean():
    return lean_study()


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
            # of one length, for every length is compiled for
            batch = load(ragged(world.rollout(key, size)), world.horizon, world.num_states)
            for name in ("wis", "cwpdis:finished=drop"):
                plain = name.split(":")[0]
                value = oj.estimate(batch, plain, discount=0.9, **OPTIONS.get(name, {}))
                assert found.pop((name, None, None, size)) == pytest.approx(float(value), rel=1e-4)
            for name in ("osirwis", "osiris-pdis"):
                for test, (weighting, ddof) in weightings.items():
                    options = {"weighting": weighting, "ddof": ddof, "alpha": np.array((0.1, 1.0))}
                    values = oj.estimate(batch, name, discount=0.9, **options)
                    for alpha, value in zip((0.1, 1.0), values, strict=True):
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
