"""Adam on minibatches drawn with replacement: how every network of the package is fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int, Key, UInt


def descend(
    key: Key[Array, ""],
    params: Any,
    loss_of: Callable[[Any, Int[Array, " minibatch"]], Array],
    optimizer: Any,
    *,
    count: Int[Array, ""],
    steps: int,
    minibatch: int,
) -> tuple[Any, Float[Array, " step"]]:
    """The parameters after so many minibatches, and the loss of each before its update.

    Args:
      key: consumed.
      params: a pytree.
      loss_of: from parameters and the items of a minibatch, numbers below `count`, to its loss.
      optimizer: of optax.
      count: the number of items.
      steps: number of minibatches.
      minibatch: items in each.
    """
    import optax

    def step(carry: Any, number: Array) -> tuple[Any, Array]:
        params, state = carry
        index = draw(key, number, minibatch, count)
        loss, slope = jax.value_and_grad(loss_of)(params, index)
        change, state = optimizer.update(slope, state, params)
        return (optax.apply_updates(params, change), state), loss

    (params, _), loss = lax.scan(step, (params, optimizer.init(params)), jnp.arange(steps))
    return params, loss


def used_first(used: Bool[Array, " item"]) -> tuple[Int[Array, " item"], Int[Array, ""]]:
    """The numbers of the used items before all others, and how many they are."""
    return jnp.nonzero(used, size=used.size, fill_value=0)[0], used.sum(dtype=jnp.int32)


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether every number in the tree is finite."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def draw(key: Array, number: Array | int, size: int, count: Int[Array, ""]) -> Int[Array, " size"]:
    """`size` of the integers below `count`, for step `number`, with replacement.

    The upper word of a random word times `count`: nearer to uniform than a float32 could be, the
    same in every float type, and a third of the cost of `random.randint`.
    """
    bits = random.bits(random.fold_in(key, number), (size,), jnp.uint32)
    return _upper_product(bits, count.astype(jnp.uint32)).astype(jnp.int32)


def _upper_product(a: UInt[Array, " size"], b: UInt[Array, ""]) -> UInt[Array, " size"]:
    """The upper 32 bits of a * b, by halves: there may be no 64-bit integers."""
    half = 0xFFFF
    a_low, a_high, b_low, b_high = a & half, a >> 16, b & half, b >> 16
    middle = a_high * b_low + ((a_low * b_low) >> 16)
    other = a_low * b_high + (middle & half)
    return a_high * b_high + (middle >> 16) + (other >> 16)
