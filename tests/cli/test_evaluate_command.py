"""`osiris-jax evaluate` as users run it: files in, files out; bad input is one line, no output."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
from running import refusal, run

import osiris_jax as oj
from osiris_jax.cli.evaluate import EvaluateLog, read_columns

STATES, ACTIONS = 4, 3
QUICK = ("--resamples", "20", "--methods", "percentile", "--estimators", "wis,osirwis,mc")
WRITTEN = {"summary.json", "evaluation.md", "report.html"}
WRITTEN |= {
    f"{name}.{kind}" for name in ("intervals", "levels", "weights") for kind in ("png", "pdf")
}


def policies(seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.dirichlet(np.ones(ACTIONS), STATES) + 1) / (1 + ACTIONS) for _ in range(3)]


def log(seed=0, episodes=30):
    """A ragged log with names that must be guessed, and text for states."""
    rng = np.random.default_rng(seed)
    behavior, target, _ = policies()
    rows = []
    for episode in range(episodes):
        for step in range(rng.integers(1, 7)):
            state = rng.integers(STATES)
            action = rng.choice(ACTIONS, p=behavior[state])
            reward = rng.normal() + (action == 0)
            probs = behavior[state, action], target[state, action]
            rows.append((f"p{episode:03}", step, f"<ward {state}>", action, reward, *probs))
    names = ["patient_id", "t", "ward", "a", "reward", "propensity", "target_prob"]
    return pd.DataFrame(rows, columns=names)


def summary(out):
    return json.loads((out / "summary.json").read_text())


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_a_log_becomes_a_table_pictures_and_a_report(name, tmp_path, monkeypatch, capsys):
    table, path, out = log(), tmp_path / name, tmp_path / "out"
    monkeypatch.setenv("COLUMNS", "200")
    table.to_csv(path, index=False) if name == "log.csv" else table.to_parquet(path)
    options = ("--columns", "state=ward", *QUICK, "--seed", "3", "--out", out)
    assert run(monkeypatch, "evaluate", path, *options) == 0
    printed = capsys.readouterr().out
    assert {file.name for file in out.iterdir()} == WRITTEN
    for words in ("episode: read from patient_id", "osirwis (welch, 0.05)", "report:", "mc: not"):
        assert words in printed
    batch = oj.read_log(path, columns={"state": "ward"})
    found = summary(out)
    for row in found["rows"]:
        assert row["value"] == pytest.approx(float(oj.estimate(batch, row["estimator"])), rel=1e-6)
    assert found["log"]["labels"]["state"] == [f"<ward {state}>" for state in range(STATES)]
    report = (out / "report.html").read_text()
    assert "&lt;ward 0&gt;" in report
    assert "<ward" not in report
    assert shlex.split(found["command"])[1:4] == ["evaluate", str(path), "--columns"]
    assert "--seed 3" in found["command"]
    assert found["settings"]["key"] == [0, 3]
    assert "| wis |" in (out / "evaluation.md").read_text()


def test_missing_propensities_are_fitted_and_two_targets_compared(tmp_path, monkeypatch, capsys):
    _, target, other = policies()
    path, out = tmp_path / "log.csv", tmp_path / "out"
    log().drop(columns=["propensity", "target_prob"]).to_csv(path, index=False)
    for name, table in (("target", target), ("other", other)):
        states = [
            f"<ward {state}>" for state in (2, 0, 3, 1)
        ]  # in another order than the log's ids
        np.savez(tmp_path / f"{name}.npz", table=table[[2, 0, 3, 1]], states=states)
    files = ("--target", tmp_path / "target.npz", "--compare", tmp_path / "other.npz")
    options = ("--columns", "state=ward", *files, *QUICK, "--out", out)
    assert run(monkeypatch, "evaluate", path, *options) == 0
    printed = capsys.readouterr().out
    assert "The propensities were not logged but fitted by counts per state" in printed
    target, other = (pd.DataFrame(t, [f"<ward {s}>" for s in range(4)]) for t in (target, other))
    fit = oj.fit_behavior(oj.read_log(path, columns={"state": "ward"}, target=target))
    values = [
        float(oj.estimate(oj.with_policies(fit.batch, target=policy), "wis"))
        for policy in (target, other)
    ]
    row = summary(out)["differences"][0]
    assert (row["value"], row["compared"]) == pytest.approx(values, rel=1e-5)
    assert row["low"] < row["high"]
    report = (out / "report.html").read_text()
    for words in (
        "not logged but fitted",
        "Calibration of the fitted",
        "Comparison of two policies",
    ):
        assert words in report
    assert str(tmp_path / "other.npz") in report


def remove(*names):
    return lambda table: table.drop(columns=list(names))


def put(column, value):
    return lambda table: table.astype({column: object}).assign(
        **{column: [value, *table[column][1:]]}
    )


KEEP = ("--columns", "state=ward")
BAD = {
    "no reward": (remove("reward"), KEEP, "reward: no column looks like it"),
    "no target": (remove("target_prob"), KEEP, "says nothing of the policy to evaluate"),
    "probability 0": (put("propensity", 0.0), KEEP, "propensity"),
    "probability 1.2": (put("propensity", 1.2), KEEP, "propensity"),
    "text": (put("reward", "much"), KEEP, "reward"),
    "missing state": (lambda table: table, (), "state: missing"),
    "columns": (lambda table: table, ("--columns", "ward"), "columns: expected field=column"),
    "field": (lambda table: table, ("--columns", "colour=ward"), "columns: colour is not a field"),
    "twice": (
        lambda table: table,
        ("--columns", "state=ward,state=t"),
        "columns: state is given twice",
    ),
    "estimator": (lambda table: table, (*KEEP, "--estimators", "wiz"), "'wiz' is unknown"),
    "alpha": (lambda table: table, (*KEEP, "--alpha", "lots"), "expected numbers, or auto"),
    "alpha of 2": (lambda table: table, (*KEEP, "--alpha", "2"), "alpha: must be in [0, 1]"),
    "method": (lambda table: table, (*KEEP, "--methods", "magic"), "methods: 'magic' is unknown"),
    "no policy": (lambda table: table, (*KEEP, "--target", "none.npz"), "none.npz"),
    "no other": (lambda table: table, (*KEEP, "--compare", "none.npz"), "none.npz"),
    "bounds": (lambda table: table, (*KEEP, "--return-bounds", "0"), "return_bounds: expected"),
    "resamples": (lambda table: table, (*KEEP, "--resamples", "1"), "resamples: expected"),
    "option": (lambda table: table, (*KEEP, "--magic"), "No such option"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_writes_nothing(kind, tmp_path, monkeypatch, capsys):
    change, arguments, problem = BAD[kind]
    path, out = tmp_path / "log.csv", tmp_path / "out"
    change(log(episodes=5)).to_csv(path, index=False)
    assert run(monkeypatch, "evaluate", path, *arguments, "--out", out) == 2
    said = capsys.readouterr().err
    assert said.startswith("osiris-jax: ")
    assert said.count("\n") == 1
    assert problem in said
    assert not out.exists()


def test_files_that_are_no_logs(tmp_path, monkeypatch, capsys):
    broken, out = tmp_path / "log.parquet", tmp_path / "out"
    broken.write_bytes(b"PAR1 and no more")
    for path in (broken, tmp_path / "nowhere.csv"):
        assert path.name in refusal(monkeypatch, capsys, "evaluate", path, "--out", out)
    log(episodes=3).to_csv(tmp_path / "log.csv")
    out.write_text("a file")
    line = refusal(monkeypatch, capsys, "evaluate", tmp_path / "log.csv", "--out", out)
    assert "expected a folder" in line
    assert out.read_text() == "a file"


def test_columns_as_typed():
    assert read_columns(None) is None
    assert read_columns("episode=id, state=a,b,action=") == {
        "episode": "id", "state": "a,b", "action": None
    }  # fmt: skip


def test_the_command_to_repeat(tmp_path):
    assert (
        EvaluateLog(tmp_path).command == f"osiris-jax evaluate {tmp_path} --seed 0 --out runs/log"
    )
    asked = EvaluateLog(
        tmp_path / "a b.csv", alpha="auto", methods=("t", "bca"), return_bounds=(0.0, 1.0)
    )
    words = shlex.split(asked.command)
    assert words[2] == str(tmp_path / "a b.csv")
    assert words[3:9] == ["--alpha", "auto", "--methods", "t,bca", "--return-bounds", "0.0,1.0"]
