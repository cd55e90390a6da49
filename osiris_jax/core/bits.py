"""Random numbers of JAX's default generator, several times faster on a CPU.

JAX runs the rounds of threefry as a loop over arrays there, to compile sooner; here they are
written out, and become one pass. The numbers are the same, bit for bit.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax, random

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_THREEFRY = "threefry2x32"


def uniforms(key: Array, block: Array, number: int) -> Array:
    """`random.uniform(random.fold_in(key, block), (number,), jnp.float32)` for one key."""
    if str(random.key_impl(key)) != _THREEFRY:
        return random.uniform(random.fold_in(key, block), (number,), jnp.float32)
    first, second = random.key_data(key)
    first, second = _threefry(first, second, jnp.zeros((), jnp.uint32), block.astype(jnp.uint32))
    count = jnp.arange(number, dtype=jnp.uint32)
    keys = jnp.full_like(count, first), jnp.full_like(count, second)
    high, low = _threefry(keys[0], keys[1], jnp.zeros_like(count), count)
    return _in_unit_interval(high ^ low)


def _in_unit_interval(bits: Array) -> Array:
    """The 23 leading bits as the fraction of a number in [1, 2), less 1."""
    one = jnp.uint32(0x3F800000)
    return lax.bitcast_convert_type((bits >> 9) | one, jnp.float32) - 1


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
