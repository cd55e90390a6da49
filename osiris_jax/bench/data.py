"""A log for benchmarks, of one shape and float type, and the same as NumPy arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.bench.rivals import Log

ACTIONS, SEED = 4, 0
SHARE, GAIN = 0.03, 0.3


@lru_cache(maxsize=2)
def columns(trajectories: int, steps: int, states: int, seed: int = SEED) -> dict[str, np.ndarray]:
    """[traj, time] columns of a log of equal lengths, in float64.

    The policies differ a little in every state, so that weights of a hundred ratios still mean
    something; the action matters to the reward in every third state.
    """
    rng = np.random.default_rng(seed)
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


def log(trajectories: int, steps: int, states: int, dtype: str, seed: int = SEED):
    """The log as a batch of this float type, with the probabilities of all actions."""
    found = columns(trajectories, steps, states, seed)
    taken = {
        name: np.take_along_axis(found[f"{name}_probs"], found["action"][..., None], -1)[..., 0]
        for name in ("target", "behavior")
    }
    return TrajectoryBatch(
        reward=jnp.asarray(found["reward"], dtype),
        target_probs=jnp.asarray(found["target_probs"], dtype),
        mask=jnp.ones((trajectories, steps), bool),
        log_ratio=jnp.asarray(np.log(taken["target"] / taken["behavior"]), dtype),
        behavior_probs=jnp.asarray(found["behavior_probs"], dtype),
        state=jnp.asarray(found["state"], jnp.int32),
        action=jnp.asarray(found["action"], jnp.int32),
        num_states=states,
        num_actions=ACTIONS,
    )


def as_numpy(batch: TrajectoryBatch) -> Log:
    """What the rivals read: the same numbers in float64."""
    return Log(
        reward=np.where(batch.mask, batch.reward, 0).astype(np.float64),
        log_ratio=np.where(batch.mask, batch.require("log_ratio", "a rival"), 0).astype(np.float64),
        state=np.where(batch.mask, batch.require("state", "a rival"), 0),
        mask=np.asarray(batch.mask),
        num_states=batch.num_states,
    )


def in_double(batch: TrajectoryBatch) -> TrajectoryBatch:
    """The same numbers in float64, where x64 is enabled."""

    def widen(x: Any) -> Any:
        x = np.asarray(x)
        return jnp.asarray(x, np.float64) if np.issubdtype(x.dtype, np.floating) else jnp.asarray(x)

    return jax.tree.map(widen, batch)
