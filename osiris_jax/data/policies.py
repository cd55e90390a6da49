"""Policies: from what is seen to the probability of every action.

A policy is called with inputs [...] (states) or [..., dim] (observations) and gives probabilities
[..., action]; `log_probs` gives their logs, which do not underflow. Each is a pytree, so epsilon,
temperatures and networks are traced; each can be given to `with_policies` and to worlds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.labels import Labels

QFunction = Callable[[Array], Array]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("table",),
    meta_fields=(),
    drop_fields=("states", "actions"),
)
@dataclasses.dataclass(frozen=True, eq=False)
class Tabular:
    """A table of probabilities.

    Attributes:
      table: [state, action].
      states: what the rows are called, for a log that calls its states by these names or
        integers; None where rows are numbered as the log's states are. Outside jit only.
      actions: likewise the columns.
    """

    table: Array | np.ndarray
    states: Labels | None = None
    actions: Labels | None = None
    reads: ClassVar[str] = "state"

    def __call__(self, state: Array) -> Array:
        return jnp.asarray(self.table)[state]

    def log_probs(self, state: Array) -> Array:
        return jnp.log(self(state))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class EpsilonGreedy:
    """The action of largest Q (the first, if several), and with probability epsilon any action.

    Attributes:
      q: function from observations [..., dim] to values [..., action], plain or a pytree.
      epsilon: probability of a uniformly random action, in [0, 1].
    """

    q: QFunction
    epsilon: Any
    reads: ClassVar[str] = "observation"

    def __call__(self, observation: Array) -> Array:
        value = self.q(observation)
        greedy, number = jnp.argmax(value, -1), value.shape[-1]
        epsilon = jnp.asarray(self.epsilon, value.dtype)
        is_greedy = greedy[..., None] == jnp.arange(number).reshape((1,) * greedy.ndim + (-1,))
        return jnp.where(is_greedy, 1 - epsilon + epsilon / number, epsilon / number)

    def log_probs(self, observation: Array) -> Array:
        return jnp.log(self(observation))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Softmax:
    """Probabilities proportional to exp(Q / temperature).

    Attributes:
      q: function from observations [..., dim] to values [..., action], plain or a pytree.
      temperature: above 0; the smaller, the greedier.
    """

    q: QFunction
    temperature: Any = 1.0
    reads: ClassVar[str] = "observation"

    def __call__(self, observation: Array) -> Array:
        return jnp.exp(self.log_probs(observation))

    def log_probs(self, observation: Array) -> Array:
        return jax.nn.log_softmax(self.q(observation) / self.temperature)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Mixture:
    """At every step one of several policies, drawn anew with fixed weights.

    Attributes:
      policies: tuple of policies that read the same inputs.
      weights: their probabilities, which sum to 1.
    """

    policies: tuple
    weights: Any

    def __post_init__(self):
        inputs = {getattr(policy, "reads", "observation") for policy in self.policies}
        if len(inputs) > 1:
            raise ValueError("policies: some read states and some observations")
        if not self.policies:
            raise ValueError("policies: a mixture of none")
        if isinstance(self.weights, tuple | list | np.ndarray):
            weights = np.asarray(self.weights)
            if weights.shape != (len(self.policies),):
                raise ValueError(
                    f"weights: {len(self.policies)} policies, weights of shape {weights.shape}"
                )
            if not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
                raise ValueError(f"weights: expected probabilities that sum to 1, got {weights}")
            object.__setattr__(self, "weights", weights)  # one leaf, which may be traced

    @property
    def reads(self) -> str:
        return getattr(self.policies[0], "reads", "observation")

    def __call__(self, inputs: Array) -> Array:
        parts = [w * policy(inputs) for w, policy in self._weighted()]
        return jnp.sum(jnp.stack(parts), 0)

    def log_probs(self, inputs: Array) -> Array:
        parts = [jnp.log(w) + log_probs_of(policy, inputs) for w, policy in self._weighted()]
        return jax.nn.logsumexp(jnp.stack(parts), axis=0)

    def _weighted(self):
        weights = jnp.asarray(self.weights)
        return [(weights[i], policy) for i, policy in enumerate(self.policies)]


def log_probs_of(policy: Any, inputs: Array) -> Array:
    """[..., action] of a policy, or of a plain function that gives probabilities."""
    if hasattr(policy, "log_probs"):
        return policy.log_probs(inputs)
    return jnp.log(jnp.asarray(policy(inputs)))


def epsilon_greedy_table(greedy: np.ndarray, epsilon, num_actions: int) -> np.ndarray:
    """[state, action] in float64, epsilon being a number or one for each state."""
    rate = np.broadcast_to(np.asarray(epsilon, np.float64), np.shape(greedy))
    if not ((rate >= 0) & (rate <= 1)).all():
        raise ValueError(f"epsilon: must be in [0, 1], got {epsilon}")
    table = np.repeat((rate / num_actions)[:, None], num_actions, axis=1)
    table[np.arange(len(table)), greedy] += 1 - rate
    return table


def mixture_table(tables: list[np.ndarray], weights: Any) -> np.ndarray:
    """[state, action], the weighted mean of tables."""
    return np.tensordot(np.asarray(weights, np.float64), np.stack(tables), axes=1)


def log_prob(policy: Any, batch: TrajectoryBatch) -> Array:
    """[traj, time] log pi(a|s) of the logged actions; -inf where forbidden, 0 in the padding."""
    reads = getattr(policy, "reads", "observation")
    inputs = batch.require(reads, "log_prob")
    step_mask = batch.mask.reshape(batch.mask.shape + (1,) * (inputs.ndim - batch.mask.ndim))
    inputs = jnp.where(step_mask, inputs, jnp.zeros((), inputs.dtype))
    action = masked.fill(batch.mask, batch.require("action", "log_prob"))
    of_all = log_probs_of(policy, inputs)
    return masked.fill(batch.mask, jnp.take_along_axis(of_all, action[..., None], -1)[..., 0])


def choose(probs: Array, uniform: Array) -> Array:
    """The action [...] at which the cumulative probabilities [..., action] pass `uniform` [...].

    Never one of probability 0, not even where rounding leaves the sum below 1.
    """
    cumulative = jnp.cumsum(probs, -1)
    ahead = (cumulative > uniform[..., None]) | (cumulative >= cumulative[..., -1:])
    return jnp.argmax(ahead & (probs > 0), -1).astype(jnp.int32)
