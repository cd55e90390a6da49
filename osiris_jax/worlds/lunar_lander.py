"""Lunar Lander (Gymnasium's Box2D environment) with epsilon-greedy policies of one network.

The physics is not JAX: plain loops play the episodes, one process for each core, and a cache keeps
them; the batch that comes out is like any other.
"""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch, bucket_length
from osiris_jax.core.files import cache_folder
from osiris_jax.data.annotate import LinearBins
from osiris_jax.data.policies import EpsilonGreedy
from osiris_jax.models.networks import QNetwork, load_network
from osiris_jax.worlds.gymnasium_episodes import Episodes, weights_of
from osiris_jax.worlds.playing import episodes
from osiris_jax.worlds.rollout import Outcomes
from osiris_jax.worlds.world import POLICIES, identity_of

ENV_ID = "LunarLander-v3"
DIM = 8


@dataclasses.dataclass(frozen=True, eq=False)
class LunarLander:
    """A lander with four actions (no, left, main, right engine) and eight observations.

    Attributes:
      q: the network whose greedy action both policies prefer.
      behavior_epsilon: probability of a uniformly random action under the policy of the log.
      target_epsilon: the same under the policy to evaluate.
      horizon: the largest number of steps of an episode.
      name: of the world.
      cache: folder of the episodes already played; None plays them every time.
      processes: how many play at once; None is one for each core, 1 is the calling process.
      progress: whether a bar on standard error shows the episodes played.
    """

    q: QNetwork
    behavior_epsilon: float = 0.1
    target_epsilon: float = 0.05
    horizon: int = 1000
    name: str = "lunar-lander"
    cache: Path | None = dataclasses.field(default_factory=lambda: cache_folder() / "lunar-lander")
    processes: int | None = None
    progress: bool = True

    num_actions: ClassVar[int] = 4
    size: ClassVar[int] = 50
    bins: ClassVar[LinearBins] = LinearBins(((-1, 0, 1),) * 6 + ((0, 1),) * 2)

    def __post_init__(self):
        sizes = len(self.q.scale), self.q.num_actions
        if sizes != (DIM, self.num_actions):
            raise ValueError(f"q: {sizes[0]} inputs, {sizes[1]} actions; expected {DIM} and 4")
        for field in ("behavior_epsilon", "target_epsilon"):
            if not 0 <= getattr(self, field) <= 1:
                raise ValueError(f"{field}: {getattr(self, field)} is outside [0, 1]")
        for field in ("horizon", "processes"):
            if (value := getattr(self, field)) is not None and value < 1:
                raise ValueError(f"{field}: {value} is below 1")

    @property
    def behavior(self) -> EpsilonGreedy:
        """The policy of the log."""
        return EpsilonGreedy(self.q, self.behavior_epsilon)

    @property
    def target(self) -> EpsilonGreedy:
        """The policy to evaluate."""
        return EpsilonGreedy(self.q, self.target_epsilon)

    def rollout(
        self,
        key: Array,
        n: int | None = None,
        *,
        policy: str = "behavior",
        steps: int | None = None,
        observations: bool = True,
        probs: bool = False,
    ) -> TrajectoryBatch:
        """Plays `n` episodes, or reads those that were played before.

        Args:
          key, n, observations, probs: as for `World.rollout`. Trajectory i depends on the key and
            on i alone, not on `n` or on the processes.
          policy: who plays, "behavior" or "target"; all ratios of the latter are 1.
          steps: cut episodes after so many steps; None keeps all. The time axis has a bucket
            length for the longest, but no more than `steps` or the horizon.

        Returns:
          A batch whose states number the cells of `bins` visited in the trial, in rising order.

        Raises:
          ModuleNotFoundError: says which extra to install.

        Example:
          >>> batch = LunarLander(load_network("q.npz")).rollout(jax.random.key(0), 50)
        """
        if steps is not None and steps < 1:
            raise ValueError(f"steps: {steps} is below 1")
        played = self._episodes(key, n, policy)
        longest = bucket_length(int(played["lengths"].max()))
        width = min(longest, steps or self.horizon, self.horizon)
        pad = partial(_padded, lengths=played["lengths"], width=width, trials=key.shape)
        is_greedy = played["action"] == played["greedy"]
        player_log_prob = self._log_prob(is_greedy, policy)
        log_ratio = self._log_prob(is_greedy, "target") - player_log_prob
        mask, observation = pad(np.ones(len(is_greedy), bool)), pad(played["observation"])
        state, num_states = _number_visited(_cells(self.bins, observation), mask)

        def all_probs(policy: str) -> Array:
            is_greedy = np.arange(self.num_actions) == played["greedy"][:, None]
            return jnp.asarray(pad(np.exp(self._log_prob(is_greedy, policy))), float)

        return TrajectoryBatch(
            reward=jnp.asarray(pad(played["reward"]), float),
            mask=jnp.asarray(mask),
            log_ratio=jnp.asarray(pad(log_ratio), float),
            action=jnp.asarray(pad(played["action"]), jnp.int32),
            state=jnp.asarray(state),
            observation=jnp.asarray(observation, float) if observations else None,
            target_probs=all_probs("target") if probs else None,
            behavior_probs=all_probs(policy) if probs else None,
            behavior_log_prob=jnp.asarray(pad(player_log_prob), float),
            num_states=num_states,
            num_actions=self.num_actions,
        )

    def returns(
        self, key: Array, n: int | None = None, policy: str = "target", discount: float = 1.0
    ) -> Outcomes:
        """The returns, in NumPy's float64, and the lengths of what `rollout` gives."""
        played = self._episodes(key, n, policy)
        row, time = np.nonzero(np.arange(self.horizon) < played["lengths"][:, None])
        returns = np.bincount(row, played["reward"] * discount**time)
        shape = (*key.shape, -1)
        return Outcomes(returns.reshape(shape), played["lengths"].reshape(shape))  # pyright: ignore

    def identity(self) -> str:
        """A digest of the world's own arrays, so that two worlds of one name are told apart."""
        of_networks = (None, None, self.behavior, self.target, self.q, None)
        return identity_of(self.horizon, policies=of_networks, bins=self.bins)

    def exact(self, discount: float = 1.0) -> Any:
        raise ValueError(f"{self.name}: exact answers are for tabular worlds only")

    def _epsilon(self, policy: str) -> float:
        if policy not in POLICIES:
            raise ValueError(f'policy: expected "behavior" or "target", got {policy!r}')
        return self.behavior_epsilon if policy == "behavior" else self.target_epsilon

    def _log_prob(self, is_greedy: np.ndarray, policy: str) -> np.ndarray:
        """Of the logged actions, in float64: from epsilon, since who played knew what is greedy."""
        share = self._epsilon(policy) / self.num_actions
        with np.errstate(divide="ignore"):
            other, greedy = np.log([share, 1 - (self.num_actions - 1) * share])
        return np.where(is_greedy, greedy, other)

    def _episodes(self, key: Array, n: int | None, policy: str) -> Episodes:
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.ndim > 1 or not key.size:
            raise ValueError("key: expected a jax.random.key or an array [trial] of them")
        if n is not None and n < 1:
            raise ValueError(f"n: {n} is below 1")
        rules = ENV_ID, weights_of(self.q), float(self._epsilon(policy)), int(self.horizon)
        require_extra()
        return episodes(
            key.reshape(-1),
            self.size if n is None else n,
            rules,
            cache=self.cache,
            processes=self.processes,
            progress=self.progress,
        )


def lunar_lander() -> LunarLander:
    """The lander with the network that is shipped; V(pi_e) is about 254 and V(pi_b) 237."""
    return LunarLander(load_network(Path(__file__).parent / "assets" / "lunar-lander.npz"))


def make_environment() -> Any:
    """Gymnasium's environment, with its time limit."""
    require_extra()
    import gymnasium

    return gymnasium.make(ENV_ID)


def require_extra() -> None:
    """Checks that Gymnasium and Box2D are installed.

    Raises:
      ModuleNotFoundError: says which extra to install.
    """
    try:
        with warnings.catch_warnings():
            # Where warnings are errors, the deprecations in Box2D's import crash the interpreter.
            warnings.simplefilter("ignore")
            import Box2D  # noqa: F401  # pyright: ignore
            import gymnasium  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'Lunar Lander needs Gymnasium with Box2D: pip install "osiris-jax[lunar]" ({error})',
            name=error.name,
        ) from error


def _padded(
    flat: np.ndarray, *, lengths: np.ndarray, width: int, trials: tuple[int, ...]
) -> np.ndarray:
    """[*trials, traj, time, ...] of flat [step, ...], cut to the width or filled with zeros."""
    row, time = np.nonzero(np.arange(lengths.max()) < lengths[:, None])
    kept = time < width
    padded = np.zeros((len(lengths), width, *flat.shape[1:]), flat.dtype)
    padded[row[kept], time[kept]] = flat[kept]
    return padded.reshape(*trials, -1, *padded.shape[1:])


def _cells(bins: LinearBins, observation: np.ndarray) -> np.ndarray:
    """What `bins` gives, in NumPy, which compiles nothing for every new shape."""
    columns = zip(np.moveaxis(observation, -1, 0), bins.edges, strict=True)
    bin_ids = tuple(np.digitize(column, edges) for column, edges in columns)
    return np.asarray(np.ravel_multi_index(bin_ids, bins.shape))


def _number_visited(cell: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, int]:
    """States that number the visited cells of each trial, and the largest number of them."""
    state, num_states = np.zeros(cell.shape, np.int32), 0
    for trial in np.ndindex(cell.shape[:-2]):
        visited, label = np.unique(cell[trial][mask[trial]], return_inverse=True)
        state[trial][mask[trial]] = label
        num_states = max(num_states, len(visited))
    return state, num_states
