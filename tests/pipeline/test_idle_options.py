"""An option that cannot have an effect is refused, and defaults are known from what was given."""

import dataclasses
import inspect
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import NUM_STATES, random_data

import osiris_jax as oj
from osiris_jax import cli
from osiris_jax.models.networks import QNetwork, save_network
from osiris_jax.study.calibration import Calibration
from osiris_jax.study.coverage import Coverage

BATCH = oj.from_episodes(random_data(3, 12), num_states=NUM_STATES)
KEEP = np.arange(NUM_STATES) % 2 == 0
TABLE = np.full((NUM_STATES, 2), 0.5)
ESTIMATE = {
    "alpha": (("wis",), {"alpha": 0.3}),
    "alpha as by default": (("wis",), {"alpha": 0.05}),
    "alpha nan": (("wis",), {"alpha": np.nan}),
    "alpha auto": (("wis",), {"alpha": "auto"}),
    "weighting bogus": (("wis",), {"weighting": "bogus"}),
    "weighting": (("wis",), {"weighting": "none"}),
    "ddof": (("wis",), {"ddof": 0}),
    "threshold": (("wis",), {"threshold": 0.1}),
    "max_kept": (("mc",), {"max_kept": 3}),
    "alpha of effect": (("wis",), {"relevance": "effect", "alpha": 0.3}),
    "alpha beside threshold": (
        ("wis",),
        {"relevance": "effect", "threshold": 1.0, "alpha": "auto"},
    ),
    "ddof of smirnov": (("osirwis",), {"relevance": "smirnov", "ddof": 0}),
    "weighting of a map": (("wis",), {"relevance": "oracle", "keep": KEEP, "weighting": "none"}),
    "q_folds": (("dr",), {"q": np.zeros((NUM_STATES, 2)), "q_folds": 2}),
    "smoothing": (("dr",), {"fit": "nn-q", "smoothing": 0.5}),
    "q_folds of nothing": (
        ("drl",),
        {"q": np.zeros((NUM_STATES, 2)), "marginals": np.ones((12, NUM_STATES)), "q_folds": 2},
    ),
    "resamples": (("wdr",), {"resamples": 50}),
}


@pytest.mark.parametrize("case", ESTIMATE)
def test_estimate_refuses_what_it_would_not_use(case):
    arguments, options = ESTIMATE[case]
    with pytest.raises(ValueError, match=f"^{case.split()[0]}: "):
        oj.estimate(BATCH, *arguments, **options)


def test_what_has_an_effect_is_used():
    data = random_data(3, 12)
    p = oracle.pvalues(data, NUM_STATES, "welch", weighting="to-go", ddof=0)
    found = oj.relevance_pvalues(BATCH, weighting="to-go", ddof=0)
    np.testing.assert_allclose(found, p, atol=1e-4)
    assert abs(p - oj.relevance_pvalues(BATCH)).max() > 0.1
    value = oj.estimate(BATCH, "osirwis", alpha=0.3, weighting="to-go", ddof=0)
    expected = oracle.wis(oracle.omit(data, oracle.keep_map(p, 0.3)))
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_defaults_read_as_they_are_documented():
    for function in (oj.estimate, oj.evaluate, oj.intervals, oj.omission_diagnostics):
        shown = inspect.signature(function).parameters
        assert {name: repr(shown[name].default) for name in ("alpha", "weighting", "ddof")} == {
            "alpha": "0.05",
            "weighting": "'none'",
            "ddof": "1",
        }


OTHERS = {
    "ddof": lambda: oj.relevance_pvalues(BATCH, "smirnov", ddof=0),
    "weighting": lambda: oj.relevance_pvalues(BATCH, "oracle", keep=KEEP, weighting="none"),
    "ddof of a choice": lambda: oj.choose_level(BATCH, relevance="effect", ddof=0),
    "threshold": lambda: oj.omission_diagnostics(BATCH, "welch", threshold=0.1),
    "alpha": lambda: oj.omission_diagnostics(BATCH, "effect", alpha=0.1),
    "alpha of a list": lambda: oj.intervals(BATCH, ["is", "wis"], alpha=0.3),
    "relevance of a list": lambda: oj.intervals(BATCH, ["is", "wis"], relevance="welch"),
    "resamples": lambda: oj.intervals(BATCH, "is", methods="t", resamples=50),
    "weight_bound": lambda: oj.intervals(BATCH, "is", methods="t", weight_bound=10.0),
    "return_bounds": lambda: oj.intervals(BATCH, "is", methods="t", return_bounds=(0, 1)),
    "alpha of an evaluation": lambda: oj.evaluate(BATCH, ["is", "wis"], alpha=0.3),
    "weighting of an evaluation": lambda: oj.evaluate(BATCH, "wis", weighting="bogus"),
    "ddof of an evaluation": lambda: oj.evaluate(BATCH, "osirwis", relevance="smirnov", ddof=0),
    "resamples of an evaluation": lambda: oj.evaluate(BATCH, "is", methods="t", resamples=9),
}


@pytest.mark.parametrize("case", OTHERS)
def test_everything_else_refuses_it_too(case):
    with pytest.raises(ValueError, match=f"^{case.split()[0]}: "):
        OTHERS[case]()


def test_in_a_list_one_user_is_enough():
    options = {"alpha": 0.3, "resamples": 5, "clip": 2.0, "methods": ["percentile", "t"]}
    found = oj.evaluate(BATCH, ["wis", "mc", "osirwis"], **options)
    assert found["osirwis"].alpha == 0.3
    expected = oj.intervals(
        BATCH, "osirwis", alpha=0.3, resamples=5, methods="percentile", clip=2.0
    )
    assert found["osirwis"].value == expected["osirwis"].value


STUDY = {"world": "express", "trials": 2, "sizes": (3,)}
STUDIES = {
    "alphas": {"estimators": ("wis",), "alphas": (0.3,)},
    "relevance": {"estimators": ("wis",), "relevance": ("welch",)},
    "weighting": {"estimators": ("wis",), "weighting": "none"},
    "ddof": {"estimators": ("osirwis",), "relevance": ("smirnov",), "ddof": 0},
    "thresholds": {"estimators": ("osirwis",), "thresholds": (0.1,)},
    "alphas of maps": {"estimators": ("osirwis",), "relevance": ("oracle",), "alphas": (0.3,)},
    "alphas beside auto": {
        "estimators": ("osirwis",),
        "relevance": ("effect",),
        "alphas": (0.3, "auto"),
    },
    "weighting of each test": {
        "estimators": ("osirwis",),
        "relevance": ("welch:weighting=none",),
        "weighting": "to-go",
    },
    "truth_episodes": {"estimators": ("wis",), "truth_episodes": 100},
    "smoothing": {"estimators": ("dr:fit=nn-q:smoothing=0.5",)},
}


@pytest.mark.parametrize("case", STUDIES)
def test_studies_refuse_it(case):
    with pytest.raises(ValueError, match=f"^{case.split()[0]}: "):
        oj.Study(**STUDY, **STUDIES[case])


def test_a_study_keeps_its_defaults_known(tmp_path):
    study = oj.Study(**STUDY, estimators=("wis",))
    again = dataclasses.replace(study, seed=4)
    assert (again.weighting, again.alphas) == ("none", (0.05,))
    (tmp_path / "study.toml").write_text(again.to_toml())
    assert oj.Study.from_toml(tmp_path / "study.toml").settings() == again.settings()
    omitting = oj.Study(**STUDY, estimators=("osirwis",), weighting="future")
    (tmp_path / "study.toml").write_text(omitting.to_toml())
    assert oj.Study.from_toml(tmp_path / "study.toml").settings() == omitting.settings()


@pytest.mark.parametrize(
    ("field", "plan"),
    [
        ("alpha", lambda: Coverage(world="express", estimators=("wis",), alpha=0.3)),
        ("weighting", lambda: Coverage(world="express", estimators=("wis",), weighting="none")),
        ("resamples", lambda: Coverage(world="express", methods=("t",), resamples=9)),
        ("alphas", lambda: Calibration(world="express", tests=("effect",), alphas=(0.3,))),
        ("thresholds", lambda: Calibration(world="express", tests=("welch",), thresholds=(0.3,))),
    ],
)  # fmt: skip
def test_coverage_and_calibration_refuse_it(field, plan):
    with pytest.raises(ValueError, match=f"^{field}: "):
        plan()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    rows = ["episode,step,state,action,reward,behavior_prob,target_prob"]
    rows += [f"{i},{t},{t},{i % 2},{i % 3},0.5,0.5" for i in range(6) for t in range(2)]
    (folder / "log.csv").write_text("\n".join(rows))
    np.savez(folder / "table.npz", table=TABLE)
    save_network(folder / "network.npz", QNetwork.create(jax.random.key(0), (3,), 2, jnp.ones(2)))
    return folder


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("evaluate", "log.csv", "--estimators", "wis", "--alpha", "nan"), "alpha"),
        (("evaluate", "log.csv", "--estimators", "wis", "--alpha", "0.05"), "alpha"),
        (("evaluate", "log.csv", "--alpha", "0.05,0.9"), "alpha"),
        (("evaluate", "log.csv", "--alpha", ","), "alpha"),
        (("evaluate", "log.csv", "--alpha", "2"), "alpha"),
        (("evaluate", "log.csv", "--epsilon", "5"), "epsilon"),
        (("evaluate", "log.csv", "--epsilon", "0.1", "--target", "table.npz"), "epsilon"),
        (("evaluate", "log.csv", "--behavior-epsilon", "0.1"), "behavior_epsilon"),
        (("evaluate", "log.csv", "--threshold", "0.1"), "threshold"),
        (("evaluate", "log.csv", "--estimators", "wis", "--weighting", "none"), "weighting"),
        (("evaluate", "log.csv", "--weight-bound", "10"), "weight_bound"),
        (("coverage", "--estimators", "wis", "--alpha", "0.05"), "alpha"),
        (("coverage", "--alpha", "0.05,0.9"), "alpha"),
        (("calibrate", "--tests", "welch", "--thresholds", "0.1"), "thresholds"),
        (("study", "--world", "express", "--estimators", "wis", "--alphas", "1"), "alphas"),
    ],
)  # fmt: skip
def test_the_command_line_refuses_it_in_one_line(monkeypatch, capsys, log, arguments, field):
    monkeypatch.chdir(log)
    monkeypatch.setattr(sys, "argv", ["osiris-jax", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr()
    assert ended.value.code == 2, printed
    assert printed.err.startswith(f"osiris-jax: {field}: "), printed.err
    assert len(printed.err.splitlines()) == 1
    assert not (log / "runs").exists()


def test_an_epsilon_is_for_networks(log):
    with pytest.raises(ValueError, match="behavior_epsilon: has no effect"):
        oj.read_log(log / "log.csv", target=TABLE, behavior=TABLE, behavior_epsilon=0.1)
    with pytest.raises(ValueError, match="reads observations"):
        oj.read_log(log / "log.csv", target=str(log / "network.npz"), epsilon=0.1)
