"""What reaches the terminal and the files: harmless, encodable, whole; and how a command ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from running import run

import osiris_jax as oj
from osiris_jax.core import terminal
from osiris_jax.core.text import encodable, literal, one_line, printable

ROOT = Path(__file__).parents[2]
NASTY = "a\x1b[31m<b>_*x*_[y](z)`\u202e\r\n|"
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def test_controls_are_escaped_and_the_rest_is_kept():
    assert printable("naïve ± 中") == "naïve ± 中"
    assert printable("a\x1b[31m\n\u202e\udc80") == r"a\x1b[31m\n\u202e\udc80"
    assert literal("<a>_b_[c](d)|e#`") == r"\<a\>\_b\_\[c\](d)\|e\#\`"
    assert one_line("x" * 9999).endswith(" ...")


def test_text_that_a_stream_cannot_carry_gets_another_form():
    assert encodable("1±2 ≠ ü", "utf-8") == "1±2 ≠ ü"
    assert encodable("1±2 ≠ ü", "ascii") == r"1+-2 != \xfc"
    assert encodable("1±2 ≠ ü", "latin-1") == "1+-2 != ü"


def log_of(path):
    rows = ["episode,step,state,action,reward,behavior_prob,target_prob"]
    rows += [f"{i},{t},{t},{i % 2},{i % 3},0.5,0.{4 + i % 3}" for i in range(8) for t in range(2)]
    path.write_text("\n".join(rows))
    return path


def test_a_nasty_file_name_stays_a_name(monkeypatch, capsys, tmp_path):
    name = NASTY.replace("/", "") + ".csv"
    log = log_of(tmp_path / name)
    out = tmp_path / "out"
    options = ("--estimators", "wis", "--resamples", 5, "--out", out)
    assert run(monkeypatch, "evaluate", log, *options) == 0
    shown = capsys.readouterr()
    page = (out / "evaluation.md").read_text()
    for text in (shown.out, page, (out / "report.html").read_text()):
        assert not CONTROLS.search(text)
    assert page.splitlines()[0] == f"# Evaluation of {literal(name)}"
    assert "<b>" not in page.split("```")[0].replace("\\<b", "")
    assert "<b>" not in (out / "report.html").read_text()


def test_a_problem_with_a_nasty_name_is_one_harmless_line(monkeypatch, capsys, tmp_path):
    log = log_of(tmp_path / "log.csv")
    np.savez(tmp_path / "policy.npz", **{"a\x1b[31m": np.ones(3), "b\nc": np.ones(2)})
    for arguments in (
        (log, "--target", tmp_path / "policy.npz"),
        (log, "--estimators", "wis\x1b[31m"),
        (log, "--columns", "epis\x1bode=x"),
        (tmp_path / "no\x1b[31m\nthing.csv",),
        (log, "--\x1b[31m"),
    ):
        assert run(monkeypatch, "evaluate", *arguments) == 2
        printed = capsys.readouterr().err
        assert not CONTROLS.search(printed), printed
        assert len(printed.splitlines()) == 1


WIDE = [["osirwis (welch, 0.05)", "0.6454", "0.5353 to 0.7558", *["123456.7"] * 6, "do not trust"]]
HEADER = ["estimator", "value", "interval", *(f"effective number {i}" for i in range(6)), "verdict"]


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
def test_no_word_of_a_table_is_broken(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal.print_table("a title of some words", HEADER, WIDE)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    shown = " ".join(lines).split()
    for cell in (*HEADER, *WIDE[0]):
        assert set(cell.split()) <= set(shown)
    parts = sum("estimator" in line for line in lines)
    assert parts == {40: 5, 60: 3, 80: 2, 100: 2, 200: 1}[columns]


def test_evaluate_s_own_table_is_whole_at_80_columns(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    log = log_of(tmp_path / "log.csv")
    out = tmp_path / "out"
    options = ("--estimators", "osirwis,wis", "--resamples", 5, "--out", out)
    assert run(monkeypatch, "evaluate", log, *options) == 0
    printed = capsys.readouterr().out
    cells = re.findall(r"\| ([^|]*) ", (out / "evaluation.md").read_text().split("\n\n")[1])
    words = {word for cell in cells for word in cell.split() if word != "---"}
    assert words <= set(printed.split())


def test_a_study_ends_well_on_an_ascii_terminal(tmp_path):
    words = ["study", "--world", "express", "--trials", "3", "--sizes", "3", "--estimators", "is"]
    done = subprocess.run(
        [sys.executable, "-m", "osiris_jax.cli", *words, "--out", str(tmp_path / "±")],
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode("ascii")
    assert "+-" in shown
    assert "pictures:" in shown
    assert "±" in next(tmp_path.iterdir()).joinpath("summary.md").read_text("utf-8")


SWALLOWS = """
import sys, time
from osiris_jax import cli
from osiris_jax.cli.evaluate import EvaluateLog

def computes_in_a_callback(request):
    print("begun", flush=True)
    while True:
        try:
            time.sleep(0.05)
        except KeyboardInterrupt:
            pass  # as JAX's callback for garbage collections does

EvaluateLog.run = computes_in_a_callback
sys.argv = ["osiris-jax", "evaluate", "log.csv"]
cli.main()
"""


@pytest.mark.parametrize("swallowed", [True, False])
def test_ctrl_c_ends_evaluate_at_once(swallowed):
    code = SWALLOWS if swallowed else SWALLOWS.replace("            pass", "            raise")
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)  # so that it comes inside the loop
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, problem = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert problem == "osiris-jax: stopped\n"
    assert time.monotonic() - began < 10


def test_results_of_intervals_print_shortly():
    reward = np.arange(12.0).reshape(6, 2)
    ids = reward.astype(int) % 2
    batch = oj.from_arrays(reward=reward, action=ids, state=ids, log_ratio=reward * 0)
    found = oj.intervals(batch, ["is", "wis"], resamples=300)
    assert len(str(found)) < 300
    assert repr(found["wis"]).startswith("Estimated(wis: 11 (percentile ")


def test_dir_shows_public_names_alone():
    assert dir(oj) == sorted([*oj.__all__, "__version__"])
