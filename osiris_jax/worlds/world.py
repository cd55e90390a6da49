"""What every world is: dynamics, a behaviour and a target policy, and how data is drawn."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import PyTree

from osiris_jax.batch import TrajectoryBatch, bucket_length, trim
from osiris_jax.worlds.cards import Card, card_of
from osiris_jax.worlds.rollout import Keys, Outcomes, outcomes, record

POLICIES = ("behavior", "target")
SHORT = 256


class World(ABC):
    """Base of the worlds that run in JAX.

    A world has `dynamics` (see `worlds.rollout`), a `decider(policy)`, an `identity()`, a
    `horizon`, a `name` and the usual `size` of a data set. Everything else follows.
    """

    dynamics: Any
    has_observations: ClassVar[bool] = False  # besides the state itself

    def __init__(self, name: str, horizon: int, size: int):
        self.name, self.size = name, _positive("size", size)
        self.horizon = min(_positive("horizon", horizon), 2**31 - 1)

    @property
    def num_states(self) -> int:
        return self.dynamics.num_states

    @property
    def num_actions(self) -> int:
        return self.dynamics.num_actions

    @property
    def card(self) -> Card:
        """Its half in comparisons, whether states are Markov and weights heavy, its source."""
        return card_of(self)

    @abstractmethod
    def decider(self, policy: Any) -> Any:
        """What acts for "behavior", "target" or a policy, see `osiris_jax.worlds.rollout`."""

    @abstractmethod
    def identity(self) -> str:
        """A digest of the world's own arrays, so that two worlds of one name are told apart."""

    @abstractmethod
    def lanes(self, count: int, most: int = 2048) -> int:
        """How many of `count` trajectories to simulate side by side, on a device for so many."""

    def rollout(
        self,
        key: Array,
        n: int | None = None,
        *,
        policy: Any = "behavior",
        steps: int | None = None,
        observations: bool = True,
        probs: bool = False,
    ) -> TrajectoryBatch:
        """Simulated trajectories; those of a key do not depend on what else is asked for.

        Args:
          key: a `jax.random.key`, consumed; an array of keys [trial] gives as many data sets, with
            a leading axis [trial]. Prefer it to `vmap`.
          n: trajectories in a data set. A smaller data set is the beginning of a larger one.
          policy: "behavior", "target" (then all ratios are 1), or a policy.
          steps: cut trajectories after so many steps. By default the horizon; the time axis is
            then no longer than a bucket length for the longest. Under `jit` it has `steps`, or
            the horizon.
          observations: record observations, where they are not the state itself.
          probs: record the probabilities of all actions under both policies too, which doubly
            robust estimators need.

        Example:
          >>> batch = oj.make("dilly-dallying").rollout(jax.random.key(0), 25)
        """
        keys, n = self._check(key, n)
        cap = self.horizon if steps is None else min(_positive("steps", steps), self.horizon)
        traced = isinstance(key, Tracer)
        batch = record(
            self.dynamics,
            self.decider(policy),
            keys,
            n,
            steps=cap if traced else self.steps_needed(keys, n, policy=policy, cap=cap),
            lanes=self.lanes(len(keys) * n),
            observations=observations and self.has_observations,
            probs=probs,
        )
        if not traced:
            batch = trim(batch, bucket_length)
        return batch if key.ndim else jax.tree.map(lambda field: field[0], batch)

    def steps_needed(
        self, keys: Keys, n: int, *, policy: Any = "behavior", cap: int | None = None
    ) -> int:
        """A length of the time axis that cuts no trajectory: a short horizon, or as simulated."""
        cap = self.horizon if cap is None else cap
        if cap <= SHORT:
            return cap
        lengths = self._outcomes(keys, n, policy, steps=cap).lengths
        return min(bucket_length(int(lengths.max())), cap)

    def returns(
        self, key: Array, n: int, *, policy: Any = "target", discount: float = 1.0
    ) -> Outcomes:
        """Returns and lengths of simulated trajectories, none of which is stored.

        Args:
          key, n, policy: as for `rollout`, and the same trajectories.
          discount: gamma in [0, 1].

        Example:
          >>> world.returns(jax.random.key(0), 10_000).returns.mean()
        """
        keys, n = self._check(key, n)
        of_trials = self._outcomes(keys, n, policy, steps=self.horizon, discount=discount)
        return of_trials if key.ndim else Outcomes(*(x[0] for x in of_trials))

    def _outcomes(
        self, keys: Keys, n: int, policy: Any, *, steps: int, discount: float = 1.0
    ) -> Outcomes:
        decider, room = self.decider(policy), {"steps": steps, "lanes": self.lanes(len(keys) * n)}
        return outcomes(self.dynamics, decider, keys, n, discount=discount, **room)

    def exact(self, discount: float = 1.0) -> Any:
        raise ValueError(f"{self.name}: exact answers are for tabular worlds only")

    def check_policy(self, policy: str) -> None:
        if policy not in POLICIES:
            raise ValueError(
                f"policy: {policy!r} is unknown; there are {', '.join(POLICIES)}, or give a policy"
            )

    def _check(self, key: Array, n: int | None) -> tuple[Keys, int]:
        if not (isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
            raise ValueError("key: expected jax.random.key(seed), or an array of such keys")
        if key.ndim > 1 or key.size == 0:
            raise ValueError(f"key: expected one key or [trial] keys, got shape {key.shape}")
        keys = key if key.ndim else key[None]
        return keys, self.size if n is None else _positive("n", n)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, num_states={self.num_states}, "
            f"num_actions={self.num_actions}, horizon={self.horizon})"
        )


def identity_of(
    horizon: int, *, policies: PyTree, dynamics: Any = None, bins: Any = None, env: Any = None
) -> str:
    """A digest of all that a world's data depend on; the same as in folders written before."""
    leaves, structure = jax.tree.flatten(policies)
    facts = (horizon, bins, type(env).__name__, str(structure))
    digest = hashlib.sha256(repr(facts).encode())
    for leaf in (*jax.tree.leaves(dynamics), *leaves):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}")
    return int(value)
