"""Facts of plain types: a line each in a file, compared with a tolerance, differences told."""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

RELATIVE, OF_SCALE = 1e-5, 1e-6
NETWORKS, OF_NETWORKS = "'nn-q'", 100  # what training makes of rounding, which differs by processor
DIGITS = 9
VERSIONS = ("jax", "osiris_jax")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
NOTHING = "nothing"
RULE = re.compile(r"([─━-])\1+")


def plain(value):
    """Dictionaries, lists, texts and numbers in place of arrays, tuples, dataclasses and tables."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if hasattr(value, "to_dict"):
        return plain(value.to_dict("records"))
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(k): plain(x) for k, x in value.items() if k not in VERSIONS}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return plain(np.asarray(value).tolist())
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(float(value))
    raise TypeError(f"no plain form of {type(value)}")


def hashes(batch):
    """Field -> type, shape and hash of the bytes, of every array of a batch."""
    arrays = {name: entry for name, entry in vars(batch).items() if hasattr(entry, "dtype")}
    return {name: hash_of(entry) for name, entry in arrays.items()}


def hash_of(array):
    """The array's type, shape and bytes in one word."""
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()
    return f"{array.dtype}{list(array.shape)} {digest[:16]}"


def words(text):
    """The words of a text, line by line, with # for numbers, whose last digits are not facts."""
    lines = [
        " ".join(RULE.sub(r"\1", NUMBER.sub("#", line)).split()) for line in str(text).splitlines()
    ]
    return [line for line in lines if line]


def write(facts, path):
    """The facts as JSON, sorted, a fact to a line; a text of several lines takes as many."""
    lines = [f"{json.dumps(call)}: {_written(facts[call])}" for call in sorted(facts)]
    Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _written(fact):
    is_text = isinstance(fact, list) and len(fact) > 1 and all(isinstance(x, str) for x in fact)
    return json.dumps(fact, indent=1 if is_text else None, ensure_ascii=False)


def read(path):
    """The facts of a file."""
    return json.loads(Path(path).read_text())


def differences(expected, got):
    """A paragraph for each leaf that is not as expected, with both values."""
    told = []
    for call in sorted(expected.keys() | got.keys()):
        mine, theirs = (
            dict(_leaves(facts[call])) if call in facts else {} for facts in (expected, got)
        )
        scale = max((abs(leaf) for leaf in mine.values() if isinstance(leaf, float)), default=0.0)
        for place in mine | theirs:
            leaves = mine.get(place, NOTHING), theirs.get(place, NOTHING)
            if not _alike(*leaves, scale, OF_NETWORKS if NETWORKS in call else 1):
                told.append("{}{}\n    expected {!r}\n    got {!r}".format(call, place, *leaves))
    return told


def _leaves(fact, place=""):
    """(where, what) of all that holds nothing else."""
    entries = fact if isinstance(fact, dict) else {}
    if isinstance(fact, list):
        entries = {f"[{number}]": entry for number, entry in enumerate(fact)}
    if not entries:
        yield place, fact
    for name, entry in entries.items():
        yield from _leaves(entry, f"{place}.{name}")


def _alike(expected, got, scale, times):
    if isinstance(expected, float) and isinstance(got, float):
        return abs(expected - got) <= times * max(RELATIVE * abs(expected), OF_SCALE * scale)
    return type(expected) is type(got) and expected == got
