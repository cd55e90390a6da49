"""Worlds made from any gymnax environment with a finite set of actions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, random

from osiris_jax.data.functions import check_policy, portable
from osiris_jax.worlds.rollout import FollowPolicy
from osiris_jax.worlds.world import World, identity_of

LANES = 8192


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class GymnaxDynamics:
    """A gymnax environment without its time limit and without resets; states by a discretiser."""

    params: Any
    env: Any = dataclasses.field(metadata={"static": True})
    bins: Any = dataclasses.field(metadata={"static": True})
    num_states: int = dataclasses.field(metadata={"static": True})
    num_actions: int = dataclasses.field(metadata={"static": True})

    def reset(self, key: Array) -> tuple[Array, Any]:
        observation, inner = self.env.reset_env(key, self.params)
        return observation, jax.tree.map(jnp.asarray, inner)

    def observe(self, inner: tuple[Array, Any]) -> Array:
        return inner[0]

    def state_of(self, observation: Array) -> Array | None:
        return None if self.bins is None else self.bins(observation)

    def step(self, key: Array, inner: tuple[Array, Any], action: Array):
        observation, after, reward, done, _ = self.env.step_env(key, inner[1], action, self.params)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, inner[1])
        reward = jnp.asarray(reward, jnp.zeros(()).dtype)
        return (observation.astype(inner[0].dtype), after), reward, done


class GymnaxWorld(World):
    """A gymnax environment with a behaviour and a target policy over its observations.

    Args:
      env: the environment; give the same object again, or everything compiles again.
      behavior: policy that makes the data, see `osiris_jax.data.policies`; or a plain function from
        an observation [dim] to the probabilities [action], written with jax.numpy.
      target: policy to evaluate, likewise.
      horizon: the largest number of steps of a trajectory.
      bins: from observations to state ids, such as `LinearBins`; None for a world without states.
      params: of the environment; its defaults otherwise. Its own time limit is not used.
      size: the usual number of trajectories in a data set.
    """

    has_observations = True

    def __init__(
        self,
        env: Any,
        behavior: Any,
        target: Any,
        horizon: int,
        *,
        bins: Any = None,
        params: Any = None,
        name: str | None = None,
        size: int = 50,
    ):
        self.dynamics = GymnaxDynamics(
            params=env.default_params if params is None else params,
            env=env,
            bins=bins,
            num_states=0 if bins is None else bins.num_cells,
            num_actions=env.num_actions,
        )
        self.behavior, self.target = behavior, target
        super().__init__(name or env.name, horizon, size)
        for role, policy in (("behavior", behavior), ("target", target)):
            check_policy(role, policy, self._observation, self.num_actions)

    def decider(self, policy: Any) -> FollowPolicy:
        like = self._observation
        target = portable(self.target, like)
        if not isinstance(policy, str):
            check_policy("policy", policy, like, self.num_actions)
            return FollowPolicy(portable(policy, like), target)
        self.check_policy(policy)
        if policy == "target":
            return FollowPolicy(target, None)
        return FollowPolicy(portable(self.behavior, like), target)

    @property
    def _observation(self) -> jax.ShapeDtypeStruct:
        """What a policy is called with, in the float type in force."""
        return jax.eval_shape(lambda: self.dynamics.observe(self.dynamics.reset(random.key(0))))

    def identity(self) -> str:
        # by what acts and not by the policies, for a plain function is told by what it computes
        deciders = self.decider("behavior"), self.decider("target")
        dynamics = self.dynamics
        return identity_of(
            self.horizon, policies=deciders, dynamics=dynamics, bins=dynamics.bins, env=dynamics.env
        )

    def lanes(self, count: int, most: int = 2048) -> int:
        """Of a device always the same, for then a trajectory is rounded alike beside any others."""
        return min(most // 2, LANES)

    @property
    def environment(self) -> Any:
        """The gymnax environment, which resets itself."""
        return self.dynamics.env
