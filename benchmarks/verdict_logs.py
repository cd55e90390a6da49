"""Logs with known truth, on which verdicts are set and measured: kinds and seeds are fixed here.

Every log comes from a world of its own, a random MDP over (observed state, memory, confounder).
Memory and confounder are never logged. Truths come from dynamic programming over the whole state.
Even numbers are the design half, on which thresholds may be set; odd ones are the report half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import osiris_jax as oj

SEED = 20_261_118
OVERLAPS = ("good-overlap", "poor-overlap", "deterministic", "wrong-propensities", "confounder")
KINDS = tuple((overlap, markov) for overlap in OVERLAPS for markov in (True, False))
LOGS_OF_A_KIND = 180
SIZES = (60, 240, 960)
STATES, ACTIONS, STEPS = 12, 3, 16
MEMORIES = HIDDEN = 2
NOISE = 0.5


class World(NamedTuple):
    """A random MDP; s is the observed state, m the memory, u the confounder.

    Attributes:
      start: [s].
      move: [s, a, s'] chances of the next state.
      ends: [s] the chance that a step is the last.
      reward: [s, m, u, a] its mean; Gaussian noise is added.
      sets: [s, a] the memory that an action leaves behind, -1 where it leaves it as it was.
      behavior: [s, u, a] what the actions are really drawn from.
      target: [s, a].
      logged: [s, a] what the log says of the behaviour; None where it is counted from the log.
    """

    start: np.ndarray
    move: np.ndarray
    ends: np.ndarray
    reward: np.ndarray
    sets: np.ndarray
    behavior: np.ndarray
    target: np.ndarray
    logged: np.ndarray | None


class Log(NamedTuple):
    """One log, and what it should tell."""

    kind: str
    markov: bool
    batch: oj.TrajectoryBatch
    truth: float


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def draw_world(rng: np.random.Generator, overlap: str, markov: bool) -> World:
    """A world of the kind."""
    matters = rng.random(STATES) < rng.uniform(0.2, 0.9)
    move = rng.dirichlet(np.full(STATES, 0.3), (STATES, ACTIONS))
    move = np.where(matters[:, None, None], move, move[:, :1])
    by_action = rng.normal(size=(STATES, ACTIONS)) * matters[:, None]
    reward = np.zeros((STATES, MEMORIES, HIDDEN, ACTIONS)) + by_action[:, None, None]
    sets = np.full((STATES, ACTIONS), -1)
    if not markov:
        decisive = rng.random(STATES) < 0.3
        sets[decisive] = rng.integers(MEMORIES, size=(int(decisive.sum()), ACTIONS))
        reward[:, 1] += rng.uniform(0.5, 1.0)
    logits = rng.normal(size=(STATES, ACTIONS)) * 0.7
    behavior = softmax(logits)
    if overlap == "good-overlap":
        target = softmax(logits + 0.25 * rng.normal(size=logits.shape))
    elif overlap == "poor-overlap":
        target = softmax(logits + rng.uniform(1.0, 2.0) * rng.normal(size=logits.shape))
    elif overlap == "deterministic":
        target = np.eye(ACTIONS)[(by_action + 0.1 * rng.normal(size=logits.shape)).argmax(1)]
    else:
        target = softmax(logits + 0.4 * rng.normal(size=logits.shape))
    by_hidden = np.repeat(behavior[:, None], HIDDEN, 1)
    logged = behavior
    if overlap == "wrong-propensities":
        logged = softmax(logits + rng.uniform(0.2, 0.8) * rng.normal(size=logits.shape))
    if overlap == "confounder":
        pull = rng.uniform(0.5, 1.5) * rng.normal(size=(STATES, 1, ACTIONS))
        side = np.array([-1.0, 1.0])[None, :, None]
        by_hidden = softmax(logits[:, None] + pull * side)
        reward[:, :, 1] += rng.uniform(0.3, 0.8)
        logged = None
    start = rng.dirichlet(np.ones(STATES))
    ends = rng.uniform(0.05, 0.3, STATES)
    return World(start, move, ends, reward, sets, by_hidden, target, logged)


def value(world: World, policy: np.ndarray) -> float:
    """The exact value of a policy [s, u, a] over at most `STEPS` steps."""
    after = np.zeros((STATES, MEMORIES, HIDDEN))
    memory = np.arange(MEMORIES)[None, :, None]
    left = np.where(world.sets[:, None] < 0, memory, world.sets[:, None])
    for _ in range(STEPS):
        following = np.einsum("sap,pmu->samu", world.move, after)
        chosen = np.take_along_axis(following, left.transpose(0, 2, 1)[..., None], 2)
        q = world.reward.transpose(0, 3, 1, 2) + (1 - world.ends[:, None, None, None]) * chosen
        after = np.einsum("sua,samu->smu", policy, q)
    return float(world.start @ after[:, 0].mean(-1))


def simulate(world: World, rng: np.random.Generator, number: int) -> tuple[np.ndarray, ...]:
    """States, actions, rewards [traj, time] and lengths of the behaviour's trajectories."""
    shape = (number, STEPS)
    states, actions = np.zeros(shape, int), np.zeros(shape, int)
    rewards, lengths = np.zeros(shape), np.full(number, STEPS)
    hidden = rng.integers(HIDDEN, size=number)
    memory, running = np.zeros(number, int), np.ones(number, bool)
    state = _pick(rng, np.broadcast_to(world.start, (number, STATES)))
    for step in range(STEPS):
        action = _pick(rng, world.behavior[state, hidden])
        states[:, step], actions[:, step] = state, action
        noise = NOISE * rng.normal(size=number)
        rewards[:, step] = world.reward[state, memory, hidden, action] + noise
        ends = running & (rng.random(number) < world.ends[state])
        lengths[ends] = step + 1
        running &= ~ends
        left = world.sets[state, action]
        memory = np.where(left < 0, memory, left)
        state = _pick(rng, world.move[state, action])
    return states, actions, rewards, lengths


def _pick(rng: np.random.Generator, chances: np.ndarray) -> np.ndarray:
    below = np.cumsum(chances, -1) < rng.random(len(chances))[:, None]
    return np.minimum(below.sum(-1), chances.shape[-1] - 1)


def counted(states: np.ndarray, actions: np.ndarray, real: np.ndarray) -> np.ndarray:
    """The share of each action in each state, as a log without propensities would be fitted."""
    counts = np.full((STATES, ACTIONS), 0.5)
    np.add.at(counts, (states[real], actions[real]), 1)
    return counts / counts.sum(1, keepdims=True)


def draw_log(kind: int, number: int) -> Log:
    """The log of this number of a kind in `KINDS`; returns of the behaviour have deviation 1."""
    overlap, markov = KINDS[kind]
    rng = np.random.default_rng([SEED, kind, number])
    world = draw_world(rng, overlap, markov)
    *_, rewards, lengths = simulate(world, rng, 4000)
    scale = (rewards * (np.arange(STEPS) < lengths[:, None])).sum(1).std()
    states, actions, rewards, lengths = simulate(world, rng, SIZES[number // 2 % len(SIZES)])
    real = np.arange(STEPS) < lengths[:, None]
    logged = counted(states, actions, real) if world.logged is None else world.logged
    target = np.repeat(world.target[:, None], HIDDEN, 1)
    batch = oj.from_arrays(
        reward=rewards / scale,
        action=actions,
        state=states,
        lengths=lengths,
        behavior_probs=logged[states],
        target_probs=world.target[states],
        num_states=STATES,
        num_actions=ACTIONS,
    )
    return Log(overlap, markov, batch, value(world, target) / scale)
