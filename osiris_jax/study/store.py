"""Where the values of trials are kept: a folder of Parquet files, or memory.

A chunk's file is written whole or not at all and carries the digest of its study, its number and
checksums; one that does not fit is reported and computed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from osiris_jax.core.files import is_abandoned, write_text, write_whole
from osiris_jax.core.text import one_line
from osiris_jax.study.chunks import Chunks
from osiris_jax.study.plan import Cell

FORMAT = 2
PACKAGES = ("osiris-jax", "jax", "jaxlib", "numpy")
DECISIVE = ("osiris-jax", "jax", "jaxlib")  # other versions of these may round otherwise


class Experiment(Protocol):
    """What is kept in a folder and summarised: a study, or another list of cells over trials."""

    @property
    def world(self) -> Any: ...
    @property
    def trials(self) -> int: ...
    @property
    def seed(self) -> int: ...
    def cells(self) -> list[Cell]: ...
    def settings(self) -> dict[str, Any]: ...
    def to_toml(self) -> str: ...


class Store:
    """The values [trial, cell] of an experiment, chunk by chunk; these are kept in memory."""

    def __init__(self, experiment: Experiment, chunks: Chunks):
        self.experiment, self.chunks = experiment, chunks
        self._values: dict[int, np.ndarray] = {}

    def has(self, chunk: int) -> bool:
        return chunk in self._values

    def write(self, chunk: int, values: np.ndarray) -> None:
        self._values[chunk] = values

    def read(self, chunk: int) -> np.ndarray:
        """[trial, cell] the chunk's values."""
        return self._values[chunk]

    def resized(self, chunk_size: int) -> Store:
        """An empty store of the same kind, in chunks of another size."""
        return Store(self.experiment, dataclasses.replace(self.chunks, size=chunk_size))

    def parts(self) -> Iterator[np.ndarray]:
        """The values of all chunks in order."""
        return map(self.read, range(self.chunks.number))

    def values(self) -> np.ndarray:
        """[trial, cell] of all trials."""
        return np.concatenate(list(self.parts()))


class FolderStore(Store):
    """Values kept in `folder/trials/chunk-*.parquet`.

    Args:
      trials_before: how many trials the folder was begun with, by default as many as now.
    """

    def __init__(
        self, experiment: Experiment, chunks: Chunks, folder: Path, trials_before: int | None = None
    ):
        super().__init__(experiment, chunks)
        before = chunks.trials if trials_before is None else trials_before
        self.folder, self.chunks_before = folder, dataclasses.replace(chunks, trials=before)
        self.cells = experiment.cells()
        settings = identity(experiment, chunks.size)
        del settings["trials"]
        text = json.dumps(settings, sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def open(cls, experiment: Experiment, folder: Path, default_chunk_size: int) -> FolderStore:
        """The folder's store: a new one, or the one of the same study begun before.

        Raises:
          OSError: it cannot be made.
          ValueError: the folder holds another study; names what differs.
        """
        try:
            (folder / "trials").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"{folder}: cannot be used as a folder ({error.strerror})") from None
        path = folder / "study.json"
        if not path.exists():
            if any((folder / "trials").iterdir()):
                raise ValueError(f"{folder}: holds trials but no study.json; choose another folder")
            return cls(experiment, Chunks(experiment.trials, default_chunk_size), folder)
        try:
            there = json.loads(path.read_text())
            chunks = Chunks(experiment.trials, int(there["chunk_size"]))
        except (ValueError, KeyError, TypeError):
            problem = f"{path}: not a study's description; remove it or choose a new folder"
            raise ValueError(problem) from None
        wanted = identity(experiment, chunks.size)
        different = sorted(k for k in {*wanted, *there} if wanted.get(k) != there.get(k))
        if different == ["trials"] and isinstance(there["trials"], int):
            if there["trials"] > experiment.trials:
                raise ValueError(
                    f"{folder}: holds another study, which differs in trials: {there['trials']} "
                    f"cannot be lowered to {experiment.trials}; choose another folder"
                )
            return cls(experiment, chunks, folder, there["trials"])
        if different:
            raise ValueError(
                f"{folder}: holds another study, which differs in {', '.join(different)}; "
                "choose another folder"
            )
        return cls(experiment, chunks, folder)

    def resized(self, chunk_size: int) -> FolderStore:
        chunks = dataclasses.replace(self.chunks, size=chunk_size)
        return FolderStore(self.experiment, chunks, self.folder)

    def has(self, chunk: int) -> bool:
        """Whether the chunk's file is there and sound; one that is not is reported by name."""
        path = self.path(chunk)
        grows = len(self.chunks_before.of(chunk)) < len(self.chunks.of(chunk))
        if not path.exists() or grows:
            return False
        try:
            self.read(chunk)
        except Exception as error:  # a damaged file fails in many ways
            problem = one_line(" ".join(str(error).split()))
            warnings.warn(f"{path}: will be computed again: {problem}", stacklevel=2)
            return False
        return True

    def check_versions(self) -> None:
        """Raises a ValueError if a chunk was computed by other versions of what decides values."""
        import pyarrow.parquet as parquet

        here = versions()
        for path in filter(Path.exists, map(self.path, range(self.chunks.number))):
            try:
                with open(path, "rb") as file:
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

    def describe(self) -> None:
        """Writes what the study is, for the reader and for the next run, unless that is there."""
        path = self.folder / "study.json"
        if self.chunks_before == self.chunks and path.exists():
            return
        text = json.dumps(identity(self.experiment, self.chunks.size), indent=2)
        write_text(self.folder / "study.toml", self.experiment.to_toml())
        write_text(path, text)

    def remove_leftovers(self) -> None:
        """Removes what a killed run had begun to write, and not what a living one writes now."""
        for path in (self.folder / "trials").glob(".chunk-*"):
            with contextlib.suppress(FileNotFoundError):  # written meanwhile
                if is_abandoned(path):
                    path.unlink()

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

        words = pa.dictionary(pa.int32(), pa.string())
        kinds = {"world": words, "estimator": words, "relevance": words}
        kinds |= {"alpha": pa.float64(), "threshold": pa.float64(), "size": pa.int64()}
        cells = [{"world": self.experiment.world.name, **cell._asdict()} for cell in self.cells]
        table = pa.Table.from_pylist(cells, pa.schema(kinds))
        table = table.take(np.repeat(np.arange(len(cells)), len(values)))
        trials = np.tile(self.chunks.of(chunk).astype(np.int64), len(cells))
        table = table.append_column("trial", pa.array(trials))
        table = table.append_column("value", pa.array(np.ascontiguousarray(values.T).ravel()))
        mark = {
            "format": FORMAT,
            "study": self.digest,
            "seed": self.experiment.seed,
            "chunk": chunk,
            "versions": versions(),
        }
        return table.replace_schema_metadata({"osiris_jax": json.dumps(mark)})

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
        shape = len(self.cells), len(self.chunks.of(chunk))
        if table.num_rows != np.prod(shape):
            raise ValueError(f"{table.num_rows} rows, expected {np.prod(shape)}")
        return np.asarray(table.column("value").to_numpy().reshape(shape).T)


def _mark_of(schema: Any) -> dict[str, Any]:
    """What `FolderStore.write` wrote into a file beside its table."""
    return json.loads((schema.metadata or {}).get(b"osiris_jax", b"{}"))


def identity(experiment: Experiment, chunk_size: int) -> dict[str, Any]:
    """All that the values of a folder depend on."""
    settings = experiment.settings()
    return {"format": FORMAT, "chunk_size": chunk_size, **settings, **world_identity(experiment)}


def world_identity(study: Experiment) -> dict[str, str]:
    """A digest of the world's own arrays, so that two worlds of one name are told apart."""
    identity = getattr(study.world, "identity", None)
    if identity is None:
        raise ValueError(
            "world: to keep a study in a folder it needs `identity()`, a text that tells it from "
            "others; subclasses of GymnaxWorld and TabularWorld have it"
        )
    return {"world_digest": identity()}


def versions() -> dict[str, str]:
    return {package: version(package) for package in PACKAGES}
