"""The README's first look as a world: one choice, then a wait that hides what was chosen."""

from __future__ import annotations

import numpy as np

from osiris_jax.worlds.tabular import TabularWorld

SHORTEST, LONGEST = 2, 14
SPREAD = 0.5  # of the reward: two values in place of the README's normal numbers
SIZE = 100


def first_look() -> TabularWorld:
    """A first action decides the reward at the end of a wait of 2 to 14 steps in one state.

    The reward is the first action, 0 or 1, give or take 0.5. Whoever waits sees one state whatever
    was chosen and however long it still takes: states are not Markov. The target takes action 1
    with probability 0.8, which is its value, the behaviour with 0.5.
    """
    waits = LONGEST - 1
    lengths = np.arange(SHORTEST, LONGEST + 1)
    starts = np.arange(len(lengths))
    waiting = len(lengths) + np.arange(2 * waits).reshape(2, waits)  # [action, steps to go - 1]
    low, high = waiting.max() + 1, waiting.max() + 2
    num_states = high + 1
    transition = np.zeros((num_states, 2, num_states))
    reward = np.zeros_like(transition)
    for chosen in (0, 1):
        transition[starts, chosen, waiting[chosen, lengths - 2]] = 1
        for to_go in range(waits):
            state = waiting[chosen, to_go]
            if to_go:
                transition[state, :, waiting[chosen, to_go - 1]] = 1
            else:
                transition[state, :, [low, high]] = 0.5
                reward[state, :, low], reward[state, :, high] = chosen - SPREAD, chosen + SPREAD
    transition[[low, high], :, [low, high]] = 1
    begins = (np.arange(num_states) < len(lengths)) / len(lengths)
    return TabularWorld(
        transition,
        reward,
        begins,
        np.full((num_states, 2), 0.5),
        np.tile([0.2, 0.8], (num_states, 1)),
        LONGEST,
        oracle=[True, False],
        observe=np.where(np.arange(num_states) < len(lengths), 0, 1),
        name="first-look",
        size=SIZE,
    )
