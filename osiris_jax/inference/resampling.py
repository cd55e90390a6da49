"""Which trajectories a resample holds, and in how many pieces resamples are computed."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from jax import Array, random
from jaxtyping import Int, Integer

from osiris_jax.core.random_streams import integers_below

MOST_GROUPS = 200


def draw_rows(
    key: Array, numbers: Integer[Array, " resample"], num_trajectories: int
) -> Int[Array, "resample row"]:
    """The trajectories of the resamples of these numbers, drawn with replacement.

    Each is a function of the key and its own number, so that pieces do not matter.
    """

    def one(number: Integer[Array, ""]) -> Int[Array, " row"]:
        own = random.fold_in(key, number)
        if num_trajectories >= 2**16:
            return random.randint(own, (num_trajectories,), 0, num_trajectories)
        return integers_below(own, num_trajectories, num_trajectories)

    return jax.vmap(one)(numbers)


def rows_without_groups(num_trajectories: int) -> list[np.ndarray]:
    """[group, row] the trajectories left when each group is out, in arrays of equal size.

    At most 200 groups by i mod their number, whose sizes differ by one at most: at most two
    arrays, that of the larger groups first.
    """
    number = min(MOST_GROUPS, num_trajectories)
    every = np.arange(num_trajectories, dtype=np.int32)
    larger = num_trajectories % number
    parts = (range(larger), range(larger, number))
    return [
        np.stack([every[every % number != group] for group in part]) for part in parts if len(part)
    ]


def pieces(resamples: int, bytes_of_one: int, memory: int) -> Iterator[np.ndarray]:
    """Numbers of resamples in pieces of one length that fit the memory, the last one padded."""
    most = int(np.clip(memory // max(bytes_of_one, 1), 1, resamples))
    step = -(-resamples // -(-resamples // most))
    for start in range(0, resamples, step):
        yield np.arange(start, start + step, dtype=np.uint32)
