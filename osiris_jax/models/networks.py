"""Q-functions as small networks (Flax), and their files: .npz of plain arrays."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array, lax

from osiris_jax.core.files import read_arrays, write_arrays
from osiris_jax.core.text import printable


class MLP(nn.Module):
    """Dense layers with ReLU between them.

    Attributes:
      widths: size of every layer, the last being the output's.
    """

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for number, width in enumerate(self.widths):
            dense = nn.Dense(width, precision=lax.Precision.HIGHEST)
            x = dense(nn.relu(x) if number else x)
        return x


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class QNetwork:
    """Q(observation): [..., dim] -> [..., action].

    Attributes:
      params: the Flax parameters of the MLP.
      scale: [dim] what observations are multiplied by first.
      widths: size of every layer, the last being the number of actions (static).
    """

    params: Any
    scale: Array | np.ndarray
    widths: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    @classmethod
    def create(cls, key: Array, hidden: Sequence[int], num_actions: int, scale: Any) -> QNetwork:
        """A network with random weights."""
        widths = (*hidden, num_actions)
        scale = jnp.asarray(scale, float)
        return cls(MLP(widths).init(key, jnp.zeros_like(scale)), scale, widths)

    @property
    def num_actions(self) -> int:
        return self.widths[-1]

    def __call__(self, observation: Array) -> Array:
        scale = jnp.reshape(self.scale, (1,) * (observation.ndim - 1) + (-1,))
        return MLP(self.widths).apply(self.params, observation * scale)  # pyright: ignore

    def replace(self, **changes: Any) -> QNetwork:
        return dataclasses.replace(self, **changes)


def save_network(path: str | Path, network: QNetwork) -> Path:
    """Writes the network, whole or not at all."""
    flat: Any = flatten_dict(network.params, sep="/")
    return write_arrays(path, {"scale": network.scale, **flat})


def load_network(path: str | Path) -> QNetwork:
    """Reads what `save_network` wrote.

    Raises:
      ValueError: names the file and what is wrong with it.
    """
    arrays = read_arrays(path)
    try:
        scale = arrays.pop("scale")
        params = unflatten_dict(arrays, sep="/")
        layers = params["params"]
        dense = [layers[f"Dense_{number}"] for number in range(len(layers))]
        sizes = [len(scale), *(layer["kernel"].shape[1] for layer in dense)]
        fits = [
            layer["kernel"].shape[0] == below and layer["bias"].shape == (above,)
            for layer, (below, above) in zip(dense, itertools.pairwise(sizes), strict=True)
        ]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"{printable(path)}: not a Q-network, {error} is missing or odd") from None
    for name, array in [("scale", scale), *flatten_dict(params, sep="/").items()]:
        if array.dtype.kind != "f":
            raise ValueError(
                f"{printable(path)}: not a Q-network, {name} holds {array.dtype}, not numbers"
            )
    if not all(fits):
        raise ValueError(f"{printable(path)}: the layers do not fit each other: {sizes}")
    return QNetwork(params, scale, tuple(sizes[1:]))
