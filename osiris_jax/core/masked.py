"""Masked sums in log space: the few reductions from which every estimator is made.

Conventions: `mask` is True at real steps; padded cells may hold anything, NaN included.
A ratio of zero is a log-ratio of -inf and makes every product over it -inf. A log-ratio of NaN or
inf at a real step is no ratio at all: every product over it is NaN, and so is what is made of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax.core.platforms import scan
from osiris_jax.core.segments import look_up, segment_max, segment_sum

PAIRWISE_LIMIT, LONG = 128, 4096


def fill(
    mask: Shaped[Array, "*shape"], x: Shaped[Array, "*shape"], value: float | int = 0
) -> Array:
    """`x` at real steps, `value` in the padding."""
    return jnp.where(mask, x, jnp.asarray(value, x.dtype))


def lengths(mask: Bool[Array, "traj time"]) -> Int[Array, " traj"]:
    """Number of real steps of each trajectory."""
    return mask.sum(-1, dtype=jnp.int32)


def alive(mask: Bool[Array, "traj time"]) -> Bool[Array, " time"]:
    """Steps at which at least one trajectory still runs."""
    return mask.any(0)


def followed(mask: Bool[Array, "traj time"]) -> Bool[Array, " time"]:
    """Steps before the longest trajectory's last.

    A trajectory that stops at one of these has ended. At the last step it may have been cut, and
    the data do not say what would have followed.
    """
    return jnp.pad(alive(mask)[1:], (0, 1))


class Pairs(NamedTuple):
    """The distinct pairs of two columns of ids, in rising order, and which one each item is.

    Attributes:
      first, second: [pair] the ids; rows from `number` on are beyond the last pair.
      of_item: [item] the row of each item's pair.
      number: how many pairs there are whose first id is below the limit.
    """

    first: Int[Array, " pair"]
    second: Int[Array, " pair"]
    of_item: Int[Array, " item"]
    number: Int[Array, ""]


def group_pairs(
    first: Int[Array, " item"], second: Int[Array, " item"], limit: int, *, block: int
) -> Pairs:
    """Groups items by the pair of their ids; items whose first id is `limit` come last.

    There is a row for every item, as all might differ, rounded up to whole blocks: what sums over
    pairs does so block by block and stops at the last that holds any.
    """
    order = jnp.lexsort((second, first))
    ordered_first, ordered_second = first[order], second[order]
    differs = (ordered_first[1:] != ordered_first[:-1]) | (
        ordered_second[1:] != ordered_second[:-1]
    )
    row = jnp.cumsum(jnp.append(False, differs), dtype=jnp.int32)
    size = -(-len(row) // block) * block
    ids = jnp.full(size, limit, first.dtype).at[row].set(ordered_first)
    return Pairs(
        first=ids,
        second=jnp.zeros(size, second.dtype).at[row].set(ordered_second),
        of_item=jnp.zeros_like(row).at[order].set(row),
        number=jnp.sum(ids < limit),
    )


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Knuth's error-free addition: the rounded sum and exactly what rounding lost."""
    rounded = a + b
    b_seen = rounded - a
    return rounded, (a - (rounded - b_seen)) + (b - b_seen)


def total(x: Float[Array, "*batch time"]) -> Float[Array, "*batch"]:
    """Sum over time whose error does not grow with the number of steps.

    Halves are added pairwise with their rounding errors collected, because a million
    log-ratios summed in order drift by units in float32.
    """
    lost = jnp.zeros(x.shape[:-1], x.dtype)
    while x.shape[-1] > PAIRWISE_LIMIT:
        half = -(-x.shape[-1] // 2)
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 2 * half - x.shape[-1])])
        x, error = two_sum(padded[..., :half], padded[..., half:])
        lost = lost + jnp.where(jnp.isfinite(x), error, 0).sum(-1)
    return x.sum(-1) + lost


def running_sum(
    x: Float[Array, "*batch time"], *, reverse: bool = False, discount=1.0
) -> Float[Array, "*batch time"]:
    """y_t = x_t + discount * y_{t-1} (reverse: y_{t+1}), compensated.

    A recursion and not a tree of partial sums, so that equal futures give bit-equal returns
    wherever they stand in a trajectory: tests of equality rely on it. What rounding lost stays
    small against the sum for some thousand steps; beyond, it is carried over at every step.
    """
    discount = jnp.asarray(discount, x.dtype)
    is_long = x.shape[-1] > LONG

    def step(carry, x_t):
        rounded, lost = carry
        rounded, newly_lost = two_sum(discount * rounded, x_t)
        lost = discount * lost + newly_lost
        carry = two_sum(rounded, lost) if is_long else (rounded, lost)
        return carry, carry[0] + carry[1]

    zero = jnp.zeros(x.shape[:-1], x.dtype)
    _, sums = scan(step, (zero, zero), jnp.moveaxis(x, -1, 0), reverse=reverse)
    return jnp.moveaxis(sums, 0, -1)


def split_zeros(
    log_ratio: Float[Array, "traj time"], mask: Bool[Array, "traj time"]
) -> tuple[Float[Array, "traj time"], Bool[Array, "traj time"]]:
    """Log-ratios, 0 in the padding and at ratios of zero, and where the ratio is zero."""
    zero = mask & jnp.isneginf(log_ratio)
    return fill(mask & ~zero, known(log_ratio)), zero


def known(log_ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log-ratios, NaN where one is infinite: no behaviour policy takes an action of chance 0."""
    return jnp.where(log_ratio < jnp.inf, log_ratio, jnp.nan)


def unknown(log_ratio: Float[Array, "*shape"], mask: Bool[Array, "*shape"]) -> Bool[Array, ""]:
    """Whether the log-ratio of some real step is NaN or inf."""
    return jnp.any(mask & ~(log_ratio < jnp.inf))


def product(log_weight: Array, has_zero: Array) -> Array:
    """The log of a product, some factors of which may be zero or, as NaN, unknown."""
    return jnp.where(has_zero & ~jnp.isnan(log_weight), -jnp.inf, log_weight)


def log_weights(
    log_ratio: Float[Array, "traj time"], mask: Bool[Array, "traj time"]
) -> Float[Array, " traj"]:
    """log rho_{1:T}, the log of the product of all ratios of a trajectory."""
    finite, zero = split_zeros(log_ratio, mask)
    return product(total(finite), zero.any(-1))


def running_log_weights(
    log_ratio: Float[Array, "traj time"], mask: Bool[Array, "traj time"], *, reverse: bool = False
) -> Float[Array, "traj time"]:
    """log rho_{1:t} (reverse: log rho_{t:T}); after its end a trajectory keeps its final weight."""
    finite, zero = split_zeros(log_ratio, mask)
    time = jnp.arange(mask.shape[1])[None]
    if reverse:
        has_zero = time <= jnp.where(zero, time, -1).max(1, keepdims=True)
    else:
        has_zero = time >= jnp.where(zero, time, time.size).min(1, keepdims=True)
    return product(running_sum(finite, reverse=reverse), has_zero)


def clip_weights(log_weight: Float[Array, "*shape"], clip) -> Float[Array, "*shape"]:
    """Weights cut to at most `clip`; None cuts nothing."""
    if clip is None:
        return log_weight
    return jnp.minimum(log_weight, jnp.log(jnp.asarray(clip, log_weight.dtype)))


def headroom(*values: Array) -> Float[Array, ""]:
    """1, or the power of two by which to divide the values lest sums over them overflow."""
    size = max(value.size for value in values)
    room = 2.0 ** (math.ceil(math.log2(size)) + 3)
    dtype = values[0].dtype
    largest = jnp.stack([jnp.max(jnp.abs(value)) for value in values]).max()
    exceeds = largest > float(jnp.finfo(dtype).max) / room
    return jnp.where(exceeds, jnp.asarray(room, dtype), jnp.ones((), dtype))


def discounts(steps: int, discount, dtype) -> Float[Array, " time"]:
    """gamma^(t-1) for t = 1..steps."""
    return jnp.asarray(discount, dtype) ** jnp.arange(steps, dtype=dtype)


def returns(
    reward: Float[Array, "traj time"], mask: Bool[Array, "traj time"], discount
) -> Float[Array, " traj"]:
    """g = sum_t gamma^(t-1) r_t."""
    return total(fill(mask, reward) * discounts(reward.shape[1], discount, reward.dtype)[None])


def returns_to_go(
    reward: Float[Array, "traj time"], mask: Bool[Array, "traj time"], discount
) -> Float[Array, "traj time"]:
    """g_{t:T} = sum_{u >= t} gamma^(u-t) r_u."""
    return running_sum(fill(mask, reward), reverse=True, discount=discount)


def scaled_sum(
    log_weight: Float[Array, "*shape"], value: Float[Array, "*shape"]
) -> Float[Array, ""]:
    """sum of exp(log_weight) * value over all axes, finite wherever the result is representable.

    A weight that is NaN makes the sum NaN, also beside a value of 0.
    """
    counts = (value != 0) & ~jnp.isneginf(log_weight)
    shift = jnp.max(jnp.where(counts, log_weight, -jnp.inf))
    shift = lax.stop_gradient(jnp.where(jnp.isfinite(shift), shift, 0))
    relative = jnp.exp(jnp.where(counts, log_weight - shift, 0))
    root = jnp.exp(shift / 2)
    value_sum = jnp.sum(jnp.where(counts, value * relative, 0)) * root * root
    return jnp.where(jnp.isnan(log_weight).any(), jnp.nan, value_sum)


def weighted_mean(
    log_weight: Float[Array, " traj"], value: Float[Array, " traj"]
) -> Float[Array, ""]:
    """sum of w * value / sum of w, NaN where all weights are zero or one is NaN.

    Measured from the value of the heaviest item, so that a constant comes out exactly.
    """
    heaviest = jnp.argmax(log_weight)
    peak = lax.stop_gradient(log_weight[heaviest])
    exists = peak > -jnp.inf
    relative = jnp.where(exists, log_weight - jnp.where(exists, peak, 0), 0)
    excess = scaled_sum(relative, value - value[heaviest]) / jnp.sum(jnp.exp(relative))
    return jnp.where(exists, value[heaviest] + excess, jnp.nan)


def segment_weighted_mean(
    log_weight: Float[Array, " traj"],
    value: Float[Array, " traj"],
    segment: Int[Array, " traj"],
    num_segments: int,
) -> Float[Array, " segment"]:
    """`weighted_mean` within each segment; NaN where a segment is empty or weighs nothing."""
    peak = segment_peak(log_weight, segment, num_segments)
    weight = jnp.exp(log_weight - look_up(peak, segment))
    weighted = segment_sum(weight * value, segment, num_segments)
    return weighted / segment_sum(weight, segment, num_segments)


def segment_peak(
    log_weight: Float[Array, "traj ..."], segment: Int[Array, " traj"], num_segments: int
) -> Float[Array, "segment ..."]:
    """The largest log-weight of each segment, 0 where it is empty or weighs nothing."""
    peak = lax.stop_gradient(segment_max(log_weight, segment, num_segments))
    return jnp.where(jnp.isfinite(peak), peak, 0)
