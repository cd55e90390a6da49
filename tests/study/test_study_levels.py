"""Studies of chosen levels, thresholds, Q-hat and omission by lag."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import random
from small_world import small_world

import osiris_jax as oj


def files(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "trials").iterdir())}


NETWORK = "dr:fit=nn-q:q_folds=2"

LIMITED = "welch:weighting=none:max_kept=2"

TESTS = {
    LIMITED: {"relevance": "welch", "weighting": "none", "max_kept": 2},
    "effect": {"relevance": "effect"},
    "welch": {"relevance": "welch", "weighting": "none"},
}

PLAIN = {
    "dr": {},
    "wdr:q_folds=2": {"q_folds": 2},
    NETWORK: {"fit": "nn-q", "q_folds": 2},
    "dm": {},
    "stepwise": {},
    "stepwise-dr": {},
    "rcis": {},
}


@pytest.fixture(scope="module")
def by_state():
    return oj.Study(
        world=small_world(),
        trials=24,
        sizes=(6,),
        alphas=("auto",),
        thresholds=(0.05, 0.4),
        estimators=("dr", "wdr:q_folds=2", "osiris-dr"),
        relevance=(LIMITED, "effect"),
        discount=0.9,
        seed=5,
    )


@pytest.fixture(scope="module")
def by_lag():
    return oj.Study(
        world=small_world(),
        trials=24,
        sizes=(6,),
        alphas=(0.3, "lepski", 1),
        estimators=("dm", NETWORK, "stepwise", "stepwise-dr", "rcis", "osiris-stepwise"),
        weighting="none",
        discount=0.9,
        seed=5,
    )


@pytest.fixture(scope="module")
def finished(by_state, by_lag, tmp_path_factory):
    """The two studies' folders and values."""
    out = tmp_path_factory.mktemp("chosen")
    results = {
        name: one.run(out=out / name, chunk_size=8)
        for name, one in (("state", by_state), ("lag", by_lag))
    }
    return out, results


def own_keys(study, size):
    """[trial] the keys of the data, and those of what is random in a method, a stream apart."""
    keys = jax.vmap(random.fold_in, (None, 0))(random.key(study.seed), np.arange(study.trials))
    apart = jax.vmap(lambda key: random.fold_in(random.fold_in(key, 2**32 - 5), size))(keys)
    return keys, apart


def options_of(cell):
    """Of `estimate`, for what the cell says."""
    options = {"discount": 0.9}
    if cell.relevance is None:
        options |= PLAIN[cell.estimator]
    else:
        test, _, chosen = cell.relevance.partition(":alpha=")
        options |= TESTS[test]
        name = "threshold" if test == "effect" else "alpha"
        options[name] = chosen or getattr(cell, name)
    return options


def expected_values(study, cells, *, swapped=False):
    """[cell][trial], from `estimate` on each trial's own data and key, or the next one's."""
    (size,) = study.sizes
    keys, apart = own_keys(study, size)
    data = study.world.rollout(keys, size, probs=True)

    @jax.jit
    @jax.vmap
    def values(batch, key):
        return [
            oj.estimate(batch, cell.estimator.split(":")[0], key=key, **options_of(cell))
            for cell in cells
        ]

    return np.asarray(values(data, jax.numpy.roll(apart, 1) if swapped else apart))


def values_of(study, result):
    """Cell -> [trial]."""
    frame = result.trials()
    return dict(zip(study.cells(), frame.value.to_numpy().reshape(-1, study.trials), strict=True))


@pytest.mark.parametrize("name", ["state", "lag"])
def test_every_kind_of_row_is_what_estimate_says(name, by_state, by_lag, finished):
    study = {"state": by_state, "lag": by_lag}[name]
    by_cell = values_of(study, finished[1][name])
    for cell, expected in zip(by_cell, expected_values(study, by_cell), strict=True):
        found = by_cell[cell]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4, err_msg=str(cell))


def test_the_rows_say_which_level_was_chosen_how(by_state, by_lag):
    found = [tuple(cell[:4]) for cell in by_state.cells()]
    assert found == [
        ("dr", None, None, None),
        ("wdr:q_folds=2", None, None, None),
        ("osiris-dr", f"{LIMITED}:alpha=auto", None, None),
        ("osiris-dr", "effect", None, 0.05),
        ("osiris-dr", "effect", None, 0.4),
        ("osiris-dr", "effect:alpha=auto", None, None),
    ]
    lagged = [tuple(cell) for cell in by_lag.cells() if cell.estimator == "osiris-stepwise"]
    levels = [("welch", 0.3, None), ("welch", 1.0, None), ("welch:alpha=lepski", None, None)]
    assert lagged == [("osiris-stepwise", *level, 6) for level in levels]


def test_a_summary_has_a_row_for_every_threshold(finished):
    table = finished[1]["state"].summary()
    effect = table[table.relevance == "effect"]
    assert effect.threshold.tolist() == [0.05, 0.4]
    assert effect.alpha.isna().all()


def test_what_is_random_differs_between_trials(by_lag, finished):
    """A fitted network depends on its key: each trial has the one of its own, no other's."""
    found = values_of(by_lag, finished[1]["lag"])
    cell = next(cell for cell in found if cell.estimator == NETWORK)
    (other,) = expected_values(by_lag, [cell], swapped=True)
    assert not np.isclose(found[cell], other, rtol=4e-3, atol=4e-4).any()


@pytest.mark.parametrize("name", ["state", "lag"])
def test_chosen_levels_resume_to_the_same_bytes(name, by_state, by_lag, finished, tmp_path):
    study = {"state": by_state, "lag": by_lag}[name]
    out = Path(shutil.copytree(finished[0] / name, tmp_path / "copy"))
    for number in (0, 2):
        (out / "trials" / f"chunk-0000{number}.parquet").unlink()
    study.run(out=out)
    assert files(out) == files(finished[0] / name)


def test_a_default_threshold_is_the_test_s_own():
    one = oj.Study(world=small_world(), sizes=(5,), alphas=(), relevance=("effect", "nn-q"))
    found = {cell.relevance: cell.threshold for cell in one.cells() if cell.relevance}
    assert found == oj.THRESHOLDS


def test_a_level_from_the_data_may_be_the_only_one():
    plan = {"world": small_world(), "trials": 4, "sizes": (6,), "estimators": ("osirwis",)}
    (alone,) = oj.Study(**plan, alphas=("auto",)).run().rows
    beside = oj.Study(**plan, alphas=(0.1, "auto")).run().rows[-1]
    assert (alone["relevance"], alone["alpha"]) == ("welch:alpha=auto", None)
    assert alone["mean"] == pytest.approx(beside["mean"], rel=1e-5)
