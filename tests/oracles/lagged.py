"""Slow oracles for step-wise OSIRIS: p-values by lag and the estimators, from the definitions.

A data set is a list of trajectories as in `oracles`, whose conventions hold here too. Bins of lags
are a list of `range`s, the last one standing for all later lags as well.
"""

import itertools

import numpy as np

from oracles.core import LD, horizon, quotient, ratios, rewards
from oracles.doubly_robust import after_fit, step_values
from oracles.relevance import decided


def lag_ranges(num_steps, exact=16, growth=1.5):
    """Bins of lags: `exact` of one lag, then growth, growth^2, ... lags rounded up; all uncut."""
    bins, width = [range(lag, lag + 1) for lag in range(exact)], growth
    while bins[-1].stop < num_steps:
        bins.append(range(bins[-1].stop, bins[-1].stop + int(np.ceil(width))))
        width *= growth
    return [lags for lags in bins if lags.start < num_steps]


def reward_after(traj, t, lag, weighting):
    """r_{t+dt} times rho_{t:t+dt}, rho_{t+1:t+dt} or 1; 0 beyond the end.

    Ratios are sorted before they are multiplied, as in `relevance.samples`.
    """
    if t + lag >= len(traj["rewards"]):
        return LD(0)
    first = {"to-go": t, "future": t + 1, "none": t + lag + 1}[weighting]
    return rewards(traj)[t + lag] * np.prod(np.sort(ratios(traj)[first : t + lag + 1]))


def pooled(traj, t, lags, weighting, discount):
    """sum over the lags of the bin of gamma^(dt - first) times `reward_after`."""
    inside = [lag for lag in lags if t + lag < len(traj["rewards"])]
    terms = [
        LD(discount) ** (lag - lags.start) * reward_after(traj, t, lag, weighting) for lag in inside
    ]
    return sum(terms, LD(0))


def pvalues(
    data,
    num_states,
    bins,
    weighting="none",
    ddof=1,
    discount=1.0,
    undecided=1.0,
    first_visit=False,
):
    """[bin, state] Welch's p-value, `undecided` where there is none."""
    rows = []
    for lags in bins:
        groups = {}
        for traj in data:
            seen = set()
            for t, state in enumerate(int(s) for s in traj["states"]):
                if not (first_visit and state in seen):
                    plus, minus = groups.setdefault(state, ([], []))
                    group = plus if traj["log_ratio"][t] > 0 else minus
                    group.append(pooled(traj, t, lags, weighting, discount))
                seen.add(state)
        rows.append(decided(groups, num_states, "welch", ddof, undecided))
    return np.stack(rows)


def theta_at(theta, bins, lag):
    """The row of the map for a lag: that of its bin, the last one beyond all bins."""
    rows = [row for row, lags in enumerate(bins) if lag in lags]
    return theta[rows[0] if rows else -1]


def weight(traj, theta, bins, at, last):
    """prod of rho_t^theta_{at - t}(s_t) over t <= last."""
    product = LD(1)
    for t in range(min(last + 1, len(traj["rewards"]))):
        if theta_at(theta, bins, at - t)[int(traj["states"][t])]:
            product *= ratios(traj)[t]
    return product


def stepwise(data, theta, bins, discount=1.0, weighted=False):
    """sum_t' gamma^(t'-1) times the mean of W_t' r_t', or sum of W r over sum of W."""
    total = LD(0)
    for at in range(horizon(data)):
        top, bottom = LD(0), LD(0)
        for traj in data:
            here = weight(traj, theta, bins, at, at)
            bottom += here
            if at < len(traj["rewards"]):
                top += here * rewards(traj)[at]
        step = quotient(top, bottom) if weighted else top / len(data)
        total += LD(discount) ** at * step
    return float(total)


def stepwise_dr(data, theta, bins, q, v, discount=1.0):
    """The mean of sum_t gamma^(t-1) W_{<t} [rho_t^theta_0(s_t) r_t + v_t - rho_t q_t].

    q and v are lists of arrays, one for each trajectory.
    """
    total = LD(0)
    for traj, q_of, v_of in zip(data, q, v, strict=True):
        for at, (reward, ratio) in enumerate(zip(rewards(traj), ratios(traj), strict=True)):
            kept = ratio if theta_at(theta, bins, 0)[int(traj["states"][at])] else LD(1)
            inner = kept * reward + LD(v_of[at]) - ratio * LD(q_of[at])
            total += LD(discount) ** at * weight(traj, theta, bins, at, at - 1) * inner
    return float(total / len(data))


def everything(data):
    """The map that keeps all ratios, and its one bin."""
    num_states = 1 + max(int(np.max(traj["states"])) for traj in data)
    return np.ones((1, num_states), bool), [range(1)]


def stepwise_plain(data, discount=1.0, weighted=False):
    """`stepwise` without omission."""
    return stepwise(data, *everything(data), discount, weighted)


def stepwise_dr_plain(data, discount=1.0):
    """`stepwise_dr` without omission, Q-hat fitted to the data."""

    def estimate(data, qhat, discount):
        q, v = zip(*step_values(data, qhat), strict=True)
        return stepwise_dr(data, *everything(data), q, v, discount)

    return after_fit(estimate, data, discount)


def ordinary_dr(data, q, v, discount=1.0):
    """The mean of sum_t gamma^(t-1) [rho_{1:t} (r_t - q_t) + rho_{1:t-1} v_t]."""
    total = LD(0)
    for traj, q_of, v_of in zip(data, q, v, strict=True):
        products = list(itertools.accumulate(ratios(traj), initial=LD(1), func=lambda a, b: a * b))
        for at, reward in enumerate(rewards(traj)):
            step = products[at + 1] * (reward - LD(q_of[at])) + products[at] * LD(v_of[at])
            total += LD(discount) ** at * step
    return float(total / len(data))
