"""`osiris-jax study` as users run it: real processes, killed ones, several devices, bad input."""

import json
import os
import random as chance
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
from conftest import IN_A_HURRY
from running import refusal, refused, run

from osiris_jax import cli
from osiris_jax.cli.options import size_of_memory
from osiris_jax.core.faces import with_error

STUDY = [
    *("study", "--world", "express", "--trials", "40", "--sizes", "5,10", "--alphas", "0.1,1"),
    *("--estimators", "is,osirwis", "--seed", "7", "--chunk-size", "4"),
]
COMMAND = [sys.executable, "-m", "osiris_jax.cli"]


def start(out, *more):
    command = [*COMMAND, *STUDY, "--out", str(out), *more]
    environment = {**os.environ, **IN_A_HURRY}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def finish(process):
    printed, problem = process.communicate(timeout=300)
    assert process.returncode == 0, problem
    return printed


def files(out):
    return {path.name: path.read_bytes() for path in sorted((out / "trials").iterdir())}


def values(out):
    frame = pandas.concat(pandas.read_parquet(path) for path in sorted((out / "trials").iterdir()))
    order = ["estimator", "relevance", "alpha", "size", "trial"]
    return frame.sort_values(order).value.to_numpy()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that nothing interrupted, and what it printed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return out, finish(start(out))


def test_a_run_ends_in_a_table_files_and_pictures(whole):
    out, printed = whole
    assert "4.19004 (exact)" in printed
    assert "osirwis" in printed
    assert "exact for is (N = 5)" in printed
    rows = json.loads((out / "summary.json").read_text())
    assert len(rows) == 2 * (1 + 2)
    assert rows[0]["estimator"] == "is"
    assert rows[0]["alpha"] is None
    assert rows[0]["truth"] == pytest.approx(4.190041541850957)
    assert "| osirwis | welch | 0.1 | 10 |" in (out / "summary.md").read_text()
    assert (out / "rmse.png").exists()
    assert (out / "consistency.pdf").exists()
    assert 'world = "express"' in (out / "study.toml").read_text()
    assert len(files(out)) == 10


def test_killed_at_any_moment_it_resumes_to_the_same_bytes(whole, tmp_path):
    moments = chance.Random(0)
    out = tmp_path / "run"
    for _ in range(3):
        process = start(out)
        chunks = len(list(out.glob("trials/chunk-*")))
        while process.poll() is None:
            if len(list(out.glob("trials/chunk-*"))) > chunks:
                time.sleep(moments.random() * 0.05)
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.01)
        process.communicate()
    finish(start(out))
    assert files(out) == files(whole[0])


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "run"
    process = start(out, "--trials", "100000")
    while not list(out.glob("trials/chunk-*")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        _, problem = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on" in problem
    assert "Traceback" not in problem


def test_four_devices_give_the_same_values(whole, tmp_path):
    finish(start(tmp_path / "run", "--cpu-devices", "4"))
    np.testing.assert_allclose(values(tmp_path / "run"), values(whole[0]), rtol=2e-5, atol=1e-6)


def test_two_processes_over_loopback_give_the_same_values(whole, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = tmp_path / "run"
    many = ("--coordinator", f"127.0.0.1:{port}", "--num-processes", "2", "--process-id")
    both = [start(out, *many, str(number)) for number in range(2)]
    first, second = (finish(process) for process in both)
    assert "4.19004 (exact)" in first
    assert "4.19004" not in second
    assert files(out) == files(whole[0])


BAD = {
    "unknown world": (("--world", "mars"), "world: 'mars' is unknown"),
    "no world": ((), "world: missing"),
    "no trials": (("--world", "express", "--trials", "0"), "trials: expected an integer"),
    "size 0": (("--world", "express", "--sizes", "0"), "sizes: expected an integer"),
    "sizes that are words": (("--world", "express", "--sizes", "big"), "sizes: expected integers"),
    "alpha above 1": (("--world", "express", "--alphas", "0.1,1.5"), "alphas: must be in [0, 1]"),
    "alpha below 0": (("--world", "express", "--alphas", "-0.1"), "alphas: must be in [0, 1]"),
    "alphas that are words": (("--world", "express", "--alphas", "a"), "alphas: expected numbers"),
    "no alphas": (("--world", "express", "--alphas", ","), "alphas: none given"),
    "unknown estimator": (("--world", "express", "--estimators", "wiz"), "'wiz' is unknown"),
    "no estimators": (("--world", "express", "--estimators", ","), "estimators: none given"),
    "twice": (("--world", "express", "--estimators", "is,is"), "'is' is given twice"),
    "unknown option": (("--world", "express", "--estimators", "is:x=1"), "x: not an option"),
    "unknown test": (("--world", "express", "--relevance", "welsh"), "did you mean welch?"),
    "bad weighting": (("--world", "express", "--weighting", "all"), "weighting: 'all'"),
    "bad ddof": (("--world", "express", "--ddof", "2"), "ddof: expected an integer from 0 to 1"),
    "bad discount": (("--world", "express", "--discount", "2"), "discount: must be in [0, 1]"),
    "bad dtype": (("--world", "express", "--dtype", "int8"), "dtype: expected float32"),
    "bad seed": (("--world", "express", "--seed", "-1"), "seed: expected an integer"),
    "bad memory": (("--world", "express", "--memory", "much"), "memory: expected a size"),
    "bad chunk": (("--world", "express", "--chunk-size", "0"), "chunk_size: expected"),
    "lonely coordinator": (("--world", "express", "--coordinator", "x:1"), "num-processes"),
    "no such file": (("missing.toml",), "missing.toml"),
    "no such option": (("--wrld", "express"), "No such option"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_study_is_one_line_and_nothing_is_written(monkeypatch, capsys, tmp_path, kind):
    arguments, problem = BAD[kind]
    assert problem in refused(monkeypatch, capsys, tmp_path / "run", "study", *arguments)


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    out = tmp_path / "file" / "run"
    arguments = ("study", "--world", "express", "--trials", 4, "--sizes", 5, "--estimators", "is")
    line = refusal(monkeypatch, capsys, *arguments, "--out", out)
    assert f"{out}: cannot be used as a folder" in line


def test_a_misspelt_field_in_a_toml_file_is_named(monkeypatch, capsys, tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('world = "express"\nalpha = [0.1]\n')
    line = refusal(monkeypatch, capsys, "study", path, "--out", tmp_path / "run")
    assert "'alpha' is not a field; did you mean alphas?" in line


def test_list_names_everything(monkeypatch, capsys):
    assert run(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    for name in ("dilly-dallying", "icu-sepsis", "cwpdis", "osiris-<name>", "smirnov", "true"):
        assert name in printed


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 2**29), ("2GB", 2**31), ("1.5k", 1536), ("700", 700)]
)
def test_sizes_of_memory(text, size):
    assert size_of_memory("memory", text) == size


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(4.31957, 0.3088, "4.32±0.31"), (0.5, 0.0, "0.5"), (float("nan"), 1.0, "undefined")],
)
def test_values_are_shown_to_the_digits_that_their_errors_decide(value, error, text):
    assert with_error(value, error) == text


def test_the_tests_run_what_the_project_installs():
    assert Path(cli.__file__).parents[2] == Path(__file__).parents[2]
    assert os.environ["JAX_COMPILATION_CACHE_DIR"]
