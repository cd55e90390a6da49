"""`osiris-jax reproduce` as users run it: files, digits, exact values, bad input."""

import json

import pandas
import pytest
from running import refusal, refused, run

import osiris_jax as oj
from osiris_jax.cli import pages, reproduction
from osiris_jax.cli.reproduce import Reproduce
from osiris_jax.core.faces import Table
from osiris_jax.paper.numbers import TABLES
from osiris_jax.paper.protocol import INDEPENDENT, PUBLISHED
from osiris_jax.study.summary import COLUMNS

TRIALS = 1000


def reproduce(monkeypatch, *arguments):
    return run(monkeypatch, "reproduce", *arguments)


@pytest.fixture(scope="module")
def table1(tmp_path_factory):
    """The folder of table 1 in Express under both protocols."""
    out = tmp_path_factory.mktemp("reproduced") / "table1"
    options = ("--worlds", "express", "--trials", TRIALS, "--out", out)
    with pytest.MonkeyPatch.context() as patch:
        assert reproduce(patch, "table1", *options) == 0
    return out


def rows_of(out):
    return json.loads((out / "summary.json").read_text())


def test_a_table_is_written_in_every_form(table1):
    rows = rows_of(table1)
    assert [row["protocol"] for row in rows] == ["published"] * 8 + ["independent"] * 8
    assert all(list(row) == list(COLUMNS) for row in rows)
    names = [column.estimator for column in TABLES["table1"].columns]
    assert [row["estimator"] for row in rows] == names * 2
    for row in rows:
        assert (row["relevance"], row["alpha"]) == (
            ("welch", 0.05) if row["estimator"].startswith("osir") else (None, None)
        )
        assert (row["world"], row["size"], row["trials"]) == ("express", 25, TRIALS)
        assert (row["mean_se"] is None) == (row["protocol"] == "published")
    page = (table1 / "table1.md").read_text()
    assert "express, independent: exact for is (N = 25): mean 4.19" in page
    for part in ("in the paper", "What the paper finds", "independent", "`seeds`:"):
        assert part in page
    assert "\\begin{tabular}" in (table1 / "table1.tex").read_text()
    for name in ("table1.png", "table1.pdf", "findings.json"):
        assert (table1 / name).stat().st_size > 1000


def test_the_trials_are_kept(table1):
    for protocol in ("published", "independent"):
        frame = pandas.read_parquet(table1 / protocol / "express" / "trials")
        assert sorted(set(frame.trial)) == list(range(TRIALS))
        mean = frame[frame.estimator == "wis"].value.mean()
        (row,) = (
            r for r in rows_of(table1) if (r["protocol"], r["estimator"]) == (protocol, "wis")
        )
        assert mean == pytest.approx(row["mean"])


def test_independent_importance_sampling_agrees_with_the_exact_moments(table1):
    row = rows_of(table1)[8]
    exact = oj.make("express").exact().moments("is", n=25)
    assert row["estimator"] == "is"
    assert row["truth"] == pytest.approx(4.190041541850957)
    assert abs(row["mean"] - exact.mean) < 4 * row["mean_se"]
    assert abs(row["std"] - exact.std) < 4 * row["std_se"]


def test_run_again_it_computes_nothing(table1, monkeypatch, capsys):
    def fail(*arguments):
        raise AssertionError("computed again")

    monkeypatch.setattr("osiris_jax.paper.run.values_of", fail)
    monkeypatch.setattr("osiris_jax.study.engine.Engine.values", fail)
    before = (table1 / "summary.json").read_bytes()
    arguments = ("table1", "--worlds", "express", "--trials", TRIALS, "--out", table1)
    assert reproduce(monkeypatch, *arguments) == 0
    assert (table1 / "summary.json").read_bytes() == before
    printed = capsys.readouterr().out
    assert f"express, published: {TRIALS} trials of 25, mean of the on-policy trials" in printed
    assert str(table1 / "table1.png") in printed


def test_other_trials_in_the_same_folder_are_refused(table1, monkeypatch, capsys):
    options = ("--worlds", "express", "--trials", 7, "--out", table1)
    assert reproduce(monkeypatch, "table1", *options) == 2
    assert "differs in trials" in capsys.readouterr().err


def test_the_ablation_has_a_step_for_every_deviation(monkeypatch, tmp_path, capsys):
    out = tmp_path / "ablation"
    options = ("--worlds", "express", "--trials", 4, "--out", out)
    assert reproduce(monkeypatch, "ablation", *options) == 0
    rows = rows_of(out)
    steps = list(dict.fromkeys(row["protocol"] for row in rows))
    assert steps[:2] == ["published", "independent seeds"]
    assert steps[-1] == "MIS as defined"
    assert len(rows) == 6 * 8
    assert "ddof 1" in (out / "ablation.md").read_text()
    assert "INCRIS as defined" in capsys.readouterr().out


def test_a_figure_is_written_under_each_protocol(monkeypatch, tmp_path, capsys):
    options = ("--worlds", "express", "--trials", 3, "--protocol", "both", "--out", tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert reproduce(monkeypatch, "figS3", *options) == 0
    for name in ("figS3", "figS3-published"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        page = (tmp_path / f"{name}.md").read_text()
        assert "What the paper says of it" in page
        assert ("too small" in page) == name.endswith("published")
    assert {row["protocol"] for row in rows_of(tmp_path)} == {"published", "independent"}
    claims = json.loads((tmp_path / "findings.json").read_text())
    assert {claim["holds"] for claim in claims} <= {True, False}
    printed = capsys.readouterr().out
    assert "omission shortens effective lengths" in printed
    assert str(tmp_path / "figS3-published.png") in printed


def test_all_makes_a_page_that_shows_every_part(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reproduction, "EVERYTHING", ("tableS2", "fig1", "figS2"))
    options = ("--worlds", "dilly-dallying", "--trials", 3, "--out", tmp_path)
    assert reproduce(monkeypatch, "all", *options) == 0
    page = (tmp_path / "index.html").read_text()
    for name in ("tableS2/tableS2.png", "tableS2/tableS2.tex", "fig1/fig1.png"):
        assert f'="{name}"' in page
        assert (tmp_path / name).exists()
    assert "figS2" not in page, "it shows another world"
    assert "<table>" in page
    assert str(tmp_path / "index.html") in capsys.readouterr().out


def test_the_page_escapes_what_it_shows(tmp_path):
    table = Table("<b>caption</b>", ["<i>"], [["<script>"]])
    section = pages.Section("x", "<title>", [table], ["a & b"], [], [])
    pages.write_index("<page>", [section], tmp_path / "index.html")
    text = (tmp_path / "index.html").read_text()
    for escaped in ("&lt;script&gt;", "&lt;b&gt;caption", "&lt;title&gt;", "a &amp; b"):
        assert escaped in text
    assert "<script>" not in text


def test_every_target_is_part_of_all():
    assert set(reproduction.EVERYTHING) == set(reproduction.TARGETS)
    assert set(reproduction.WORLDS) == set(reproduction.TARGETS)


BAD = {
    "unknown target": (("table9",), "target: 'table9' is unknown"),
    "unknown protocol": (("table1", "--protocol", "mine"), "protocol: 'mine' is not one of"),
    "unknown world": (("table1", "--worlds", "mars"), "worlds: table1 has dilly-dallying, express"),
    "a world without numbers": (("tableS2", "--worlds", "cartpole"), "worlds: tableS2 has"),
    "no worlds": (("table1", "--worlds", ","), "worlds: none given"),
    "one trial": (("table1", "--trials", "1"), "trials: expected an integer from 2"),
    "bad seed": (("table1", "--seed", "-1"), "seed: expected an integer"),
    "no target": ((), "Missing argument"),
    "a figure of another world": (("fig1", "--worlds", "cartpole"), "worlds: fig1 has"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(monkeypatch, capsys, tmp_path, kind):
    arguments, problem = BAD[kind]
    assert problem in refused(monkeypatch, capsys, tmp_path / "run", "reproduce", *arguments)


def test_lunar_lander_says_which_extra_it_needs(monkeypatch, capsys, tmp_path):
    def missing():
        raise ModuleNotFoundError('Lunar Lander needs ... pip install "osiris-jax[lunar]"')

    monkeypatch.setattr("osiris_jax.worlds.lunar_lander.require_extra", missing)
    arguments = ("reproduce", "table1", "--worlds", "all", "--out", tmp_path / "run")
    assert "osiris-jax[lunar]" in refusal(monkeypatch, capsys, *arguments)
    assert not (tmp_path / "run").exists()


def test_what_is_usual():
    request = reproduction.checked(Reproduce("table1", "both"))
    assert request.worlds == ("dilly-dallying", "express", "cartpole")
    assert request.protocols == (PUBLISHED, INDEPENDENT)
    assert str(request.out) == "runs/table1"
    usual = {
        (world, protocol.name): request.trials_of(world, protocol)
        for world in ("express", "cartpole")
        for protocol in request.protocols
    }
    assert usual == {
        ("express", "published"): 200,
        ("express", "independent"): 10_000,
        ("cartpole", "published"): 50,
        ("cartpole", "independent"): 50,
    }
    assert reproduction.checked(Reproduce("fig3")).protocols == (INDEPENDENT,)
    oracle = reproduction.checked(Reproduce("tableS2", "independent", trials=30))
    assert oracle.worlds == ("dilly-dallying", "express")
    assert oracle.trials_of("express", INDEPENDENT) == 30
