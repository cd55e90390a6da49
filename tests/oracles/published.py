"""Slow oracles for what the paper's code computes in place of the definitions (no discount).

Data as in `oracles`.
"""

import numpy as np

from oracles import estimators
from oracles.core import LD, horizon
from oracles.relevance import samples
from oracles.stats import two_sample


def incris_published(data):
    """sum_t mean(B r_t), every mean over the trajectories of at least t steps, not over all N.

    B = rho_{t-k+1:T} to the *end* of its trajectory, A = rho_{1:t-k}; k = 0..t minimises
    cov(A, B r_t)^2 + var(B r_t), population moments over those alive at t, ties to the smallest k.
    So k = 0 still has B = rho_{t+1:T}; a trajectory alone at t has all scores 0 and k = 0.
    """
    total = LD(0)
    for t in range(1, horizon(data) + 1):
        alive = [traj for traj in data if t <= len(traj["rewards"])]
        total += estimators.pick(estimators.window_scores(alive, t, end=None), tie=1e-9)
    return float(total)


def mis_published(data):
    """`mis` with transition weights divided by n_t(s, s') instead of n_t(s), then renormalised.

    Rewards are still divided by n_t(s). The absorbing state is one state shared by all finished
    trajectories: the steps at which trajectories end in s count as one pair.
    """
    return estimators.marginalised(data, 1.0, count_pairs=True)


def pvalues_published(data, num_states, test="welch"):
    """Unweighted returns-to-go; Welch with population variances, or exact Smirnov.

    1 where a group is empty; NaN where Welch is 0/0 (both groups constant, with equal means).
    """
    result = np.ones(num_states)
    for state, (plus, minus) in samples(data, "none").items():
        if plus and minus:
            result[state] = two_sample(test, plus, minus, ddof=0)
    return result


def keep_map_published(pvalues, alpha):
    """theta(s) = [p <= alpha]: NaN is never kept, p = 0 is kept even at alpha = 0."""
    return np.asarray(pvalues) <= alpha
