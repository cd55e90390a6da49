"""Summaries of trials by hand: what is undefined, uncertain or equal."""

import json
import math

import numpy as np
import pandas
import pytest
from small_world import small_world

import osiris_jax as oj
from osiris_jax.core.faces import to_json
from osiris_jax.study import summary


def test_standard_errors_cover_what_repetition_shows():
    """3,000 summaries of 50 normal trials: the errors predict the spread of mean, std and RMSE."""
    rng = np.random.default_rng(0)
    rows = []
    one = oj.Study(world=small_world(), trials=50, sizes=(5,), estimators=("wis",))
    truth = summary.Truth(1.5, 0.0, 0)
    for _ in range(3000):
        values = rng.normal(1, 2, (50, 1))
        moments = summary.cell_moments(lambda values=values: [values[:20], values[20:]], 1.5)
        rows += summary.rows_of(one, moments, truth)
    table = pandas.DataFrame(rows)
    for field in ("mean", "bias", "std", "rmse"):
        assert table[f"{field}_se"].mean() == pytest.approx(table[field].std(), rel=0.06)


def test_an_uncertain_truth_widens_bias_and_rmse():
    one = oj.Study(world=small_world(), trials=4, sizes=(5,), estimators=("wis",))
    values = np.array([[1.0], [2.0], [3.0], [5.0]])
    moments = summary.cell_moments(lambda: [values], 2.0)
    (exact,) = summary.rows_of(one, moments, summary.Truth(2.0, 0.0, 0))
    (rough,) = summary.rows_of(one, moments, summary.Truth(2.0, 0.3, 100))
    assert rough["bias_se"] == pytest.approx(math.hypot(exact["bias_se"], 0.3))
    pull = 0.3 * exact["bias"] / exact["rmse"]
    assert rough["rmse_se"] == pytest.approx(math.hypot(exact["rmse_se"], pull))
    assert rough["mean_se"] == exact["mean_se"]


def test_undefined_trials_are_counted_and_left_out():
    """A target that never does what the data shows: all weights are zero in some trials."""
    target = np.tile([1.0, 0.0], (6, 1))
    result = oj.Study(
        world=small_world(target), trials=60, sizes=(2,), estimators=("wis", "is")
    ).run()
    trials = result.trials()
    undefined = int(trials[trials.estimator == "wis"].value.isna().sum())
    assert 0 < undefined < 60
    wis, plain = result.rows
    assert (wis["nan_trials"], plain["nan_trials"]) == (undefined, 0)
    assert wis["mean"] == pytest.approx(trials[trials.estimator == "wis"].value.mean())
    assert any("undefined" in note and str(undefined) in note for note in result.notes)
    assert json.loads(to_json([{"mean": math.nan, "std": 1.0}])) == [{"mean": None, "std": 1.0}]


def test_one_trial_has_no_standard_errors():
    one = oj.Study(world=small_world(), trials=1, sizes=(5,), estimators=("wis",))
    moments = summary.cell_moments(lambda: [np.array([[2.0]])], 1.0)
    (row,) = summary.rows_of(one, moments, summary.Truth(1.0, 0.0, 0))
    assert row["rmse"] == 1.0
    assert all(math.isnan(row[f"{name}_se"]) for name in ("mean", "bias", "std", "rmse"))


def test_equal_trials_have_standard_errors_of_zero():
    one = oj.Study(world=small_world(), trials=3, sizes=(5,), estimators=("wis",))
    moments = summary.cell_moments(lambda: [np.full((3, 1), 2.7)], 1.1)
    (row,) = summary.rows_of(one, moments, summary.Truth(1.1, 0.0, 0))
    assert row["rmse_se"] == row["std_se"] == 0
