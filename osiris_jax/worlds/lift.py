"""The lift: a corridor in which actions matter at three places (Bossens & Thomas 2024)."""

from __future__ import annotations

import numpy as np

from osiris_jax.worlds.tabular import TabularWorld

LEFT, RIGHT = 0, 1
STEP_LIMIT, SLIP = 300, 0.05
SIZES = (7, 9, 11, 13, 15, 17)


def lift(size: int, stochastic: bool = False) -> TabularWorld:
    """A corridor of positions -b to b that begins in the middle; between, a lift moves outward.

    Entering an end pays b on the right and -b on the left and is the end; any other step costs 1.
    Actions matter at 0 and beside the ends alone.

    Args:
      size: number of positions, odd.
      stochastic: a step goes to the other side with probability 0.05, and the target goes right
        with 0.95; else always right. The behaviour is uniform.
    """
    if size < 7 or size % 2 == 0:
        raise ValueError(f"size: expected an odd number from 7 on, got {size}")
    bound = size // 2
    position = np.arange(-bound, bound + 1)
    left = (position >= -bound + 2) & (position < 0)
    right = (position > 0) & (position <= bound - 2)
    wanted = np.tile([-1, 1], (size, 1))
    wanted[left], wanted[right] = -1, 1
    slip = SLIP if stochastic else 0.0
    transition = np.zeros((size, 2, size))
    states = np.arange(size)
    inside = np.abs(position) < bound
    for action in (LEFT, RIGHT):
        for side, chance in ((1, 1 - slip), (-1, slip)):
            following = np.clip(states + side * wanted[:, action], 0, size - 1)
            transition[states[inside], action, following[inside]] += chance
    transition[~inside, :, states[~inside]] = 1
    reward = np.full((size, 2, size), -1.0)
    reward[..., 0], reward[..., -1] = -bound, bound
    reward[~inside] = 0
    going_right = 0.95 if stochastic else 1.0
    return TabularWorld(
        transition,
        reward,
        bound,
        np.full((size, 2), 0.5),
        np.tile([1 - going_right, going_right], (size, 1)),
        STEP_LIMIT,
        terminal=~inside,
        oracle=inside & ~left & ~right,
        name=f"lift-{'stochastic-' if stochastic else ''}{size}",
    )
