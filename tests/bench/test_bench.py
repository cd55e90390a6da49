"""Benchmarks: the harness by a fake clock, exponents, byte counts, rivals, and the whole suite."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import NUM_STATES, random_data
from oracles import entries
from running import run

import osiris_jax as oj
from osiris_jax.bench import data, report, rivals, scaling, scope_rl, suite
from osiris_jax.bench.case import Case, Place, Rival, Settings
from osiris_jax.bench.harness import machine
from osiris_jax.bench.roofline import Bandwidth

SHAPE = (6, 5, 3)

QUICK = Settings(quick=True)

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


def row(name="wis", group="scaling", **fields):
    shape = fields.pop("shape", {"trajectories": 10, "steps": 5, "states": 3})
    given = {"compile_seconds": 1.0, "least": 0.5, "median": 0.6, "runs": 3} | fields
    return suite.Timing(group, name, shape, "float32", **given)


# --- rivals -----------------------------------------------------------------------------------


def numpy_log(episodes):
    with jax.enable_x64(True):
        return data.as_numpy(oj.from_episodes(episodes, num_states=NUM_STATES))


@pytest.mark.parametrize("name", rivals.ESTIMATORS)
@pytest.mark.parametrize("size", [1, 2, 6, 15])
def test_rivals_are_the_definitions(name, size):
    for seed in range(8):
        episodes = random_data(seed, size)
        found = rivals.ESTIMATORS[name](numpy_log(episodes))
        expected = entries.of_estimator(name)(episodes)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("test", rivals.RELEVANCE)
@pytest.mark.parametrize("weighting", ["to-go", "future", "none"])
@pytest.mark.parametrize("size", [1, 4, 15])
def test_rivals_test_relevance_as_defined(test, weighting, size):
    for seed in range(4):
        episodes = random_data(seed, size)
        found = rivals.RELEVANCE[test](numpy_log(episodes), weighting)
        expected = oracle.pvalues(episodes, NUM_STATES, test, weighting)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_rivals_omit_as_defined():
    episodes, alphas = random_data(3, 12), (0.0, 0.55, 0.8, 1.0)
    pvalues = oracle.pvalues(episodes, NUM_STATES)
    assert len(set(pvalues > 0.55)) == 2
    found = rivals.pipeline(numpy_log(episodes), ("osiris", "mis", "wis", "osirwis"), alphas)
    plain = [oracle.mis(episodes), oracle.wis(episodes)]
    omitted = [oracle.omit(episodes, oracle.keep_map(pvalues, alpha)) for alpha in alphas]
    expected = [*plain, *map(oracle.is_, omitted), *map(oracle.wis, omitted)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_log_is_the_same_for_us_and_for_scope_rl(double):
    batch = oj.from_scope_rl(*scope_rl.dictionaries(*SHAPE))
    ours = data.log(*SHAPE)
    for field in ("reward", "log_ratio", "state", "action", "mask", "target_probs"):
        np.testing.assert_allclose(getattr(batch, field), getattr(ours, field), rtol=1e-12)


# --- the suite --------------------------------------------------------------------------------


def test_a_rival_with_other_numbers_has_no_ratio():
    right = suite.beside(row(), Rival("NumPy", lambda: 2.0, lambda: jnp.asarray(2.0)), QUICK)
    assert right.agrees
    assert right.ratio == pytest.approx(right.rival_seconds / 0.5)
    wrong = suite.beside(row(), Rival("NumPy", lambda: 2.0, lambda: jnp.asarray(2.1)), QUICK)
    assert (wrong.agrees, wrong.ratio) == (False, None)
    assert wrong.note == "disagrees with NumPy: by 5.0e-02"
    absent = suite.beside(row(), Rival("NumPy", lambda: 2.0, lambda: jnp.nan), QUICK)
    assert absent.note == "disagrees with NumPy: NaN in other places"


def test_a_rival_that_does_a_part_is_scaled_to_the_whole():
    slow = Rival("NumPy", lambda: 1.0, lambda: jnp.asarray(1.0))
    whole, part = (
        suite.beside(row(), slow._replace(part=p), QUICK).rival_seconds for p in (1, 1e-6)
    )
    assert part > 1e4 * whole


def results(*rows):
    facts = machine("float32") | {"load after": None}
    return suite.Results(facts, Bandwidth(1e10, 2e10, 5e9, 2**20), rows, quick=False)


def test_rows_make_curves_whatever_their_order():
    points = [(40, 16.0), (10, 1.0), (20, 4.0)]
    rows = [row(shape={"steps": n}, axis="steps", least=t) for n, t in points]
    (curve,) = scaling.curves([*rows, row(), row("mis", shape={"steps": 9}, axis="steps")])
    assert (curve.sizes, curve.seconds) == ((10, 20, 40), (1.0, 4.0, 16.0))
    assert (curve.exponent, curve.tail) == pytest.approx((2.0, 2.0))
    assert curve.spread == pytest.approx(3.0)
    assert curve.expected == 1.0
    assert curve._replace(name="incris").expected == 2.0
    assert curve._replace(axis="alphas").expected is None


def test_what_is_found_is_said():
    shape = {"trials": 1000, "trajectories": 25}
    trials = [(1000, 0.1), (10_000, 1.1), (100_000, 13.0)]
    said = report.findings(
        results(
            row("dd", "pipeline", shape=shape, us_per_trial=123.4, rival="NumPy", ratio=70.0),
            row("cp", "cartpole", shape=shape, least=9.0, peak_memory=2 * 10**9),
            row("cores 1, devices 1", "cores", least=2.0),
            row("cores 2, devices 2", "cores", least=1.25),
            *(row("dd", shape={"trials": n}, least=t, axis="trials") for n, t in trials),
        )
    )
    for line in (
        "dd: 123 us per trial over 1000.",
        "dd: NumPy takes 70 times as long.",
        "cp, 1000 trials of 25: 9 s, at most 2 GB.",
        "Cost of a trial: 100 us at 1000, 110 us at 10000, 130 us at 100000; NOT constant within "
        "20 % (spread 30 %).",
        "dilly-dallying on cores 2, devices 2: 1.60 times the speed of one core.",
        "No rival was compared.",
    ):
        assert line in said


def test_cases_that_waited_for_a_processor_are_named():
    rows = row("wis", processor=0.3), row("mis", processor=0.5), row("is")
    (line,) = report.starved_lines(results(*rows))
    assert line.startswith("1 of 3 cases had a core less than 80 % of their time")
    assert line.endswith("too high: scaling: wis.")
    assert not report.starved_lines(results(*rows[1:]))


def test_a_disagreement_is_shouted_and_ends_with_1(monkeypatch, capsys, tmp_path):
    bad = row(difference=0.5, rival="NumPy", note="disagrees with NumPy: by 5.0e-01")
    monkeypatch.setattr("osiris_jax.bench.suite.run", lambda *arguments: results(bad))
    assert run(monkeypatch, "bench", "--out", tmp_path) == 1
    assert "WRONG: 1 of 1 rivals" in " ".join(capsys.readouterr().out.split())


def test_times_and_sizes_have_their_unit():
    times = {None: "", 2.5: "2.5 s", 0.0123: "12.3 ms", 4e-7: "0.4 us"}
    assert {value: report.seconds(value) for value in times} == times
    sizes = {None: "", 7: "7 B", 1234: "1.23 KB", 2.5e11: "250 GB"}
    assert {value: report.size(value) for value in sizes} == sizes


def test_quick_runs_everything(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, "bench", "--quick", "--out", tmp_path) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "say nothing about speed" in printed
    assert "rivals give the same numbers in float64" in printed
    found = json.loads((tmp_path / "bench.json").read_text())
    groups = {row["group"] for row in found["rows"]}
    optional = {"cartpole"} | (set() if scope_rl.installed() else {"scope-rl"})
    assert groups == set(suite.GROUPS) - optional
    for one in found["rows"]:
        assert 0 < one["least"] <= one["median"]
        assert one["peak_memory"] > 10**7
        assert one["agrees"] in (True, None)
        assert one["dtype"] == "float32"
    compared = {one["name"] for one in found["rows"] if one["agrees"]}
    assert {"dilly-dallying", "wis", "mis", "welch", "welch + osirwis, 3 alphas"} <= compared
    assert {curve["axis"] for curve in found["curves"]} == {"trajectories", "trials"}
    assert found["machine"]["load after"] is not None
    table = (tmp_path / "bench.md").read_text()
    assert all(f"## {group}\n" in table for group in groups)
    for name in ("ratios", "scaling", "roofline"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_scope_rl_is_beside_ours_where_it_is_installed(monkeypatch):
    class Theirs:
        def __init__(self, name):
            self.name = name

        def estimate_policy_value(self, step_per_trajectory, reward, **given):
            log = data.as_numpy(data.log(*QUICK.log_shape))
            assert (step_per_trajectory, reward.size) == (log.reward.shape[1], log.reward.size)
            assert set(given) == {"action", "pscore", "evaluation_policy_action_dist"}
            return rivals.ESTIMATORS[self.name](log)

    monkeypatch.setattr(scope_rl, "installed", lambda: True)
    monkeypatch.setattr(scope_rl, "estimator", Theirs)
    with jax.enable_x64(True):
        found = suite.run(dataclasses.replace(QUICK, dtype="float64"), ["scope-rl"])
    assert [row.name for row in found.rows] == list(scope_rl.THEIRS)
    assert all(row.agrees and row.rival == "SCOPE-RL" for row in found.rows)
    assert {row.dtype for row in found.rows} == {"float64"}


def test_a_process_that_fails_says_why():
    case = Case("cores", "no such case", {}, lambda: None, place=Place(1, 1))
    with pytest.raises(ValueError, match=r"^no such case: its process ended with 1: "):
        suite.row_of(case, QUICK, 1e10)


# --- scripts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_scripts_find_what_they_import_and_are_listed(monkeypatch, script):
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setattr(sys, "argv", [script])
    module = importlib.import_module(script)
    assert module.__file__ == str(SCRIPTS / f"{script}.py")
    assert f"`{script}.py`" in (SCRIPTS / "README.md").read_text()
