"""A finite MDP as arrays: how it is checked, built and stepped."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.data.policies import choose

SLACK = 1e-6


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class TabularDynamics:
    """A finite MDP by its possible successors; state, observation and state id are one.

    Unless states are aliased: then several have one id, and only that is shown.

    Attributes:
      successor: [state, action, slot] where a step may lead.
      probability: [state, action, slot] how likely; unused slots have 0.
      passed: [state, action, slot] cumulative probability, infinite from the last used slot on.
      reward: [state, action, slot] what the step then pays.
      start: [start] states in which trajectories begin.
      start_probability: [start] how likely.
      terminal: [state] states that end a trajectory on entering.
      num_states: number of ids that are shown (static).
      num_actions: number of actions (static).
      shown: [state] the id of each; None where it is its own.
    """

    successor: np.ndarray
    probability: np.ndarray
    passed: np.ndarray
    reward: np.ndarray
    start: np.ndarray
    start_probability: np.ndarray
    terminal: np.ndarray
    num_states: int = dataclasses.field(metadata={"static": True})
    num_actions: int = dataclasses.field(metadata={"static": True})
    shown: np.ndarray | None = None

    @property
    def num_visits(self) -> int:
        return self.successor.size

    def reset(self, key: Array) -> Array:
        if len(self.start) == 1:
            return jnp.asarray(self.start)[0]
        slot = choose(jnp.asarray(self.start_probability), random.uniform(key, (), jnp.float32))
        return jnp.asarray(self.start)[slot]

    def observe(self, state: Array) -> Array:
        return state

    def state_of(self, observation: Array) -> Array:
        return observation if self.shown is None else jnp.asarray(self.shown)[observation]

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Array, Array]:
        visit = self.visit(key, state, action)
        following = jnp.ravel(self.successor)[visit]
        return following, jnp.ravel(self.reward)[visit], jnp.asarray(self.terminal)[following]

    def visit(self, key: Array, state: Array, action: Array) -> Array:
        """Which of all [state, action, slot] a step is."""
        slots = self.successor.shape[-1]
        first = (state * self.num_actions + action) * slots
        if slots == 1:
            return first
        return first + self._slot(first, random.uniform(key, (), jnp.float32))

    def fields_of(self, decider: Any, visit: Array) -> dict[str, Array]:
        """What such steps show."""
        visit = visit.astype(jnp.int32)
        pair = visit // self.successor.shape[-1]
        return {
            "reward": jnp.ravel(self.reward)[visit],
            "log_ratio": jnp.ravel(decider.log_ratio)[pair],
            "action": pair % self.num_actions,
            "state": self.state_of(pair // self.num_actions),
        }

    def observation_of(self, visit: Array) -> Array:
        """The state, which policies read, of such steps."""
        return visit.astype(jnp.int32) // (self.successor.shape[-1] * self.num_actions)

    def _slot(self, first: Array, uniform: Array) -> Array:
        """How many slots from `first` on are passed by `uniform`, by bisection."""
        passed = jnp.ravel(self.passed)
        low, high = jnp.zeros_like(first), jnp.full_like(first, self.successor.shape[-1] - 1)
        for _ in range((self.successor.shape[-1] - 1).bit_length()):
            middle = (low + high) // 2
            beyond = passed[first + middle] <= uniform
            low, high = jnp.where(beyond, middle + 1, low), jnp.where(beyond, high, middle)
        return low


def build_dynamics(
    transition: Any, reward: Any, start: Any, terminal: Any = None, observe: Any = None
) -> TabularDynamics:
    """Checks the parts of an MDP, described at `TabularWorld`, and puts them together."""
    transition = _numbers("transition", transition)
    if transition.ndim not in (2, 3) or 0 in transition.shape:
        raise ValueError(
            "transition: expected [state, action, state] probabilities or [state, action] "
            f"successors, got shape {transition.shape}"
        )
    num_states, num_actions = transition.shape[:2]
    by_state = (num_states, num_actions)
    reward = _numbers("reward", reward).astype(np.float64)
    if reward.shape not in (by_state, (*by_state, num_states)):
        raise ValueError(
            f"reward: expected {num_states} states x {num_actions} actions, or one more axis "
            f"of {num_states} successors, got shape {reward.shape}"
        )
    _fail_where("reward", ~np.isfinite(reward), lambda _: "not finite")
    successor, probability, gain = _slots(transition, reward)
    if terminal is None:
        stays = (successor == np.arange(num_states)[:, None, None]) & (gain == 0)
        surely = np.abs(np.where(stays, probability, 0).sum(-1) - 1) <= SLACK
        terminal = surely.all(1)
    terminal = np.asarray(terminal)
    if terminal.shape != (num_states,) or terminal.dtype != bool:
        raise ValueError(
            f"terminal: expected true or false for {num_states} states, "
            f"got {terminal.dtype} of shape {terminal.shape}"
        )
    total = np.where(terminal[:, None], 1, probability.sum(-1))
    _fail_unless_one("transition", total)
    starts, start_probability = _start(start, num_states, terminal)
    shown = None if observe is None else _shown(observe, num_states)
    probability = np.where(terminal[:, None, None], 0, probability / total[..., None])
    passed = np.cumsum(probability, -1)
    return TabularDynamics(
        successor=successor.astype(np.int32),
        probability=probability,
        passed=np.where(passed >= passed[..., -1:], np.inf, passed),
        reward=np.where(probability > 0, gain, 0),
        start=starts.astype(np.int32),
        start_probability=start_probability,
        terminal=terminal,
        num_states=num_states if shown is None else 1 + int(shown.max()),
        num_actions=num_actions,
        shown=shown,
    )


def policy_table(field: str, table: Any, shape: tuple[int, int]) -> np.ndarray:
    """The table in float64, every row a distribution over actions."""
    table = _numbers(field, table).astype(np.float64)
    if table.shape != shape:
        raise ValueError(
            f"{field}: expected {shape[0]} states x {shape[1]} actions, got {table.shape}"
        )
    _fail_outside(field, table, 1)
    total = table.sum(1)
    _fail_unless_one(field, total)
    return table / total[:, None]


def _slots(transition: np.ndarray, reward: np.ndarray):
    """Successors, probabilities and rewards [state, action, slot] of the possible steps."""
    num_states = len(transition)
    if transition.ndim == 2:
        if transition.dtype.kind not in "iu":
            raise ValueError(
                "transition: [state, action] must hold integers, the ids of the successors"
            )
        _fail_where(
            "transition",
            (transition < 0) | (transition >= num_states),
            lambda place: f"successor {transition[place]} is not a state",
        )
        gain = reward if reward.ndim == 2 else np.take_along_axis(reward, transition[..., None], 2)
        one_slot = (*transition.shape, 1)
        return transition.reshape(one_slot), np.ones(one_slot), gain.reshape(one_slot)
    if transition.shape[2] != num_states:
        raise ValueError(f"transition: {num_states} states, but {transition.shape[2]} successors")
    _fail_outside("transition", transition, 1 + SLACK)
    possible = np.nonzero(transition)
    counts = np.count_nonzero(transition, axis=-1).ravel()
    shape = (*transition.shape[:2], max(1, int(counts.max())))
    _, slot = np.nonzero(np.arange(shape[-1]) < counts[:, None])
    place = (*possible[:2], slot)
    successor, probability, gain = np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape)
    successor[place], probability[place] = possible[2], transition[possible]
    gain[place] = reward[possible[: reward.ndim]]
    return successor, probability, gain


def _shown(observe: Any, num_states: int) -> np.ndarray:
    observe = _numbers("observe", observe)
    if observe.shape != (num_states,) or observe.dtype.kind not in "iu":
        raise ValueError(
            f"observe: expected the integer id of each of {num_states} states, "
            f"got {observe.dtype} of shape {observe.shape}"
        )
    _fail_where("observe", observe < 0, lambda place: f"{observe[place]} is no id")
    return observe.astype(np.int32)


def _start(start: Any, num_states: int, terminal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    start = _numbers("start", start)
    if start.ndim == 0:
        if start.dtype.kind not in "iu" or not 0 <= start < num_states:
            raise ValueError(f"start: {start} is not one of the {num_states} states")
        probability = (np.arange(num_states) == start).astype(np.float64)
    else:
        probability = start.astype(np.float64)
    if probability.shape != (num_states,):
        raise ValueError(f"start: expected {num_states} states, got {probability.shape}")
    if not (probability >= 0).all() or abs(probability.sum() - 1) > SLACK:
        raise ValueError(f"start: not a distribution over states, sum {probability.sum():.6g}")
    _fail_where("start", (probability > 0) & terminal, lambda _: "a terminal state")
    states = np.flatnonzero(probability)
    return states, probability[states] / probability.sum()


def _numbers(field: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{field}: rows of unequal length") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{field}: expected numbers, got {array.dtype}")
    return array


def _fail_outside(field: str, probs: np.ndarray, most: float) -> None:
    bad = ~((probs >= 0) & (probs <= most))
    _fail_where(field, bad, lambda place: f"{probs[place]} is not in [0, 1]")


def _fail_unless_one(field: str, total: np.ndarray) -> None:
    bad = np.abs(total - 1) > SLACK
    _fail_where(field, bad, lambda place: f"probabilities sum to {total[place]:.6g}")


def _fail_where(field: str, bad: np.ndarray, problem) -> None:
    places = np.argwhere(bad)
    if len(places):
        place = tuple(int(axis) for axis in places[0])
        names = ("state", "action", "successor")
        where = ", ".join(f"{name} {axis}" for name, axis in zip(names, place, strict=False))
        raise ValueError(f"{field}: {problem(place)} at {where}")
