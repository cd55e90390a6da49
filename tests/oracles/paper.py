"""Slow oracles for the published protocol: its stream, its classes by return, its NN-Q.

Data as in `oracles`.
"""

import numpy as np

from oracles import networks
from oracles.core import returns_to_go
from oracles.stats import two_sample

MAZE = """
##############
#,,,,,,,,..Z.#
#,#######....#
#,#######Z...#
#o..........A#
#ZZZZZZZZZZZZ#
##############
"""
GREEDY = """
NNNNNNNNNNNNNN
NEEEEEEEEESNSN
NNNNNNNNNEESSN
NNNNNNNNNEEESN
NNWEEEEEEENENN
NNNNNNNNNNNNNN
NNNNNNNNNNNNNN
"""
MOVES = {"N": (-1, 0), "S": (1, 0), "E": (0, 1), "W": (0, -1)}
REWARDS = {"A": 5.0, "Z": -5.0}
EPSILON = {"dilly-dallying": 0.5, "express": 0.2}


def greedy_probs(cell, epsilon):
    """Probability of N, S, E, W in a cell."""
    row, column = cell
    letter = GREEDY.split()[row][column]
    return np.array([epsilon / 4 + (1 - epsilon) * (name == letter) for name in MOVES])


def behavior_probs(cell, world):
    """The behaviour policy: another epsilon in Express's corridor."""
    corridor = MAZE.split()[cell[0]][cell[1]] == ","
    return greedy_probs(cell, EPSILON[world] if corridor else 0.5)


def legacy_episode(world, policy, number):
    """Trajectory `number` of the paper's stream, step by step."""
    rng, maze = np.random.RandomState(2020 + number), MAZE.split()
    cell = next((r, row.index("o")) for r, row in enumerate(maze) if "o" in row)
    steps = []
    for _ in range(100):
        target, behavior = greedy_probs(cell, 0.1), behavior_probs(cell, world)
        acting = target if policy == "target" else behavior
        action = rng.choice(4, p=acting)
        rng.random_sample()
        down, right = list(MOVES.values())[action]
        ahead = cell[0] + down, cell[1] + right
        after = cell if maze[ahead[0]][ahead[1]] == "#" else ahead
        reward = REWARDS.get(maze[after[0]][after[1]], 0.0)
        log_ratio = np.log(target[action] / acting[action])
        steps.append((cell[0] * 14 + cell[1], action, reward, log_ratio))
        cell = after
        if reward:
            break
    names = ("states", "actions", "rewards", "log_ratio")
    return dict(zip(names, map(np.array, zip(*steps, strict=True)), strict=True))


def pvalues_by_return(data, num_states, visit_coins, action_coins):
    """Welch, ddof 0, unweighted, for classes by return in which coins decide ties.

    `visit_coins[i][t]` counts a visit at the median as above, `action_coins[state][action]` an
    action with just half of its visits above. 1 where a group is empty.
    """
    result = np.ones(num_states)
    for state in range(num_states):
        visits = [
            (float(x), int(traj["actions"][t]), bool(visit_coins[i][t]))
            for i, traj in enumerate(data)
            for t, x in enumerate(returns_to_go(traj))
            if traj["states"][t] == state
        ]
        if not visits:
            continue
        median = np.median([x for x, _, _ in visits])
        above = set()
        for action in {action for _, action, _ in visits}:
            votes = [coin if x == median else x > median for x, a, coin in visits if a == action]
            half = 2 * sum(votes) == len(votes)
            if action_coins[state][action] if half else 2 * sum(votes) > len(votes):
                above.add(action)
        groups = [[x for x, a, _ in visits if (a in above) == side] for side in (True, False)]
        if all(groups):
            result[state] = two_sample("welch", *groups, ddof=0)
    return result


def nn_q(data, network, minibatches, inputs, asked):
    """std_a Q / mean_a Q of the rows `asked`, after training on `inputs` [step, dim]."""
    actions = np.concatenate([traj["actions"] for traj in data])
    aims = np.concatenate([networks.targets(traj, "none", 1.0) for traj in data])
    network, _ = networks.train(network, inputs, actions, aims, minibatches, 1e-3, clip=1.0)
    q = networks.forward(network, asked)[1]
    return np.std(q, axis=1) / np.mean(q, axis=1)
