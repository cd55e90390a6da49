"""What a log calls its states and actions: policies are asked by that, never by place."""

import itertools
import json
from decimal import Decimal

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import osiris_jax as oj
from osiris_jax.data import load_policy
from osiris_jax.data.policies import Mixture, Tabular

STATES = ["warm", "cold", "hot"]  # the user's order, which is not the sorted one
ACTIONS = ["wait", "give"]
TARGET = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
BEHAVIOR = np.array([[0.5, 0.5], [0.3, 0.7], [0.75, 0.25]])
FRAME = pd.DataFrame(TARGET, STATES, ACTIONS)
LOGGED = [[(0, 0), (1, 1), (2, 0)], [(2, 1), (1, 0)], [(0, 1)]]  # (state, action), user's order


def ratios():
    """The oracle: log-ratios by the user's own order."""
    return [[np.log(TARGET[step] / BEHAVIOR[step]) for step in episode] for episode in LOGGED]


def rows(states=STATES, actions=ACTIONS):
    """The log as a table, each state and action called as told."""
    return pd.DataFrame(
        [
            {"episode": f"e{i}", "step": t, "state": states[s], "action": actions[a]}
            | {"reward": float(s + a), "behavior_prob": BEHAVIOR[s, a]}
            for i, episode in enumerate(LOGGED)
            for t, (s, a) in enumerate(episode)
        ]
    )


def by_episodes(table):
    """The same log as episodes."""
    names = {"state": "states", "action": "actions", "reward": "rewards"}
    return [
        part.drop(columns=["episode", "step"]).rename(columns=names).to_dict("list")
        for _, part in table.groupby("episode")
    ]


def assert_right(batch):
    """The ratios are those of the oracle, whatever the ids."""
    for i, wanted in enumerate(ratios()):
        np.testing.assert_allclose(batch.log_ratio[i, : len(wanted)], wanted, rtol=1e-5)


def csv(table, folder, name="log.csv"):
    table.to_csv(folder / name, index=False)
    return folder / name


def saved(folder, table=TARGET, **labels):
    np.savez(folder / "policy.npz", table=table, **labels)
    return folder / "policy.npz"


# ------------------------------------------------------------------------------ text labels


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_a_labelled_table_is_matched_by_name_in_any_order(order, tmp_path):
    order = list(order)
    shuffled = FRAME.iloc[order, [1, 0]]
    path = csv(rows(), tmp_path)
    assert_right(oj.read_log(path, target=shuffled))
    named = {"states": np.array(STATES)[order], "actions": np.array(ACTIONS)[[1, 0]]}
    file = saved(tmp_path, shuffled.to_numpy(), **named)
    said = []
    assert_right(oj.read_log(path, target=file, say=said.append))
    assert said[-1].endswith("a table of 3 states and 2 actions, matched by name")
    assert_right(oj.with_policies(oj.from_dataframe(rows()), target=load_policy(file)))
    assert_right(oj.with_policies(oj.from_episodes(by_episodes(rows())), target=shuffled))


def test_a_table_may_know_states_that_the_log_does_not_show(tmp_path):
    more = pd.concat([FRAME, pd.DataFrame(0.5, [f"s{i}" for i in range(9)], ACTIONS)]).sort_index()
    assert_right(oj.read_log(csv(rows(), tmp_path), target=more))


@pytest.mark.parametrize("number", [3, 12])
def test_a_table_without_labels_is_refused_and_both_lists_are_shown(number, tmp_path):
    table = np.full((number, 2), 0.5)
    path = csv(rows(), tmp_path)
    shown = "^target: the log calls its states cold, hot, warm, .*no labels, only states 0, 1, 2"
    for target in (table, table.tolist(), str(saved(tmp_path, table)), Tabular(table)):
        with pytest.raises(ValueError, match=shown):
            oj.read_log(path, target=target)
    with pytest.raises(ValueError, match=shown):
        oj.with_policies(oj.read_log(path), target=Mixture((Tabular(table),) * 2, (0.5, 0.5)))
    with pytest.raises(ValueError, match=r"^behavior: the log calls its states cold"):
        oj.with_policies(oj.read_log(path), target=FRAME, behavior=table)
    numbers = pd.DataFrame(table, columns=ACTIONS)
    with pytest.raises(ValueError, match=r"lacks cold, hot, warm: its states are 0, 1, 2.*the log"):
        oj.read_log(path, target=numbers)


def test_names_that_one_of_the_two_lacks_are_shown(tmp_path):
    path = csv(rows(), tmp_path)
    said = r"^target: the table lacks hot: its states are warm, cold, the log's cold, hot, warm;"
    with pytest.raises(ValueError, match=said):
        oj.read_log(path, target=FRAME.iloc[:2])
    said = r"^target: the policy lacks give: its actions are wait, take, the log's give, wait;"
    with pytest.raises(ValueError, match=said):
        oj.read_log(path, target=FRAME.rename(columns={"give": "take"}))
    states_only = saved(tmp_path, states=STATES)
    with pytest.raises(ValueError, match=r"calls its actions give, wait, .* only actions 0, 1"):
        oj.read_log(path, target=str(states_only))
    many = rows([f"s{i:02}" for i in range(3)]).iloc[[0] * 40]
    many = many.assign(state=[f"s{i:02}" for i in range(40)], step=range(40))
    with pytest.raises(ValueError, match=r"s00, s01, .* and 32 more") as caught:
        oj.with_policies(oj.from_dataframe(many), target=np.full((40, 2), 0.5))
    assert len(str(caught.value)) < 500


def test_an_action_that_only_the_target_knows_gets_an_id_of_its_own(tmp_path):
    wide = FRAME.assign(wait=TARGET[:, 0] / 2, abstain=TARGET[:, 0] / 2)
    batch = oj.read_log(csv(rows(), tmp_path), target=wide)
    assert (batch.num_actions, batch.action_labels) == (3, ("give", "wait", "abstain"))
    np.testing.assert_allclose(np.asarray(batch.target_probs)[0, 0], [0.1, 0.45, 0.45])
    fixed = oj.read_log(csv(rows(), tmp_path), num_actions=2)
    with pytest.raises(ValueError, match=r"^target: 3 actions where 2 .* adds abstain"):
        oj.with_policies(fixed, target=wide)


def test_functions_get_ids_and_the_batch_says_which_is_which():
    batch = oj.from_dataframe(rows())
    assert batch.state_labels == ("cold", "hot", "warm")
    assert batch.action_labels == ("give", "wait")
    assert "states 0 = cold, 1 = hot, 2 = warm; actions 0 = give, 1 = wait" in repr(batch)
    own = FRAME.loc[list(batch.state_labels), list(batch.action_labels)].to_numpy()
    assert_right(oj.with_policies(batch, target=lambda ids: own[ids]))
    with pytest.raises(ValueError, match=r"^target: 3 actions where 2 are expected: give, wait"):
        oj.with_policies(batch, target=lambda ids: np.full((len(ids), 3), 1 / 3))


def test_numbered_probabilities_of_named_actions_are_refused():
    wide = rows().assign(target_prob_0=0.5, target_prob_1=0.5)
    with pytest.raises(
        ValueError, match=r"^target_prob_\*: .* calls its actions give, wait: which"
    ):
        oj.from_dataframe(wide)


BAD_LABELS = {
    "twice": ({"states": ["warm", "cold", "warm"]}, "states: 'warm' appears twice"),
    "few": ({"states": ["warm", "cold"]}, r"states: shape \(2,\), where the table has 3"),
    "flat": ({"actions": np.array(3)}, r"actions: shape \(\), where the table has 2"),
    "fractions": ({"actions": [0.5, 1.5]}, "actions: expected text or whole numbers, got 0.5"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels_of_a_table_are_named(case, tmp_path):
    labels, message = BAD_LABELS[case]
    with pytest.raises(ValueError, match=message):
        load_policy(saved(tmp_path, **labels))


def test_padded_arrays_may_hold_text_too(tmp_path):
    arrays = {"reward": np.zeros((2, 2)), "state": np.array([["b", "a"], ["c", "a"]])}
    np.savez(tmp_path / "log.npz", **arrays, action=np.zeros((2, 2), int))
    batch = oj.read_log(tmp_path / "log.npz")
    assert batch.state_labels == ("a", "b", "c")
    np.testing.assert_array_equal(batch.state, [[1, 0], [2, 0]])


# --------------------------------------------------------------------------------- integers

SPARSE = [7_000_000_000, 0, 123_456]


def functions(states, actions, width):
    """A table looked up by dictionary, with as many columns as told."""

    def policy(asked):
        probs = np.zeros((len(asked), width))
        probs[:, actions] = TARGET[[states.index(int(s)) for s in asked]]
        return probs

    return policy


@pytest.mark.parametrize("states", [[0, 1, 2], [5, 1, 9], [4000, 3, 77], SPARSE], ids=str)
@pytest.mark.parametrize("actions", [[0, 1], [2, 0], [700, 3]], ids=str)
def test_functions_and_tables_are_asked_by_the_logs_own_integers(states, actions):
    batch = oj.from_dataframe(rows(states, actions))
    assert_right(oj.with_policies(batch, target=functions(states, actions, max(actions) + 1)))
    assert_right(oj.with_policies(batch, target=pd.DataFrame(TARGET, states, actions)))
    assert_right(oj.with_policies(batch, target=pd.DataFrame(TARGET, states, actions).iloc[::-1]))
    if max(states) < 10_000:
        table = np.zeros((max(states) + 5, max(actions) + 1))
        table[np.ix_(states, actions)] = TARGET
        table[[s for s in range(len(table)) if s not in states], 0] = 1
        assert_right(oj.with_policies(batch, target=table))
        assert_right(oj.with_policies(batch, target=Tabular(table)))
        with pytest.raises(ValueError, match=r"^target: .* with more than \d+ states, got shape"):
            oj.with_policies(batch, target=Tabular(table[: max(states)]))
        with pytest.raises(ValueError, match=r"^target: \d+ actions where \d+ are expected"):
            oj.with_policies(batch, target=table[:, : max(actions)])


def test_a_fit_before_the_target_knows_sparse_actions_too():
    states, actions = SPARSE, [700, 3]
    bare = oj.from_dataframe(rows(states, actions).drop(columns="behavior_prob"))
    first = oj.fit_behavior(bare, folds=1).batch
    frame = pd.DataFrame(TARGET, states, actions)
    by_name = oj.with_policies(first, target=frame)
    by_number = oj.with_policies(first, target=functions(states, actions, 701))
    assert (by_name.num_actions, by_number.num_actions) == (2, 701)
    np.testing.assert_allclose(by_name.log_ratio, by_number.log_ratio, rtol=1e-6)
    np.testing.assert_allclose(by_number.behavior_probs.sum(-1)[by_number.mask], 1, rtol=1e-5)


def test_the_number_of_actions_is_that_of_the_log_where_it_tells_one():
    few = np.array([[0.5, 0.5]] * 3)
    more = np.array([[0.4, 0.4, 0.2]] * 3)
    log = rows([0, 1, 2], [0, 1])
    assert oj.with_policies(oj.from_dataframe(log), target=more).num_actions == 3
    wide = log.drop(columns="behavior_prob").assign(behavior_prob_0=0.5, behavior_prob_1=0.5)
    for batch in (oj.from_dataframe(log, num_actions=2), oj.from_dataframe(wide)):
        oj.with_policies(batch, target=few)
        with pytest.raises(ValueError, match=r"^target: 3 actions where 2 are expected"):
            oj.with_policies(batch, target=more)


def test_a_table_has_no_fewer_rows_than_the_log_has_ids():
    batch = oj.from_dataframe(rows([0, 1, 2], [0, 1]), num_states=9)
    with pytest.raises(ValueError, match=r"with more than 8 states, got shape \(8, 2\)"):
        oj.with_policies(batch, target=np.full((8, 2), 0.5))
    oj.with_policies(batch, target=np.full((9, 2), 0.5))


def test_cells_keep_their_numbers_when_states_are_made():
    log = oj.from_episodes(
        [{"observations": [[0.5], [9.5], [2.5]], "actions": [0, 1, 0], "rewards": [0, 0, 1.0]}]
    )
    batch = oj.with_states(log, oj.LinearBins([range(1, 10)]))
    assert batch.state_labels == (0, 2, 9)
    table = np.zeros((10, 2))
    table[:, 0] = 1
    table[9] = [0, 1]
    asked = oj.with_policies(batch, target=table, behavior=np.full((10, 2), 0.5))
    np.testing.assert_allclose(asked.log_ratio[0], np.log([2, 2, 2]), rtol=1e-6)


# ------------------------------------------------------------------- text that looks like one


@pytest.mark.parametrize("field", ["state", "action"])
@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["007", "7", "12"], ("007", "12", "7")),
        (["7", "7.0", "8"], ("7", "7.0", "8")),
        (["038", "V45", "99"], ("038", "99", "V45")),
        (["-0", "0", "5"], ("-0", "0", "5")),
        (["7", "12", "0"], None),
        (["1.0", "0.0", "3.0"], None),
        (["1e2", "1", "2"], None),
    ],
    ids=str,
)
def test_text_that_looks_like_numbers(field, texts, labels, tmp_path):
    table = rows([0, 1, 2], [0, 1])
    table[field] = [texts[0], texts[1], texts[2], texts[0], texts[1], texts[2]]
    for batch in (
        oj.read_log(csv(table, tmp_path)),
        oj.from_dataframe(table),
        oj.from_episodes(by_episodes(table)),
    ):
        assert getattr(batch, f"{field}_labels") == labels
        wanted = [labels.index(t) for t in texts] if labels else [int(float(t)) for t in texts]
        np.testing.assert_array_equal(getattr(batch, field)[0], wanted)


def test_words_for_yes_and_no_stay_0_and_1(tmp_path):
    batch = oj.read_log(csv(rows(actions=[True, False]), tmp_path))
    assert batch.action_labels is None
    np.testing.assert_array_equal(batch.action[0], [1, 0, 1])


# --------------------------------------------------------------------------- episodes apart

PAIRS = {
    "beyond float": ["12345678901234567890", "12345678901234567891"],
    "beyond 2^53": ["9007199254740992", "9007199254740993"],
    "leading zeros": ["007", "7"],
    "decimals": ["7", "7.0"],
    "exponents": ["1e3", "1000"],
    "beyond everything": ["1" + "0" * 400, "1" + "0" * 399 + "1"],
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("has_step", [True, False])
def test_episodes_of_a_csv_are_told_apart_as_written(case, has_step, tmp_path):
    first, second = PAIRS[case]
    lines = ["episode,step,state,action,reward,behavior_prob,target_prob"]
    lines += [f"{first},0,0,0,1,0.5,1", f"{second},0,0,1,3,0.5,0.25"]
    if not has_step:
        lines = [",".join(line.split(",")[:1] + line.split(",")[2:]) for line in lines]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    log = oj.load_log(tmp_path / "log.csv")
    assert log.batch.lengths.tolist() == [1, 1]
    assert [str(label) for label in log.episodes] == [first, second]
    assert float(oj.estimate(log.batch, "is")) == pytest.approx((1 * 2 + 3 * 0.5) / 2)


@pytest.mark.parametrize("precision", [38, 76])
def test_decimal_episodes_of_parquet_are_told_apart(precision, tmp_path):
    kind = pa.decimal128(38, 0) if precision == 38 else pa.decimal256(76, 2)
    ids = pa.array([Decimal(2**53), Decimal(2**53 + 1)], kind)
    columns = {"episode": ids, "state": [0, 0], "action": [0, 1], "reward": [1.0, 3.0]}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    assert oj.read_log(tmp_path / "log.parquet").lengths.tolist() == [1, 1]
    columns |= {"episode": ["a", "a"], "step": [0, 1], "state": ids}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    batch = oj.read_log(tmp_path / "log.parquet")
    assert batch.num_states == 2


def test_plain_integers_stay_integers(tmp_path):
    log = oj.load_log(csv(rows().assign(episode=[3, 3, 3, 10, 10, 7]), tmp_path))
    assert log.episodes == (3, 10, 7)


# ------------------------------------------------------------------------------ jit and faces


def test_labels_are_no_part_of_a_compilation():
    one = oj.with_policies(oj.from_dataframe(rows()), target=FRAME)
    names = {"state_labels": ("x", "y", "z"), "fitted": "yes", "groups": {"ward": [1, 2, 3]}}
    two = one.replace(**names, action_labels=None, truncated=np.ones(3, bool), all_actions=True)
    traces = []

    @jax.jit
    def total(batch):
        traces.append(batch.state_labels)
        return batch.reward.sum()

    total(one), total(two), total(two.replace(state_labels=None))
    assert traces == [None]
    assert jax.tree.structure(one) == jax.tree.structure(two)


def test_what_lives_outside_jit_survives_changes_of_shape():
    batch = oj.with_policies(oj.from_dataframe(rows()), target=FRAME).replace(
        groups={"ward": np.array(["n", "s", "n"])}, truncated=np.array([True, False, True])
    )
    for changed in (oj.trim(oj.pad_to(batch, 9)), oj.pad_to_bucket(batch), batch[[0, 1, 2]]):
        assert changed.state_labels == ("cold", "hot", "warm")
        assert changed.action_labels == ("give", "wait")
        assert changed.truncated.tolist() == [True, False, True]
        assert changed.groups["ward"].tolist() == ["n", "s", "n"]
    again = oj.with_policies(batch, target=FRAME)
    assert again.groups == batch.groups
    assert again.truncated is batch.truncated


def test_every_face_of_an_evaluation_says_which_is_which():
    batch = oj.with_policies(oj.from_dataframe(rows()), target=FRAME)
    found = oj.evaluate(batch, ["wis", "mc"], methods="percentile", resamples=10)
    assert "note: States: 0 = `cold`, 1 = `hot`, 2 = `warm`.\n" in str(found)
    assert "note: Actions: 0 = `give`, 1 = `wait`.\n" in str(found)
    summary = json.loads(json.dumps(found.summary()))
    assert summary["settings"]["state_labels"] == ["cold", "hot", "warm"]
    assert summary["settings"]["action_labels"] == ["give", "wait"]


def test_hostile_labels_are_shown_harmless():
    names = ["\x1b[2J\nrm", "`](http://x)`" + "y" * 99, "<script>"]
    batch = oj.from_dataframe(rows(names)).replace(log_ratio=None)
    (note, *_) = oj.evaluate(batch, ["mc"], methods="percentile", resamples=10).notes
    assert note.isprintable()
    assert note.count("`") == 6
    assert r"\x1b[2J\nrm" in note
    assert len(note) < 200
    assert repr(batch).isprintable()
