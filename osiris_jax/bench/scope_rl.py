"""SCOPE-RL (Kiyohara et al. 2023, version 0.2) on the same log, where it is installed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from osiris_jax.bench.data import columns

THEIRS = {
    "is": "TrajectoryWiseImportanceSampling",
    "wis": "SelfNormalizedTIS",
    "pdis": "PerDecisionImportanceSampling",
    "cwpdis": "SelfNormalizedPDIS",
}
INSTALL = "pip install scope-rl==0.2.1"
POLICY = "target"


def installed() -> bool:
    return importlib.util.find_spec("scope_rl") is not None


def dictionaries(
    trajectories: int, steps: int, states: int
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """`logged_dataset` and `input_dict` of the log that `data.log` makes."""
    flat = {
        name: x.reshape(-1, *x.shape[2:])
        for name, x in columns(trajectories, steps, states).items()
    }
    behavior, target = flat.pop("behavior_probs"), flat.pop("target_probs")
    log = flat | {
        "n_trajectories": trajectories,
        "step_per_trajectory": steps,
        "action_type": "discrete",
        "n_actions": behavior.shape[1],
        "done": np.tile(np.arange(steps) == steps - 1, trajectories),
        "pscore": np.take_along_axis(behavior, flat["action"][:, None], 1)[:, 0],
    }
    return log, {POLICY: {"evaluation_policy_action_dist": target}}


def estimator(name: str) -> Any:
    """Their object for our name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that it imports
        from scope_rl.ope import discrete  # pyright: ignore[reportMissingImports]
    return getattr(discrete, THEIRS[name])()


def arguments(log: dict[str, Any], inputs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What their estimators take."""
    needed = ("step_per_trajectory", "action", "reward", "pscore")
    return {name: log[name] for name in needed} | inputs[POLICY]


def rivals(trajectories: int, steps: int, states: int) -> dict[str, Callable[[Any], float]]:
    """Our name -> their estimate; they read dictionaries of their own, not the log given."""
    given = arguments(*dictionaries(trajectories, steps, states))
    objects = {name: estimator(name) for name in THEIRS}
    return {
        name: lambda _, theirs=theirs: theirs.estimate_policy_value(**given)
        for name, theirs in objects.items()
    }
