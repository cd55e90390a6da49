"""Which trajectories a resample holds, and in how many pieces resamples are computed."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jaxtyping import Float, Int, Integer

from osiris_jax.core.random_streams import integers_below

MOST_GROUPS = 200


def draw_rows(
    key: Array, numbers: Integer[Array, " resample"], num_trajectories: int
) -> Int[Array, "resample row"]:
    """The trajectories of the resamples of these numbers, drawn with replacement.

    Each is a function of the key and its own number, so that pieces do not matter.
    """

    def one(number: Integer[Array, ""]) -> Int[Array, " row"]:
        if num_trajectories >= 2**16:
            own = random.fold_in(key, number)
            return random.randint(own, (num_trajectories,), 0, num_trajectories)
        return integers_below(key, number, num_trajectories, num_trajectories)

    return jax.vmap(one)(numbers)


def num_groups(num_trajectories: int) -> int:
    """Into how many groups, by i mod their number, a jackknife divides the trajectories.

    At most 200; none where nothing would be left without one.
    """
    return min(MOST_GROUPS, num_trajectories) if num_trajectories > 1 else 0


def rows_without_groups(num_trajectories: int) -> list[np.ndarray]:
    """[group, row] the trajectories left when each group is out, in arrays of equal size.

    The sizes of the groups differ by one at most: at most two arrays, that of the larger groups
    first.
    """
    number = num_groups(num_trajectories)
    every = np.arange(num_trajectories, dtype=np.int32)
    larger = num_trajectories % number if number else 0
    parts = (range(larger), range(larger, number))
    return [
        np.stack([every[every % number != group] for group in part]) for part in parts if len(part)
    ]


def counts_by_number(
    key: Array, numbers: Integer[Array, " number"], num_trajectories: int, resamples, dtype
) -> Float[Array, "number traj"]:
    """How often each trajectory comes: numbers below `resamples` are drawn, others lack a group.

    Groups come in the order of `rows_without_groups`.
    """
    drawn = counts_of(draw_rows(key, numbers, num_trajectories), num_trajectories, dtype)
    group = (numbers - resamples).astype(jnp.int32)
    of_trajectory = jnp.arange(num_trajectories) % max(num_groups(num_trajectories), 1)
    left = (of_trajectory[None] != group[:, None]).astype(dtype)
    return jnp.where((numbers < resamples)[:, None], drawn, left)


def counts_of(
    rows: Int[Array, "resample row"], number: int, dtype
) -> Float[Array, "resample traj"]:
    """How often each trajectory came into each resample."""
    place = rows + number * jnp.arange(len(rows), dtype=rows.dtype)[:, None]
    counts = jnp.zeros(len(rows) * number, jnp.int32).at[place.ravel()].add(1)
    return counts.reshape(len(rows), number).astype(dtype)


def pieces(
    resamples: int, bytes_of_one: int, memory: int, devices: int = 1
) -> Iterator[np.ndarray]:
    """Numbers of resamples in pieces of one length that fit the memory, the last one padded.

    The length can be divided by the number of devices.
    """
    most = int(np.clip(memory // max(bytes_of_one, 1), 1, resamples))
    step = -(-resamples // -(-resamples // most))
    step += -step % devices
    for start in range(0, resamples, step):
        yield np.arange(start, start + step, dtype=np.uint32)
