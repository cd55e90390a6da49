"""A world of exact nulls: rooms in which nothing matters, then one choice that does."""

from __future__ import annotations

import numpy as np

from osiris_jax.worlds.tabular import TabularWorld

ROOMS, STAY = 5, 0.85
GOOD_IF_CHOSEN = (0.3, 0.7)
HORIZON = 60


def waiting_room() -> TabularWorld:
    """Five rooms that one wanders whatever one does, then a choice: exact nulls for calibration.

    From each room the next is drawn from all five, or it is time to choose; the action has no say
    in it. In the last room the second action is the better one, and the outcome is 0 or 2.
    """
    choice, bad, good = ROOMS, ROOMS + 1, ROOMS + 2
    transition = np.zeros((ROOMS + 3, 2, ROOMS + 3))
    transition[:ROOMS, :, :ROOMS] = STAY / ROOMS
    transition[:ROOMS, :, choice] = 1 - STAY
    transition[choice, :, good] = GOOD_IF_CHOSEN
    transition[choice, :, bad] = 1 - np.array(GOOD_IF_CHOSEN)
    transition[bad, :, bad] = transition[good, :, good] = 1
    reward = np.zeros_like(transition)
    reward[choice, :, good] = 2
    behavior, target = np.full((ROOMS + 3, 2), 0.5), np.tile([0.2, 0.8], (ROOMS + 3, 1))
    oracle = np.arange(ROOMS + 3) == choice
    start = np.where(np.arange(ROOMS + 3) < ROOMS, 1 / ROOMS, 0)
    return TabularWorld(
        transition, reward, start, behavior, target, HORIZON, oracle=oracle, name="waiting-room"
    )
