"""Exact two-sample test by outer quarters: is a sample's share of high values that of low ones?"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.core.platforms import scan

LEFT_OUT = 1e-13  # more than the chance of all outcomes beyond the windows
TIE = 1e-4  # what differs by less counts as equal: distances from the mean, p-values relatively


class QuartersResult(NamedTuple):
    """`least` is the smallest p-value that any choice of as many items could have had."""

    statistic: Array
    pvalue: Array
    least: Array


class _Counts(NamedTuple):
    low: Array
    middle: Array
    high: Array

    @classmethod
    def of(cls, among: Array, low: Array, high: Array) -> _Counts:
        return cls(*((among & which).sum(0) for which in (low, ~low & ~high, high)))

    @property
    def total(self) -> Array:
        return self.low + self.middle + self.high

    def largest(self, chosen: Array) -> Array:
        """The most that `chosen` of them can have of high less low."""
        not_low = self.middle + self.high
        return jnp.minimum(self.high, chosen) - jnp.clip(chosen - not_low, 0, self.low)

    @property
    def reversed(self) -> _Counts:
        return _Counts(self.high, self.middle, self.low)


def quarters(
    value: Float[Array, "item set"], above: Bool[Array, "item set"], used: Bool[Array, "item set"]
) -> QuartersResult:
    """Tests in each set whether the used items `above` have the values of any such choice of items.

    The statistic is how many of them are in the highest quarter of all values, less how many are
    in the lowest. The p-value is the chance that it is as far from its mean, or farther, when every
    choice of as many items is equally likely: an exact permutation test, whatever is tied, and
    without a sort. 1 where a sample is empty or all values are equal.
    """
    low, high = _outer_quarters(_ordered(value), used)
    size, chosen = _Counts.of(used, low, high), _Counts.of(used & above, low, high)
    return _chances(size, chosen.total, chosen.high - chosen.low, len(value))


def _ordered(value: Float[Array, "item set"]) -> Int[Array, "item set"]:
    """Integers in the order of each set's values; values that differ by 2^-47 of it are equal.

    A float64 is two float32, for TPUs cannot cast its bits.
    """
    if value.dtype != jnp.float64:
        return _ordered_bits(value)
    largest = jnp.abs(value).max(0, keepdims=True)
    scaled = value / jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    rough = scaled.astype(jnp.float32)
    rest = (scaled - rough).astype(jnp.float32)
    high, low = (_ordered_bits(word).astype(jnp.int64) for word in (rough, rest))
    return high * 2**32 + low


def _ordered_bits(value: Float[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Bits, flipped where negative; -0 is 0."""
    bits = lax.bitcast_convert_type(jnp.where(value == 0, 0, value), jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.iinfo(jnp.int32).max, bits)


def _outer_quarters(
    key: Int[Array, "item set"], used: Bool[Array, "item set"]
) -> tuple[Bool[Array, "item set"], Bool[Array, "item set"]]:
    """Which items are in the lowest and in the highest quarter of their set.

    Equal values stay together: those at a quarter's edge belong to it where most of them lie
    within, or where nothing lies beyond them. Where all are equal, neither quarter has any.
    """
    info, size = jnp.iinfo(key.dtype), used.sum(0)
    key = jnp.where(used, key, info.max)
    wanted = jnp.stack([(size + 3) // 4, size - (size + 3) // 4 + 1])

    def halve(_, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        between = (low & high) + ((low ^ high) >> 1)
        enough = (key[None] <= between[:, None]).sum(1) >= wanted
        return jnp.where(enough, low, between + 1), jnp.where(enough, between, high)

    ends = (jnp.full(wanted.shape, end, key.dtype) for end in (info.min, info.max - 1))
    _, edge = lax.fori_loop(0, info.bits, halve, tuple(ends))
    below, up_to = key[None] < edge[:, None], key[None] <= edge[:, None]
    fewer, more = below.sum(1), up_to.sum(1)
    beyond = jnp.stack([fewer[0], size - more[1]])
    within = jnp.stack([more[0], size - fewer[1]])
    joins = (beyond == 0) | (2 * (beyond + within) <= size[None])
    joins = (joins & (within < size[None]))[:, None]
    low, not_high = jnp.where(
        joins, jnp.stack([up_to[0], below[1]]), jnp.stack([below[0], up_to[1]])
    )
    return low, used & ~not_high


def _chances(
    size: _Counts, chosen: Int[Array, " set"], statistic: Int[Array, " set"], most: int
) -> QuartersResult:
    """The tail of high less low among `chosen` items, at what was found and at the farthest.

    Numbers of low, middle and high items are binomial, given their sum. Those of low and high ones
    are followed 2 sqrt(items) either way of their means, beyond which lies less than `LEFT_OUT`
    (Serfling 1974).
    """
    width = min(2 * math.ceil(2 * math.sqrt(most)) + 1, most + 1)
    items = size.total
    decided = (chosen > 0) & (chosen < items)
    share = chosen / jnp.maximum(items, 1)
    mean = share * (size.high - size.low)
    odds = jnp.where(decided, share / jnp.where(decided, 1 - share, 1), 1)

    def first(number: Array) -> Array:
        return jnp.maximum(jnp.round(share * number).astype(jnp.int32) - width // 2, 0)

    first_low, first_high = first(size.low), first(size.high)
    first_middle = chosen - first_low - first_high - 2 * (width - 1)
    low = _binomial(size.low, first_low, width, odds)
    high = _binomial(size.high, first_high, width, odds)
    middle = jnp.flip(_binomial(size.middle, first_middle, 2 * width - 1, odds), 1)
    farthest = jnp.maximum(size.largest(chosen) - mean, size.reversed.largest(chosen) + mean)
    distances = jnp.stack([jnp.abs(statistic - mean), farthest, jnp.full_like(mean, -1)])

    def add(total: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        number, chance = inputs
        of_high = first_high[:, None] + jnp.arange(width)[None]
        difference = of_high - (first_low + number)[:, None]
        chances = chance[:, None] * high * lax.dynamic_slice_in_dim(middle, number, width, 1)
        far = jnp.abs(difference - mean[:, None])[None] >= distances[:, :, None] - TIE
        return total + jnp.where(far, chances[None], 0).sum(-1), None

    total, _ = scan(add, jnp.zeros_like(distances), (jnp.arange(width), low.T))
    tails = jnp.minimum(total[:2] / total[2:] + LEFT_OUT, 1)
    return QuartersResult(statistic, *jnp.where(decided[None], tails, 1))


def _binomial(
    size: Int[Array, " set"], first: Int[Array, " set"], width: int, odds: Float[Array, " set"]
) -> Float[Array, "set number"]:
    """Chances of first, first + 1, ... items out of `size`, over the largest of them."""
    number = first[:, None] + jnp.arange(width)[None]
    ratio = jnp.maximum(size[:, None] - number, 0) / jnp.maximum(number + 1, 1) * odds[:, None]
    steps = jnp.where(number >= 0, jnp.log(ratio), 0)[:, :-1]
    log_chance = jnp.pad(jnp.cumsum(steps, 1), ((0, 0), (1, 0)))
    possible = (number >= 0) & (number <= size[:, None])
    log_chance = jnp.where(possible, log_chance, -jnp.inf)
    return jnp.exp(log_chance - log_chance.max(1, keepdims=True))
