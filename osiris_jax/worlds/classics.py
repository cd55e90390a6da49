"""Small worlds of other papers, as they define them.

Thomas & Brunskill 2016: model-win, model-fail. COBS (Voloshin, Le, Jiang & Yue 2021), whose
configurations give the policies: graph, graph-partial, toy-mountain-car.
"""

from __future__ import annotations

import numpy as np

from osiris_jax.worlds.tabular import TabularWorld

GRAPH_STEPS, GRAPH_SLIP, GRAPH_GROUPS = 16, 0.25, 6
GRAPH_BEHAVIOR, GRAPH_TARGET = (0.6, 0.4), (0.8, 0.2)
LEFTMOST, GOAL, CAR_STEPS = -10, 11, 250
CAR_BEHAVIOR, CAR_TARGET = (0.55, 0.45), (0.4, 0.6)


def model_win() -> TabularWorld:
    """Twenty steps between one choice and two rewards; a model is right (Thomas & Brunskill 2016).

    The first state's first action leads to a reward of 1 with probability 0.4 and else to one of
    -1, the second the other way round; from both one goes back. The behaviour takes the first
    action with probability e / (1 + e), about 0.73, the target the second.
    """
    choice, good, bad = range(3)
    transition = np.zeros((3, 2, 3))
    transition[choice, :, good] = (0.4, 0.6)
    transition[choice, :, bad] = (0.6, 0.4)
    transition[[good, bad], :, choice] = 1
    reward = np.zeros((3, 2, 3))
    reward[choice, :, good], reward[choice, :, bad] = 1, -1
    first = np.e / (1 + np.e)
    behavior, target = np.full((3, 2), 0.5), np.full((3, 2), 0.5)
    behavior[choice], target[choice] = (first, 1 - first), (1 - first, first)
    nowhere = np.zeros(3, bool)
    return TabularWorld(
        transition, reward, choice, behavior, target, 20, terminal=nowhere, name="model-win"
    )


def model_fail() -> TabularWorld:
    """Two steps, the first decides, and all states look alike: no model (Thomas & Brunskill 2016).

    The first action leads up, the second down; whatever comes then pays 1 above and -1 below.
    Behaviour and target take the first action with probability 0.88 and 0.12, exactly
    e^2 / (1 + e^2) and one less it.
    """
    start, above, below, end = range(4)
    transition = np.array([[above, below], [end, end], [end, end], [end, end]])
    reward = np.array([[0, 0], [1, 1], [-1, -1], [0, 0]])
    first = np.e**2 / (1 + np.e**2)
    behavior, target = (np.tile([p, 1 - p], (4, 1)) for p in (first, 1 - first))
    alike = np.zeros(4, int)
    return TabularWorld(
        transition, reward, start, behavior, target, 2, observe=alike, name="model-fail"
    )


def graph(partial: bool = False) -> TabularWorld:
    """Sixteen layers of a good and a bad state; a step misses its layer's state with 0.25 (COBS).

    Entering a good state pays 1, a bad one -1, and the last step what its state pays.

    Args:
      partial: only the last step pays, and estimators see one of six groups of layers.
    """
    layers = GRAPH_STEPS - 1
    num_states = 2 * layers + 2
    end = num_states - 1
    layer = (np.arange(num_states) + 1) // 2
    good = np.arange(num_states) % 2 == 1
    transition = np.zeros((num_states, 2, num_states))
    for state in range(num_states):
        if layer[state] >= layers:
            transition[state, :, end] = 1
            continue
        above = 2 * layer[state] + 1
        transition[state, :, above] = (1 - GRAPH_SLIP, GRAPH_SLIP)
        transition[state, :, above + 1] = (GRAPH_SLIP, 1 - GRAPH_SLIP)
    pays = np.where(good, 1.0, -1.0)
    reward = np.zeros_like(transition)
    if not partial:
        reward[:] = pays
    reward[..., end] = 0
    last = np.arange(num_states - 3, num_states - 1)
    reward[last, :, end] = pays[last][:, None]
    groups = np.array_split(np.arange(1, end), GRAPH_GROUPS - 1)
    seen = np.zeros(num_states, int)
    for number, states in enumerate(groups):
        seen[states] = number
    seen[end] = GRAPH_GROUPS - 1
    return TabularWorld(
        transition,
        reward,
        0,
        np.tile(GRAPH_BEHAVIOR, (num_states, 1)),
        np.tile(GRAPH_TARGET, (num_states, 1)),
        GRAPH_STEPS,
        observe=seen if partial else None,
        name="graph-partial" if partial else "graph",
    )


def toy_mountain_car() -> TabularWorld:
    """A line from -10 to 11, each step costs 1 until the right end, at most 250 (COBS).

    The behaviour goes right with probability 0.45, the target with 0.6.
    """
    position = np.arange(LEFTMOST, GOAL + 1)
    num_states = len(position)
    states = np.arange(num_states)
    transition = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, num_states - 1)], 1)
    terminal = position == GOAL
    reward = np.where(terminal, 0.0, -1.0)[:, None].repeat(2, 1)
    return TabularWorld(
        transition,
        reward,
        int(np.flatnonzero(position == 0)[0]),
        np.tile(CAR_BEHAVIOR, (num_states, 1)),
        np.tile(CAR_TARGET, (num_states, 1)),
        CAR_STEPS,
        terminal=terminal,
        name="toy-mountain-car",
    )
