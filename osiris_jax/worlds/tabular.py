"""Tabular worlds: any finite MDP gets rollouts and exact answers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from osiris_jax.worlds.mdp import build_dynamics, policy_table
from osiris_jax.worlds.world import World, identity_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FollowTable:
    """Draws from a table of probabilities; ratios come from a table too, computed in float64.

    Attributes:
      passed: [state, action] uniforms from which on an action is passed over, if prepared.
    """

    sampler: np.ndarray
    target: np.ndarray
    log_ratio: np.ndarray
    passed: Array | None = None

    def prepared(self) -> FollowTable:
        return dataclasses.replace(self, passed=passed_from(jnp.asarray(self.sampler)))

    def __call__(self, state: Array, uniform: Array) -> tuple[Array, Array]:
        assert self.passed is not None, "prepared() comes first"
        action = jnp.sum(self.passed[state] <= uniform, -1, dtype=jnp.int32)
        place = state * self.sampler.shape[1] + action
        return action, jnp.ravel(self.log_ratio)[place]

    def probs(self, state: Array) -> tuple[Array, Array]:
        return jnp.asarray(self.sampler)[state], jnp.asarray(self.target)[state]


class TabularWorld(World):
    """A finite MDP with a behaviour and a target policy.

    Args:
      transition: [state, action, state] probabilities, or [state, action] ids of the successors.
      reward: [state, action], or [state, action, state] where it depends on the successor too.
      start: [state] probabilities, or the id of the one state in which trajectories begin.
      behavior: [state, action] probabilities of the policy that makes the data.
      target: [state, action] probabilities of the policy to evaluate.
      horizon: the largest number of steps of a trajectory.
      terminal: [state] true for the states that end a trajectory on entering. By default those
        that every action keeps for ever without reward.
      oracle: [state] a map of relevance known from elsewhere, or None.
      observe: [state] the id that is shown of each state, where several look alike: estimators see
        ids, `num_states` of them, and may take them for the states, while all exact answers are
        those of the full MDP. Maps, such as `oracle`, are by id.
      size: the usual number of trajectories in a data set.

    Raises:
      ValueError: names the argument, the state and the action.

    Example:
      >>> world = oj.TabularWorld(transition, reward, 0, behavior, target, horizon=50)
      >>> world.exact().moments("is", n=25)
    """

    def __init__(
        self,
        transition: Any,
        reward: Any,
        start: Any,
        behavior: Any,
        target: Any,
        horizon: int,
        *,
        terminal: Any = None,
        oracle: Any = None,
        observe: Any = None,
        name: str = "tabular",
        size: int = 25,
    ):
        self.dynamics = build_dynamics(transition, reward, start, terminal, observe)
        by_state = self.dynamics.successor.shape[:2]
        self.behavior_probs = policy_table("behavior", behavior, by_state)
        self.target_probs = policy_table("target", target, by_state)
        self.oracle = None if oracle is None else np.asarray(oracle, bool)
        if self.oracle is not None and self.oracle.shape != (self.num_states,):
            raise ValueError(f"oracle: expected {self.num_states} states, got {self.oracle.shape}")
        super().__init__(name, horizon, size)

    @property
    def shown(self) -> np.ndarray:
        """[state] the id that is shown of each."""
        own = np.arange(len(self.dynamics.terminal), dtype=np.int32)
        return own if self.dynamics.shown is None else self.dynamics.shown

    @property
    def is_markov(self) -> bool:
        """Whether no two states in which a trajectory can be are shown alike."""
        ids = self.shown[self.exact().reached]
        return len(np.unique(ids)) == len(ids)

    def decider(self, policy: Any) -> FollowTable:
        probs = self.policy_table(policy)
        target = probs if isinstance(policy, str) and policy == "target" else self.target_probs
        return FollowTable(probs, target, log_ratio_table(target, probs))

    def policy_table(self, policy: Any) -> np.ndarray:
        """[state, action] of "behavior", "target", a table, or a policy that reads states."""
        if isinstance(policy, str):
            self.check_policy(policy)
            return self.target_probs if policy == "target" else self.behavior_probs
        table = policy(self.shown) if callable(policy) else policy
        return policy_table("policy", table, self.behavior_probs.shape)

    def identity(self) -> str:
        of_tables = (self.behavior_probs, self.target_probs, None, None, None, self.oracle)
        return identity_of(self.horizon, dynamics=self.dynamics, policies=of_tables)

    def lanes(self, count: int, most: int = 2048) -> int:
        return min(count, most)

    def exact(self, discount: float = 1.0):
        """Exact answers by dynamic programming, see `osiris_jax.worlds.exact.Exact`."""
        from osiris_jax.worlds.exact import Exact

        return Exact(self, discount)

    @property
    def environment(self):
        """The same MDP as a gymnax environment, which resets itself."""
        from osiris_jax.worlds.environments import TabularEnvironment

        return TabularEnvironment(self.dynamics, self.horizon, self.name)


def passed_from(probs: Array) -> Array:
    """[state, action] from which uniform on `policies.choose` passes over each action.

    The cumulative probability, but of the last action that can happen infinite, and of one that
    cannot happen that of the action before it.
    """
    possible = probs > 0
    later = jnp.flip(jnp.cumsum(jnp.flip(possible, -1), -1), -1) > possible
    own = jnp.where(possible, jnp.cumsum(probs, -1), -jnp.inf)
    return jnp.where(later, lax.cummax(own, axis=1), jnp.inf)


def log_ratio_table(target: np.ndarray, behavior: np.ndarray) -> np.ndarray:
    """[state, action] log pi_e - log pi_b; -inf where the target forbids, 0 where behaviour does.

    What the behaviour forbids is never logged, so that entry is never used.
    """
    with np.errstate(divide="ignore"):
        ratio = np.log(target) - np.log(np.where(behavior > 0, behavior, 1))
    return np.where(behavior > 0, ratio, 0)
