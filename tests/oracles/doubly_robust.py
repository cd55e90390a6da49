"""Slow, plain oracles for the doubly robust estimators and their tabular Q-hat.

A data set is a list of trajectories as in `oracles`, each with `target_probs` [step, action] too.
A Q-hat is a list of [step, action] arrays, one for each trajectory. Arithmetic is in long double.
"""

import numpy as np

from oracles.core import LD, horizon

END = None  # where the last step of a trajectory leads
UNKNOWN = -1  # where the last step of one that may have been cut leads


def transitions(data, longest):
    """[(s, a, r, s')] of all steps; a trajectory may have been cut after `longest` steps."""
    found = []
    for traj in data:
        states = [int(s) for s in traj["states"]]
        last = UNKNOWN if len(states) == longest else END
        for t, (state, action) in enumerate(zip(states, traj["actions"], strict=True)):
            after = states[t + 1] if t + 1 < len(states) else last
            found.append((state, int(action), LD(traj["rewards"][t]), after))
    return found


def mean_of(samples):
    return sum(samples) / LD(len(samples)) if samples else LD(0)


def smoothed_means(samples, smoothing, of_all_data):
    """The mean of each action's samples, drawn to that of all as if `smoothing` more had it.

    Without any sample that is the mean of all the data.
    """
    everything = [x for of_action in samples for x in of_action]
    pooled = mean_of(everything or of_all_data)
    means = []
    for of_action in samples:
        size = LD(len(of_action)) + LD(smoothing)
        total = sum(of_action, LD(0)) + LD(smoothing) * pooled
        means.append(total / size if size > 0 else pooled)
    return np.array(means)


def mean_policy(data, state):
    """The mean of target_probs over the visits to a state."""
    rows = [
        np.asarray(p, LD)
        for traj in data
        for s, p in zip(traj["states"], traj["target_probs"], strict=True)
        if s == state
    ]
    return sum(rows) / LD(len(rows))


def fitted_tables(training, data, num_actions, discount, smoothing):
    """[Q_1, Q_2, ...] up to the longest trajectory of all the data, Q_t[s] a row over actions."""
    observed = transitions(training, horizon(data))
    states = sorted({int(s) for traj in data for s in traj["states"]})
    policies = {state: mean_policy(data, state) for state in states}
    values, tables = {state: LD(0) for state in states}, []
    for _ in range(horizon(data)):
        table = {}
        paid = [r for _, _, r, _ in observed]
        known = [after for _, _, _, after in observed if after != UNKNOWN]
        came = [LD(0) if after is END else values[after] for after in known]
        for state in states:
            rewards, following = ([[] for _ in range(num_actions)] for _ in range(2))
            for s, a, r, after in observed:
                if s == state:
                    rewards[a].append(r)
                    if after != UNKNOWN:
                        following[a].append(LD(0) if after is END else values[after])
            ahead = smoothed_means(following, smoothing, came)
            table[state] = smoothed_means(rewards, smoothing, paid) + LD(discount) * ahead
        values = {state: np.sum(policies[state] * table[state]) for state in states}
        tables.insert(0, table)
    return tables


def fitted(data, num_actions, *, discount=1.0, folds=2, smoothing=1.0):
    """Q-hat at every step, from the trajectories of other folds."""
    tables = []
    for fold in range(min(max(folds, 1), len(data))):
        training = [x for j, x in enumerate(data) if folds < 2 or j % folds != fold]
        tables.append(fitted_tables(training, data, num_actions, discount, smoothing))
    return [
        np.array([tables[i % len(tables)][t][int(s)] for t, s in enumerate(traj["states"])])
        for i, traj in enumerate(data)
    ]


def after_fit(estimator, data, discount=1.0, folds=5, smoothing=0.1):
    """An estimator of data, Q-hat and discount, with the Q-hat that is fitted to the data."""
    options = {"discount": discount, "folds": folds, "smoothing": smoothing}
    num_actions = np.shape(data[0]["target_probs"])[1]
    return estimator(data, fitted(data, num_actions, **options), discount)


def from_table(data, q):
    """Q-hat at every step, of a table [state, action] or [time, state, action]."""
    q = np.asarray(q, LD)
    return [
        np.array([(q if q.ndim == 2 else q[t])[int(s)] for t, s in enumerate(traj["states"])])
        for traj in data
    ]


def step_values(data, qhat):
    """For each trajectory, (Q-hat of the action taken, sum_a pi_e(a) Q-hat(a)) at each step."""
    for traj, rows in zip(data, qhat, strict=True):
        probs = np.asarray(traj["target_probs"], LD)
        taken = [row[int(a)] for row, a in zip(rows, traj["actions"], strict=True)]
        yield taken, [np.sum(p * row) for p, row in zip(probs, rows, strict=True)]


def dr(data, qhat, discount=1.0):
    """mean of sum_t gamma^(t-1) [rho_{1:t} (r_t - Qhat) + rho_{1:t-1} Vhat]."""
    totals = []
    for traj, (taken, value) in zip(data, step_values(data, qhat), strict=True):
        total, weight = LD(0), LD(1)
        for t, reward in enumerate(np.asarray(traj["rewards"], LD)):
            before, weight = weight, weight * np.exp(LD(traj["log_ratio"][t]))
            total += LD(discount) ** t * (weight * (reward - taken[t]) + before * value[t])
        totals.append(total)
    return float(sum(totals) / len(totals))


def wdr(data, qhat, discount=1.0):
    """`dr` with the weights at each step divided by their sum over all trajectories."""
    values, total = list(step_values(data, qhat)), LD(0)
    weights = [LD(1)] * len(data)
    for t in range(horizon(data)):
        before = weights
        weights = [
            w * np.exp(LD(traj["log_ratio"][t])) if t < len(traj["rewards"]) else w
            for w, traj in zip(before, data, strict=True)
        ]
        if sum(weights) == 0:
            return float("nan")
        for i, traj in enumerate(data):
            if t < len(traj["rewards"]):
                taken, value = values[i][0][t], values[i][1][t]
                surprise = LD(traj["rewards"][t]) - taken
                step = weights[i] / sum(weights) * surprise + before[i] / sum(before) * value
                total += LD(discount) ** t * step
    return float(total)


def dm(data, qhat, discount=1.0):
    """mean of Vhat(s_1)."""
    return float(np.mean([value[0] for _, value in step_values(data, qhat)]))


ESTIMATORS = {"dr": dr, "wdr": wdr, "dm": dm}
