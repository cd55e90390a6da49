"""What the compiler of TPUs makes of the kernels, where it is installed: pip install ".[tpu]"."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "accelerators.py"
MEGABYTE = 10**6


def run(folder, *arguments):
    command = [sys.executable, SCRIPT, "--out", folder, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """(name, type) -> what the compiler says."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip('the compiler of TPUs is not installed: pip install -e ".[tpu]"')
    folder, rows = tmp_path_factory.mktemp("tpu"), []
    for names, dtype in (("welch,dm,incris,study-4", "float32"), ("welch", "float64")):
        what = ("--platform", "tpu", "--only", names, "--dtype", dtype, "--trials", "256")
        done = run(folder, *what, "--hlo", folder)
        assert done.returncode == 0, done.stderr
        rows += json.loads((folder / "accelerators.json").read_text())
        assert "| welch |" in (folder / "accelerators.md").read_text()
    programs = {path.name: path.read_text() for path in folder.glob("*.txt")}
    return {(row["name"], row["dtype"]): row for row in rows} | programs


def test_both_float_types_compile(rows):
    compiled = [row for row in rows.values() if isinstance(row, dict)]
    assert len(compiled) == 5
    assert all(row["ok"] and row["error"] is None for row in compiled), compiled


def test_temporaries_are_small_and_nothing_is_scattered(rows):
    for name in ("welch", "dm"):
        assert rows[name, "float32"]["temp_bytes"] <= 40 * MEGABYTE
    assert rows["welch", "float32"]["scatters"] == rows["welch", "float32"]["sorts"] == 0


def test_four_chips_do_not_wait_for_each_other(rows):
    row = rows["study-4", "float32"]
    assert row["collectives"] == 0
    assert row["temp_bytes"] <= 40 * MEGABYTE
    assert row["estimated_cycles"] > 0


def test_products_are_of_no_half_precision(rows):
    program = rows["tpu-incris-float32-256.txt"]
    assert "convolution" in program or "dot(" in program
    assert "bf16" not in program


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--platform", "abacus"), "platform: 'abacus' is not one of tpu, cuda"),
        (("--platform", "tpu", "--only", "nothing"), "only: 'nothing' is not one of mc, is, "),
    ],
)
def test_what_cannot_be_compiled_is_one_line(tmp_path, arguments, told):
    done = run(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(told)
    assert len(done.stderr.splitlines()) == 1
