"""Where a log's numbers come from, said on every face: fitted propensities, cut-off episodes."""

import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from running import run
from test_evaluate_command import QUICK, log, policies, summary
from test_from_episodes import good

import osiris_jax as oj
from osiris_jax.data import load_policy
from osiris_jax.evaluation.report import render
from osiris_jax.models.networks import QNetwork, load_network, save_network

FITTED = "The propensities were not logged but fitted by counts per state"
UNREPAIRED = "No fit can repair hidden confounding"
LIGHT = {"methods": "percentile", "resamples": 10}


def bare(episodes=30):
    """The command's log without propensities, states as numbers."""
    table = log(episodes=episodes).drop(columns="propensity")
    return table.rename(columns={"patient_id": "episode", "t": "step", "a": "action"}).assign(
        state=table["ward"].str[6].astype(int)
    )


# -------------------------------------------------------------------------------- fitted ones


def test_propensities_are_fitted_beside_the_targets_probability():
    table = bare()
    batch = oj.from_dataframe(table)
    assert batch.log_ratio is None
    with pytest.raises(ValueError, match=r"needs `log_ratio`.* fit the log's own by fit_behavior"):
        oj.estimate(batch, "wis")
    fit = oj.fit_behavior(batch)
    logged = np.log(table["target_prob"].to_numpy())
    expected = logged - np.asarray(fit.batch.behavior_log_prob)[fit.batch.mask]
    np.testing.assert_allclose(
        np.asarray(fit.batch.log_ratio)[fit.batch.mask], expected, 1e-4, 1e-5
    )
    _, target, _ = policies()
    by_table = oj.with_policies(fit.batch, target=target)
    values = [float(oj.estimate(batch, "wis")) for batch in (fit.batch, by_table)]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_a_forbidden_action_stays_forbidden_after_a_fit():
    batch = oj.from_episodes(
        good(drop=["log_ratio", "behavior_prob", "behavior_probs", "target_probs"])
    )
    fitted = oj.fit_behavior(batch, folds=1, method="tabular").batch
    np.testing.assert_array_equal(fitted.log_ratio[0] == -np.inf, [False, True, False])


def test_every_face_says_that_propensities_were_fitted():
    batch = oj.fit_behavior(oj.from_dataframe(bare())).batch
    assert batch.fitted.startswith(FITTED)
    found = oj.evaluate(batch, ["wis", "mc"], **LIGHT)
    faces = {
        "print": str(found),
        "json": json.dumps(found.summary()),
        "report": render(found),
    }
    for name, face in faces.items():
        assert FITTED in face, name
        assert UNREPAIRED in face, name
    assert "are those of the log" not in faces["report"]
    logged = oj.from_dataframe(bare().assign(behavior_prob=0.5))
    honest = oj.evaluate(logged, ["wis", "mc"], **LIGHT)
    assert FITTED not in str(honest)
    assert "are those of the log" in render(honest)


def test_a_policy_that_is_given_is_not_called_fitted():
    _, target, other = policies()
    fitted = oj.fit_behavior(oj.from_dataframe(bare())).batch
    assert oj.with_policies(fitted, target=target).fitted == fitted.fitted
    assert oj.with_policies(fitted, target=target, behavior=other).fitted is None
    again = oj.fit_behavior(fitted)
    assert "fitted, in place of those logged, by counts per state" in again.batch.fitted
    assert "in place of those logged" in str(again)


def test_the_command_fits_beside_a_target_prob_column(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "log.csv", tmp_path / "out"
    bare().to_csv(path, index=False)
    code = run(monkeypatch, "evaluate", path, *QUICK, "--out", out)
    printed, problem = capsys.readouterr()
    assert code == 0, problem
    value = oj.estimate(oj.fit_behavior(oj.read_log(path)).batch, "wis")
    found = summary(out)
    assert found["rows"][0]["value"] == pytest.approx(float(value), rel=1e-5)
    faces = [printed, json.dumps(found["notes"]), (out / "evaluation.md").read_text()]
    for face in (*faces, (out / "report.html").read_text()):
        assert FITTED in face
        assert UNREPAIRED in face


def test_the_mean_return_needs_no_target(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "log.csv", tmp_path / "out"
    table = bare().drop(columns="target_prob")
    table.to_csv(path, index=False)
    quick = ("--resamples", "20", "--methods", "percentile")
    arguments = (path, *quick, "--estimators", "mc", "--out", out)
    code = run(monkeypatch, "evaluate", *arguments)
    _, problem = capsys.readouterr()
    assert code == 0, problem
    returns = table.groupby("episode")["reward"].sum()
    assert summary(out)["rows"][0]["value"] == pytest.approx(returns.mean(), rel=1e-5)
    for others in ("mc,wis", "wis"):
        arguments = (path, *quick, "--estimators", others, "--out", tmp_path / "no")
        code = run(monkeypatch, "evaluate", *arguments)
        _, problem = capsys.readouterr()
        assert code == 2
        assert "says nothing of the policy to evaluate" in problem
        assert "--estimators mc needs none" in problem


# ---------------------------------------------------------------------------------- cut off


def table(**columns):
    """Three episodes of 2, 1 and 2 steps."""
    steps = {"episode": [*"aabcc"], "step": [0, 1, 0, 0, 1], "state": 0, "action": 0, "reward": 1.0}
    return pd.DataFrame(steps | {"log_ratio": 0.0} | columns)


FLAGS = {
    "booleans": [False, True, False, True, False],
    "numbers": [0, 1, 0, 1, 0],
    "floats": [0.0, 1.0, 0.0, 1.0, 0.0],
    "words": ["no", "YES", "no", "yes", "no"],
    "text": ["False", "True", "False", "True", "False"],
    "only the last rows": [None, True, False, None, False],
}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("name", ["truncated", "timeout", "Censored", "truncations"])
def test_the_last_steps_flag_counts(flags, name, tmp_path):
    found = table(**{name: flags})
    for path in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        found.to_csv(path, index=False) if path.suffix == ".csv" else found.to_parquet(path)
        batch = oj.read_log(path)
        assert batch.truncated.dtype == bool
        assert batch.truncated.tolist() == [True, False, False]
    if name == "truncated":
        assert oj.from_dataframe(found).truncated.tolist() == [True, False, False]


def test_a_log_without_flags_does_not_know(tmp_path):
    assert oj.from_dataframe(table()).truncated is None
    said = []
    table(timeout=[30, 60, 30, 30, 60]).to_csv(tmp_path / "log.csv", index=False)
    assert oj.read_log(tmp_path / "log.csv", say=said.append).truncated is None
    assert said[-1] == "truncated: timeout holds other things than true and false, and is not read"
    told = {"columns": {"truncated": "timeout"}}
    with pytest.raises(ValueError, match=r"truncated \(timeout\): expected true or false .*'60'"):
        oj.read_log(tmp_path / "log.csv", **told)


def test_episodes_and_arrays_have_flags_too(tmp_path):
    steps = {"states": [0, 0], "actions": [0, 0], "rewards": [1.0, 1.0]}
    for flags in ([True, False], [[False, True], [True, False]], [np.True_, 0]):
        episodes = [steps | {"truncated": flag} for flag in flags]
        assert oj.from_episodes(episodes).truncated.tolist() == [True, False]
    arrays = {"reward": np.ones((2, 3)), "action": np.zeros((2, 3), int), "lengths": [2, 3]}
    arrays["state"] = arrays["action"]
    for flags in ([1, 0], [[0, 1, 0], [1, 1, 0]]):
        assert oj.from_arrays(**arrays, truncated=flags).truncated.tolist() == [True, False]
    np.savez(tmp_path / "log.npz", **arrays, truncated=np.array([True, False]))
    assert oj.read_log(tmp_path / "log.npz").truncated.tolist() == [True, False]
    with pytest.raises(
        ValueError, match=r"truncated: expected true or false .* trajectory 1, step 1"
    ):
        oj.from_episodes([steps | {"truncated": flag} for flag in (False, 3)])
    with pytest.raises(ValueError, match=r"truncated: 1 steps where rewards has 2"):
        oj.from_episodes([steps | {"truncated": [True]}])
    with pytest.raises(ValueError, match=r"truncated: shape \(3,\) does not fit"):
        oj.from_arrays(**arrays, truncated=[1, 0, 1])


def test_an_evaluation_says_how_many_episodes_are_cut_off():
    def notes(**changes):
        return " ".join(oj.evaluate(oj.from_dataframe(table(**changes)), ["mc"], **LIGHT).notes)

    said = notes(truncated=[0, 1, 0, 0, 1])
    assert "2 of 3 episodes (66.7 %) are cut off" in said
    assert "count as ended, with a value of 0" in said
    assert "cut off" not in notes()
    assert "cut off" not in notes(truncated=False)


# ------------------------------------------------------------------------ one line, no traceback


def test_odd_shapes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"^rewards: expected one number per step at trajectory 0"):
        oj.from_episodes([{"states": [0], "actions": [0], "rewards": np.array(1.0)}])
    with pytest.raises(ValueError, match=r"^rewards: expected one number per step at trajectory 0"):
        oj.from_episodes([{"states": [0], "actions": [0], "rewards": jnp.asarray(1.0)}])
    np.savez(tmp_path / "log.npz", episode=1, step=0, state=0, action=0, reward=1.0)
    with pytest.raises(ValueError, match=r"log.npz: reward: a single number, where one per row"):
        oj.read_log(tmp_path / "log.npz")


def test_a_policy_file_with_text_in_it_is_named(tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, table=np.array([["a", "b"]]))
    with pytest.raises(
        ValueError, match=r"p.npz: expected a saved network.* table \(1, 2\) of <U1"
    ):
        load_policy(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table", "0.5,0.5")
    with pytest.raises(ValueError, match=r"p.npz: not a readable .npz of plain arrays \(table is"):
        load_policy(path)
    network = QNetwork.create(jax.random.key(0), (4,), 2, np.ones(3))
    save_network(path, network)
    with np.load(path) as archive:
        arrays = dict(archive)
    for name in arrays:
        np.savez(path, **(arrays | {name: arrays[name].astype(str)}))
        with pytest.raises(ValueError, match=rf"p.npz: not a Q-network, {name} holds <U"):
            load_network(path)
