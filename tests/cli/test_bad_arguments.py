"""Arguments that make no sense: one ValueError that names them, one line on the command line."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data
from running import refusal

import osiris_jax as oj

BATCH = oj.from_episodes(random_data(3, 6), num_states=NUM_STATES)
HUGE = "9" * 30
CALLS = {
    "estimator: expected one name": lambda: oj.estimate(BATCH, ["wis"]),
    "estimator: expected one name, got None": lambda: oj.estimate(BATCH, None),
    "estimator: expected one name, got 3": lambda: oj.evaluate(BATCH, [3]),
    "discount: expected one number, got shape (2,)": lambda: oj.estimate(
        BATCH, "wis", discount=jnp.array([0.5, 1.0])
    ),
    "discount: expected one number, got shape (1,)": lambda: oj.relevance_pvalues(
        BATCH, discount=[0.5]
    ),
    "ddof: expected one number": lambda: oj.estimate(BATCH, "osirwis", ddof=np.array([0, 1])),
    "undecided: expected one number": lambda: oj.relevance_pvalues(BATCH, undecided=[1.0]),
    "clip: expected one number": lambda: oj.estimate(BATCH, "wis", clip=np.ones(6)),
    "max_kept: expected one number": lambda: oj.estimate(BATCH, "osirwis", max_kept=[1, 2]),
    "length_probs: expected an array of 1 axes, got shape ()": lambda: oj.estimate(
        BATCH, "phwis", length_probs=1
    ),
    "folds: expected at most": lambda: oj.relevance_pvalues(BATCH, folds=10**30),
    "layers: expected at most 100": lambda: oj.relevance_pvalues(BATCH, "nn-q", layers=10**6),
    "resamples: expected at most": lambda: oj.intervals(BATCH, "wis", resamples=10**30),
    "relevance: '' is unknown": lambda: oj.evaluate(BATCH, "osirwis", relevance=""),
}


@pytest.mark.parametrize("problem", CALLS)
def test_one_error_names_it(problem):
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        CALLS[problem]()


STUDY = ("study", "--world", "express", "--trials", "2")
LINES = [
    (("show", "express", "--seed", HUGE), "seed: "),
    (("show", "express", "--seed", "-1"), "seed: "),
    (("train-policy", "cartpole", "--seed", HUGE), "seed: "),
    (("calibrate", "--seed", HUGE), "seed: "),
    (("coverage", "--seed", HUGE), "seed: "),
    (("evaluate", "log.csv", "--seed", HUGE), "seed: "),
    (("reproduce", "table1", "--seed", HUGE), "seed: "),
    ((*STUDY, "--seed", HUGE), "seed: "),
    ((*STUDY, "--sizes", ""), "sizes: none given"),
    ((*STUDY, "--estimators", "phwis:length_probs=1"), "length_probs: "),
    ((*STUDY, "--estimators", "wis:clip=" + "[" * 30_000), "clip: "),
    ((*STUDY, "--estimators", f"dr:q_folds={HUGE}"), "q_folds: "),
    ((*STUDY, "--estimators", "osirwis", "--relevance", f"welch:folds={HUGE}"), "folds: "),
    ((*STUDY, "--cpu-devices", HUGE), "cpu-devices: "),
    (("study", "deep.toml"), "deep.toml: brackets are nested too deeply"),
    (("study", "bytes.toml"), "bytes.toml: 'utf-8' codec"),
    (("calibrate", "--sizes", HUGE), "sizes: "),
    (("calibrate", "--trials", HUGE), "trials: "),
    (("calibrate", "--world", "mars"), "world: 'mars' is unknown"),
    (("calibrate", "--world", "cartpole"), "world: calibration needs a tabular world"),
    (("calibrate", "--tests", "welsh"), "tests: 'welsh' is not a test"),
    (("calibrate", "--tests", ","), "tests: none given"),
    (("calibrate", "--variants", "last visit"), "variants: 'last visit' is unknown"),
    (("calibrate", "--sizes", "big"), "sizes: expected integers"),
    (("calibrate-markov", "--worlds", "mars"), "worlds: 'mars' is unknown"),
    (("calibrate-markov", "--worlds", "cartpole"), "world: the check needs a tabular world"),
    (("calibrate-markov", "--lags", "0"), "lags: must be at least 1"),
    (("calibrate", "--alphas", "2"), "alphas: must be in [0, 1]"),
    (("calibrate", "--trials", "1"), "trials: expected"),
    (("coverage", "--sizes", HUGE), "sizes: "),
    (("coverage", "--resamples", HUGE), "resamples: "),
    (("bench", "--only", ""), "only: none given"),
    (("coverage", "--world", "cartpole"), "world: coverage needs a tabular world"),
    (("coverage", "--estimators", "iss"), "estimator: 'iss' is unknown"),
    (("coverage", "--methods", "z"), "methods: 'z' is unknown"),
    (("coverage", "--sizes", "a"), "sizes: expected integers"),
    (("coverage", "--alpha", "best"), "alpha: expected numbers"),
    (("coverage", "--confidence", "2"), "confidence: must be in (0, 1)"),
    (("coverage", "--threshold", "0.3"), "threshold: only for relevance"),
    (("bench", "--only", "speed"), "only: 'speed' is unknown; there are pipeline, estimators"),
    (("bench", "--only", "scalings"), "only: 'scalings' is unknown; did you mean scaling?"),
    (("bench", "--trials", "0"), "trials: expected a positive number, got 0"),
    (("bench", "--dtype", "float16"), "dtype: expected float32 or float64, got 'float16'"),
]


@pytest.mark.parametrize(("arguments", "problem"), LINES, ids=lambda x: str(x)[-40:])
def test_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, problem):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 20_000)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    line = refusal(monkeypatch, capsys, *arguments)
    assert line.startswith(f"osiris-jax: {problem}"), line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("error", [MemoryError("9 GB"), RuntimeError("RESOURCE_EXHAUSTED: 9 GB")])
def test_what_does_not_fit_is_one_line(monkeypatch, capsys, error):
    from osiris_jax.cli.show import ShowWorld

    def fails(*arguments):
        raise error

    monkeypatch.setattr(ShowWorld, "run", fails)
    line = refusal(monkeypatch, capsys, "show", "express")
    assert line.startswith("osiris-jax: memory: this does not fit (")
