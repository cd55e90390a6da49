"""The Markov check, from its definition, a visit and an outcome at a time."""

import math

import numpy as np

from oracles.core import LD, mean, returns_to_go

NOTHING = 1e-12  # what rounding may leave, relatively, of sums that are 0


def check(data, num_states, lags, *, first_visit=False, discount=1.0, least_trajectories=20):
    """[lag] p-values, by Holm; NaN where no state can be tested, or something is unknown."""
    logged = [x for traj in data for x in traj["log_ratio"]]
    rewards = [x for traj in data for x in traj["rewards"]]
    if any(np.isnan(x) or x == np.inf for x in logged) or not np.isfinite(rewards).all():
        return np.full(len(lags), np.nan)
    form = first_visits if first_visit else clusters
    options = {} if first_visit else {"least": least_trajectories}
    return holm([form(visits(data, num_states, lag, discount), **options) for lag in lags])


def visits(data, num_states, lag, discount, *, by_step=False):
    """For every state a list of (trajectory, label, return to go) by trajectory and time.

    By step: the return less the mean of all visits to the state at that step.
    """
    cells = {}
    for traj in data:
        for t, value in enumerate(returns_to_go(traj, discount)):
            cells.setdefault((int(traj["states"][t]), t), []).append(value)

    def centred(value, state, t):
        if not by_step:
            return value
        above = value - mean(cells[state, t])
        return above if abs(above) > NOTHING * max(1, *map(abs, cells[state, t])) else LD(0)

    found = [[] for _ in range(num_states)]
    for i, traj in enumerate(data):
        to_go = returns_to_go(traj, discount)
        for t in range(lag, len(to_go)):
            label = bool(traj["log_ratio"][t - lag] > 0)
            state = int(traj["states"][t])
            found[state].append((i, label, centred(to_go[t], state, t)))
    return found


def most_visited(data, num_states, lag, discount):
    """The same of those visits alone that are at the first of the steps with the most of them."""
    found = []
    for state in range(num_states):
        seen = {}
        for i, traj in enumerate(data):
            to_go = returns_to_go(traj, discount)
            for t in range(lag, len(to_go)):
                if int(traj["states"][t]) == state:
                    label = bool(traj["log_ratio"][t - lag] > 0)
                    seen.setdefault(t, []).append((i, label, to_go[t]))
        found.append(max((seen[t] for t in sorted(seen)), key=len, default=[]))
    return found


def clusters(found, *, least):
    """m times the least p-value of m states, each from the covariances within trajectories."""
    pvalues = []
    for seen in found:
        either = [{i for i, label, _ in seen if label is side} for side in (True, False)]
        if min(map(len, either)) < max(least, 1):
            continue
        labels, values = [LD(label) for _, label, _ in seen], [value for _, _, value in seen]
        mean_label, mean_value = mean(labels), mean(values)
        parts = {i: LD(0) for i, _, _ in seen}
        for i, label, value in seen:
            parts[i] += (LD(label) - mean_label) * (value - mean_value)
        spread = max(abs(value - mean_value) for value in values)
        parts = [0 if abs(part) <= NOTHING * spread else part for part in parts.values()]
        squares = sum(part**2 for part in parts)
        z = abs(sum(parts)) / np.sqrt(squares) if squares else 0
        pvalues.append(math.erfc(float(z) / math.sqrt(2)))
    return min(1.0, len(pvalues) * min(pvalues)) if pvalues else np.nan


def first_visits(found):
    """m times the least of exact p-values, m the states that could have had one so small."""
    tests = []
    for seen in found:
        of_trajectory = {}
        for i, label, value in seen:
            of_trajectory.setdefault(i, (label, value))
        labels = [label for label, _ in of_trajectory.values()]
        if any(labels) and not all(labels):
            scores = quarters([value for _, value in of_trajectory.values()])
            tests.append(exact(scores, labels))
    if not tests:
        return np.nan
    least = min(p for p, _ in tests)
    return min(1.0, least * sum(could <= least * (1 + NOTHING) for _, could in tests))


def quarters(values):
    """-1 for values in the lowest quarter, 1 in the highest, else 0; equal values have one score.

    The block of equal values that holds the quarter's edge belongs to the quarter if its middle
    rank does, or if it is the first; but none does if it is all there are.
    """
    if min(values) == max(values):
        return [0] * len(values)
    low, high = (lowest([sign * value for value in values]) for sign in (1, -1))
    return [int(above) - int(below) for below, above in zip(low, high, strict=True)]


def lowest(values):
    """Whether each value is in the lowest quarter."""
    number = len(values)
    edge = sorted(values)[math.ceil(number / 4) - 1]
    below, up_to = sum(v < edge for v in values), sum(v <= edge for v in values)
    joins = below == 0 or (below + up_to) / 2 <= number / 4
    return [v <= edge if joins else v < edge for v in values]


def exact(scores, labels):
    """The two-sided p-value of the sum of scores of those labelled, and the least there could be.

    Counts all choices of as many, in whole numbers.
    """
    number, chosen = len(scores), sum(labels)
    sizes = [scores.count(score) for score in (-1, 0, 1)]
    ways = {}
    for low in range(sizes[0] + 1):
        for high in range(sizes[2] + 1):
            middle = chosen - low - high
            if 0 <= middle <= sizes[1]:
                counts = zip(sizes, (low, middle, high), strict=True)
                product = math.prod(math.comb(size, count) for size, count in counts)
                distance = abs(number * (high - low) - chosen * sum(scores))
                ways[distance] = ways.get(distance, 0) + product
    score = sum(score for score, label in zip(scores, labels, strict=True) if label)
    mine = abs(number * score - chosen * sum(scores))
    total = math.comb(number, chosen)
    tail = sum(count for distance, count in ways.items() if distance >= mine)
    return tail / total, ways[max(ways)] / total


def holm(pvalues):
    """Step-down: the i-th least of m p-values times m - i + 1, at least what came before."""
    adjusted, so_far = np.full(len(pvalues), np.nan), 0.0
    decided = sorted((p, place) for place, p in enumerate(pvalues) if not np.isnan(p))
    for rank, (p, place) in enumerate(decided):
        so_far = max(so_far, min(1.0, (len(decided) - rank) * p))
        adjusted[place] = so_far
    return adjusted
