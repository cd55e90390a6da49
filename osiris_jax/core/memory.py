"""How much memory data may take: what would not fit is refused before anything is allocated."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

VARIABLE = "OSIRIS_JAX_MEMORY"
SHARE = 4  # one part of so many of what is free: kernels and resamples need room beside the data
UNKNOWN = 16 * 2**30
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TooLarge(ValueError):
    """What is refused by its size, in plain words to be passed on as they are."""


def limit() -> int:
    """Bytes that one data set may take: $OSIRIS_JAX_MEMORY (as in 8G), or a quarter of the free."""
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        return read_size(chosen, VARIABLE)
    return free() // SHARE


def read_size(text: str, name: str) -> int:
    """Bytes of a text such as 512M or 2GB.

    Raises:
      ValueError: names what is set to it.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = number[-1:] if number[-1:] in UNITS else ""
    try:
        amount = float(number.removesuffix(unit)) * UNITS[unit]
    except ValueError:
        raise ValueError(f"{name}: expected a size such as 512M or 2G, got {text!r}") from None
    if not 0 < amount < math.inf:
        raise ValueError(f"{name}: expected a positive size, got {text!r}")
    return int(amount)


def check_fits(needed: int, what: str, cure: str) -> None:
    """Raises `TooLarge` in one line if `what` would take more than the limit."""
    allowed = limit()
    if needed > allowed:
        raise TooLarge(
            f"{what} would take {in_words(needed)} of memory, and {in_words(allowed)} are allowed "
            f"({VARIABLE} sets it, else a quarter of what is free); {cure}"
        )


def in_words(size: int) -> str:
    """A number of bytes as people write it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024  # pyright: ignore[reportAssignmentType]
    return f"{size:.3g} TiB" if size < 1e5 else f"{size:.1e} TiB"


def free() -> int:
    """Free memory in bytes: the machine's, or its container's where that is less; or a guess."""
    sizes = [size for size in (_of_machine(), _of_container()) if size is not None]
    return min(sizes, default=UNKNOWN)


def _of_machine() -> int | None:
    try:
        entry = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
        if entry:
            return int(entry[1]) * 1024
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):  # not Linux, or not POSIX
        return None


def _of_container() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        most = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if most == "max" else max(int(most) - used, 0)
