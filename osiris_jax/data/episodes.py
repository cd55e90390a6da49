"""Ragged Python lists to a TrajectoryBatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.text import printable
from osiris_jax.data.build import to_batch
from osiris_jax.data.columns import (
    FIELDS,
    FLAG_FIELDS,
    WIDE_FIELDS,
    Columns,
    as_array,
    odd_step,
    suggest,
)

PLURALS = {"state": "states", "action": "actions", "reward": "rewards"}
PLURALS |= {"observation": "observations"}
KEYS = {PLURALS.get(field, field): field for field in FIELDS}


def from_episodes(
    episodes: Sequence[Mapping[str, Any]],
    *,
    num_states: int | None = None,
    num_actions: int | None = None,
    dtype: Any = None,
    bucket: bool = False,
) -> TrajectoryBatch:
    """A batch from a list of episodes of any lengths.

    Args:
      episodes: a dict for each episode, with one entry per step under `states` (integer ids, or
        text) or `observations` (vectors) or both, `actions` (likewise), `rewards`, and the ratios:
        `behavior_prob` and `target_prob` of the action taken, or `log_ratio`, or `behavior_probs`
        and `target_probs` of all actions. Without ratios, add them later by `with_policies`; a
        missing `behavior_prob` can be fitted by `fit_behavior`. `truncated`, for the episode or
        for each of its steps (the last counts), says that the log ends though it had not ended.
      num_states: number of state ids; by default the largest + 1, or as many as there are where
        they are sparse (see `TrajectoryBatch.state_labels`).
      num_actions: number of action ids; by default the policies' width, or likewise.
      dtype: float32 or float64; by default JAX's.
      bucket: pad to a bucket length, so that data sets of nearby lengths share a compilation.

    Raises:
      ValueError: names the field, the trajectory and the step (counted from 0).

    Example:
      >>> oj.from_episodes([{"states": [0, 1], "actions": [0, 1], "rewards": [0.0, 1.0],
      ...                    "behavior_prob": [0.5, 0.5], "target_prob": [0.9, 0.1]}])
    """
    if isinstance(episodes, np.ndarray):
        episodes = episodes.tolist()
    if not isinstance(episodes, Sequence) or not len(episodes):
        raise ValueError("episodes: expected a list of at least one episode")
    keys = _common_keys(episodes)
    ragged = {key: [_entries(e, key, i) for i, e in enumerate(episodes)] for key in keys}
    lengths = _common_lengths(ragged)
    fields = {KEYS[key]: np.concatenate(parts) for key, parts in ragged.items()}
    columns = Columns(fields, lengths, name=lambda field: PLURALS.get(field, field))
    return to_batch(
        columns, num_states=num_states, num_actions=num_actions, dtype=dtype, bucket=bucket
    )


def _common_keys(episodes: Sequence[Mapping[str, Any]]) -> list[str]:
    for i, episode in enumerate(episodes):
        if not isinstance(episode, Mapping):
            raise ValueError(f"episodes: trajectory {i} is a {type(episode).__name__}, not a dict")
        for key in episode:
            if key not in KEYS:
                raise ValueError(
                    f"{printable(key)}: not a field, at trajectory {i}; {suggest(key, KEYS)}"
                )
        for key in episodes[0].keys() ^ episode.keys():
            lacking = i if key in episodes[0] else 0
            raise ValueError(f"{key}: missing at trajectory {lacking}, present at others")
    return list(episodes[0])


def _entries(episode: Mapping[str, Any], key: str, trajectory: int) -> np.ndarray:
    """[step] or [step, dim]; a flag of the whole episode becomes one of each step."""
    value, axes = episode[key], 2 if KEYS[key] in WIDE_FIELDS else 1
    if KEYS[key] in FLAG_FIELDS and not isinstance(value, str) and np.ndim(value) == 0:
        steps = next((episode[name] for name in ("rewards", "actions") if name in episode), ())
        value = [value] * (len(steps) if np.ndim(steps) else 0)
    try:
        array = as_array(value)
    except ValueError:
        array = np.asarray(None)
    if array.shape == (0,):
        array = array.reshape((0,) * axes)
    if array.ndim != axes:
        step = odd_step(value, axes)
        expected = "one vector" if axes == 2 else "one number"
        raise ValueError(
            f"{key}: expected {expected} per step at trajectory {trajectory}"
            + ("" if step is None else f", step {step}")
        )
    return array


def _common_lengths(ragged: Mapping[str, list[np.ndarray]]) -> np.ndarray:
    reference = "rewards" if "rewards" in ragged else next(iter(ragged), None)
    if reference is None:
        raise ValueError("rewards: missing")
    lengths = np.array([len(part) for part in ragged[reference]])
    for trajectory in np.flatnonzero(lengths == 0):
        raise ValueError(f"{reference}: empty trajectory {trajectory}, there is no step 0")
    for key, parts in ragged.items():
        for i, (part, steps) in enumerate(zip(parts, lengths, strict=True)):
            if len(part) != steps:
                raise ValueError(
                    f"{key}: {len(part)} steps where {reference} has {steps}, at trajectory {i}, "
                    f"step {min(len(part), steps)}"
                )
            if part.shape != (steps, *parts[0].shape[1:]):
                raise ValueError(
                    f"{key}: vectors of size {part.shape[1]} at trajectory {i}, step 0, "
                    f"where trajectory 0 has size {parts[0].shape[1]}"
                )
    return lengths
