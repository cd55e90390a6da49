"""Files that hold a log: Parquet, CSV and .npz, told apart by name and content, never unpickled."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from osiris_jax.core.files import check_unpacked
from osiris_jax.core.labels import plain_integer
from osiris_jax.core.memory import TooLarge, check_fits
from osiris_jax.core.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa

EXTENSIONS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".tsv": "CSV",
    ".csv.gz": "CSV, compressed",
    ".tsv.gz": "CSV, compressed",
    ".npz": ".npz",
}
GZIP = b"\x1f\x8b"
OWN = {b"PAR1": "Parquet", b"PK\x03\x04": ".npz", GZIP: "CSV, compressed"}
FOREIGN = {
    b"\x93NUMPY": "a single .npy array; save named columns with np.savez",
    b"\x89HDF": "HDF5, which is not read; write Parquet",
    b"ARROW1": "Arrow IPC (Feather), which is not read; write Parquet",
    b"<!doctype": "an HTML page, not a table",
    b"<html": "an HTML page, not a table",
}
MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
HEAD = 4096
PIECE = 2**24

Data = dict[str, Any]
Read = Callable[[Sequence[str], Sequence[str]], Data]


@dataclasses.dataclass(frozen=True)
class Source:
    """An open file's columns.

    Attributes:
      kind: the format, one of the values of `EXTENSIONS`.
      names: the columns there are.
      read: from names of columns, and which of them are ids, to pandas series (text as categories)
        or arrays of any rank; ids are never read as floats.
    """

    kind: str
    names: list[str]
    read: Read


class Refused(ValueError):
    """A refusal in plain words, to be passed on as it is."""


def open_source(path: str | Path) -> Source:
    """The file's columns, by its name and content.

    Raises:
      OSError: there is no such file, or it cannot be read.
      ValueError: one line that says what the file is instead.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD)
    name = Path(path).name.lower()
    kind = next((kind for end, kind in EXTENSIONS.items() if name.endswith(end)), None)
    if kind is None:
        raise Refused(f"not a name of a log; expected one that ends in {', '.join(EXTENSIONS)}")
    if not head:
        raise Refused("the file is empty")
    content = next((kind for magic, kind in OWN.items() if head.startswith(magic)), None)
    if content is None:
        _refuse_foreign(head)
    if (content or "CSV") != kind:
        raise Refused(f"the name says {kind}, the content is {content or 'CSV'}")
    opener = {"Parquet": _open_parquet, ".npz": _open_npz}.get(kind, _open_csv)
    names, read = _guarded(opener, kind)(path)
    return Source(kind, names, _guarded(read, kind))


def _refuse_foreign(head: bytes) -> None:
    for magic, what in FOREIGN.items():
        if head[: len(magic)].lower() == magic.lower():
            raise Refused(f"the content is {what}")
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        raise Refused("the content is a Python pickle, which could run code and is never opened")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head:
        raise Refused("the content is neither Parquet, .npz nor text in UTF-8")


def _guarded(read: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """The function, any failure of which says in one line that the file is not of this kind."""

    def guarded(*arguments: Any) -> Any:
        try:
            return read(*arguments)
        except (Refused, TooLarge):
            raise
        except Exception as error:  # a damaged file fails in many ways
            what = one_line(error) or type(error).__name__
            raise ValueError(f"not readable as {kind} ({what})") from None

    return guarded


# ------------------------------------------------------------------------- Parquet and CSV


def _open_parquet(path: str | Path) -> tuple[list[str], Read]:
    import pyarrow.parquet as pq

    def read(wanted: Sequence[str], ids: Sequence[str]) -> Data:
        with pq.ParquetFile(path) as file:
            rows = file.metadata.num_rows
            check_fits(8 * rows * len(wanted), f"reading its {rows:,} rows", "split the file")
            table = file.read(columns=list(wanted))
            return {name: _arrow_column(table.column(name), name, name in ids) for name in wanted}

    return pq.read_schema(path).names, read


def _unzipped(path: str | Path) -> bytes:
    """The content of a .gz, unpacked piece by piece, so that one without end is noticed."""
    parts, size = [], 0
    with gzip.open(path) as file:
        while part := file.read(PIECE):
            size += len(part)
            check_fits(size, "unpacking it", "split the file")
            parts.append(part)
    return b"".join(parts)


def _open_csv(path: str | Path) -> tuple[list[str], Read]:
    import pyarrow as pa
    from pyarrow import csv

    with open(path, "rb") as file:
        header = file.readline(HEAD)
    data = _unzipped(path) if header.startswith(GZIP) else None
    if data is not None:
        if not data:
            raise Refused("the compressed file is empty")
        _refuse_foreign(data[:HEAD])
        header = data[:HEAD].split(b"\n")[0]
    delimiter = max(",;\t", key=lambda sign: header.count(sign.encode()))
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)

    def stream() -> Any:
        return pa.OSFile(str(path)) if data is None else pa.BufferReader(data)

    with csv.open_csv(stream(), parse_options=parsing) as reader:
        names = reader.schema.names

    def read(wanted: Sequence[str], ids: Sequence[str]) -> Data:
        table = csv.read_csv(
            stream(),
            parse_options=parsing,
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(ids, pa.binary()),
                include_columns=list(wanted),
                null_values=MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        columns = {name: _arrow_column(table.column(name), name, name in ids) for name in wanted}
        return columns | {name: _as_integers(columns[name]) for name in ids}

    return names, read


def _as_integers(texts: Any) -> Any:
    """Ids of a file without types: integers, if every one is written as an integer is."""
    labels = texts.cat.categories
    whole = all(plain_integer(label) and len(label) < 19 for label in labels)
    if not whole or texts.hasnans or not len(labels):
        return texts
    import pandas as pd

    return pd.Series(labels.to_numpy(dtype=object).astype(np.int64)[texts.cat.codes.to_numpy()])


def _arrow_column(column: pa.ChunkedArray, name: str, is_id: bool) -> Any:
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if is_id and (kinds.is_decimal(kind) or kinds.is_binary(kind)):
        with contextlib.suppress(pa.ArrowInvalid):  # bytes that are not text
            column = column.cast(pa.string())
        kind = column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return column.cast(pa.string()).dictionary_encode().to_pandas()
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return _vectors(column, name)
    if (
        kinds.is_decimal(kind)
        or kinds.is_null(kind)
        or (kinds.is_boolean(kind) and column.null_count)
    ):
        return column.cast(pa.float64()).to_pandas()
    if kinds.is_date(kind):
        return column.cast(pa.timestamp("ms")).to_pandas()
    plain = (kinds.is_timestamp, kinds.is_boolean, kinds.is_integer, kinds.is_floating)
    if any(is_plain(kind) for is_plain in plain):
        return column.to_pandas()
    if kinds.is_binary(kind):
        raise Refused(f"{name}: bytes that are not text in UTF-8")
    raise Refused(f"{name}: a column of {kind}, where numbers or text are expected")


def _vectors(column: pa.ChunkedArray, name: str) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute

    compute: Any = pyarrow.compute
    sizes = compute.list_value_length(column).to_numpy()
    if not len(sizes):
        return np.zeros((0, 0))
    for row in np.flatnonzero(np.isnan(sizes) | (sizes != sizes[0])):
        raise Refused(f"{name}: a vector of size {sizes[row]:g} at row {row}, where row 0 has "
                      f"{sizes[0]:g}")  # fmt: skip
    flat = compute.list_flatten(column).cast(pa.float64()).to_numpy()
    return flat.reshape(len(sizes), int(sizes[0]))


# -------------------------------------------------------------------------------------- .npz


def _open_npz(path: str | Path) -> tuple[list[str], Read]:
    def read(wanted: Sequence[str], ids: Sequence[str]) -> Data:
        del ids  # arrays have types
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            check_unpacked(archive.zip, wanted)
            return {name: _numpy_column(archive, name) for name in wanted}

    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        return list(archive.files), read


def _numpy_column(archive: Any, name: str) -> Any:
    import pandas as pd

    try:
        array = archive[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise Refused(
                f"{name}: Python objects, which could run code and are never opened"
            ) from None
        raise
    if not isinstance(array, np.ndarray):
        raise Refused(f"{name}: not an array")
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "U":
        return pd.Series(pd.Categorical(array)) if array.ndim == 1 else array.astype(object)
    if array.dtype.kind not in "fiub" and not (array.dtype.kind == "M" and array.ndim == 1):
        raise Refused(f"{name}: an array of {array.dtype}, where numbers or text are expected")
    return pd.Series(array) if array.ndim == 1 else array
