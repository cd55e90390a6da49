"""The dictionaries of SCOPE-RL (Kiyohara et al. 2023) to a TrajectoryBatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.data.arrays import from_arrays
from osiris_jax.data.guess import Say

NEEDED = ("n_trajectories", "step_per_trajectory", "action_type", "state", "action", "reward")
THEIR_NAMES = {
    "behavior_prob": "pscore",
    "target_probs": "evaluation_policy_action_dist",
    "observation": "state",
}


def from_scope_rl(
    logged_dataset: Mapping[str, Any],
    input_dict: Mapping[str, Any] | None = None,
    *,
    policy: str | None = None,
    dtype: Any = None,
    say: Say | None = None,
) -> TrajectoryBatch:
    """A batch from SCOPE-RL's `logged_dataset` and `input_dict` (version 0.2), discrete actions.

    There every trajectory has the same number of steps. One whose `done` comes earlier ends here
    with that step: what SCOPE-RL logs after it belongs to no episode, or to the next one.

    Args:
      logged_dataset: with `n_trajectories`, `step_per_trajectory`, `action_type`, `state`
        [size, dim], `action`, `reward`, `done` and `pscore` [size]; and `n_actions`.
      input_dict: by name of policy, with `evaluation_policy_action_dist` [size, action]; None for
        a log whose target is given later, by `with_policies`.
      policy: the name of the policy to evaluate; needed if there are several.
      dtype: float32 or float64; by default JAX's.
      say: called with a line of text for what is left out or not carried over.

    Raises:
      ValueError: names the entry, the trajectory and the step.

    Example:
      >>> oj.from_scope_rl(logged_dataset, input_dict, policy="ddqn", say=print)
    """
    say = say or (lambda line: None)
    _check_log(logged_dataset)
    shape = tuple(_count(logged_dataset[name], name) for name in NEEDED[:2])
    size = shape[0] * shape[1]
    fields: dict[str, Any] = {
        name: _entry(logged_dataset, name, size) for name in ("action", "reward")
    }
    state = _entry(logged_dataset, "state", size)
    fields["state" if state.ndim == 1 else "observation"] = state
    if logged_dataset.get("pscore") is not None:
        fields["behavior_prob"] = _entry(logged_dataset, "pscore", size)
    else:
        say("pscore: missing; fit_behavior fits the behaviour policy")
    if input_dict is not None:
        target = _target(input_dict, policy, say)
        fields["target_probs"] = _entry(target, "evaluation_policy_action_dist", size)
    lengths = _lengths(logged_dataset, shape, say)
    actions = logged_dataset.get("n_actions")
    try:
        return from_arrays(
            **{name: column.reshape(*shape, *column.shape[1:]) for name, column in fields.items()},
            lengths=lengths,
            num_actions=None if actions is None else _count(actions, "n_actions"),
            dtype=dtype,
        )
    except ValueError as error:
        field, colon, problem = str(error).partition(":")
        raise ValueError(f"{THEIR_NAMES.get(field, field)}{colon}{problem}") from None


def _check_log(log: Any) -> None:
    if not isinstance(log, Mapping):
        raise ValueError(
            f"logged_dataset: expected a dictionary, got a {type(log).__name__}; "
            "from a MultipleLoggedDataset take one by get(...)"
        )
    for name in NEEDED:
        if log.get(name) is None:
            raise ValueError(f"{name}: missing in logged_dataset; there are {', '.join(log)}")
    if log["action_type"] != "discrete":
        raise ValueError(
            f"action_type: only discrete actions are handled, got {log['action_type']}"
        )


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}")
    return int(value)


def _entry(entries: Mapping[str, Any], name: str, size: int) -> np.ndarray:
    if entries.get(name) is None:
        raise ValueError(f"{name}: missing; there are {', '.join(entries)}")
    array = np.asarray(entries[name])
    if array.ndim == 0 or len(array) != size:
        raise ValueError(
            f"{name}: shape {array.shape}, where n_trajectories times step_per_trajectory is {size}"
        )
    return array


def _target(input_dict: Any, policy: str | None, say: Say) -> Mapping[str, Any]:
    if not isinstance(input_dict, Mapping) or not input_dict:
        raise ValueError(
            f"input_dict: expected a dictionary by policy, got a {type(input_dict).__name__}"
        )
    if policy is None and len(input_dict) == 1:
        policy = next(iter(input_dict))
    if policy not in input_dict:
        raise ValueError(f"policy: {policy!r} is not one of {', '.join(map(str, input_dict))}")
    entries = input_dict[policy]
    if not isinstance(entries, Mapping):
        raise ValueError(f"input_dict: {policy} holds a {type(entries).__name__}, no dictionary")
    gamma = entries.get("gamma")
    if gamma is not None and gamma != 1:
        say(f"gamma: {gamma:g} there; give discount={gamma:g} to the estimators")
    return entries


def _lengths(log: Mapping[str, Any], shape: tuple[int, ...], say: Say) -> np.ndarray:
    if log.get("done") is None:
        return np.full(shape[0], shape[1])
    done = _entry(log, "done", shape[0] * shape[1]).astype(bool).reshape(shape)
    lengths = np.where(done.any(1), done.argmax(1) + 1, shape[1])
    cut = int((lengths < shape[1]).sum())
    if cut:
        say(
            f"done: {cut} of {shape[0]} trajectories end before step {shape[1]}; "
            f"the {int((shape[1] - lengths).sum())} steps logged after it are left out"
        )
    return lengths
