"""Compilations kept between runs of the command line, in the user's cache folder."""

from __future__ import annotations

import contextlib
import os
import warnings
from pathlib import Path

from osiris_jax.core.files import cache_folder

FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# `evaluate` on a small log: 45 s of CPU time, then 8 s if this is 0 or 0.2, 12 s if it is 1.
LEAST_SECONDS = ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
MOST_BYTES = 2**28


def keep_compilations() -> None:
    """Lets JAX keep what it compiles, unless the user has told it where to.

    Through the environment, before JAX is imported, so that nothing here waits for it. A folder
    that cannot be used costs nothing but time.
    """
    if FOLDER_VARIABLE in os.environ:
        return
    try:
        folder = cache_folder() / "compilations"
        folder.mkdir(parents=True, exist_ok=True)
        forget_oldest(folder, MOST_BYTES)
    except (OSError, RuntimeError):  # not a folder, no permission; no home
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ.setdefault(*LEAST_SECONDS)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def forget_oldest(folder: Path, most: int) -> None:
    """Removes the files that were not used for longest, until the others are small enough.

    JAX can do it too, but only with another package and with a lock around every look.
    """
    with os.scandir(folder) as entries:
        files = [(entry.stat(), entry.path) for entry in entries if entry.is_file()]
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda file: max(file[0].st_atime, file[0].st_mtime)):
        if total <= most:
            return
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            os.unlink(path)
        total -= status.st_size
