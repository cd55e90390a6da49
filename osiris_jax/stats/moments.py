"""Size, mean and sum of squared deviations, by segment, without cancellation."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from osiris_jax.core.segments import look_up, segment_max, segment_min, segment_sum


class Moments(NamedTuple):
    """Moments of samples; any shape. An empty sample has size, mean and squares 0."""

    size: Array
    mean: Array
    squares: Array  # sum of (x - mean)^2

    def variance(self, ddof=1) -> Array:
        """squares / (size - ddof); NaN where that is 0 / 0."""
        return self.squares / (self.size - ddof)


def _segment_range(
    value: Float[Array, " item"], segment: Int[Array, " item"], num_segments: int
) -> tuple[Float[Array, " segment"], Float[Array, " segment"]]:
    """The smallest and the largest value of each segment; inf and -inf where it is empty."""
    smallest = segment_min(value, segment, num_segments)
    return smallest, segment_max(value, segment, num_segments)


def _origin(smallest: Array, largest: Array) -> Array:
    """The point between both that is nearest to zero; 0 where there is none."""
    return jnp.where(smallest <= largest, jnp.clip(0, smallest, largest), 0)


def from_segment_origin(
    value: Float[Array, " item"], segment: Int[Array, " item"], num_segments: int
) -> Float[Array, " item"]:
    """Values measured from their segment's origin.

    The origin is the point between the segment's smallest and largest value that is nearest to
    zero. Subtracting it costs no digit, and leaves all of the spread's where the mean is large.
    """
    origin = _origin(*_segment_range(value, segment, num_segments))
    return value - look_up(origin, segment)


def segment_moments(
    value: Float[Array, " item"], segment: Int[Array, " item"], num_segments: int
) -> Moments:
    """Two-pass moments of each segment; items whose segment is `num_segments` are left out.

    Where all values of a segment are equal its squares are exactly 0: that is asked of the values
    themselves, for the compiler may fuse a product into the difference before it is rounded.
    """
    smallest, largest = _segment_range(value, segment, num_segments)
    return _moments(value, segment, smallest, largest, jnp.zeros(1, value.dtype))


def family_moments(
    value: Float[Array, " item"], segment: Int[Array, " item"], shape: tuple[int, int, int]
) -> Moments:
    """`segment_moments` of [set, family, member], measured from the origin of each family.

    As `from_segment_origin` by family and then `segment_moments` would do, but the range of a
    family is that of its members, so nothing is gathered twice.
    """
    smallest, largest = _segment_range(value, segment, math.prod(shape))
    by_family = smallest.reshape(shape).min((0, 2)), largest.reshape(shape).max((0, 2))
    origin = jnp.broadcast_to(_origin(*by_family)[None, :, None], shape).ravel()
    moments = _moments(value, segment, smallest, largest, origin)
    return Moments(*(x.reshape(shape) for x in moments))


def _moments(
    value: Float[Array, " item"],
    segment: Int[Array, " item"],
    smallest: Float[Array, " segment"],
    largest: Float[Array, " segment"],
    measured_from: Float[Array, "#segment"],
) -> Moments:
    constant = ~(smallest < largest)
    origin = _origin(smallest, largest)
    from_origin = value - look_up(origin, segment)
    ones_and_values = jnp.stack([jnp.ones_like(value), from_origin], -1)
    size, total = segment_sum(ones_and_values, segment, len(origin)).T
    shift = jnp.where(constant, 0, total / jnp.maximum(size, 1))
    deviation = from_origin - look_up(shift, segment)
    squares = segment_sum(deviation**2, segment, len(origin))
    mean = origin - measured_from + shift
    return Moments(size, jnp.where(size > 0, mean, 0), jnp.where(constant, 0, squares))


def segment_median(
    value: Float[Array, " item"], segment: Int[Array, " item"], num_segments: int
) -> Float[Array, " segment"]:
    """The median of each segment, the mean of the two middle values where there are two."""
    ordered = value[jnp.lexsort((value, segment))]
    size = segment_sum(jnp.ones_like(segment), segment, num_segments)
    first = jnp.cumsum(size) - size
    low = ordered[jnp.minimum(first + (size - 1) // 2, len(value) - 1)]
    high = ordered[jnp.minimum(first + size // 2, len(value) - 1)]
    return low + (high - low) / 2


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two samples taken together (Chan, Golub & LeVeque 1979)."""
    size = a.size + b.size
    share = b.size / jnp.maximum(size, 1)
    gap = b.mean - a.mean
    return Moments(size, a.mean + gap * share, a.squares + b.squares + gap**2 * a.size * share)


def leave_one_out(moments: Moments) -> Moments:
    """For each index of the leading axis, the moments of all the others together.

    Those before and those after are merged. Subtracting an item's own sums from the total
    would lose every digit where that item is the outlier, which is where leaving it out matters.
    """
    empty = Moments(*(jnp.zeros_like(x[0]) for x in moments))

    def step(merged: Moments, item: Moments) -> tuple[Moments, Moments]:
        return merge(merged, item), merged

    _, before = lax.scan(step, empty, moments)
    _, after = lax.scan(step, empty, moments, reverse=True)
    return merge(before, after)
