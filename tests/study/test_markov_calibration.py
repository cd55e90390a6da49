"""Calibration of the Markov check: its rows by a loop over the same data sets."""

import jax
import numpy as np
import pytest
from datasets import ragged
from oracles import markov as oracle

import osiris_jax as oj
from osiris_jax.study import markov_calibration
from osiris_jax.study.markov_calibration import FORMS, MarkovCalibration

SEED, TRIALS, SIZES, LAGS, ALPHAS = 3, 6, (12, 60), (1, 6), (0.05, 0.5)
WORLDS = ("first-look", "waiting-room")


@pytest.fixture(scope="module")
def rows():
    with jax.enable_x64(True):
        calibration = MarkovCalibration(
            worlds=WORLDS, trials=TRIALS, sizes=SIZES, lags=LAGS, alphas=ALPHAS, seed=SEED
        )
        return calibration.run()


def slow_pvalues(name, size):
    """[trial, form, 1 + lag]: the least after Holm, and those of all lags; loops throughout."""
    world, found = oj.make(name), []
    for k in range(TRIALS):
        with jax.enable_x64(True):
            data = ragged(world.rollout(jax.random.fold_in(jax.random.key(SEED), k), size))
        by_lag = [oracle.visits(data, world.num_states, lag, 1.0) for lag in LAGS]
        clustered = [oracle.clusters(visits, least=20) for visits in by_lag]
        first = [oracle.first_visits(visits) for visits in by_lag]
        both = []
        for pair in zip(clustered, first, strict=True):
            decided = [p for p in pair if not np.isnan(p)]
            both.append(min(1.0, len(decided) * min(decided)) if decided else np.nan)
        for form in (clustered, first, both):
            adjusted = [p for p in oracle.holm(form) if not np.isnan(p)]
            found.append([min(adjusted) if adjusted else np.nan, *form])
    return np.reshape(found, (TRIALS, len(FORMS), 1 + len(LAGS)))


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_what_loops_over_the_same_data_sets_say(rows, name, size):
    mine = [row for row in rows if (row["world"], row["size"]) == (name, size)]
    slow, seen = slow_pvalues(name, size), set()
    for row in mine:
        lag = None if row["lag"] is None else LAGS.index(row["lag"])
        pvalues = slow[:, FORMS.index(row["form"]), 0 if lag is None else 1 + lag]
        rate = np.mean(pvalues <= row["alpha"])
        assert row["rate"] == pytest.approx(rate)
        assert row["rate_se"] == pytest.approx(np.sqrt(rate * (1 - rate) / TRIALS))
        assert row["undecided"] == pytest.approx(np.isnan(pvalues).mean())
        assert (row["markov"], row["trials"]) == (name == "waiting-room", TRIALS)
        seen.add((row["form"], row["lag"], row["alpha"]))
    assert len(seen) == len(mine) == len(FORMS) * (1 + len(LAGS)) * len(ALPHAS)


def test_some_is_rejected_and_some_is_undecided(rows):
    assert len({row["rate"] for row in rows}) > 3
    assert {0.0, 1.0} <= {row["undecided"] for row in rows}


def test_a_chunk_changes_nothing(monkeypatch):
    calibration = MarkovCalibration(worlds="first-look", trials=4, sizes=(8,), lags=(1,))
    whole, seen = calibration.run(), []
    monkeypatch.setattr(markov_calibration, "CHUNK_CELLS", 2 * 8 * 14)
    assert calibration.run(lambda *step: seen.append(step)) == whole
    assert seen == [("first-look", 4, 4)]


BAD = {
    "worlds": [(), "mars", ("first-look", "first-look")],
    "world": ["cartpole"],
    "trials": [1, 2.5],
    "sizes": [(), (0,)],
    "alphas": [(), (1.5,)],
    "lags": [(), (0,), (1.5,)],
    "discount": [2.0],
    "seed": [-1],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, many in BAD.items() for v in many])
def test_what_is_wrong_is_named(field, value):
    name = "worlds" if field == "world" else field
    with pytest.raises(ValueError, match=f"^{field}: "):
        MarkovCalibration(**{"worlds": "first-look", name: value})
