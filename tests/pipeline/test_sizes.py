"""Sparse ids cost what the distinct ones cost; what would not fit is refused by its size alone."""

import gzip
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import osiris_jax as oj
from osiris_jax.core import files, labels, memory
from osiris_jax.data import load_policy

LIMIT = 2**24
WAYS = ["dataframe", "episodes", "arrays", "log.csv", "log.parquet", "log.npz"]


@pytest.fixture
def little(monkeypatch):
    """Little memory is allowed."""
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", str(LIMIT))


def table(rows=1000, state=2, action=1):
    """A log of 5-step episodes over states 0 to 2, where one id is another one."""
    rng = np.random.default_rng(0)
    numbers = np.arange(rows)
    found = pd.DataFrame({"episode": numbers // 5, "step": numbers % 5})
    found["state"] = rng.integers(3, size=rows).astype(np.int64)
    found["action"] = rng.integers(2, size=rows).astype(np.int64)
    found["reward"] = rng.normal(size=rows)
    found["behavior_prob"] = rng.uniform(0.3, 0.7, rows)
    found["target_prob"] = rng.uniform(0.3, 0.7, rows)
    found["state"] = found["state"].replace(2, state)
    found["action"] = found["action"].replace(1, action)
    return found


def loaded(found, way, folder):
    """The table by one of the ways in."""
    if way == "dataframe":
        return oj.from_dataframe(found)
    columns = {name: found[name].to_numpy() for name in found}
    if way == "log.npz":
        np.savez(folder / way, **columns)
    elif "." in way:
        path = folder / way
        found.to_csv(path, index=False) if way == "log.csv" else found.to_parquet(path)
    if "." in way:
        return oj.read_log(folder / way)
    shaped = {name: columns[name].reshape(-1, 5) for name in columns}
    del shaped["episode"], shaped["step"]
    if way == "arrays":
        return oj.from_arrays(**shaped)
    plural = {"state": "states", "action": "actions", "reward": "rewards"}
    return oj.from_episodes(
        [{plural.get(n, n): of[i] for n, of in shaped.items()} for i in range(len(found) // 5)]
    )


# ------------------------------------------------------------------------------- sparse ids


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("large", [2_000_000_000, 50_000_000, 2**53 + 1, 2**63 - 1])
def test_a_huge_id_costs_what_a_small_one_costs(way, large, tmp_path, little):
    small = loaded(table(), way, tmp_path)
    tracemalloc.start()
    batch = loaded(table(state=large, action=large), way, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert (batch.num_states, batch.num_actions) == (small.num_states, small.num_actions) == (3, 2)
    assert batch.state_labels == (0, 1, large)
    assert batch.action_labels == (0, large)
    np.testing.assert_array_equal(batch.state, small.state)
    np.testing.assert_array_equal(batch.action, small.action)
    for name in ("wis", "osirwis", "mis"):
        assert oj.estimate(batch, name) == oj.estimate(small, name)


@pytest.mark.parametrize("ids", [[0, 97], [3, 50, 51, 96], [4095]], ids=str)
def test_small_ids_with_gaps_keep_their_meaning(ids):
    found = table().assign(state=np.resize(ids, 1000))
    batch = oj.from_dataframe(found)
    assert batch.state_labels is None
    assert batch.num_states == max(ids) + 1
    assert oj.relevance_pvalues(batch).shape == (max(ids) + 1,)
    assert set(np.unique(batch.state)) == set(ids)


def test_the_rule_of_what_is_sparse():
    limit = labels.KEPT_BELOW["state"]
    dense = np.arange(0, 4 * limit, 4)  # the largest is below four times their number
    assert labels.compacted(dense, "state")[1] is None
    assert labels.compacted(np.append(dense[:-5], dense[-1]), "state")[1] is not None
    assert labels.compacted(np.array([labels.KEPT_BELOW["action"] - 1]), "action")[1] is None
    assert labels.compacted(np.array([labels.KEPT_BELOW["action"]]), "action")[1] == (256,)


def test_a_number_of_ids_that_is_given_stays():
    found = table(state=9000)
    batch = oj.from_dataframe(found, num_states=10_000, num_actions=300)
    assert (batch.num_states, batch.num_actions) == (10_000, 300)
    assert (batch.state_labels, batch.action_labels) == (None, None)
    with pytest.raises(ValueError, match=r"state: 9000 is not below the number of ids, 9000, at"):
        oj.from_dataframe(found, num_states=9000)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (float(2**54), "state: .* is too large an id at trajectory"),  # may be its neighbour
        (float(2**53), "state: 9007199254740992.0 is too large an id at trajectory"),
        (2**63, "state: 9223372036854775808 is too large an id at trajectory"),
        ("1" + "0" * 30, "state: 1000000.* is too large an id at trajectory"),
    ],
)
def test_ids_that_cannot_be_told_apart_or_counted_are_refused(state, message):
    found = table().astype({"state": object if isinstance(state, str) else type(state)})
    found["state"] = [str(s) if isinstance(state, str) else s for s in found["state"]]
    if state == 2**63:
        found["state"] = found["state"].astype(np.uint64)
    found.loc[17, "state"] = state
    with pytest.raises(ValueError, match=message):
        oj.from_dataframe(found)


# ---------------------------------------------------------------------------------- padding


def uneven(long=10**6):
    """A thousand episodes of 5 steps and one that is long."""
    lengths = np.append(np.full(1000, 5), long)
    episode = np.repeat(np.arange(1001), lengths)
    step = np.concatenate([np.arange(length) for length in lengths])
    columns = {"episode": episode, "step": step, "state": step % 3, "action": step % 2}
    return pd.DataFrame(columns | {"reward": 1.0, "behavior_prob": 0.5, "target_prob": 0.5})


def test_padding_that_would_not_fit_is_refused_before_it_is_allocated(monkeypatch):
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "8G")
    found = uneven()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"^episode: 1001 trajectories, padded") as caught:
        oj.from_dataframe(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    text = str(caught.value)
    for words in (
        "the longest (1000000 steps from trajectory 1000 (episode 1000), step 0 on)",
        "would take 19.6 GiB of memory, and 8 GiB are allowed (OSIRIS_JAX_MEMORY sets it",
        "cut or leave out the longest",
    ):
        assert words in text
    assert "\n" not in text
    assert peak < 500e6


def test_what_is_said_to_be_needed_is_what_the_batch_takes(monkeypatch):
    batch = oj.from_dataframe(uneven(100))
    size = sum(field.nbytes for field in vars(batch).values() if hasattr(field, "nbytes"))
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", str(size))
    oj.from_dataframe(uneven(100))
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", str(size - 1))
    with pytest.raises(ValueError, match=r"^episode: 1001 trajectories"):
        oj.from_dataframe(uneven(100))


def test_ten_thousand_actions_are_not_fitted_where_that_would_not_fit(monkeypatch):
    rows = 20_000
    found = table(rows).drop(columns=["behavior_prob", "target_prob"])
    batch = oj.from_dataframe(found.assign(action=np.arange(rows) % 10_000))
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "4G")
    said = r"^action: fitting the propensities of 10000 actions at 20000 steps would take 8.94 GiB"
    with pytest.raises(ValueError, match=said):
        oj.fit_behavior(batch)
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "100M")
    with pytest.raises(ValueError, match=r"^target: probabilities of 10000 actions at 20000 steps"):
        oj.with_policies(batch, target=np.full((3, 10_000), 1e-4), behavior=None)


# ---------------------------------------------------------------------------------- archives


def bomb(path, name="reward", size=2**29):
    """An .npz of some hundred kilobytes whose one array would take half a gigabyte."""
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(member, header | {"shape": (size // 8,)})
        for _ in range(size // 2**24):
            member.write(bytes(2**24))
    return path


def test_a_zip_bomb_is_refused_from_its_directory(tmp_path, monkeypatch):
    path = bomb(tmp_path / "log.npz")
    assert path.stat().st_size < 2**20
    monkeypatch.setattr(zipfile.ZipFile, "open", None)  # nothing may be unpacked
    with pytest.raises(ValueError, match=r"log.npz: .* that unpack to 512 MiB, more than data"):
        oj.read_log(path)
    with pytest.raises(ValueError, match=r"log.npz: .* that unpack to 512 MiB, more than data"):
        load_policy(path)


def test_archives_larger_than_memory_are_refused(tmp_path, little):
    np.savez(tmp_path / "log.npz", reward=np.zeros(LIMIT // 8 + 9))
    with pytest.raises(ValueError, match=r"unpacking it would take 16 MiB of memory, and 16 MiB"):
        oj.read_log(tmp_path / "log.npz")
    with pytest.raises(ValueError, match=r"unpacking it would take 16 MiB"):
        files.read_arrays(tmp_path / "log.npz")
    with gzip.open(tmp_path / "log.csv.gz", "wb") as file:
        file.write(b"episode,state,action,reward\n" + b"1,0,0,0.0\n" * 2_000_000)
    with pytest.raises(ValueError, match=r"log.csv.gz: unpacking it would take"):
        oj.read_log(tmp_path / "log.csv.gz")
    ones = pa.array(np.zeros(LIMIT // 8, np.int8))
    pq.write_table(pa.table({"episode": ones, "reward": ones, "action": ones}), tmp_path / "l.pq")
    assert (tmp_path / "l.pq").stat().st_size < 30_000
    with pytest.raises(ValueError, match=r"l.pq: reading its 2,097,152 rows would take 48 MiB"):
        oj.read_log(tmp_path / "l.pq")


def test_the_limit_is_settable_and_else_follows_what_is_free(monkeypatch):
    monkeypatch.delenv("OSIRIS_JAX_MEMORY", raising=False)
    assert 2**24 < memory.limit() < 2**50
    monkeypatch.setattr(memory, "_of_container", lambda: 4000)
    assert memory.limit() == 1000
    for place in ("_of_container", "_of_machine"):
        monkeypatch.setattr(memory, place, lambda: None)
    assert memory.limit() == memory.UNKNOWN // memory.SHARE == 4 * 2**30
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "1.5G")
    assert memory.limit() == 3 * 2**29
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "lots")
    with pytest.raises(ValueError, match=r"^OSIRIS_JAX_MEMORY: expected a size such as 512M"):
        oj.from_dataframe(table(5))


@pytest.mark.parametrize(
    ("size", "text"),
    [(700, "700 bytes"), (2**20, "1 MiB"), (27 * 2**30, "27 GiB"), (2**80, "1.1e+12 TiB")],
)
def test_sizes_in_words(size, text):
    assert memory.in_words(size) == text
