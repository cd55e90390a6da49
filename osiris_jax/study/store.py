"""Where the values of a study are kept: a folder of Parquet files, or memory.

A chunk's file is written whole or not at all and carries the digest of its study, its number and
checksums; one that does not fit is reported and computed again.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from osiris_jax.core.files import is_abandoned, write_text, write_whole
from osiris_jax.core.text import one_line
from osiris_jax.study.plan import Cell, Plan, digest

FORMAT = 2
PACKAGES = ("osiris-jax", "jax", "jaxlib", "numpy")
DECISIVE = ("osiris-jax", "jax", "jaxlib")  # other versions of these may round otherwise


class MemoryStore:
    """Values kept only as long as the result."""

    def __init__(self, study: Plan, chunk_size: int):
        self.study, self.chunk_size = study, chunk_size
        self._values: dict[int, np.ndarray] = {}

    def has(self, chunk: int) -> bool:
        return chunk in self._values

    def write(self, chunk: int, values: np.ndarray) -> None:
        self._values[chunk] = values

    def read(self, chunk: int) -> np.ndarray:
        return self._values[chunk]


class FolderStore:
    """Values kept in `folder/trials/chunk-*.parquet`."""

    def __init__(
        self, study: Plan, chunk_size: int, folder: Path, trials_before: int | None = None
    ):
        self.study, self.chunk_size, self.folder = study, chunk_size, folder
        self.trials_before = study.trials if trials_before is None else trials_before
        self.cells = study.cells()
        known = identity(study, chunk_size)
        self.digest = digest({name: x for name, x in known.items() if name != "trials"})

    def has(self, chunk: int) -> bool:
        """Whether the chunk's file is there and sound; one that is not is reported by name."""
        path = self.path(chunk)
        before = trials_of(self.study, self.chunk_size, chunk, self.trials_before)
        if not path.exists() or len(before) < len(self.trials_of(chunk)):
            return False
        try:
            self.read(chunk)
        except Exception as error:  # a damaged file fails in many ways
            problem = one_line(" ".join(str(error).split()))
            warnings.warn(f"{path}: will be computed again: {problem}", stacklevel=2)
            return False
        return True

    def trials_of(self, chunk: int) -> np.ndarray:
        return trials_of(self.study, self.chunk_size, chunk)

    def check_versions(self) -> None:
        """Raises a ValueError if a chunk was computed by other versions of what decides values."""
        import pyarrow.parquet as parquet

        here = versions()
        for chunk in range(number_of_chunks(self.study, self.chunk_size)):
            if not self.path(chunk).exists():
                continue
            try:
                with open(self.path(chunk), "rb") as file:
                    mark = _mark_of(parquet.read_schema(file))
            except (OSError, ValueError):  # damaged, so computed again
                continue
            there = mark.get("versions", {})
            for package in DECISIVE:
                if there.get(package, here[package]) != here[package]:
                    raise ValueError(
                        f"{self.folder}: begun with {package} {there[package]}, and this is "
                        f"{here[package]}, whose values may differ; go on with the former, or "
                        "choose another folder"
                    )

    @property
    def described(self) -> bool:
        """Whether the folder says what the study is, with as many trials."""
        same = self.trials_before == self.study.trials
        return same and (self.folder / "study.json").exists()

    def path(self, chunk: int) -> Path:
        return self.folder / "trials" / f"chunk-{chunk:05d}.parquet"

    def write(self, chunk: int, values: np.ndarray) -> None:
        import pyarrow.parquet as parquet

        table = self._table(chunk, values)
        write_whole(
            self.path(chunk),
            lambda file: parquet.write_table(table, file, write_page_checksum=True),
        )

    def _table(self, chunk: int, values: np.ndarray) -> Any:
        """One row per cell and trial, cell by cell."""
        import pyarrow as pa

        number = len(values)

        def repeated(entries: list, kind: Any) -> Any:
            names = pa.array(entries, kind).dictionary_encode()
            indices = names.indices.take(pa.array(np.repeat(np.arange(len(entries)), number)))
            return pa.DictionaryArray.from_arrays(indices, names.dictionary)

        def plain(entries: list, kind: Any) -> Any:
            return pa.array(entries, kind).take(
                pa.array(np.repeat(np.arange(len(entries)), number))
            )

        cells = self.cells
        first = chunk * self.chunk_size
        trials = np.tile(np.arange(first, first + number, dtype=np.int64), len(cells))
        columns = {
            "world": repeated([self.study.world.name] * len(cells), pa.string()),
            "estimator": repeated([cell.estimator for cell in cells], pa.string()),
            "relevance": repeated([cell.relevance for cell in cells], pa.string()),
            "alpha": plain([cell.alpha for cell in cells], pa.float64()),
            "threshold": plain([cell.threshold for cell in cells], pa.float64()),
            "size": plain([cell.size for cell in cells], pa.int64()),
            "trial": pa.array(trials),
            "value": pa.array(np.ascontiguousarray(values.T).ravel()),
        }
        mark = {"osiris_jax": json.dumps(self._mark(chunk))}
        return pa.table(columns).replace_schema_metadata(mark)

    def _mark(self, chunk: int) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "study": self.digest,
            "seed": self.study.seed,
            "chunk": chunk,
            "versions": versions(),
        }

    def read(self, chunk: int) -> np.ndarray:
        """[trial, cell] the chunk's values.

        Raises:
          ValueError: the file belongs to another study or chunk, or is not complete.
        """
        import pyarrow.parquet as parquet

        with open(self.path(chunk), "rb") as file:  # Arrow opens no name that is not text
            table = parquet.read_table(file, page_checksum_verification=True)
        mark = _mark_of(table.schema)
        if (mark.get("study"), mark.get("chunk")) != (self.digest, chunk):
            raise ValueError("it belongs to another study or chunk")
        expected = self.trials_of(chunk)
        if table.num_rows != len(expected) * len(self.cells):
            raise ValueError(f"{table.num_rows} rows, expected {len(expected) * len(self.cells)}")
        values = table.column("value").to_numpy()
        return np.asarray(values.reshape(len(self.cells), len(expected)).T)


Store = MemoryStore | FolderStore


def _mark_of(schema: Any) -> dict[str, Any]:
    """What `_mark` wrote into a file."""
    return json.loads((schema.metadata or {}).get(b"osiris_jax", b"{}"))


def number_of_chunks(study: Plan, chunk_size: int) -> int:
    return -(-study.trials // chunk_size)


def trials_of(study: Plan, chunk_size: int, chunk: int, total: int | None = None) -> np.ndarray:
    """The trials of a chunk, where there are so many, by default those of the study."""
    total = study.trials if total is None else total
    return np.arange(chunk * chunk_size, min((chunk + 1) * chunk_size, total))


def chunks(store: Store) -> Iterator[np.ndarray]:
    """The values of all chunks, [trial, cell] each, in order."""
    for chunk in range(number_of_chunks(store.study, store.chunk_size)):
        yield store.read(chunk)


def identity(study: Plan, chunk_size: int) -> dict[str, Any]:
    """All that the values of a folder depend on."""
    return {"format": FORMAT, "chunk_size": chunk_size, **study.settings(), **world_identity(study)}


def world_identity(study: Plan) -> dict[str, str]:
    """A digest of the world's own arrays, so that two worlds of one name are told apart."""
    return {"world_digest": study.world.identity()}


def versions() -> dict[str, str]:
    return {package: version(package) for package in PACKAGES}


def open_folder(study: Plan, folder: Path, default_chunk_size: int) -> FolderStore:
    """The folder's store: a new one, or the one of the same study begun before.

    Raises:
      ValueError: the folder holds another study; names what differs.
    """
    path = folder / "study.json"
    if path.exists():
        try:
            known = json.loads(path.read_text())
            chunk_size = int(known["chunk_size"])
        except (ValueError, KeyError, TypeError):
            problem = f"{path}: not a study's description; remove it or choose a new folder"
            raise ValueError(problem) from None
        wanted = identity(study, chunk_size)
        different = sorted(k for k in {*wanted, *known} if wanted.get(k) != known.get(k))
        if different == ["trials"] and isinstance(known["trials"], int):
            if known["trials"] > study.trials:
                raise ValueError(
                    f"{folder}: holds another study, which differs in trials: {known['trials']} "
                    f"cannot be lowered to {study.trials}; choose another folder"
                )
            return FolderStore(study, chunk_size, folder, known["trials"])
        if different:
            raise ValueError(
                f"{folder}: holds another study, which differs in {', '.join(different)}; "
                "choose another folder"
            )
        return FolderStore(study, chunk_size, folder)
    if (folder / "trials").exists() and any((folder / "trials").iterdir()):
        raise ValueError(f"{folder}: holds trials but no study.json; choose another folder")
    return FolderStore(study, default_chunk_size, folder)


def remove_leftovers(store: FolderStore) -> None:
    """Removes what a killed run had begun to write, and not what a living one writes now."""
    for path in (store.folder / "trials").glob(".chunk-*"):
        with contextlib.suppress(FileNotFoundError):  # written meanwhile
            if is_abandoned(path):
                path.unlink()


def describe(store: FolderStore) -> None:
    """Writes what the study is, for the reader and for the next run."""
    text = json.dumps(identity(store.study, store.chunk_size), indent=2)
    write_text(store.folder / "study.toml", store.study.to_toml())
    write_text(store.folder / "study.json", text)


def cell_fields(cell: Cell) -> dict[str, Any]:
    """A cell as columns of the summary."""
    return {
        "estimator": cell.estimator,
        "relevance": cell.relevance,
        "alpha": cell.alpha,
        "threshold": cell.threshold,
        "size": cell.size,
    }
