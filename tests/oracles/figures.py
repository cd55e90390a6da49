"""Slow, plain oracles for the numbers behind the figures, loops over ragged lists.

A trial is a list of trajectories as in `oracles`, each with `observations` [time, dim] too; a map
is an array of booleans by state.
"""

import math

import numpy as np


def weight_and_length(traj, kept):
    """log of the product of the kept ratios, and how many are kept."""
    log_weight, length = 0.0, 0
    for state, log_ratio in zip(traj["states"], traj["log_ratio"], strict=True):
        if kept[state]:
            log_weight += log_ratio
            length += 1
    return log_weight, length


def counts_by_state(trial, kept, num_states):
    """(kept, visits) of every state in one trial."""
    counts = [[0, 0] for _ in range(num_states)]
    for traj in trial:
        for state in traj["states"]:
            counts[state][0] += bool(kept[state])
            counts[state][1] += 1
    return counts


def counts_by_bin(trial, kept, edges, dim):
    """(kept, visits) of every bin of one dimension in one trial; outside the edges: nowhere."""
    counts = [[0, 0] for _ in range(len(edges) - 1)]
    for traj in trial:
        for state, observation in zip(traj["states"], traj["observations"], strict=True):
            for number in range(len(edges) - 1):
                if edges[number] <= observation[dim] < edges[number + 1]:
                    counts[number][0] += bool(kept[state])
                    counts[number][1] += 1
    return counts


def ratio(pairs):
    """sum kept / sum visits over trials, and its standard error by linearisation."""
    kept, visits = (sum(pair[place] for pair in pairs) for place in (0, 1))
    if not visits:
        return math.nan, math.nan
    mean = kept / visits
    if sum(pair[1] > 0 for pair in pairs) < 2:
        return mean, math.nan
    squares = sum((k - mean * v) ** 2 for k, v in pairs)
    return mean, math.sqrt(squares * len(pairs) / (len(pairs) - 1)) / visits


def difference_error(first, second):
    """Standard error of the difference of two ratios from the same trials."""
    sums = [[sum(pair[place] for pair in pairs) for place in (0, 1)] for pairs in (first, second)]
    (kept, visits), (other_kept, other_visits) = sums
    total = 0.0
    for (k, v), (other_k, other_v) in zip(first, second, strict=True):
        part = (k - kept / visits * v) / visits
        other = (other_k - other_kept / other_visits * other_v) / other_visits
        total += (part - other) ** 2
    return math.sqrt(total * len(first) / (len(first) - 1))


def jackknife(statistic, trials):
    """The statistic of all trials, and its standard error from leaving out each in turn."""
    without = [statistic(trials[:k] + trials[k + 1 :]) for k in range(len(trials))]
    squares = sum((value - np.mean(without)) ** 2 for value in without)
    return statistic(trials), math.sqrt((len(trials) - 1) / len(trials) * squares)
