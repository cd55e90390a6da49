"""Sums, extremes and look-ups by segment that stay one flat loop under `vmap`.

XLA makes a scatter over many data sets of pairs of indices, built anew for each, which costs a CPU
more than the scatter itself. Here a data set's segments are moved behind those of the one before,
and one index remains. Items whose segment is not below the number of segments are left out.

A TPU scatters item by item, but compares all items with all segments at once: up to so many
segments it does that instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jaxtyping import Int, Shaped

from osiris_jax.core.platforms import by_platform

MOST_COMPARED = 4096


def segment_sum(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The sum of each segment, 0 where it is empty; values may have columns."""
    return _of_sets(jax.ops.segment_sum, num_segments, 1)(value[None], segment[None])[0]


def segment_min(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The smallest value of each segment; inf where it is empty."""
    return _of_sets(jax.ops.segment_min, num_segments, 1)(value[None], segment[None])[0]


def segment_max(value: Array, segment: Int[Array, " item"], num_segments: int) -> Array:
    """The largest value of each segment; -inf where it is empty."""
    return _of_sets(jax.ops.segment_max, num_segments, 1)(value[None], segment[None])[0]


def look_up(
    table: Shaped[Array, " segment"], segment: Int[Array, " item"]
) -> Shaped[Array, " item"]:
    """What the table has for each item's segment; anything where that is left out."""
    return _of_sets(_gather, len(table), 1)(table[None], segment[None])[0]


def _gather(table: Array, segment: Array, num_segments: int) -> Array:
    del num_segments
    return table.at[segment].get(mode="clip")


def _compared(
    operation: Callable[..., Array], num_segments: int, value: Array, segment: Array
) -> Array:
    """The operation on one set, by comparing every item's segment with all."""
    hit = segment[:, None] == jnp.arange(num_segments, dtype=segment.dtype)[None]
    if operation is _gather:
        return jnp.where(hit, value[None], 0).sum(1, dtype=value.dtype)
    of_nothing, reduce = _REDUCTIONS[operation]
    columns = value.reshape(len(segment), math.prod(value.shape[1:])).T
    blank = of_nothing(value.dtype)
    found = [reduce(jnp.where(hit, x[:, None], blank), axis=0, initial=blank) for x in columns]
    return jnp.stack(found, -1).reshape(num_segments, *value.shape[1:])


def _least(dtype: Any) -> Any:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def _most(dtype: Any) -> Any:
    return jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max


def _sum(x: Array, axis: int, initial: Any) -> Array:
    return jnp.sum(x, axis, dtype=x.dtype, initial=initial)


_REDUCTIONS = {
    jax.ops.segment_sum: (lambda dtype: dtype.type(0), _sum),
    jax.ops.segment_min: (_most, jnp.min),
    jax.ops.segment_max: (_least, jnp.max),
}


@cache
def _of_sets(operation: Callable[..., Array], num_segments: int, sets: int) -> Callable[..., Array]:
    """The operation on values [set, item, ...], or tables, by segments [set, item]."""

    @jax.jit  # so that a form is traced once for a shape
    def moved(value: Array, segment: Array) -> Array:
        items = value.reshape(sets * value.shape[1], *value.shape[2:])
        of_all = operation(items, _moved(segment, num_segments), num_segments=sets * num_segments)
        number = segment.shape[1] if operation is _gather else num_segments
        return of_all.reshape(sets, number, *of_all.shape[1:])

    compared = moved
    if num_segments <= MOST_COMPARED:
        compared = jax.jit(jax.vmap(partial(_compared, operation, num_segments)))
    form = custom_vmap(partial(by_platform, default=moved, tpu=compared))

    @form.def_vmap
    def of_more_sets(number: int, batched: list[bool], *operands: Array):
        value, segment = (
            (x if is_batched else jnp.broadcast_to(x[None], (number, *x.shape))).reshape(
                number * sets, *x.shape[2 if is_batched else 1 :]
            )
            for x, is_batched in zip(operands, batched, strict=True)
        )
        found = _of_sets(operation, num_segments, number * sets)(value, segment)
        return found.reshape(number, sets, *found.shape[1:]), True

    # the derivative is that of the plain form, which can be transposed
    function = jax.custom_jvp(form)
    function.defjvp(partial(jax.jvp, moved))
    return function


def _moved(segment: Int[Array, "set item"], num_segments: int) -> Int[Array, " item"]:
    """[all items] each set's segments behind those of the sets before; left out stays left out."""
    number = len(segment)
    first = num_segments * jnp.arange(number, dtype=segment.dtype)[:, None]
    return jnp.where(segment < num_segments, segment + first, number * num_segments).ravel()
