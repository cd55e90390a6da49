"""Files that are written whole or not at all, and archives that are read without unpickling."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from osiris_jax.core.memory import TooLarge, check_fits, in_words
from osiris_jax.core.text import one_line, printable

if TYPE_CHECKING:
    import numpy as np

BOMB_SIZE = 2**28
BOMB_TIMES = 100
LONGEST_WRITING = 24 * 3600
_WRITER = re.compile(r"\.(?P<process>\d+)@(?P<host>[\w-]*)\.[^.]*$")


class Stopped(Exception):
    """The user stopped a command; says what is left and how to go on."""


def write_whole(path: str | Path, write: Callable[[IO[bytes]], Any]) -> Path:
    """Calls `write` with a temporary file beside `path`, which then takes its name.

    A reader sees the old file or the new one, never a part, even if the process is killed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = f"{os.getpid()}@{_host()}"
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{writer}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise OSError(f"{path}: could not be written ({error.strerror or error})") from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def is_abandoned(path: Path) -> bool:
    """Whether whoever began to write this temporary file is gone, as far as can be known.

    Of a process on this machine it is; of others, and of names without one, a day decides.
    """
    writer = _WRITER.search(path.name)
    if writer is not None and writer["host"] == _host() and sys.platform != "win32":
        try:
            os.kill(int(writer["process"]), 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's, which runs
        return False
    return time.time() - path.stat().st_mtime > LONGEST_WRITING


def _host() -> str:
    return re.sub(r"[^\w-]", "_", platform.node())


def check_folder(out: Path) -> None:
    """Raises a ValueError if the folder could never be made, before anything is computed for it."""
    for place in (out, *out.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"out: {printable(place)} is a file, expected a folder")


def write_text(path: str | Path, text: str) -> Path:
    """The text as a UTF-8 file, whole or not at all."""
    return write_whole(path, lambda file: file.write(text.encode()))


def write_arrays(path: str | Path, arrays: Mapping[str, Any]) -> Path:
    """The arrays as a compressed .npz, whole or not at all."""
    import numpy as np

    plain = {name: np.asarray(array) for name, array in arrays.items()}
    return write_whole(path, lambda file: np.savez_compressed(file, **plain))  # pyright: ignore


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz; objects are refused, not unpickled.

    Raises:
      ValueError: names the file that is no such archive, or holds Python objects.
    """
    import numpy as np

    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                check_unpacked(archive.zip, archive.files)
                arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # a damaged archive fails in many ways
            problem = one_line(f"{path}: not a readable .npz of plain arrays ({error})")
            raise ValueError(problem) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # what is not in NumPy's format is given as bytes
            raise ValueError(f"{path}: not a readable .npz of plain arrays ({name} is not one)")
    return arrays


def check_unpacked(archive: Any, names: Sequence[str]) -> None:
    """Refuses members of a zip archive by the sizes in its directory, before any is unpacked."""
    members = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in names]
    unpacked = sum(info.file_size for info in members)
    packed = sum(info.compress_size for info in members)
    if unpacked > BOMB_SIZE and unpacked > BOMB_TIMES * packed:
        raise TooLarge(
            f"{in_words(packed)} that unpack to {in_words(unpacked)}, more than data does; "
            "if it is meant so, write it uncompressed by np.savez"
        )
    check_fits(unpacked, "unpacking it", "leave out what is not needed")


def commit_of_package() -> str | None:
    """The commit that this package is checked out at, with + if files were changed; or None."""

    def told(*words: str) -> str:
        here = Path(__file__).parent
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if not told("ls-files", Path(__file__).name):
            return None  # in somebody else's repository
        return told("rev-parse", "HEAD") + "+" * bool(told("status", "--porcelain", "."))
    except (OSError, subprocess.CalledProcessError):
        return None


def cache_folder() -> Path:
    """Where what can be made again is kept: $OSIRIS_JAX_CACHE, or a folder in the user's cache."""
    if chosen := os.environ.get("OSIRIS_JAX_CACHE"):
        return Path(chosen)
    usual = {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(sys.platform, ".cache")
    of_windows = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else None
    folder = os.environ.get("XDG_CACHE_HOME") or of_windows or Path.home() / usual
    return Path(folder) / "osiris-jax"
