"""A seeded family of random MDPs, for comparisons that no known world was tuned to.

What a member is like is drawn first: how many states and actions, where a step may lead, how soon
trajectories end, in which states actions matter and how much, how far the policies are apart,
whether rewards come at the end alone, what they are measured in, and whether states are aliased.
Arrays have one of few shapes, so that members share compiled programs: unused states are never
reached, and unused actions never taken.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from osiris_jax.worlds.cards import FIRST_OF_REPORT
from osiris_jax.worlds.mdp import TabularDynamics
from osiris_jax.worlds.tabular import TabularWorld

DESIGN_SEED, REPORT_SEED = 20_261_118, 77_003
STATE_ROOM, ACTION_ROOM, SLOTS, START_ROOM = (41, 301), (3, 10), 9, 16


class Kind(NamedTuple):
    """What a member is like.

    Attributes:
      states, actions, branching, starts: how many there are, and successors of a step.
      end: chance to end at a step.
      horizon: of the world.
      matter: share of states in which actions matter.
      distance: of the target from the behaviour, between 0 and 1.
      sparse: whether rewards come at the end alone.
      scale: of rewards.
      aliased: into how many ids the states are put together, or 0.
    """

    states: int
    actions: int
    branching: int
    starts: int
    end: float
    horizon: int
    matter: float
    distance: float
    sparse: bool
    scale: float
    aliased: int

    def in_words(self) -> str:
        """The kind in a line."""
        shown = f" shown as {self.aliased}" if self.aliased else ""
        return (
            f"Random MDP: {self.states} states{shown}, {self.actions} actions, at most "
            f"{self.horizon} steps; actions matter in {100 * self.matter:g} % of the states"
        )


def kind_of(number: int) -> Kind:
    """What the member of this number is like."""
    return _drawn(number)[1]


def _drawn(number: int) -> tuple[np.random.Generator, Kind]:
    seed = DESIGN_SEED if number < FIRST_OF_REPORT else REPORT_SEED
    rng = np.random.default_rng([seed, number])
    states = int(rng.choice([10, 20, 40, 80, 150, 300]))
    kind = Kind(
        states=states,
        actions=int(rng.choice([2, 3, 5, 10])),
        branching=int(rng.choice([1, 2, 4, 8])),
        starts=int(rng.choice([1, 4, START_ROOM])),
        end=float(rng.choice([0.02, 0.05, 0.1, 0.2])),
        horizon=int(rng.choice([20, 50, 100, 300])),
        matter=float(rng.choice([0.1, 0.3, 0.6, 1.0])),
        distance=float(rng.choice([0.2, 0.5, 0.8])),
        sparse=bool(rng.random() < 0.5),
        scale=float(10 ** rng.uniform(-1, 1)),
        aliased=max(3, states // int(rng.choice([3, 5, 10]))) if rng.random() < 0.35 else 0,
    )
    return rng, kind._replace(starts=min(kind.starts, states))


def random_mdp(number: int) -> TabularWorld:
    """A member of the seeded family of random MDPs; what it is like: `kind_of`.

    Both policies depend on what is shown of a state, and on nothing else.
    """
    rng, kind = _drawn(number)
    room = next(size for size in STATE_ROOM if size > kind.states)
    actions = next(size for size in ACTION_ROOM if size >= kind.actions)
    end = room - 1
    matters = rng.random(kind.states) < kind.matter
    shown = np.arange(room)
    if kind.aliased:
        shown[: kind.states] = rng.integers(kind.aliased, size=kind.states)
    transition, reward = np.zeros((2, room, actions, room))
    for state in range(kind.states):
        for action in range(kind.actions):
            if action and not matters[state]:
                transition[state, action] = transition[state, 0]
                reward[state, action] = reward[state, 0]
                continue
            successors = rng.choice(
                kind.states, size=min(kind.branching, kind.states), replace=False
            )
            ends = kind.end * rng.uniform(0.5, 1.5)
            transition[state, action, successors] = (1 - ends) * rng.dirichlet(
                np.ones(len(successors))
            )
            transition[state, action, end] = ends
            reward[state, action, end] = rng.normal()
            if not kind.sparse:
                reward[state, action, :] += rng.normal()
        transition[state, kind.actions :] = transition[state, 0]
        reward[state, kind.actions :] = reward[state, 0]
    unused = np.arange(kind.states, room)
    transition[unused, :, unused], reward[unused] = 1, 0
    start = np.zeros(room)
    start[rng.choice(kind.states, kind.starts, replace=False)] = 1 / kind.starts
    mdp = {"transition": transition, "reward": kind.scale * reward, "start": start}
    mdp |= {"horizon": kind.horizon, "terminal": np.arange(room) >= kind.states, "observe": shown}
    behavior = _policy(kind, 0.7 * rng.normal(size=(room, kind.actions)), actions)
    alike = TabularWorld(**mdp, behavior=behavior[shown], target=behavior[shown])
    leaning = _leaning(rng, alike, kind)
    other = _policy(kind, leaning + rng.normal(size=leaning.shape), actions)
    target = (1 - kind.distance) * behavior + kind.distance * other
    name = f"random-{number:02d}"
    world = TabularWorld(**mdp, behavior=behavior[shown], target=target[shown], name=name)
    world.dynamics = _roomy(world.dynamics)
    return world


def _leaning(rng: np.random.Generator, world: TabularWorld, kind: Kind) -> np.ndarray:
    """[id, action] what makes a policy better than the behaviour, or else worse: +-2 x advantage.

    That of an id is the mean over its states, over the spread of all.
    """
    q = world.exact().action_values("behavior")[: kind.states, : kind.actions]
    advantage = q - q.mean(1, keepdims=True)
    shown, room = world.shown[: kind.states], len(world.shown)
    total, count = np.zeros((room, kind.actions)), np.zeros((room, 1))
    np.add.at(total, shown, advantage)
    np.add.at(count, shown, 1)
    sign = rng.choice([-1, 1])
    return 2 * sign * total / np.maximum(count, 1) / max(float(advantage.std()), 1e-9)


def _policy(kind: Kind, logits: np.ndarray, actions: int) -> np.ndarray:
    """[id, action] by softmax, a tenth of it uniform; further actions are never taken."""
    probs = np.exp(logits - logits.max(1, keepdims=True))
    probs = 0.9 * probs / probs.sum(1, keepdims=True) + 0.1 / kind.actions
    return np.pad(probs, ((0, 0), (0, actions - kind.actions)))


def _roomy(dynamics: TabularDynamics) -> TabularDynamics:
    """The dynamics with as many slots and starts as any member has, of no probability."""
    slots, starts = SLOTS - dynamics.successor.shape[2], START_ROOM - len(dynamics.start)

    def wider(x: np.ndarray, value: float = 0) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, 0), (0, slots)), constant_values=value)

    return dataclasses.replace(
        dynamics,
        successor=wider(dynamics.successor),
        probability=wider(dynamics.probability),
        passed=wider(dynamics.passed, np.inf),
        reward=wider(dynamics.reward),
        start=np.pad(dynamics.start, (0, starts), mode="edge"),
        start_probability=np.pad(dynamics.start_probability, (0, starts)),
    )
