"""The fitted behaviour policy: against loops and SciPy, its calibration, and what it says."""

import jax
import numpy as np
import pytest
from datasets import NUM_ACTIONS, NUM_STATES, poisoned, ragged_data, random_data, random_probs
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import behavior as oracle

import osiris_jax as oj
from osiris_jax.models.behavior import calibrate

BARE = ("states", "actions", "rewards", "observations", "target_probs")


def log_of(data, **changes):
    """A batch without ratios."""
    episodes = [{key: traj[key] for key in BARE if key in traj} for traj in data]
    return oj.from_episodes(episodes, num_states=NUM_STATES, num_actions=NUM_ACTIONS, **changes)


def logged(size, *, steps=6, seed=0):
    """Episodes of one length whose actions depend on the observations (and on a state)."""
    rng = np.random.default_rng(seed)
    slopes = np.random.default_rng(99).normal(size=(2, NUM_ACTIONS))
    data = []
    for _ in range(size):
        rows = np.stack([rng.normal(size=steps), rng.normal(100, 20, size=steps)], axis=1)
        weight = np.exp((rows - [0, 100]) / [1, 20] @ slopes)
        probs = weight / weight.sum(1, keepdims=True)
        data.append(
            {
                "states": (rows[:, 0] > 0).astype(int) + 2 * (rows[:, 1] > 100),
                "observations": rows,
                "actions": np.array([rng.choice(NUM_ACTIONS, p=p) for p in probs]),
                "rewards": rng.normal(size=steps),
                "target_probs": random_probs(rng, steps),
                "truth": probs,
            }
        )
    return data


def ragged(batch, values):
    """The real steps of [traj, time, ...], trajectory by trajectory."""
    lengths = np.asarray(batch.lengths)
    return [np.asarray(values)[i, :steps] for i, steps in enumerate(lengths)]


def assert_close(batch, values, expected, tolerance):
    for own, wanted in zip(ragged(batch, values), expected, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=tolerance, atol=tolerance)


# -------------------------------------------------------------------------------- the models


@settings(max_examples=25)
@given(data=ragged_data(sizes=(6,)), folds=st.sampled_from([1, 2, 5]), seed=st.integers(0, 9))
def test_tabular_is_what_loops_count(data, folds, seed, double):
    smoothing = [0.5, 1.0, 3.0][seed % 3]
    batch = log_of(data)
    fit = oj.fit_behavior(batch, method="tabular", folds=folds, smoothing=smoothing)
    expected = oracle.tabular(data, folds, NUM_ACTIONS, smoothing)
    assert_close(batch, fit.probs, expected, 1e-12)
    assert not np.asarray(fit.probs)[~np.asarray(batch.mask)].any()


@pytest.mark.parametrize("smoothing", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("folds", [1, 3])
def test_logistic_is_what_scipy_finds(folds, smoothing, double):
    data = logged(12, seed=int(10 * smoothing) + folds)
    fit = oj.fit_behavior(log_of(data), method="logistic", folds=folds, smoothing=smoothing)
    assert fit.converged
    expected = oracle.logistic(data, folds, NUM_ACTIONS, smoothing)
    assert_close(fit.batch, fit.probs, expected, 1e-6)


def test_logistic_with_a_constant_and_an_action_of_one_fold(double):
    data = logged(12)
    for i, traj in enumerate(data):
        traj["observations"][:, 1] = 0.1
        traj["actions"] = np.where(i == 4, 2, traj["actions"] % 2)
    fit = oj.fit_behavior(log_of(data), method="logistic", folds=3)
    expected = oracle.logistic(data, 3, NUM_ACTIONS, 1.0)
    assert_close(fit.batch, fit.probs, expected, 1e-6)
    assert fit.calibration.smallest > 0


@pytest.mark.parametrize("method", ["logistic", "network"])
def test_many_data_come_near_the_truth(method):
    data = logged(300, seed=5)
    truth = np.stack([traj["truth"] for traj in data])
    probs = oj.fit_behavior(log_of(data), method=method, folds=2, steps=300).probs
    assert np.abs(np.asarray(probs) - truth).mean() < 0.04
    assert np.abs(truth.mean((0, 1)) - truth).mean() > 0.15


def test_the_network_follows_its_key():
    batch = log_of(logged(12))
    options = {"method": "network", "folds": 3, "steps": 20, "hidden": (8,)}
    first, again, other = (
        oj.fit_behavior(batch, key=jax.random.key(seed), **options).probs for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.asarray(first) - np.asarray(other)).max() > 1e-3


@pytest.mark.parametrize("method", ["tabular", "logistic", "network"])
def test_a_trajectory_does_not_see_itself_and_padding_does_not_matter(method):
    data = logged(12)
    options = {"method": method, "folds": 3, "steps": 20, "hidden": (8,)}
    fit = oj.fit_behavior(log_of(data), **options)
    padded = oj.fit_behavior(poisoned(oj.pad_to(log_of(data), 9)), **options)
    np.testing.assert_array_equal(fit.probs, np.asarray(padded.probs)[:, :6])
    changed = [{**traj, "actions": 2 - traj["actions"]} if i == 4 else traj
               for i, traj in enumerate(data)]  # fmt: skip
    moved = np.abs(np.asarray(oj.fit_behavior(log_of(changed), **options).probs - fit.probs))
    same_fold = np.arange(12) % 3 == 1
    assert moved[same_fold].max() == 0
    assert moved[~same_fold].max(axis=(1, 2)).min() > 1e-6


def test_both_float_types(float_type):
    batch = log_of(logged(12))
    for method in ("tabular", "logistic"):
        fit = oj.fit_behavior(batch, method=method, folds=3)
        assert fit.probs.dtype == fit.batch.behavior_log_prob.dtype == fit.batch.dtype == float_type
        assert fit.converged
        np.testing.assert_allclose(fit.probs.sum(-1), 1, atol=1e-5)


# ------------------------------------------------------------------- calibration and the batch


@settings(max_examples=15)
@given(data=ragged_data(sizes=(6,)), folds=st.sampled_from([1, 2, 5]))
def test_calibration_is_what_loops_find(data, folds, double):
    fit = oj.fit_behavior(log_of(data), method="tabular", folds=folds)
    probs, told = ragged(fit.batch, fit.probs), fit.calibration
    means, smallest = oracle.scores(probs, data, folds, NUM_ACTIONS)
    for name, wanted in means.items():
        np.testing.assert_allclose(getattr(told, name), wanted, rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(told.smallest, smallest, rtol=1e-9)
    table, error = oracle.calibration(probs, data, NUM_ACTIONS)
    np.testing.assert_allclose(
        np.stack([told.predicted, told.observed, told.count], axis=1), table, rtol=1e-9
    )
    np.testing.assert_allclose(told.error, error, rtol=1e-9, atol=1e-12)
    steps = [loss * n for loss, n in zip(told.log_loss, told.steps, strict=True)]
    np.testing.assert_allclose(told.mean_log_loss, sum(steps) / sum(told.steps), rtol=1e-12)


def test_every_bin_up_to_certainty():
    rng = np.random.default_rng(2)
    probs = np.concatenate([rng.dirichlet(np.full(NUM_ACTIONS, 0.3), 200), np.eye(NUM_ACTIONS)])
    action = np.array([*(rng.choice(NUM_ACTIONS, p=p) for p in probs[:200]), 0, 1, 2])
    with np.errstate(divide="ignore"):
        told = calibrate(np.log(probs), action, np.zeros(203, int), np.full((1, 3), 1 / 3))
    table, error = oracle.calibration([probs], [{"actions": action}], NUM_ACTIONS)
    np.testing.assert_allclose(
        np.stack([told.predicted, told.observed, told.count], axis=1), table, rtol=1e-9
    )
    np.testing.assert_allclose(told.error, error, rtol=1e-9)
    assert told.count[-1] > 50


def test_ratios_follow_from_the_target_that_is_there(double):
    data = logged(10)
    batch = log_of(data)
    assert batch.log_ratio is None
    fit = oj.fit_behavior(batch, method="tabular")
    for i, traj in enumerate(data):
        at = np.arange(len(traj["actions"])), traj["actions"]
        ratio = np.log(traj["target_probs"][at]) - np.log(np.asarray(fit.probs)[i][at])
        np.testing.assert_allclose(fit.batch.log_ratio[i], ratio, rtol=1e-9, atol=1e-9)
    later = oj.fit_behavior(batch.replace(target_probs=None), method="tabular").batch
    assert later.log_ratio is None
    table = np.full((NUM_STATES, NUM_ACTIONS), 1 / NUM_ACTIONS)
    known = oj.with_policies(later, target=table)
    np.testing.assert_allclose(known.behavior_probs, fit.probs, rtol=1e-12)
    np.testing.assert_allclose(
        known.log_ratio, np.log(1 / 3) - fit.batch.behavior_log_prob, atol=1e-12
    )


def test_logged_propensities_are_replaced_and_the_target_kept(double):
    data = random_data(3, 6)
    episodes = [
        {
            **{key: traj[key] for key in ("states", "actions", "rewards")},
            "behavior_prob": np.full(len(traj["actions"]), 0.25),
            "target_prob": np.full(len(traj["actions"]), 0.5),
        }
        for traj in data
    ]
    fit = oj.fit_behavior(oj.from_episodes(episodes, num_actions=NUM_ACTIONS), folds=3)
    mask = np.asarray(fit.batch.mask)
    expected = np.log(0.5) - np.asarray(fit.batch.behavior_log_prob)
    np.testing.assert_allclose(np.asarray(fit.batch.log_ratio)[mask], expected[mask], atol=1e-12)


def test_fitted_propensities_stand_in_for_true_ones(double):
    """On a long log the estimate with fitted propensities is near that with the true ones."""
    data = logged(400, steps=2, seed=8)
    fit = oj.fit_behavior(log_of(data), method="logistic")
    truth = oj.from_episodes(
        [{key: traj[key] for key in BARE} | {"behavior_probs": traj["truth"]} for traj in data]
    )
    assert abs(oj.estimate(fit.batch, "wis") - oj.estimate(truth, "wis")) < 0.1


# ------------------------------------------------------------------------- choice and words


def test_auto_takes_what_predicts_better():
    data = logged(60)
    both = oj.fit_behavior(log_of(data), folds=3)
    assert set(both.compared) == {"tabular", "logistic"}
    assert both.method == min(both.compared, key=both.compared.get) == "logistic"
    states = oj.fit_behavior(log_of(data).replace(observation=None), folds=3)
    assert (states.method, list(states.compared)) == ("tabular", ["tabular"])
    rows = oj.fit_behavior(log_of(data).replace(state=None, num_states=0), folds=3)
    np.testing.assert_array_equal(rows.probs, both.probs)


def test_the_result_says_that_it_was_fitted():
    fit = oj.fit_behavior(log_of(logged(60)), method="logistic", folds=3)
    text = str(fit)
    assert "fitted by logistic regression" in text
    assert "(3 folds)" in text
    assert f"Log-loss {fit.calibration.mean_log_loss:.4g}" in text
    assert f"the smallest of an action taken is {fit.calibration.smallest:.2g}" in text
    assert "Careful" not in text
    assert "No fit can repair hidden confounding" in text
    assert len(fit.words) == 5


def test_the_result_warns_of_a_fit_that_predicts_nothing():
    rng = np.random.default_rng(0)
    data = logged(10)
    for traj in data:
        traj["actions"] = rng.integers(NUM_ACTIONS, size=6)
    fit = oj.fit_behavior(log_of(data), method="tabular", smoothing=0.01)
    assert "no better than the actions' shares" in str(fit)
    assert "poorly calibrated" in str(fit)
    assert "flatter" in str(oj.fit_behavior(log_of(data), method="tabular", folds=1))


BAD = {
    "method": ({"method": "forest"}, 'method: \'forest\' is not one of "auto", "tabular"'),
    "folds": ({"folds": 0}, "folds: expected a whole number"),
    "half folds": ({"folds": 2.5}, "folds: expected a whole number"),
    "many folds": ({"folds": 13}, "folds: 13 folds of 12 trajectories leave some empty"),
    "smoothing": ({"smoothing": 0}, "smoothing: expected a number above 0"),
    "NaN": ({"smoothing": float("nan")}, "smoothing: expected a number above 0"),
    "steps": ({"method": "network", "steps": 0}, "steps: expected"),
    "hidden": ({"method": "network", "hidden": (0,)}, "hidden: expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_named(case):
    options, message = BAD[case]
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.fit_behavior(log_of(logged(12)), **options)


def test_what_the_log_lacks_is_named():
    batch = log_of(logged(12))
    with pytest.raises(ValueError, match="fit_behavior needs `observation`"):
        oj.fit_behavior(batch.replace(observation=None), method="logistic")
    with pytest.raises(ValueError, match="fit_behavior needs `state`"):
        oj.fit_behavior(batch.replace(observation=None, state=None))
    with pytest.raises(ValueError, match="batch: expected one data set"):
        oj.fit_behavior(jax.tree.map(lambda x: x[None], batch))
