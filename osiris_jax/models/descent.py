"""Adam on minibatches drawn with replacement: how every network of the package is fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Key

from osiris_jax.core.random_streams import integers_below


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
    """The parameters after `steps` minibatches, and the loss of each before its update.

    `key` is consumed; `loss_of` takes parameters and the items of a minibatch, numbers below
    `count`; the optimizer is one of optax.
    """
    import optax

    def step(carry: Any, number: Array) -> tuple[Any, Array]:
        params, state = carry
        index = integers_below(key, number, minibatch, count)
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
