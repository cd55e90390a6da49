"""Room for sums of rewards near the largest number that the float type has."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax.numpy as jnp
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked

_LIKE_REWARDS = ("q", "q_steps")


def with_headroom(estimator: Callable[..., Array]) -> Callable[..., Array]:
    """The estimator of rewards over a power of two, times that power, where sums would overflow.

    An estimate grows with rewards, and with Q-hat beside them, in proportion. So it is finite where
    it can be represented although a sum on the way to it could not. The power is 1 unless rewards
    are that large, and then dividing by it is exact.
    """

    @wraps(estimator)
    def roomy(batch: TrajectoryBatch, weights: Array, **options: Any) -> Array:
        given = {k: options[k] for k in _LIKE_REWARDS if options.get(k) is not None}
        given = {name: jnp.asarray(value, batch.dtype) for name, value in given.items()}
        scale = masked.headroom(masked.fill(batch.mask, batch.reward), *given.values())
        smaller = batch.replace(reward=batch.reward / scale)
        value = estimator(smaller, weights, **options | {k: v / scale for k, v in given.items()})
        return value * scale

    return roomy
