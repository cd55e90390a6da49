"""The roofline: how fast memory is, what a kernel must move at least, and how near it comes.

The bytes are those of the arrays that a kernel cannot do without, each read once, and of its
result, written once; padded cells count, for they are stored. A kernel that reads data twice, sorts
it or makes arrays between is below the roof. Data that fit into a cache may be above it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from osiris_jax.bench.harness import measure
from osiris_jax.estimators import parse_name

LOOPS = 4
SCALE_ARRAYS, TRIAD_ARRAYS = 2, 3
FIXED = {"mask": 1, "state": 4, "action": 4}
PER_ACTION = ("target_probs", "behavior_probs")

_REWARDS = ("reward", "mask")
_RATIOS = (*_REWARDS, "log_ratio")
_STATES = (*_RATIOS, "state")
_FITTED = (*_REWARDS, "state", "action", "target_probs")
READS = {
    "mc": _REWARDS,
    "is": _RATIOS,
    "wis": _RATIOS,
    "pdis": _RATIOS,
    "cwpdis": _RATIOS,
    "phwis": _RATIOS,
    "incris": _RATIOS,
    "mis": _STATES,
    "rcis": _RATIOS,
    "dr": (*_FITTED, "log_ratio"),
    "wdr": (*_FITTED, "log_ratio"),
    "dm": _FITTED,
    "stepwise": _RATIOS,
    "stepwise-dr": (*_FITTED, "log_ratio"),
    "welch": _STATES,
    "smirnov": _STATES,
    "effect": _STATES,
    "nn-q": ("reward", "mask", "state", "action"),
}
RECORDED = ("reward", "mask", "log_ratio", "state", "action")
STUDIED = ("reward", "mask", "log_ratio", "state")


class Bandwidth(NamedTuple):
    """Bytes per second, by what was done; each array read or written counts once.

    Attributes:
      scale: x <- a x + b in JAX, on all cores.
      triad: x <- a x + y in JAX, on all cores.
      copy: y <- x in NumPy, on one core.
      array_bytes: size of one array.
    """

    scale: float
    triad: float
    copy: float
    array_bytes: int

    @property
    def best(self) -> float:
        """The roof."""
        return max(self.scale, self.triad, self.copy)


def bandwidth(array_bytes: int, runs: int = 5) -> Bandwidth:
    """Measures it, in loops that write where they read: a new array would cost page faults."""
    size = max(1, array_bytes // 4)
    x, y = jnp.ones(size, jnp.float32), jnp.full(size, 1e-3, jnp.float32)
    moved = size * 4
    scale = measure(_scale, x, runs=runs).least
    triad = measure(_triad, x, y, runs=runs).least
    source, sink = np.ones(size, np.float32), np.zeros(size, np.float32)
    copy = measure(np.copyto, sink, source, runs=runs).least
    return Bandwidth(
        scale=LOOPS * SCALE_ARRAYS * moved / scale,
        triad=LOOPS * TRIAD_ARRAYS * moved / triad,
        copy=SCALE_ARRAYS * moved / copy,
        array_bytes=moved,
    )


@jax.jit
def _scale(x: Array) -> Array:
    return lax.fori_loop(0, LOOPS, lambda _, x: 0.5 * x + 1, x)


@jax.jit
def _triad(x: Array, y: Array) -> Array:
    return lax.fori_loop(0, LOOPS, lambda _, x: 0.5 * x + y, x)


def fields_of(estimator: str, relevance: str | None = "welch") -> tuple[str, ...]:
    """The arrays that an estimator reads, and its test if it omits."""
    name, omits = parse_name(estimator)
    fields = READS[name] + (READS[relevance] if omits and relevance else ())
    if omits and "target_probs" in fields:
        fields += ("behavior_probs",)
    return tuple(dict.fromkeys(fields))


def bytes_of(fields: tuple[str, ...], cells: int, itemsize: int, num_actions: int = 0) -> int:
    """Bytes of these arrays of `cells` steps."""
    widths = [
        FIXED.get(name, itemsize * (num_actions if name in PER_ACTION else 1)) for name in fields
    ]
    return cells * sum(widths)


def least_bytes(
    fields: tuple[str, ...],
    cells: int,
    itemsize: int,
    *,
    results: int = 1,
    num_actions: int = 0,
) -> int:
    """Bytes that a kernel must read and write: its arrays once, and its results."""
    return bytes_of(fields, cells, itemsize, num_actions) + results * itemsize


def share(moved: int | None, seconds: float, roof: float | None) -> float | None:
    """The part of the bandwidth that was reached."""
    return None if moved is None or not roof else moved / seconds / roof
