"""The roofline: how fast memory is, what a kernel must move at least, and how near it comes.

The bytes are those of the arrays that a kernel cannot do without, each read once, and of its
result, written once; padded cells count, for they are stored. A kernel that reads data twice, sorts
it or makes arrays between is below the roof. Data that fit into a cache may be above it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.bench.harness import measure
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.relevance import RELEVANCE

LOOPS = 4
SCALE_ARRAYS, TRIAD_ARRAYS = 2, 3
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
    source, sink = np.ones(size, np.float32), np.zeros(size, np.float32)
    scale, triad, copy = (
        measure(loop, runs=runs).least
        for loop in (partial(_loop, x, 1.0), partial(_loop, x, y), partial(np.copyto, sink, source))
    )
    return Bandwidth(
        scale=LOOPS * SCALE_ARRAYS * source.nbytes / scale,
        triad=LOOPS * TRIAD_ARRAYS * source.nbytes / triad,
        copy=SCALE_ARRAYS * source.nbytes / copy,
        array_bytes=source.nbytes,
    )


@jax.jit
def _loop(x: Array, y: Array | float) -> Array:
    return lax.fori_loop(0, LOOPS, lambda _, x: 0.5 * x + y, x)


def fields_of(name: str) -> tuple[str, ...]:
    """The arrays that a test or an estimator reads; one that omits also those of Welch's test."""
    if name in RELEVANCE:
        return RELEVANCE[name].reads
    base, omits = parse_name(name)
    fields = (*ESTIMATORS[base].reads, *ESTIMATORS[base].reads_if_there)
    if omits:
        of_ratios = ("behavior_probs",) if "target_probs" in fields else ()
        fields = (*fields, *RELEVANCE["welch"].reads, *of_ratios)
    return tuple(dict.fromkeys(fields))


def bytes_of(arrays: Any) -> int:
    """Bytes of all arrays of a pytree, or of arrays of such shapes."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(arrays))


def least_bytes(fields: tuple[str, ...], batch: TrajectoryBatch, results: Any) -> int:
    """Bytes that a kernel must read and write: these arrays of the batch once, and its results."""
    return bytes_of([getattr(batch, name) for name in fields]) + bytes_of(results)


def share(moved: int | None, seconds: float, roof: float | None) -> float | None:
    """The part of the bandwidth that was reached."""
    return None if moved is None or not roof else moved / seconds / roof
