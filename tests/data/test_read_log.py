"""Logs in files: every format equals the table, and guesses are said."""

import pickle
import re

import jax
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from test_from_dataframe import table_of
from test_from_episodes import assert_same, good

import osiris_jax as oj
from osiris_jax.data.policies import EpsilonGreedy
from osiris_jax.models.networks import QNetwork, save_network


def long_arrays(table):
    """The columns as arrays that hold no Python objects."""
    arrays = {name: table[name].to_numpy() for name in table}
    return {k: v.astype(str) if v.dtype.kind not in "fiub" else v for k, v in arrays.items()}


WRITERS = {
    "log.parquet": lambda table, path: table.to_parquet(path),
    "log.pq": lambda table, path: table.to_parquet(path, compression="gzip"),
    "log.csv": lambda table, path: table.to_csv(path, index=False),
    "log.csv.gz": lambda table, path: table.to_csv(path, index=False),
    "log.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda table, path: table.to_csv(path, index=False, sep=";"),
    "bom.csv": lambda table, path: table.to_csv(path, index=False, encoding="utf-8-sig"),
    "log.npz": lambda table, path: np.savez(path, **long_arrays(table)),
    "UPPER.CSV": lambda table, path: table.to_csv(path, index=False),
}


def written(table, folder, name="log.parquet"):
    path = folder / name
    WRITERS.get(name, WRITERS["log.parquet"])(table, path)
    return path


# ------------------------------------------------------------------------------- good files


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_equals_the_table(name, tmp_path):
    table = table_of(good())
    said = []
    batch = oj.read_log(written(table, tmp_path, name), say=said.append)
    assert_same(batch, oj.from_dataframe(table))
    assert said == []


def test_options_are_passed_on(tmp_path, double):
    options = {"num_states": 9, "num_actions": 3, "dtype": "float32", "bucket": True}
    table = table_of(good())
    batch = oj.read_log(str(written(table, tmp_path)), **options)
    assert_same(batch, oj.from_dataframe(table, **options))


def test_the_arrays_of_from_arrays(tmp_path):
    expected = oj.from_dataframe(table_of(good()))
    arrays = {
        name: np.asarray(getattr(expected, name))
        for name in ("reward", "action", "state", "observation", "mask", "target_probs")
    }
    arrays["behavior_probs"] = np.asarray(expected.behavior_probs)
    np.savez(tmp_path / "log.npz", **arrays)
    assert_same(oj.read_log(tmp_path / "log.npz"), oj.from_arrays(**arrays))
    lengths = {**arrays, "lengths": np.array([3, 2])}
    del lengths["mask"]
    np.savez_compressed(tmp_path / "log.npz", **lengths)
    assert_same(oj.read_log(tmp_path / "log.npz"), oj.from_arrays(**arrays))


def test_vectors_in_one_column(tmp_path):
    table = table_of(good())
    vectors = table[["obs_0", "obs_1"]].to_numpy()
    rest = table.drop(columns=["obs_0", "obs_1"])
    rest.assign(observation=list(vectors)).to_parquet(tmp_path / "log.parquet")
    assert_same(oj.read_log(tmp_path / "log.parquet"), oj.from_dataframe(table))
    np.savez(tmp_path / "log.npz", **long_arrays(rest), obs=vectors)
    batch = oj.read_log(tmp_path / "log.npz", columns={"observation": "obs"})
    assert_same(batch, oj.from_dataframe(table))


RENAMED = {
    "episode": "Patient ID",
    "step": "t",
    "state": "s",
    "action": "a",
    "reward": "r",
    "obs_0": "observation_0",
    "obs_1": "observation_1",
    "behavior_prob": "propensity",
    "target_prob": "pi_e",
    **{f"behavior_prob_{i}": f"behaviour_probs_{i}" for i in range(3)},
    **{f"target_prob_{i}": f"eval_prob{i}" for i in range(3)},
}


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.npz"])
def test_common_names_are_guessed_and_said(name, tmp_path):
    table = table_of(good())
    path = written(table.rename(columns=RENAMED), tmp_path, name)
    said = []
    log = oj.load_log(path, say=said.append)
    assert_same(log.batch, oj.from_dataframe(table))
    assert "episode: read from Patient ID (a guess from its name)" in said
    assert "observation: read from observation_* (a guess from its name)" in said
    assert len(said) == 10
    assert log.notes == tuple(said)
    assert log.columns["observation"] == ("observation_0", "observation_1")
    assert log.episodes == ("a", "b")


def test_names_that_are_told_come_before_guesses(tmp_path):
    table = table_of(good())
    odd = {"episode": "who", "reward": "gain", "obs_0": "age", "obs_1": "weight", "action": "do"}
    odd |= {f"target_prob_{i}": f"pi{i}" for i in range(3)}
    both = table.rename(columns=odd).assign(episode=0, id="x", r=np.nan)
    columns = {"episode": "who", "reward": "gain", "action": "do"}
    columns |= {"observation": ["age", "weight"], "target_probs": "pi"}
    said = []
    batch = oj.read_log(written(both, tmp_path), columns=columns, say=said.append)
    assert_same(batch, oj.from_dataframe(table))
    assert said == []


def test_a_field_can_be_left_out(tmp_path):
    table = table_of(good())
    columns = dict.fromkeys(["log_ratio", "behavior_prob", "target_prob"])
    batch = oj.read_log(written(table, tmp_path), columns=columns)
    assert_same(batch, oj.from_dataframe(table.drop(columns=list(columns))))


def test_only_needed_columns_are_read(tmp_path, monkeypatch):
    asked = []
    read = pq.ParquetFile.read

    def watched(self, columns=None, **options):
        asked.append(columns)
        return read(self, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", watched)
    table = table_of(good())[["episode", "step", "state", "action", "reward", "log_ratio"]]
    oj.read_log(written(table.assign(note="x", blob=b"\xff"), tmp_path))
    assert [sorted(names) for names in asked] == [sorted(table)]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.npz"])
def test_labels_become_ids_in_sorted_order(name, tmp_path):
    table = table_of(good())
    words = table.assign(
        state=table["state"].map({0: "cold", 1: "hot", 3: "mild"}),
        action=table["action"].map({0: "give", 1: "wait"}),
    ).drop(columns=[c for c in table if re.match(r"(behavior|target)_prob_\d", c)])
    said = []
    log = oj.load_log(written(words, tmp_path, name), say=said.append)
    assert log.labels == {"state": ("cold", "hot", "mild"), "action": ("give", "wait")}
    assert (log.batch.num_states, log.batch.num_actions) == (3, 2)
    np.testing.assert_array_equal(log.batch.state, [[0, 2, 1], [1, 0, 0]])
    np.testing.assert_array_equal(log.batch.action, [[0, 1, 0], [1, 0, 0]])
    assert said[0] == ("state: 3 labels became ids in sorted order: 0 = cold, 1 = hot, 2 = mild")


def test_numbers_written_as_text_are_numbers(tmp_path):
    table = table_of(good())
    text = table.astype(dict.fromkeys(("step", "state", "action", "reward", "obs_0"), str))
    assert_same(oj.read_log(written(text, tmp_path)), oj.from_dataframe(table))
    coded = table.astype({"state": "category", "episode": "category"})
    assert_same(oj.read_log(written(coded, tmp_path)), oj.from_dataframe(table))


def test_without_steps_the_order_of_rows_counts(tmp_path):
    table = table_of(good())
    said = []
    path = written(table.drop(columns="step"), tmp_path)
    assert_same(oj.read_log(path, say=said.append), oj.from_dataframe(table))
    assert said == ["step: no such column; the rows of an episode are taken to be in order"]
    path = written(table.drop(columns="step").iloc[[0, 3, 1, 4, 2]], tmp_path)
    with pytest.raises(
        ValueError, match=r"step: no column looks like it, and the rows .* scattered"
    ):
        oj.read_log(path)


@pytest.mark.parametrize("shift", [0, 1])
def test_a_header_longer_than_is_looked_at(shift, tmp_path):
    table = table_of(good())
    names = {"x" * shift + "\u00e9" * 2100: 1}  # a letter of two bytes is cut in one of the two
    path = written(table.assign(**names)[[*names, *table]], tmp_path, "log.csv")
    assert_same(oj.read_log(path), oj.from_dataframe(table))


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_times_order_the_steps(name, tmp_path):
    table = table_of(good())
    time = pd.Timestamp("2024-02-28 12:00:00") + pd.to_timedelta(table["step"] ** 2 * 7, "h")
    mixed = table.drop(columns="step").assign(timestamp=time).iloc[[2, 0, 4, 1, 3]]
    said = []
    assert_same(
        oj.read_log(written(mixed, tmp_path, name), say=said.append), oj.from_dataframe(table)
    )
    assert said[1] == "step: the order of the times in timestamp within each episode"
    same = mixed.assign(timestamp=time[0])
    with pytest.raises(ValueError, match=r"step \(timestamp\): duplicate step at trajectory 0"):
        oj.read_log(written(same, tmp_path, name))


def test_rewards_that_begin_whole_may_end_in_fractions(tmp_path):
    """A streaming reader would settle the column's type on the first megabyte."""
    rows = 200_000
    reward = np.zeros(rows)
    reward[-1] = 0.5
    table = pd.DataFrame({"episode": np.arange(rows) // 10, "step": np.arange(rows) % 10})
    table = table.assign(state=0, action=0, reward=reward)
    path = tmp_path / "log.csv"
    table.astype({"reward": object}).replace({"reward": {0.0: 0}}).to_csv(path, index=False)
    assert path.stat().st_size > 2**20
    assert oj.read_log(path).reward[-1, -1] == 0.5


# --------------------------------------------------------------------------------- policies


def bare():
    """A log without ratios."""
    table = table_of(good())
    return table[[c for c in table if "prob" not in c and c != "log_ratio"]]


TABLE = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])


@pytest.mark.parametrize("form", ["function", "table", "file", "only array"])
def test_a_target_in_several_forms(form, tmp_path):
    table = table_of(good()).drop(columns=["log_ratio"])
    expected = oj.with_policies(oj.from_dataframe(table), target=TABLE)
    path = tmp_path / "policy.npz"
    np.savez(path, **({"table": TABLE, "more": [1]} if form == "file" else {"pi": TABLE}))

    def function(states):
        return TABLE[states]

    function.reads = "state"
    target = {"function": function, "table": TABLE}.get(form, str(path))
    batch = oj.read_log(written(table, tmp_path), target=target)
    assert_same(batch, expected)


def test_a_saved_network_is_a_target(tmp_path):
    network = QNetwork.create(jax.random.key(0), (4,), 3, np.ones(2))
    path = save_network(tmp_path / "q.npz", network)
    table = table_of(good())
    said = []
    batch = oj.read_log(written(table, tmp_path), target=path, epsilon=0.3, say=said.append)
    expected = oj.with_policies(oj.from_dataframe(table), target=EpsilonGreedy(network, 0.3))
    assert_same(batch, expected)
    assert said == [f"target: {path}, a Q-network, epsilon-greedy with epsilon 0.3"]
    both = oj.read_log(
        written(bare(), tmp_path), target=path, epsilon=0.3, behavior=path, behavior_epsilon=0.6
    )
    greedy = np.asarray(EpsilonGreedy(network, 0.3)(both.observation)).argmax(-1)
    ratio = np.where(greedy == both.action, 0.8 / 0.6, 0.1 / 0.2)
    np.testing.assert_allclose(np.exp(both.log_ratio)[both.mask], ratio[both.mask], rtol=1e-5)


def test_without_propensities_the_target_is_kept_for_a_fit(tmp_path):
    said = []
    batch = oj.read_log(written(bare(), tmp_path), target=TABLE, say=said.append)
    assert batch.log_ratio is None
    np.testing.assert_allclose(batch.target_probs[0, 1], TABLE[3])
    assert said[-1].startswith("behavior: the log has no probabilities of its own actions")
    oj.read_log(written(bare(), tmp_path), say=said.append)
    assert said[-1].startswith("target: the log says nothing of the policy to evaluate")


BAD_POLICIES = {
    "no file": (lambda p: None, {}, FileNotFoundError, "No such file"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps({})), {}, ValueError, "policy.npz: not a "),
    "objects": (lambda p: np.savez(p, table=np.array([None])), {}, ValueError, "policy.npz: not a"),
    "two": (lambda p: np.savez(p, a=TABLE, b=TABLE), {}, ValueError, "expected a saved network"),
    "flat": (lambda p: np.savez(p, table=[1, 2]), {}, ValueError, "there is table \\(2,\\)"),
    "few states": (lambda p: np.savez(p, TABLE[:2]), {}, ValueError, "target: .*than 3 states"),
    "sums": (lambda p: np.savez(p, TABLE * 0.9), {}, ValueError, "target: .* sum to 0.9"),
    "epsilon": (lambda p: np.savez(p, TABLE), {"epsilon": 2}, ValueError, "epsilon: has no effect"),
    "behaviour alone": (lambda p: np.savez(p, TABLE), {"behavior": TABLE, "target": None},
                        ValueError, "behavior: a ratio needs a target"),
    "other network": (lambda p: save_network(p, QNetwork.create(jax.random.key(0), (), 3, [1.0])),
                      {}, ValueError, "target: the network .* reads 1 numbers, .* has 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_POLICIES)
def test_a_bad_policy_is_named(case, tmp_path):
    write, options, kind, message = BAD_POLICIES[case]
    write(tmp_path / "policy.npz")
    with pytest.raises(kind, match=message) as caught:
        oj.read_log(
            written(bare(), tmp_path), **{"target": str(tmp_path / "policy.npz"), **options}
        )
    assert "\n" not in str(caught.value)
