"""Compilations kept between processes, in the user's cache folder."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

from osiris_jax.core.files import cache_folder

FOLDER_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
# `evaluate` on a small log: 45 s of CPU time, then 8 s if this is 0 or 0.2, 12 s if it is 1.
LEAST_SECONDS = ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
MOST_BYTES = 2**28


def keep_compilations(folder: str | Path | None = None) -> Path | None:
    """Lets JAX keep what it compiles on disk, so that the next process need not compile it again.

    The command line does this by itself; in Python it is asked for, at best before the first
    computation. A folder that JAX has been told of already stays, unless another is given. One
    that cannot be used costs nothing but time.

    Args:
      folder: where to; by default "compilations" in the package's cache folder, which is kept
        below 256 MB.

    Returns:
      The folder, or None where nothing was changed.

    Example:
      >>> import osiris_jax as oj
      >>> oj.keep_compilations()
    """
    if "jax" in sys.modules:
        told = sys.modules["jax"].config.jax_compilation_cache_dir
    else:
        told = os.environ.get(FOLDER_VARIABLE)
    if folder is None and told is not None:
        return None
    try:
        chosen = cache_folder() / "compilations" if folder is None else Path(folder)
        chosen.mkdir(parents=True, exist_ok=True)
        if folder is None:
            forget_oldest(chosen, MOST_BYTES)
    except (OSError, RuntimeError):  # not a folder, no permission; no home
        return None
    if not os.access(chosen, os.R_OK | os.W_OK | os.X_OK):
        return None
    _tell(chosen)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    return chosen


def _tell(folder: Path) -> None:
    """Through the environment before JAX is imported, so that nothing here waits for it."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ.setdefault(*LEAST_SECONDS)
    if "jax" in sys.modules:
        import jax
        from jax.experimental.compilation_cache import compilation_cache

        jax.config.update("jax_compilation_cache_dir", str(folder))
        least = float(os.environ[LEAST_SECONDS[0]])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
        compilation_cache.reset_cache()


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
