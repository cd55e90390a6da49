"""The arena: regrets by hand, what may be the least, and that nothing is computed twice."""

import json
import shutil

import numpy as np
import pytest
from running import run
from small_world import small_world

import osiris_jax as oj
from osiris_jax.study import arena as module
from osiris_jax.study.arena import COMPARED, estimators_of, worlds_of
from osiris_jax.study.plan import Cell
from osiris_jax.study.regret import Field, label_of, rows_of_world, standings
from osiris_jax.study.summary import Truth

TRUTH, SPREAD = 1.5, 0.3


class World:
    name = "mine"


def field(trials, **changes):
    values = {"world": World, "trials": trials, "truth": Truth(TRUTH, 0.0, 0), "behavior": 1.2}
    values |= {"spread": {5: SPREAD}, "half": "design", "kind": "markov, light"}
    return Field(**values | changes)


def cell(name, alpha=None, relevance=None, size=5):
    relevance = "welch" if alpha is not None and relevance is None else relevance
    return Cell(name, relevance, alpha, None, size)


def drawn(trials=400, seed=0):
    """Errors of five cells that depend on each other, as those of one data set do."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=trials)
    spreads = {
        cell("mc"): 0.9,
        cell("wis"): 0.5,
        cell("osirwis", 0.05): 0.3,
        cell("osirwis", 0.2): 0.1,  # less, but no part of the comparison set
        cell("osirwis", None, "welch:alpha=auto"): 0.2,
    }
    return {
        key: TRUTH + 0.1 + spread * (common + 0.5 * rng.normal(size=trials))
        for key, spread in spreads.items()
    }


def compare(found, **changes):
    trials = len(next(iter(found.values())))
    rows = rows_of_world(field(trials, **changes), found, COMPARED, 0.05, "mc")
    return {label_of(row): row for row in rows}


def test_regret_by_hand():
    found = drawn()
    rows = compare(found)
    rmse = {key: np.sqrt(np.mean((x - TRUTH) ** 2)) for key, x in found.items()}
    least = rmse[cell("osirwis", 0.05)]
    for key, label in zip(
        found,
        ("mc", "wis", "osirwis", "osirwis welch 0.2", "osirwis auto"),
        strict=True,
    ):
        row, error = rows[label], np.abs(found[key] - TRUTH)
        assert row["rmse"] == pytest.approx(rmse[key])
        assert row["regret"] == pytest.approx(rmse[key] / least)
        assert row["abs_error_median"] == pytest.approx(np.median(error))
        assert row["abs_error_q90"] == pytest.approx(np.quantile(error, 0.9))
        assert row["signal"] == pytest.approx(0.3 / SPREAD)
        assert (row["undefined"], row["nan_trials"]) == (0, 0)
        assert (row["half"], row["kind"], row["world"]) == ("design", "markov, light", "mine")
    assert rows["osirwis"]["regret_se"] == 0
    assert rows["osirwis welch 0.2"]["regret"] < 1


def test_the_error_of_a_regret_is_that_of_paired_data_sets():
    """Within four standard errors of what 500 repetitions show; unpaired it would be far more."""
    rows = [compare(drawn(200, seed))["wis"] for seed in range(500)]
    spread = np.std([row["regret"] for row in rows])
    told = np.mean([row["regret_se"] for row in rows])
    assert abs(told / spread - 1) < 4 / np.sqrt(2 * 500) + 0.05
    unpaired = np.mean([row["rmse_se"] / row["rmse"] * row["regret"] for row in rows])
    assert told < 0.7 * unpaired * np.sqrt(2)


def test_what_is_undefined_counts_with_the_value_of_mc_and_is_counted():
    found = drawn()
    plain = compare(found)
    found[cell("wis")][:8] = np.nan
    rows = compare(found)
    filled = np.where(np.isnan(found[cell("wis")]), found[cell("mc")], found[cell("wis")])
    assert rows["wis"]["rmse"] == pytest.approx(np.sqrt(np.mean((filled - TRUTH) ** 2)))
    assert (rows["wis"]["undefined"], rows["wis"]["nan_trials"]) == (0.02, 8)
    assert rows["mc"] == plain["mc"]


@pytest.mark.parametrize(("missing", "wins"), [(4, True), (5, False)])
def test_one_undefined_in_over_one_percent_is_not_the_least(missing, wins):
    found = drawn()
    found[cell("osirwis", 0.05)][:missing] = np.nan
    rows = compare(found)
    assert (rows["osirwis"]["regret"] == 1) == wins
    assert (rows["wis"]["regret"] == 1) == (not wins)


def test_a_signal_is_simulated_where_it_is_not_exact():
    found = drawn()
    of_mc = found[cell("mc")]
    row = compare(found, behavior=None, spread={})["wis"]
    assert row["signal"] == pytest.approx(abs(of_mc.mean() - TRUTH) / of_mc.std())


def test_errors_of_zero_have_a_regret():
    for rounding, regrets in ((0, (1, np.inf)), (1e-7, (1, np.inf)), (1e-3, (1, 1e3))):
        found = {cell("mc"): np.full(10, TRUTH + 1), cell("wis"): np.full(10, TRUTH + rounding)}
        rows = compare(found)
        assert (rows["wis"]["regret"], rows["mc"]["regret"]) == pytest.approx(regrets)
    assert np.isfinite(rows["mc"]["regret_se"])


def rows_with(regrets):
    """World -> regrets of `wis` and of `mc`."""
    return [
        {"world": world, "size": 5, "estimator": name, "relevance": None, "alpha": None}
        | {"threshold": None, "regret": regret, "regret_se": 0.1 * regret, "undefined": 0.5}
        for world, both in regrets.items()
        for name, regret in zip(("wis", "mc"), both, strict=True)
    ]


def test_where_one_is_exact_the_others_are_not_judged():
    usual, exact = {"a": (1.0, 4.0), "b": (9.0, 1.0)}, {"c": (1.0, np.inf)}
    assert standings(rows_with(usual | exact)) == standings(rows_with(usual))
    assert [one.worst for one in standings(rows_with(exact))] == [1, np.inf]


def test_standings_by_hand():
    first, second = standings(rows_with({"a": (1.0, 4.0), "b": (9.0, 1.0)}))
    assert (first.label, first.regret, first.worst, first.worst_world) == ("mc", 2, 4, "a")
    assert (second.label, second.worst, second.worst_world) == ("wis", 9, "b")
    assert second.regret == pytest.approx(3)
    assert (first.wins, second.wins, first.cells, first.undefined) == (1, 1, 2, 0.5)
    assert first.regret_se == pytest.approx(2 * np.hypot(0.1, 0.1) / 2)


def test_the_comparison_set_holds_every_estimator():
    """Those without ratios have no form after omission; what chooses among others is no part."""
    short = {"is": "osiris", "wis": "osirwis"}
    expected = {name for name, entry in oj.ESTIMATORS.items() if not entry.chooses}
    for name, entry in oj.ESTIMATORS.items():
        if entry.may_omit and entry.reads_ratios:
            expected.add(short.get(name, f"osiris-{name}"))
    assert set(COMPARED) == expected


SMALL = {"trials": 6, "sizes": (4, 5), "estimators": ("wis", "osirwis", "dm")}


def test_rows_are_those_of_studies_of_the_same_data():
    world = small_world()
    result = oj.Arena(worlds=[world], **SMALL).run(seed=3)
    study = oj.Study(
        world=world, trials=6, sizes=(4, 5), estimators=("mc", "wis", "dm", "osirwis"), seed=3
    )
    expected = {(row["estimator"], row["size"]): row for row in study.run().rows}
    assert {(row["estimator"], row["size"]) for row in result.rows} == set(expected)
    for row in result.rows:
        again = expected[row["estimator"], row["size"]]
        for name in ("mean", "rmse", "truth"):
            assert row[name] == pytest.approx(again[name], rel=1e-5)
    assert list(result.summary().columns) == list(module.ARENA_COLUMNS)
    exact = world.exact()
    gap = abs(exact.value - exact.behavior_value)
    assert result.rows[0]["signal"] == pytest.approx(gap / exact.moments("mc", n=4).std)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("arena") / "run"
    return out, oj.Arena(worlds=[small_world()], **SMALL).run(seed=3, out=out)


def counted(monkeypatch):
    """How many trials of which estimators are computed from now on."""
    computed = []
    plain = module.Study.run

    def counts(study, **options):
        seen = []
        result = plain(study, **options | {"progress": lambda _, *step: seen.append(step)})
        computed.append((study.estimators, seen[0][0] < seen[0][1]))
        return result

    monkeypatch.setattr(module.Study, "run", counts)
    return computed


def test_a_finished_arena_computes_nothing_again(folder, monkeypatch):
    out, first = folder
    computed = counted(monkeypatch)
    assert oj.Arena(worlds=[small_world()], **SMALL).run(seed=3, out=out).rows == first.rows
    assert computed == [(("mc", "wis", "osirwis", "dm"), False)]


def test_only_what_is_missing_is_computed(folder, monkeypatch, tmp_path):
    out = shutil.copytree(folder[0], tmp_path / "copy")
    computed = counted(monkeypatch)
    more = SMALL | {"estimators": ("is", *SMALL["estimators"], "osiris-mis")}
    result = oj.Arena(worlds=[small_world()], **more).run(seed=3, out=out)
    assert computed == [(("mc", "wis", "osirwis", "dm"), False), (("is", "osiris-mis"), True)]
    assert len(result.rows) == 2 * 6
    again = oj.Arena(worlds=[small_world()], **more).run(seed=3)
    regrets = [[row.regret for row in one.standings] for one in (result, again)]
    np.testing.assert_allclose(*regrets, rtol=1e-4)


def test_levels_that_are_missing_are_added(folder, monkeypatch, tmp_path):
    """The level chosen from the data joins the rows of the folder, and is no part of the set."""
    out = shutil.copytree(folder[0], tmp_path / "copy")
    more = SMALL | {"estimators": ("osirwis",), "alphas": (0.05, "auto")}
    computed = counted(monkeypatch)
    result = oj.Arena(worlds=[small_world()], **more).run(seed=3, out=out)
    assert computed == [(("mc", "wis", "osirwis", "dm"), False), (("osirwis",), True)]
    labels = {standing.label for standing in result.standings}
    assert labels == {"mc", "wis", "osirwis", "dm", "osirwis auto"}
    before = {(row["estimator"], row["size"]): row["regret"] for row in folder[1].rows}
    for row in result.rows:
        if label_of(row) != "osirwis auto":
            assert row["regret"] == before[row["estimator"], row["size"]]
    again = oj.Arena(worlds=[small_world()], **more).run(seed=3, out=out)
    assert again.rows == result.rows
    assert [done for _, done in computed[2:]] == [False, False]


def test_what_was_begun_and_left_without_a_chunk_is_begun_again(folder, tmp_path):
    out = shutil.copytree(folder[0], tmp_path / "copy")
    part = out / "worlds" / small_world().name / "part-0"
    shutil.rmtree(part)
    (part / "trials").mkdir(parents=True)
    result = oj.Arena(worlds=[small_world()], **SMALL).run(seed=3, out=out)
    assert result.rows == folder[1].rows


def test_another_arena_in_the_same_folder_is_refused(folder):
    with pytest.raises(ValueError, match="holds another study, which differs in seed"):
        oj.Arena(worlds=[small_world()], **SMALL).run(seed=4, out=folder[0])


def test_halves_and_names():
    assert "express" in worlds_of("design")
    assert "lift-7" in worlds_of(("report",))
    assert worlds_of(("lift-7", "express")) == ("lift-7", "express")
    assert estimators_of("all") == COMPARED
    assert estimators_of(("all", "-incris", "-osiris-incris"))[:2] == ("mc", "is")
    assert "incris" not in estimators_of(("all", "-incris"))
    assert estimators_of(("wis", "cwpdis:finished=drop")) == ("mc", "wis", "cwpdis:finished=drop")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"worlds": "mars"}, "worlds: 'mars' is unknown; there are design, report, all, and"),
        ({"worlds": ()}, "worlds: none given"),
        ({"worlds": ("express", "design")}, "worlds: 'express' is given twice"),
        ({"estimators": ("wish",)}, "estimator: 'wish' is unknown"),
        ({"estimators": ("wis", "-is")}, "estimators: 'is' cannot be left out, it is not there"),
        ({"estimators": ("wis", "-wis")}, "estimators: none given"),
        ({"sizes": (0,)}, "sizes: expected an integer from 1"),
        ({"sizes": ()}, "sizes: none given"),
        ({"trials": 1}, "trials: expected an integer from 2"),
        ({"seed": -1}, "seed: expected an integer from 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.Arena(**{"worlds": ("express",)} | fields)


def test_the_command_shows_tables_and_draws(monkeypatch, capsys, tmp_path):
    words = ("--worlds", "first-look,model-fail", "--sizes", "5", "--trials", "4")
    words += ("--estimators", "all,-incris,-osiris-incris,-dr", "--out", tmp_path)
    estimators = {"mc", "wis", "osirwis", "dm"}
    monkeypatch.setattr(module, "COMPARED", ("mc", "wis", "osirwis", "dm", "incris", "dr"))
    words = tuple(str(w).replace(",-osiris-incris", "") for w in words)
    assert run(monkeypatch, "arena", *words) == 0
    printed = capsys.readouterr().out
    for text in ("Regret over 2 worlds", "first-look", "aliased, light", "Signal:", *estimators):
        assert text in printed
    rows = json.loads((tmp_path / "summary.json").read_text())
    assert {row["estimator"] for row in rows} == estimators
    assert set(rows[0]) == set(module.ARENA_COLUMNS)
    made = json.loads((tmp_path / "arena.json").read_text())
    assert made["worlds"] == ["first-look", "model-fail"]
    assert {"osiris-jax", "jax"} <= set(made["versions"])
    page, latex = (tmp_path / name for name in ("arena.md", "arena.tex"))
    assert "## Regret where worlds are aliased, light" in page.read_text()
    assert latex.read_text().count(r"\\") == 1 + len(estimators)
    assert r"\toprule" in latex.read_text()
    for name in ("regret", "heatmap"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
