"""Sums, extremes and look-ups by segment that stay one flat loop under `vmap`.

XLA makes a scatter over many data sets of pairs of indices, built anew for each, which costs a CPU
more than the scatter itself. Here a data set's segments are moved behind those of the one before,
and one index remains. Items whose segment is not below the number of segments are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jaxtyping import Int, Shaped


def segment_sum(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The sum of each segment, 0 where it is empty; values may have columns."""
    return _flat(jax.ops.segment_sum, num_segments)(value, segment)


def segment_min(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The smallest value of each segment; inf where it is empty."""
    return _flat(jax.ops.segment_min, num_segments)(value, segment)


def segment_max(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The largest value of each segment; -inf where it is empty."""
    return _flat(jax.ops.segment_max, num_segments)(value, segment)


def look_up(
    table: Shaped[Array, " segment"], segment: Int[Array, " item"]
) -> Shaped[Array, " item"]:
    """What the table has for each item's segment; anything where that is left out."""
    return _flat(_gather, len(table))(table, segment)


def _gather(table: Array, segment: Array, num_segments: int) -> Array:
    del num_segments
    return table.at[segment].get(mode="clip")


@cache
def _flat(operation: Callable[..., Array], num_segments: int) -> Callable[..., Array]:
    plain = partial(operation, num_segments=num_segments)
    flat = custom_vmap(plain)

    @flat.def_vmap
    def of_many(number: int, batched: list[bool], value: Array, segment: Array):
        value, segment = (
            x if is_batched else jnp.broadcast_to(x[None], (number, *x.shape))
            for x, is_batched in zip((value, segment), batched, strict=True)
        )
        items = value.reshape(-1, *value.shape[2:])
        of_all = _flat(operation, number * num_segments)(items, _moved(segment, num_segments))
        return of_all.reshape(number, len(of_all) // number, *of_all.shape[1:]), True

    # the derivative is that of the plain form, which can be transposed
    function = jax.custom_jvp(flat)
    function.defjvp(partial(jax.jvp, plain))
    return function


def _moved(segment: Int[Array, "set item"], num_segments: int) -> Int[Array, " item"]:
    """[all items] each set's segments behind those of the sets before; left out stays left out."""
    number = len(segment)
    first = num_segments * jnp.arange(number, dtype=segment.dtype)[:, None]
    return jnp.where(segment < num_segments, segment + first, number * num_segments).ravel()
