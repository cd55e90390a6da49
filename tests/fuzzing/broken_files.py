"""Files that are damaged, dangerous, or not what their name says."""

import gzip
import io
import os
import pickle
import struct
import zipfile
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa

import osiris_jax as oj
from fuzzing import forms
from fuzzing.forms import ANYTHING, EITHER, REFUSAL, Case, npz_bytes, parquet_bytes, pick, table_of
from fuzzing.truth import draw

ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet", ".npz")


def content(truth, ending):
    """The log as the bytes that the ending promises."""
    table = table_of(truth)
    if ending == ".parquet":
        return parquet_bytes(table)
    if ending == ".npz":
        return npz_bytes(forms.long_arrays(table))
    text = table.to_csv(index=False, sep="\t" if "tsv" in ending else ",").encode()
    return gzip.compress(text) if ending.endswith("gz") else text


def cut(rng, data, ending):
    """Only the beginning."""
    del ending
    return data[: rng.integers(len(data))], ANYTHING


def flipped(rng, data, ending):
    """A few bits turned."""
    del ending
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(data), ANYTHING


def holes(rng, data, ending):
    """A stretch of zeros or of noise in the middle."""
    del ending
    start = rng.integers(len(data))
    noise = pick(rng, [bytes(20), rng.bytes(20)])
    return data[:start] + noise + data[start + 20 :], ANYTHING


def swapped(rng, data, ending):
    """What another ending promises."""
    same = {".csv": ".tsv", ".tsv": ".csv"}
    other = pick(rng, [e for e in ENDINGS if e not in (ending, same.get(ending))])
    return content(draw(rng), other), REFUSAL


def noise(rng, data, ending):
    """Random bytes, perhaps with the magic number of a format."""
    del data, ending
    magic = pick(rng, [b"", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\x93NUMPY", b"\x80\x04"])
    return magic + rng.bytes(int(rng.integers(1, 400))), ANYTHING


def empty(rng, data, ending):
    """Nothing."""
    del rng, data
    return gzip.compress(b"") if ending.endswith("gz") else b"", REFUSAL


def pickled(rng, data, ending):
    """A pickle, which could run code."""
    del rng, data, ending
    return pickle.dumps({"reward": [1.0]}), REFUSAL


DAMAGE = {
    function.__name__: function
    for function in (cut, flipped, holes, swapped, noise, empty, pickled)
}


def damaged(rng, folder):
    """A good file, then damaged."""
    truth, ending, what = draw(rng), pick(rng, ENDINGS), pick(rng, DAMAGE)
    data, expected = DAMAGE[what](rng, content(truth, ending), ending)
    path = forms.save(rng, folder, data, ending)
    return Case(f"{ending}: {what}", lambda: oj.read_log(path), truth, expected)


# ----------------------------------------------------------------------------------- CSV

HEADER = "episode,step,state,action,reward"
ROW = "a,0,0,0,1.0"
CSV = {
    "a column twice": (f"{HEADER},reward\n{ROW},2\n", "reward", REFUSAL),
    "all names the same": ("x,x,x\n1,2,3\n", "", REFUSAL),
    "no header": (f"{ROW}\n{ROW}\n", "", REFUSAL),
    "header only": (HEADER + "\n", "episode", REFUSAL),
    "a long row": (f"{HEADER}\n{ROW},7\n", "", REFUSAL),
    "a short row": (f"{HEADER}\n{ROW}\na,1\n", "", REFUSAL),
    "an open quote": (f'{HEADER}\n"a,0,0,0,1\n', "", REFUSAL),
    "a NUL": (f"{HEADER}\na\0,0,0,0,1\n", "", REFUSAL),
    "one word": ("hello", "", REFUSAL),
    "blank lines": ("\n\n\n", "", REFUSAL),
    "a page": ("<!doctype html><p>", "", REFUSAL),
    "scattered rows": ("episode,state,action,reward\na,0,0,1\nb,0,0,1\na,0,0,1\n", "step", REFUSAL),
    "two candidates": ("user,patient,step,state,action,reward\n1,1,0,0,0,1\n", "episode", REFUSAL),
    "a percentage": (
        f"{HEADER},behavior_prob,target_prob\n{ROW},50%,1\n",
        "behavior_prob",
        REFUSAL,
    ),
    "a decimal comma": ("episode;step;state;action;reward\na;0;0;0;1,5\n", "reward", REFUSAL),
    "a missing episode": (f"{HEADER}\n{ROW}\n,0,0,0,1\n", "episode", REFUSAL),
    "episodes called NA": (f"{HEADER}\nNA,0,0,0,1\n{ROW}\n", "episode", REFUSAL),
    "a missing state": (f"{HEADER}\na,0,,0,1\n", "state", REFUSAL),
    "an infinite reward": (f"{HEADER}\na,0,0,0,inf\n", "reward", REFUSAL),
    "a reward of 1e999": (f"{HEADER}\na,0,0,0,1e999\n", "reward", REFUSAL),
    "a mixed state": (f"{HEADER}\na,0,0,0,1\na,1,fever,0,1\n", "state", REFUSAL),
    "a negative state": (f"{HEADER}\na,0,-1,0,1\n", "state", REFUSAL),
    "a date as reward": (f"{HEADER}\na,0,0,0,2024-02-29\n", "reward", REFUSAL),
    "a boolean reward": (f"{HEADER}\na,0,0,0,true\n", "reward", ANYTHING),
    "boolean states": (f"{HEADER}\na,0,true,0,1\na,1,false,0,1\n", "state", ANYTHING),
    "dates as states": (f"{HEADER}\na,0,2024-02-29,0,1\na,1,2024-03-01,0,1\n", "state", ANYTHING),
    "a byte order mark": (f"\ufeff{HEADER}\n{ROW}\n", "", ANYTHING),
    "a huge field": (f"{HEADER}\n{'9' * 200_000},0,0,0,1\n", "", ANYTHING),
    "escape names": ("\x1b[2Je,\x1b[31m,*,|,`\n1,2,3,4,5\n", "", REFUSAL),
    "many columns": (",".join(f"c{k}" for k in range(5000)) + "\n", "", REFUSAL),
}


def bad_csv(rng, folder):
    """A CSV that is no log."""
    what = pick(rng, CSV)
    text, field, expected = CSV[what]
    path = forms.save(rng, folder, text.encode(), ".csv")
    return Case(f"csv: {what}", lambda: oj.read_log(path), draw(rng), expected, field)


# ------------------------------------------------------------------------------- Parquet


def arrow_column(name, values, kind=None):
    """The table with one column of another Arrow type."""
    return lambda table: {**table, name: pa.array(values(len(table["reward"])), kind)}


PARQUET = {
    "bytes as episodes": arrow_column("episode", lambda n: [b"\xff"] * n),
    "bytes as rewards": arrow_column("reward", lambda n: [b"1"] * n),
    "structs as rewards": arrow_column("reward", lambda n: [{"a": 1.0}] * n),
    "lists as rewards": arrow_column("reward", lambda n: [[1.0, 2.0]] * n),
    "lists as episodes": arrow_column("episode", lambda n: [[1]] * n),
    "maps as states": arrow_column(
        "state", lambda n: [[("a", 1)]] * n, pa.map_(pa.string(), pa.int8())
    ),
    "durations as rewards": arrow_column("reward", lambda n: [1] * n, pa.duration("s")),
    "times of day as steps": arrow_column("step", lambda n: list(range(n)), pa.time32("s")),
    "nothing as rewards": arrow_column("reward", lambda n: [None] * n, pa.null()),
    "nothing as episodes": arrow_column("episode", lambda n: [None] * n, pa.null()),
    "a hole in rewards": arrow_column("reward", lambda n: [None] + [1.0] * (n - 1)),
    "a hole in states": arrow_column("state", lambda n: [None] + [1] * (n - 1)),
    "fractions as states": arrow_column("state", lambda n: [Decimal("0.5")] * n),
    "dates as rewards": arrow_column("reward", lambda n: [pd.Timestamp("2024-02-29")] * n),
    "text as rewards": arrow_column("reward", lambda n: ["one"] * n),
    "ragged vectors": arrow_column("observation", lambda n: [[1.0]] * (n - 1) + [[]]),
    "vectors with a hole": arrow_column("observation", lambda n: [[1.0, None]] * n),
    "vectors of text": arrow_column("observation", lambda n: [["a"]] * n),
    "no columns": lambda t: {},
    "no rows": lambda t: {name: column[:0] for name, column in t.items()},
    "no reward": lambda t: {k: v for k, v in t.items() if k != "reward"},
}


def bad_parquet(rng, folder):
    """Parquet with a column of a type that means nothing there."""
    truth, what = draw(rng, size=3), pick(rng, PARQUET)
    arrow = pa.Table.from_pandas(table_of(truth), preserve_index=False)
    columns = PARQUET[what](
        {name: arrow.column(name).combine_chunks() for name in arrow.column_names}
    )
    path = forms.save(rng, folder, parquet_bytes(pa.table(columns)), ".parquet")
    field = what.split()[-1].removesuffix("s") if " as " in what else ""
    return Case(f"parquet: {what}", lambda: oj.read_log(path), truth, REFUSAL, field)


def decimal_states(rng, folder):
    """Whole decimals as states: read as what they are, or refused."""
    truth = draw(rng)
    table = table_of(truth)
    table["state"] = [Decimal(int(s)) for s in table["state"]]
    path = forms.save(rng, folder, parquet_bytes(table), ".parquet")
    return Case("parquet: decimals as states", lambda: oj.read_log(path), truth, EITHER, "state")


# ---------------------------------------------------------------------------------- .npz


def npy_header(shape, kind="<f8"):
    """The beginning of an .npy that claims this shape."""
    said = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    said += b" " * (63 - (len(said) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said


def zipped(members):
    """A zip of raw members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def columns(**changes):
    """A long .npz with some arrays replaced; None leaves one out."""

    def build(truth):
        arrays = forms.long_arrays(table_of(truth))
        arrays |= {k: v(len(arrays["reward"])) if callable(v) else v for k, v in changes.items()}
        return npz_bytes({k: v for k, v in arrays.items() if v is not None})

    return build


NPZ = {
    "no reward": (columns(reward=None), "reward"),
    "no episode": (columns(episode=None), "episode"),
    "no action": (columns(action=None), "action"),
    "a scalar reward": (columns(reward=np.float64(1.0)), "reward"),
    "a scalar episode": (columns(episode=np.int64(1)), "episode"),
    "scalars alone": (lambda t: npz_bytes(dict.fromkeys(table_of(t), np.float64(1))), "reward"),
    "another length": (columns(action=lambda n: np.zeros(n + 1, int)), "action|episode"),
    "a matrix": (columns(state=lambda n: np.zeros((n, 2), int)), "state"),
    "a cube": (columns(observation=lambda n: np.zeros((n, 2, 2))), "observation"),
    "complex": (columns(reward=lambda n: np.ones(n) * 1j), "reward"),
    "structured": (columns(reward=lambda n: np.zeros(n, [("a", float)])), "reward"),
    "objects": (columns(reward=lambda n: np.array([None] * n)), "reward"),
    "bytes": (columns(episode=lambda n: np.array([b"\xff"] * n)), ""),
    "empty arrays": (
        lambda t: npz_bytes({k: v[:0] for k, v in forms.long_arrays(table_of(t)).items()}),
        "episode",
    ),
    "no members": (lambda t: npz_bytes({}), ""),
    "strange names": (lambda t: npz_bytes({"\x1b[2J": np.ones(2), "|*`": np.ones(2)}), "reward"),
    "raw text": (lambda t: zipped({"reward": b"12345"}), "reward"),
    "a claim of 8 TB": (lambda t: zipped({"reward.npy": npy_header((10**12,))}), ""),
    "a claim beyond memory": (lambda t: zipped({"reward.npy": npy_header((2**62, 4))}), ""),
    "a negative shape": (lambda t: zipped({"reward.npy": npy_header((-5,)) + bytes(40)}), ""),
    "a strange type": (lambda t: zipped({"reward.npy": npy_header((5,), "<f3") + bytes(40)}), ""),
    "a header of nonsense": (
        lambda t: zipped({"reward.npy": b"\x93NUMPY\x01\x00\xff\xff(((((("}),
        "",
    ),
    "a deep header": (
        lambda t: zipped({"reward.npy": b"\x93NUMPY\x01\x00\x40\x1f" + b"(" * 8000}),
        "",
    ),
}


def bad_npz(rng, folder):
    """An archive that is no log."""
    truth, what = draw(rng, size=3), pick(rng, NPZ)
    build, field = NPZ[what]
    path = forms.save(rng, folder, build(truth), ".npz")
    return Case(f"npz: {what}", lambda: oj.read_log(path), truth, REFUSAL, field)


POLICY_FILES = {
    "text": lambda t: npz_bytes({"table": np.array([["a", "b"]])}),
    "text beside": lambda t: npz_bytes({"table": t.target, "x": np.array(["a"])}),
    "flat": lambda t: npz_bytes({"table": t.target[0]}),
    "a scalar": lambda t: npz_bytes({"table": np.float64(1)}),
    "three axes": lambda t: npz_bytes({"table": t.target[None]}),
    "complex": lambda t: npz_bytes({"table": t.target * 1j}),
    "objects": lambda t: npz_bytes({"table": np.array([[None]])}),
    "two tables": lambda t: npz_bytes({"a": t.target, "b": t.target}),
    "nothing": lambda t: npz_bytes({}),
    "few states": lambda t: npz_bytes({"table": t.target[:1]}),
    "few actions": lambda t: npz_bytes({"table": np.ones((5, 1))}),
    "sums": lambda t: npz_bytes({"table": t.target / 2}),
    "NaN": lambda t: npz_bytes({"table": t.target * np.nan}),
    "a broken network": lambda t: npz_bytes({"scale": np.array(["x"])}),
    "a network of scalars": lambda t: npz_bytes(
        {"scale": np.float64(1), "kernel_0": np.float64(1)}
    ),
    "no archive": lambda t: b"table",
    "empty": lambda t: b"",
    "cut": lambda t: npz_bytes({"table": t.target})[:-40],
    "a claim of 8 TB": lambda t: zipped({"table.npy": npy_header((10**12, 1))}),
    "strange names": lambda t: npz_bytes({"\x1b[2J": np.ones(2), "*": np.ones(2)}),
    "names of another length": lambda t: npz_bytes(
        {"table": t.target, "states": np.array(["a"]), "actions": np.array(["b"])}
    ),
}


def bad_policy_file(rng, folder):
    """A file that is no policy for this log."""
    truth, what = draw(rng, size=8), pick(rng, POLICY_FILES)
    truth.states[0][:1], truth.actions[0][:1] = 4, 2
    log = forms.save(rng, folder, forms.csv_bytes(rng, table_of(truth, "behavior")), ".csv")
    path = folder / (pick(rng, forms.FILE_NAMES) + " policy.npz")
    path.write_bytes(POLICY_FILES[what](truth))
    # columns that nobody asked for may be left alone
    expected = EITHER if what == "text beside" else REFUSAL
    name = f"policy file: {what}"
    return Case(name, lambda: oj.read_log(log, target=str(path)), truth, expected, "policy|target")


# ---------------------------------------------------------------------------- what is huge


def too_long():
    """A thousand short episodes and one of a million steps: 10^9 cells when padded."""
    lengths = np.array([5] * 1000 + [1_000_000])
    table = pd.DataFrame({"episode": np.repeat(np.arange(1001), lengths)})
    table = table.assign(state=0, action=0, reward=1.0, log_ratio=0.0)
    table["step"] = np.arange(len(table)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return table


def bomb(megabytes=400):
    """A small archive that unpacks to this much."""
    buffer, block, number = io.BytesIO(), bytes(2**20), megabytes // 4
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("reward.npy", "episode.npy", "state.npy", "action.npy"):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(npy_header((number * 2**17,)))
                for _ in range(number):
                    member.write(block)
    return buffer.getvalue()


def huge_cases(folder):
    """What must be refused before anything is allocated."""
    truth, table = draw(np.random.default_rng(0)), too_long()
    table.to_parquet(folder / "long.parquet")
    (folder / "bomb.npz").write_bytes(bomb())
    calls = {
        "10^9 cells, table": lambda: oj.from_dataframe(table),
        "10^9 cells, Parquet": lambda: oj.read_log(folder / "long.parquet"),
        "a small archive of 400 MB": lambda: oj.read_log(folder / "bomb.npz"),
    }
    field = "memory|unpack"
    cases = [Case(name, limited(call), truth, REFUSAL, field) for name, call in calls.items()]
    fit = Case("10,000 actions, fitted", limited(fit_many_actions), truth, ANYTHING)
    return [*cases, fit]


def fit_many_actions():
    """A log of 10,000 actions without propensities, which are then fitted."""
    actions = np.arange(10_000)
    table = pd.DataFrame({"episode": actions // 10, "step": actions % 10, "state": actions % 7})
    table = table.assign(action=actions, reward=1.0, target_prob=0.5)
    return oj.fit_behavior(oj.from_dataframe(table)).batch


def limited(call, size="256M"):
    """The call where one data set may take so much: what a machine has must not decide."""

    def inside():
        before = os.environ.get("OSIRIS_JAX_MEMORY")
        os.environ["OSIRIS_JAX_MEMORY"] = size
        try:
            return call()
        finally:
            os.environ.pop("OSIRIS_JAX_MEMORY")
            os.environ |= {} if before is None else {"OSIRIS_JAX_MEMORY": before}

    return inside
