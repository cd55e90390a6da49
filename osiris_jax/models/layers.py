"""Dense layers on columns, [width, item]: under `vmap` XLA multiplies these fastest on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Float, Int


class Layer(NamedTuple):
    """A dense layer, for inputs that are columns."""

    kernel: Float[Array, "out in"]
    bias: Float[Array, " out"]


Layers = tuple[Layer, ...]


def initial_params(key: Array, widths: Sequence[int], dtype) -> Layers:
    """Kernels by LeCun's rule and biases of 0, drawn alike in every float type."""
    draw_kernel = jax.nn.initializers.lecun_normal(in_axis=1, out_axis=0)
    shapes = list(zip(widths[1:], widths[:-1], strict=True))
    return tuple(
        Layer(draw_kernel(own, shape, jnp.float32).astype(dtype), jnp.zeros(shape[0], dtype))
        for own, shape in zip(random.split(key, len(shapes)), shapes, strict=True)
    )


def logged_values(
    params: Layers,
    value: Int[Array, " item"] | Float[Array, "item dim"],
    action: Int[Array, " item"],
) -> Float[Array, " item"]:
    """Q of the items' own actions.

    With fewer states than items, from the table of all: the gradient then scatters one number per
    item and not a column.
    """
    chex.assert_rank(action, 1)
    chex.assert_equal_shape_prefix([value, action], 1)
    first, num_items = params[0], len(action)
    if value.ndim == 1 and first.kernel.shape[1] <= num_items:
        table = table_of(params)
        return table.ravel()[action * table.shape[1] + value]
    columns = (
        affine(first, value.T) if value.ndim == 2 else first.kernel[:, value] + first.bias[:, None]
    )
    return network(params[1:], columns)[action, jnp.arange(num_items)]


def table_of(params: Layers) -> Float[Array, "action state"]:
    """Q of all states: the first kernel's columns are what one-hot inputs give."""
    return network(params[1:], params[0].kernel + params[0].bias[:, None])


def network(layers: Layers, columns: Float[Array, "in item"]) -> Array:
    for layer in layers:
        columns = affine(layer, jax.nn.relu(columns))
    return columns


def affine(layer: Layer, columns: Float[Array, "in item"]) -> Float[Array, "out item"]:
    product = jnp.matmul(layer.kernel, columns, precision=lax.Precision.HIGHEST)
    return product + layer.bias[:, None]
