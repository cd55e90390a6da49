"""Minari data sets to a TrajectoryBatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.data.episodes import from_episodes
from osiris_jax.data.guess import Say
from osiris_jax.data.policy_files import with_given_policies


def from_minari(
    dataset: Any,
    *,
    target: Any = None,
    behavior: Any = None,
    epsilon: float = 0.0,
    behavior_epsilon: float = 0.0,
    observe: Callable[[Any], Any] | None = None,
    dtype: Any = None,
    bucket: bool = False,
    say: Say | None = None,
) -> TrajectoryBatch:
    """A batch from a Minari data set (Younis et al. 2024) with discrete actions.

    Minari keeps no propensities: give the behaviour policy, or fit it by `fit_behavior`. The
    observation after the last step is left out. Ids of discrete spaces count from 0, wherever
    these start. An episode whose last step is a truncation is marked in `batch.truncated`.

    Args:
      dataset: a `MinariDataset`, or the id of one on this machine; nothing is downloaded.
      target: the policy to evaluate: as in `with_policies`, or a file for `load_policy`.
      behavior: the policy that made the data, likewise.
      epsilon: of a target read from a Q-network.
      behavior_epsilon: of a behaviour policy read from one.
      observe: from an episode's observations, as Minari gives them, to state ids [step + 1] or
        vectors [step + 1, dim]; by default discrete ones are states, and boxes are vectors.
      dtype: float32 or float64; by default JAX's.
      bucket: pad to a bucket length, so that data sets of nearby lengths share a compilation.
      say: called with a line of text for what is unknown or left out.

    Raises:
      OSError: there is no data set of this id on this machine.
      ValueError: names the space, the field, the trajectory and the step.

    Example:
      >>> oj.from_minari("cartpole/random-v0", target="policy.npz", epsilon=0.05)
    """
    try:
        import minari
        from gymnasium.spaces import Discrete
    except ImportError as error:
        needed = 'from_minari needs Minari: pip install "osiris-jax[minari]"'
        raise ValueError(f"{needed} ({error})") from None
    if isinstance(dataset, str):
        dataset = minari.load_dataset(dataset)
    if not isinstance(dataset, minari.MinariDataset):
        raise ValueError(f"dataset: expected a MinariDataset or its id, got {dataset!r}")
    actions, seen = dataset.action_space, dataset.observation_space
    if not isinstance(actions, Discrete):
        raise ValueError(f"action_space: only Discrete actions are handled, got {actions}")
    num_states = int(seen.n) if isinstance(seen, Discrete) and observe is None else None
    observe, first = observe or _usual_view(seen), int(actions.start)
    episodes = [_episode(episode, observe, first) for episode in dataset.iterate_episodes()]
    sizes = {"num_states": num_states, "num_actions": int(actions.n)}
    batch = from_episodes(episodes, **sizes, dtype=dtype, bucket=bucket)
    epsilons = (epsilon, behavior_epsilon)
    return with_given_policies(batch, target, behavior, epsilons, say or (lambda line: None))


def _usual_view(space: Any) -> Callable[[Any], Any]:
    """What is observed where the user says nothing: ids from 0, or vectors."""
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

    if isinstance(space, Discrete):
        return lambda values: np.asarray(values) - int(space.start)
    if isinstance(space, Box | MultiDiscrete | MultiBinary):
        return lambda values: np.reshape(values, (len(values), -1))
    raise ValueError(f"observation_space: {type(space).__name__} needs observe, a function")


def _episode(episode: Any, observe: Callable[[Any], Any], first_action: int) -> dict[str, Any]:
    observed = np.asarray(observe(episode.observations))[: len(episode.rewards)]
    return {
        "states" if observed.ndim == 1 else "observations": observed,
        "actions": np.asarray(episode.actions).reshape(-1) - first_action,
        "rewards": np.asarray(episode.rewards),
        "truncated": bool(np.asarray(episode.truncations)[-1]),
    }
