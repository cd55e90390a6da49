"""Summaries of trials by hand: what is undefined, uncertain or equal."""

import functools
import json
import math

import numpy as np
import pandas
import pytest
from small_world import small_world

import osiris_jax as oj
from osiris_jax.core.faces import to_json
from osiris_jax.study import summary


@functools.cache
def study_of(trials):
    return oj.Study(world=small_world(), trials=trials, sizes=(5,), estimators=("wis",))


def rows_of(values, truth, standard_error=0.0):
    """The summary of one cell's values, given in parts."""
    one = study_of(sum(map(len, values)))
    parts = [np.reshape(part, (-1, 1)) for part in values]
    moments = summary.cell_moments(lambda: parts, truth)
    said = summary.Truth(truth, standard_error, 0)
    return summary.rows_of(one.world.name, one.trials, one.cells(), moments, said)


def test_standard_errors_cover_what_repetition_shows():
    """3,000 summaries of 50 normal trials: the errors predict the spread of mean, std and RMSE."""
    rng = np.random.default_rng(0)
    samples = rng.normal(1, 2, (3000, 50))
    rows = [row for x in samples for row in rows_of([x[:20], x[20:]], 1.5)]
    table = pandas.DataFrame(rows)
    for field in ("mean", "bias", "std", "rmse"):
        assert table[f"{field}_se"].mean() == pytest.approx(table[field].std(), rel=0.06)


def test_an_uncertain_truth_widens_bias_and_rmse():
    (exact,), (rough,) = (rows_of([[1.0, 2.0, 3.0, 5.0]], 2.0, error) for error in (0.0, 0.3))
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
    (row,) = rows_of([[2.0]], 1.0)
    assert row["rmse"] == 1.0
    assert all(math.isnan(row[f"{name}_se"]) for name in ("mean", "bias", "std", "rmse"))


def test_equal_trials_have_standard_errors_of_zero():
    (row,) = rows_of([[2.7] * 3], 1.1)
    assert row["rmse_se"] == row["std_se"] == 0
