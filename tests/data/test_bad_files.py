"""Files that are no logs, or damaged, or dangerous: one clear line, and nothing runs."""

import gzip
import os
import pickle
import re
import zipfile
from io import BytesIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_from_dataframe import table_of
from test_from_episodes import good
from test_read_log import long_arrays, written

import osiris_jax as oj

EVIL = "owned.txt"


class Evil:
    def __reduce__(self):
        return os.mkdir, (EVIL,)


def put(column, value, row=4):
    """A table with one bad cell."""
    return lambda t: (
        t.astype({column: object}).set_axis(range(len(t))).pipe(_set, row, column, value)
    )


def _set(table, row, column, value):
    table.at[row, column] = value
    return table


def simple():
    """A small log with probabilities of the logged actions."""
    columns = ["episode", "step", "state", "action", "reward", "behavior_prob", "target_prob"]
    return table_of(good())[columns]


def as_csv(change):
    return "log.csv", lambda: change(simple()).to_csv(index=False).encode()


def as_parquet(change):
    return "log.parquet", lambda: parquet_bytes(change(simple()))


def parquet_bytes(table):
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), buffer)
    return buffer.getvalue()


def npz_bytes(**arrays):
    buffer = BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npz(**changes):
    return "log.npz", lambda: npz_bytes(**{**long_arrays(simple()), **changes})


def raw(name, content):
    return name, content if callable(content) else lambda: content


def zipped(**files):
    def content():
        buffer = BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return buffer.getvalue()

    return "log.npz", content


def renamed(**names):
    return lambda t: t.rename(columns=names)


def dropped(*names):
    return lambda t: t.drop(columns=list(names))


CSV = "episode,step,state,action,reward\na,0,0,0,1\n"
SCRIPT = "<script>alert(1)</script>"
B1 = r"trajectory 1 \(episode 'b'\), step 1"
BAD = {
    "empty csv": (raw("log.csv", b""), "the file is empty"),
    "empty parquet": (raw("log.parquet", b""), "the file is empty"),
    "empty npz": (raw("log.npz", b""), "the file is empty"),
    "empty gz": (raw("log.csv.gz", gzip.compress(b"")), "the compressed file is empty"),
    "header only": (as_csv(lambda t: t[:0]), "episode: the table has no rows"),
    "no rows": (as_parquet(lambda t: t[:0]), "episode: the table has no rows"),
    "no columns": (raw("log.parquet", lambda: parquet_bytes(pd.DataFrame())),
                   "reward: no column looks like it; there are none"),
    "cut parquet": (raw("log.parquet", lambda: parquet_bytes(simple())[:-20]),
                    "not readable as Parquet \\("),
    "half parquet": (raw("log.parquet", lambda: parquet_bytes(simple())[:900]),
                     "not readable as Parquet \\("),
    "magic only": (raw("log.parquet", b"PAR1"), "not readable as Parquet"),
    "cut npz": (raw("log.npz", lambda: npz_bytes(**long_arrays(simple()))[:-30]),
                "not readable as .npz"),
    "cut gz": (raw("log.csv.gz", gzip.compress(CSV.encode() * 50)[:-9]),
               "not readable as CSV, compressed"),
    "text in csv": (as_csv(put("reward", "oops")), f"reward: .*number, got 'oops' at {B1}$"),
    "text in parquet": (as_parquet(lambda t: put("reward", "oops")(t).astype({"reward": str})),
                        f"reward: .*number, got 'oops' at {B1}$"),
    "text in npz": (npz(reward=np.array(["1", "2", "3", "4", "oops"])),
                    f"reward: .*got 'oops' at {B1}$"),
    "text step": (as_csv(put("step", "x")), "step: .*number, got 'x' at trajectory 1 .*, row 4"),
    "text prob": (as_csv(put("behavior_prob", "50%")), f"behavior_prob: .*'50%' at {B1}"),
    "mixed states": (as_csv(put("state", "3x")), f"state: .*number, got '3x' at {B1}"),
    "mixed actions": (as_parquet(lambda t: put("action", "?")(t).astype({"action": str})),
                      f"action: expected a real number, got '.' at {B1}"),
    **{f"probability {value}": (as_csv(put("behavior_prob", value)), f"behavior_prob: {said}.*{B1}")
       for value, said in [(0, "0 for the logged action"), (1.2, "1.2 is not in"),
                           (-0.1, "-0.1 is not in"), (np.nan, "NaN")]},
    "probability inf": (as_parquet(lambda t: t.assign(target_prob=[1, 1, 1, 1, np.inf])),
                        f"target_prob: inf is not in .*{B1}"),
    "missing reward": (as_csv(put("reward", None)), f"reward: NaN at {B1}"),
    "missing state": (as_parquet(lambda t: _set(t.astype({"state": "Int64"}), 4, "state", pd.NA)),
                      f"state: NaN at {B1}"),
    "missing label": (as_csv(lambda t: t.assign(state=[*"vwxy", None])), f"state: NaN at {B1}"),
    "missing episode": (as_csv(put("episode", None)), "episode: missing at row 4"),
    "infinite reward": (as_csv(put("reward", "inf")), f"reward: not finite at {B1}"),
    "negative step": (as_csv(put("step", -1)), "step: negative at .*step -1"),
    "duplicate step": (as_csv(put("step", 0)), "step: duplicate step at .*'b'\\), step 0"),
    "gap": (as_parquet(lambda t: t.assign(step=[0, 1, 2, 0, 2])), "step: gap after step 0 at"),
    "half step": (as_csv(put("step", 0.5)), "step: 0.5 is not an integer"),
    "negative state": (as_csv(put("state", -3)), f"state: -3 is negative at {B1}"),
    "huge state": (as_csv(put("state", 10**22)), f"state: .* is too large an id at {B1}"),
    "half action": (as_csv(put("action", 0.5)), f"action: 0.5 is not an integer at {B1}"),
    "no episode": (as_csv(dropped("episode")), "episode: no column looks like it; there are step"),
    "no reward": (as_csv(dropped("reward")), "reward: no column looks like it"),
    "no action": (as_csv(dropped("action")), "action: no column looks like it"),
    "no state": (as_csv(dropped("state")), "state: missing, and so is observation"),
    "two names": (as_csv(lambda t: renamed(episode="user")(t).assign(patient=1)),
                  "episode: it could be any of user, patient; say which by columns"),
    "two rows of names": (as_csv(lambda t: t.drop(columns="state").assign(x_0=1, feature_0=1)),
                          "observation: it could be any of feature_., x_."),
    "renamed, bad": (as_csv(lambda t: put("reward", "oops")(t).rename(columns={"reward": "r"})),
                     f"reward \\(r\\): .*'oops' at {B1}"),
    "hole": (as_csv(lambda t: t.assign(obs_0=1, obs_2=1)), "obs_.: .* lacks number 1"),
    "twice": (raw("log.csv", b"episode,step,state,action,reward,reward\na,0,0,0,1,1\n"),
              "reward: this column appears twice"),
    "script as name": (as_csv(renamed(reward=SCRIPT)), f"reward: no column .*{re.escape(SCRIPT)}"),
    "script as value": (as_csv(put("reward", SCRIPT)), f"reward: .*<script.* at {B1}"),
    "control codes": (as_parquet(renamed(reward="\x1b[2J\nrew")), r"reward: .*\\x1b\[2J\\nrew"),
    "long ragged": (raw("log.csv", (CSV + "a,1,0,0,1,7\n").encode()), "not readable .*Expected 5"),
    "short ragged": (raw("log.csv", (CSV + "a,1,0\n").encode()), "not readable .*Expected 5"),
    "latin-1 value": (raw("log.csv", (CSV + "\xe9,0,0,0,1\n").encode("latin-1")),
                      "episode: bytes that are not text in UTF-8"),
    "latin-1 name": (raw("log.csv", ("\xe9," + CSV).encode("latin-1")), "not readable as CSV"),
    "utf-16": (raw("log.csv", CSV.encode("utf-16")), "neither Parquet, .npz nor text in UTF-8"),
    "binary": (raw("log.csv", b"a,b\n1,\x002\n"), "neither Parquet, .npz nor text"),
    "html": (raw("log.csv", b"<!DOCTYPE html><html></html>"), "an HTML page"),
    "a word": (raw("log.csv", b"hello"), "not readable as CSV .*Empty CSV"),
    "a line": (raw("log.csv", b"hello\n"), "reward: no column looks like it; there are hello"),
    "parquet as csv": (raw("log.csv", lambda: parquet_bytes(simple())),
                       "the name says CSV, the content is Parquet"),
    "csv as parquet": (raw("log.parquet", CSV.encode()), "name says Parquet, the content is CSV"),
    "csv as npz": (raw("log.npz", CSV.encode()), "the name says .npz, the content is CSV"),
    "gz as csv": (raw("log.csv", gzip.compress(CSV.encode())), "content is CSV, compressed"),
    "other name": (raw("log.xlsx", CSV.encode()), "not a name of a log; expected .*.parquet"),
    "no extension": (raw("log", CSV.encode()), "not a name of a log"),
    **{f"pickle as {name}": (raw(name, pickle.dumps(Evil())), "the content is a Python pickle")
       for name in ("log.csv", "log.parquet", "log.npz", "log.csv.gz")},
    "old pickle": (raw("log.csv", pickle.dumps(Evil(), 0)), "reward: no column looks like it"),
    "pickle in gz": (raw("log.csv.gz", gzip.compress(pickle.dumps(Evil()))),
                     "the content is a Python pickle"),
    "pickle in zip": (zipped(**{"reward.npy": pickle.dumps(Evil())}), "reward: not an array"),
    "raw in zip": (zipped(reward=b"12345"), "reward: not an array"),
    "objects": (npz(reward=np.array([Evil()] * 5)), "reward: Python objects, which could run code"),
    "npy": (raw("log.npz", lambda: _npy(np.arange(5))), "a single .npy array"),
    "object npy": (raw("log.npz", lambda: _npy(np.array([Evil()]))), "a single .npy array"),
    "npz lengths": (npz(reward=np.zeros(4)), "episode: 5 rows where reward has 4"),
    "npz scalar": (npz(state=np.array(3)), "state: no rows where reward has 5"),
    "npz matrix": (npz(state=np.zeros((5, 2))), "state: expected one value per row"),
    "npz cube": (npz(observation=np.zeros((5, 2, 2))), "observation: expected a vector per row"),
    "npz complex": (npz(reward=np.ones(5) * 1j), "reward: an array of complex128"),
    "padded shapes": (raw("log.npz", lambda: npz_bytes(
        reward=np.zeros((2, 3)), action=np.zeros((2, 2)), state=np.zeros((2, 3)))),
        "action: shape \\(2, 2\\) does not fit reward's"),
    "padded NaN": (raw("log.npz", lambda: npz_bytes(
        reward=[[0.0, np.nan]], action=[[0, 0]], state=[[0, 0]])), "reward: NaN at .* 0, step 1"),
    "ragged vectors": (as_parquet(lambda t: t.assign(observation=[[1.0]] * 4 + [[1.0, 2.0]])),
                       "observation: a vector of size 2 at row 4, where row 0 has 1"),
    "text vectors": (as_csv(lambda t: t.assign(observation="[1 2]")),
                     "observation: expected a real number, got '\\[1 2\\]'"),
    "structs": (as_parquet(lambda t: t.assign(reward=[{"x": 1}] * 5)), "reward: a column of str"),
    "lists": (as_parquet(lambda t: t.assign(reward=[[1, 2]] * 5)), "reward: expected one value"),
    "hdf5": (raw("log.parquet", b"\x89HDF\r\n\x1a\n"), "HDF5, which is not read"),
}  # fmt: skip


def _npy(array):
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_named_in_one_line_and_nothing_runs(case, tmp_path, monkeypatch):
    (name, content), message = BAD[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content())
    with pytest.raises(ValueError, match=message) as caught:
        oj.read_log(name)
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    assert text.isprintable()
    assert len(text) <= 500
    assert caught.value.__cause__ is None
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file"):
        oj.read_log(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OSError, match=r"folder\.csv"):
        oj.read_log(tmp_path / "folder.csv")


BAD_COLUMNS = {
    "unknown field": ({"episod": "x"}, "columns: episod is not a field; did you mean episode"),
    "unknown column": ({"episode": "x"}, "columns: episode is said to be x, which is no column"),
    "list": ({"reward": ["reward"]}, "columns: reward is one column"),
    "number": ({"reward": 3}, "columns: reward is to be a column's name, got 3"),
    "in a list": ({"observation": ["reward", "x"]}, "observation is said to be x, which is no"),
    "left out": ({"reward": None}, "reward: no column looks like it"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_bad_column_options_are_named(case, tmp_path):
    columns, message = BAD_COLUMNS[case]
    with pytest.raises(ValueError, match=message):
        oj.read_log(written(simple(), tmp_path), columns=columns)


def test_more_padding_than_fits_is_refused(tmp_path):
    rows = 2**17
    table = pd.DataFrame({"episode": np.arange(2 * rows)}).clip(lower=rows) - rows
    table = table.assign(state=0, action=0, reward=0.0)
    with pytest.raises(ValueError, match=r"episode: 131072 trajectories, padded .* 32-bit"):
        oj.read_log(written(table, tmp_path))


# ------------------------------------------------------------------------------------- fuzz

VALID = {
    "log.parquet": parquet_bytes(simple()),
    "log.csv": simple().to_csv(index=False).encode(),
    "log.csv.gz": gzip.compress(simple().to_csv(index=False).encode(), mtime=0),
    "log.npz": npz_bytes(**long_arrays(simple())),
}


def outcome(path):
    """A batch or None for a refusal; any other exception goes through."""
    try:
        return oj.read_log(path)
    except ValueError as error:
        refusal = str(error)
    assert refusal.isprintable()
    return None


@settings(max_examples=150)
@given(
    name=st.sampled_from(sorted(VALID)),
    magic=st.sampled_from([b"", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"episode,step,reward\n"]),
    body=st.binary(max_size=200),
)
def test_random_bytes_are_refused_or_read(name, magic, body, tmp_path):
    (tmp_path / name).write_bytes(magic + body)
    outcome(tmp_path / name)


@settings(max_examples=300)
@given(name=st.sampled_from(sorted(VALID)), data=st.data())
def test_flipped_bits_are_refused_or_read(name, data, tmp_path):
    content = bytearray(VALID[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / name).write_bytes(content)
    batch = outcome(tmp_path / name)
    assert batch is None or np.isfinite(np.asarray(batch.reward)).all()


CELLS = st.one_of(
    st.integers(-(2**40), 2**40), st.floats(), st.text(max_size=5), st.none(), st.booleans()
)


@settings(max_examples=100)
@given(
    column=st.sampled_from(list(simple())),
    row=st.integers(0, 4),
    value=CELLS,
    name=st.sampled_from(["log.csv", "log.npz"]),
)
def test_any_cell_is_refused_or_read(column, row, value, name, tmp_path):
    table = put(column, value, row)(simple())
    outcome(written(table, tmp_path, name))
