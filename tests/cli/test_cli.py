"""The command line: tables and pictures, one line for what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import refusal, run

import osiris_jax as oj
from osiris_jax import cli
from osiris_jax.cli.show import osiris_rows
from osiris_jax.core.faces import markdown
from osiris_jax.models.networks import load_network
from osiris_jax.worlds import training
from osiris_jax.worlds.lunar_lander import lunar_lander

DOCS = Path(__file__).parents[2] / "docs"


COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]


@pytest.mark.parametrize("command", [(), *((name.replace("_", "-"),) for name in COMMANDS)])
def test_help_has_an_example_is_quick_and_imports_nothing_heavy(command):
    heavy = ("jax", "numpy", "gymnax", "flax", "matplotlib", "pandas", "pyarrow")
    code = (
        f"import sys; sys.argv = ['osiris-jax', *{command}, '--help']\n"
        "from osiris_jax import cli\n"
        "try: cli.main()\n"
        f"except SystemExit: print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Usage: " in done.stdout, done.stderr
    assert not command or f"Example: osiris-jax {command[0]}" in " ".join(done.stdout.split())
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("show", "mars"), "world: 'mars' is unknown"),
        (("show", "express", "--episodes", "1"), "episodes: expected at least 2"),
        (("show",), "Missing argument"),
        (("show", "express", "--seed", "x"), "--seed"),
        (("fly",), "No such command"),
        (("train-policy", "express"), "world: 'express' has no recipe"),
        (("train-policy", "cartpole", "--runs", "0"), "runs: expected a positive number"),
        (("train-policy", "cartpole", "--updates", "-3"), "updates: expected a positive number"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(monkeypatch, capsys, arguments, problem):
    assert problem in refusal(monkeypatch, capsys, *arguments)


def test_show_writes_tables_and_pictures(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "show", "express", "--episodes", 500, "--out", tmp_path) == 0
    assert "4.190042" in capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["exact"]["target"] == pytest.approx(4.190041541850957, abs=1e-9)
    assert abs(summary["target"]["mean"] - 4.19) < 4 * summary["target"]["standard_error"]
    assert "true relevance, tolerance 0.1" in (tmp_path / "summary.md").read_text()
    for name in ("world", "lengths"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_list_prints_the_reference_page_as_it_is(monkeypatch, capsys):
    assert run(monkeypatch, "list", "--markdown") == 0
    assert capsys.readouterr().out == (DOCS / "reference.md").read_text()


def test_train_policy_writes_a_network_its_card_and_its_curve(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(training, "EPISODES", dict.fromkeys(training.EPISODES, 4))
    monkeypatch.setattr(training, "GROUP", 4)
    monkeypatch.setattr(training, "COARSE_GAINS", ((1.0, 1.0),))
    monkeypatch.setattr(training, "FINE_GAINS", ((1.0, 1.0, 1.0, 1.0),) * 2)
    monkeypatch.setitem(training.FINAL_EPISODES, "cartpole", 10)
    arguments = ("train-policy", "cartpole", "--runs", 2, "--updates", 20, "--out", tmp_path)
    assert run(monkeypatch, *arguments) == 0
    assert "the selected network" in capsys.readouterr().out
    network = load_network(tmp_path / "cartpole.npz")
    assert network.widths == (24, 24, 2)
    facts = json.loads((tmp_path / "summary.json").read_text())
    assert facts["snapshots_screened"] == 40
    assert facts["target"]["episodes"] == 10
    card = (tmp_path / "cartpole.md").read_text()
    assert f"{facts['behavior']['mean']:.1f}" in card
    for name in ("learning-curve", "lengths"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


CALIBRATE = ("calibrate", "--trials", 3, "--sizes", 8, "--tests", "welch", "--weightings", "none")


@pytest.mark.parametrize("variant", ["plain", "first visit"])
def test_calibrate_writes_a_table_and_a_picture(monkeypatch, capsys, tmp_path, variant):
    arguments = (*CALIBRATE, "--alphas", "0.05,0.25", "--variants", variant, "--out", tmp_path)
    assert run(monkeypatch, *arguments) == 0
    assert "called relevant" in " ".join(capsys.readouterr().out.split())
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert {(row["alpha"], row["gap_up_to"]) for row in rows} == {
        (alpha, edge) for alpha in (0.05, 0.25) for edge in (1e-9, 1.0)
    }
    assert {row["variant"] for row in rows} == {"" if variant == "plain" else variant}
    assert all(0 <= row["rate"] <= 1 and row["tests"] <= 15 for row in rows)
    table = (tmp_path / "calibration.md").read_text()
    assert table.startswith("# waiting-room: ")
    assert len(table.strip().splitlines()) == 4 + len(rows)
    assert (tmp_path / "calibration.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "calibration.pdf").read_bytes().startswith(b"%PDF")


def test_calibrate_markov_writes_tables_and_a_picture(monkeypatch, capsys, tmp_path):
    arguments = ("--worlds", "waiting-room,first-look", "--trials", 3, "--sizes", "8,24")
    arguments += ("--lags", "1,3", "--alphas", "0.05,0.25", "--out", tmp_path)
    assert run(monkeypatch, "calibrate-markov", *arguments) == 0
    assert "the check rejects (undecided)" in " ".join(capsys.readouterr().out.split())
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert len(rows) == 2 * 2 * 3 * 3 * 2
    assert {(row["world"], row["markov"]) for row in rows} == {
        ("waiting-room", True),
        ("first-look", False),
    }
    page = (tmp_path / "markov.md").read_text()
    tables = page.split("\n## ")[1:]
    assert [len(table.strip().splitlines()) for table in tables] == [2 + 2 + 8] * 4
    assert "| world | Markov | N | level | clustered | first visits | both |" in tables[0]
    assert "| world | Markov | N | level | lag 1 | lag 3 |" in tables[2]
    line = next(
        line for line in tables[0].splitlines() if "| waiting-room | yes | 8 | 0.05" in line
    )
    assert "0.0±0.0 % (100 %)" in line
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert (tmp_path / f"markov.{kind}").read_bytes().startswith(start)


def test_a_calibration_that_decides_nothing_writes_nothing(monkeypatch, capsys, tmp_path):
    arguments = ("--sizes", 1, "--variants", "first visit", "--out", tmp_path / "run")
    assert run(monkeypatch, *CALIBRATE, *arguments) == 2
    printed = capsys.readouterr()
    complaints = [line for line in printed.err.splitlines() if line.startswith("osiris-jax:")]
    assert len(complaints) == 1
    assert "sizes: so few trajectories" in printed.err
    assert not printed.out
    assert not (tmp_path / "run").exists()


STUDY = (
    *("study", "--world", "waiting-room", "--trials", 4, "--sizes", 6, "--estimators", "osirwis"),
    *("--relevance", "welch,effect", "--thresholds", "0.2"),
)


def test_a_study_takes_levels_chosen_from_the_data_and_thresholds(monkeypatch, tmp_path):
    assert run(monkeypatch, *STUDY, "--alphas", "0.05,auto", "--out", tmp_path) == 0
    rows = json.loads((tmp_path / "summary.json").read_text())
    levels = [(row["relevance"], row["alpha"], row["threshold"]) for row in rows]
    assert levels == [
        ("welch", 0.05, None),
        ("welch:alpha=auto", None, None),
        ("effect", None, 0.2),
        ("effect:alpha=auto", None, None),
    ]
    assert all(np.isfinite(row["rmse"]) for row in rows)


def test_a_level_that_is_no_number_and_no_method_is_one_line(monkeypatch, capsys, tmp_path):
    out = tmp_path / "run"
    line = refusal(monkeypatch, capsys, *STUDY, "--alphas", "0.05,foo", "--out", out)
    assert "alphas: expected numbers, or auto, model" in line
    assert "'foo'" in line
    assert not out.exists()


@pytest.mark.parametrize("name", ["dilly-dallying", "express"])
def test_the_docs_show_the_exact_table(name):
    world = oj.make(name)
    table = markdown(*osiris_rows(world, world.exact()))
    assert f"<!-- exact: {name} -->\n{table}" in (DOCS / "worlds.md").read_text()


def test_the_docs_name_every_world():
    page = (DOCS / "worlds.md").read_text()
    random = [name for name in oj.WORLDS if name.startswith("random-")]
    assert f"`{random[0]}` to `{random[-1]}`" in page
    assert all(f"`{name}`" in page for name in oj.WORLDS if name not in random)


def test_the_shipped_cartpole_lives_as_long_as_its_card_says():
    """2,000 episodes of each policy, within 4 standard errors of both; and near the paper's."""
    import jax

    world = oj.make("cartpole")
    card = (Path(training.__file__).parent / "assets" / "cartpole.md").read_text()
    for policy, paper in (("behavior", 608), ("target", 1504)):
        row = next(line for line in card.splitlines() if line.startswith(f"| {policy} |"))
        said, error = (float(cell) for cell in row.split("|")[3:5])
        assert abs(said / paper - 1) < 0.1
        lengths = np.asarray(world.returns(jax.random.key(5), 2000, policy=policy).lengths)
        bound = 4 * np.hypot(lengths.std() / np.sqrt(len(lengths)), error)
        assert abs(lengths.mean() - said) < bound


def test_the_lander_has_a_card():
    card = (Path(training.__file__).parent / "assets" / "lunar-lander.md").read_text()
    assert "| target | 0.05 |" in card
    assert lunar_lander().q.widths == (128, 128, 4)
