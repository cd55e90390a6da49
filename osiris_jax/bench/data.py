"""A log for benchmarks, and what rivals read of a batch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.bench.rivals import Log
from osiris_jax.data import from_arrays

ACTIONS, SEED = 4, 0
SHARE, GAIN = 0.03, 0.3


@lru_cache(maxsize=2)
def columns(trajectories: int, steps: int, states: int) -> dict[str, np.ndarray]:
    """[traj, time] columns of a log of equal lengths, in float64.

    The policies differ a little in every state, so that weights of a hundred ratios still mean
    something; the action matters to the reward in every third state.
    """
    rng = np.random.default_rng(SEED)
    behavior = rng.dirichlet(np.ones(ACTIONS), states)
    target = (1 - SHARE) * behavior + SHARE * rng.dirichlet(np.ones(ACTIONS), states)
    shape = (trajectories, steps)
    state = rng.integers(states, size=shape)
    action = (rng.random(shape)[..., None] > behavior.cumsum(1)[state][..., :-1]).sum(-1)
    matters = (state % 3 == 0) & (action == 0)
    return {
        "state": state,
        "action": action,
        "reward": rng.normal(GAIN * matters, 1.0),
        "behavior_probs": behavior[state],
        "target_probs": target[state],
    }


def log(trajectories: int, steps: int, states: int) -> TrajectoryBatch:
    """The log in the float type in force, with the probabilities of all actions."""
    shape = trajectories, steps, states
    return from_arrays(**columns(*shape), num_states=states, num_actions=ACTIONS)


def as_numpy(batch: TrajectoryBatch) -> Log:
    """What the rivals read: the same numbers in float64, zeros in padded cells."""

    def filled(field: str) -> np.ndarray:
        return np.where(batch.mask, batch.require(field, "a rival"), 0)

    return Log(
        reward=filled("reward").astype(np.float64),
        log_ratio=filled("log_ratio").astype(np.float64),
        state=filled("state"),
        mask=np.asarray(batch.mask),
        num_states=batch.num_states,
    )
