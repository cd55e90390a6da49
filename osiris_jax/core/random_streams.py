"""Random streams: the numbers by which a key is divided, and draws that are cheap on a CPU.

A stream is `fold_in(key, number)`. Trajectories, trials and resamples are counted from 0; what is
random beside them has a number near 2^32, named here, so that no two streams of one key meet.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Float, Int, Integer, Key, UInt

# of a trajectory's key, whose numbers from 0 on are blocks of uniforms for the actions
RESET_STREAM, STEPS_STREAM = 2**32 - 1, 2**32 - 2
# of a trial's key, whose numbers from 0 on are trajectories
TARGET_STREAM, METHOD_STREAM, FIT_STREAM = 2**32 - 3, 2**32 - 5, 2**32 - 7
# of a seed's key, whose numbers from 0 on are trials
TRUTH_STREAM, POOL_STREAM = 2**32 - 1, 2**32 - 7
# of the key of intervals, which estimators may divide
RESAMPLES_STREAM = 2**32 - 11
# of an estimator's key, whose numbers from 0 on are fits
BLEND_STREAM = 2**32 - 13

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_THREEFRY = "threefry2x32"
_HALF = 0xFFFF


def integers_below(
    key: Key[Array, ""], number: Integer[Array, ""] | int, size: int, count: Array | int
) -> Int[Array, " size"]:
    """`size` of the integers below `count`, with replacement, from the key's stream `number`.

    The upper word of a random word times `count`: nearer to uniform than a float32 could be, the
    same in every float type, and a third of the cost of `random.randint`.
    """
    words = random.bits(random.fold_in(key, number), (size,), jnp.uint32)
    return _upper_product(words, jnp.asarray(count, jnp.uint32)).astype(jnp.int32)


def _upper_product(a: UInt[Array, " size"], b: UInt[Array, ""]) -> UInt[Array, " size"]:
    """The upper 32 bits of a * b, by halves: there may be no 64-bit integers."""
    a_low, a_high, b_low, b_high = a & _HALF, a >> 16, b & _HALF, b >> 16
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    other = a_low * b_high + (middle & _HALF)
    return a_high * b_high + (middle >> 16) + (other >> 16)


def uniforms(
    key: Key[Array, ""], block: Integer[Array, ""], number: int
) -> Float[Array, " number"]:
    """`random.uniform(random.fold_in(key, block), (number,), jnp.float32)`, bit for bit.

    Several times faster on a CPU, where JAX runs the rounds of threefry as a loop over arrays, to
    compile sooner; here they are written out, and become one pass.
    """
    if str(random.key_impl(key)) != _THREEFRY:
        return random.uniform(random.fold_in(key, block), (number,), jnp.float32)
    first, second = random.key_data(key)
    first, second = _threefry(first, second, jnp.zeros((), jnp.uint32), block.astype(jnp.uint32))
    count = jnp.arange(number, dtype=jnp.uint32)
    keys = jnp.full_like(count, first), jnp.full_like(count, second)
    high, low = _threefry(keys[0], keys[1], jnp.zeros_like(count), count)
    return _in_unit_interval(high ^ low)


def _in_unit_interval(words: UInt[Array, " number"]) -> Float[Array, " number"]:
    """The 23 leading bits as the fraction of a number in [1, 2), less 1."""
    one = jnp.uint32(0x3F800000)
    return lax.bitcast_convert_type((words >> 9) | one, jnp.float32) - 1


def _threefry(first: Array, second: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry 2x32, 20 rounds (Salmon, Moraes, Dror & Shaw 2011), of the counter (high, low)."""
    keys = (first, second, first ^ second ^ jnp.uint32(_PARITY))
    high, low = high + keys[0], low + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = ((low << rotation) | (low >> (32 - rotation))) ^ high
        high = high + keys[(group + 1) % 3]
        low = low + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return high, low
