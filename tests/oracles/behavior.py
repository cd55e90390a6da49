"""Slow, plain oracles for fitted behaviour policies, written straight from the definitions.

A data set is a list of trajectories, as in `oracles`, here with `observations` too. Trajectory i is
in fold i mod folds and is answered for by the other folds.
"""

import numpy as np
from scipy import optimize, special


def training(data, fold, folds):
    """The trajectories that the fit of a fold sees."""
    return [traj for i, traj in enumerate(data) if folds == 1 or i % folds != fold]


def shares(data, num_actions):
    """(n(a) + 1) / (n + A)."""
    taken = [a for traj in data for a in traj["actions"]]
    return np.array([(taken.count(a) + 1) / (len(taken) + num_actions) for a in range(num_actions)])


def tabular(data, folds, num_actions, smoothing):
    """For each trajectory [step, action]: (n(s, a) + c m(a)) / (n(s) + c)."""
    result = []
    for i, traj in enumerate(data):
        seen = training(data, i % folds, folds)
        share = shares(seen, num_actions)
        rows = []
        for state in traj["states"]:
            actions = [
                a
                for other in seen
                for s, a in zip(other["states"], other["actions"], strict=True)
                if s == state
            ]
            rows.append(
                [
                    (actions.count(a) + smoothing * share[a]) / (len(actions) + smoothing)
                    for a in range(num_actions)
                ]
            )
        result.append(np.array(rows))
    return result


def standardised(data):
    """The observations with mean 0 and deviation 1 over all steps; constants become 0."""
    rows = np.concatenate([traj["observations"] for traj in data])
    mean, spread = rows.mean(0), rows.std(0)
    spread[np.ptp(rows, axis=0) == 0] = np.inf
    return [(traj["observations"] - mean) / spread for traj in data]


def logistic(data, folds, num_actions, smoothing):
    """For each trajectory [step, action], by SciPy's trust-region Newton method."""
    inputs = [np.column_stack([rows, np.ones(len(rows))]) for rows in standardised(data)]
    width = inputs[0].shape[1]
    weights = []
    for fold in range(folds):
        used = [i for i in range(len(data)) if folds == 1 or i % folds != fold]
        rows = np.concatenate([inputs[i] for i in used])
        chosen = np.concatenate([data[i]["actions"] for i in used])
        taken = np.eye(num_actions)[chosen]

        def loss(flat, rows=rows, taken=taken):
            w = flat.reshape(width, num_actions)
            log_probs = special.log_softmax(rows @ w, axis=1)
            return smoothing / 2 * (w**2).sum() - (taken * log_probs).sum()

        def slope(flat, rows=rows, taken=taken):
            w = flat.reshape(width, num_actions)
            gap = special.softmax(rows @ w, axis=1) - taken
            return (smoothing * w + rows.T @ gap).ravel()

        start = np.zeros(width * num_actions)
        found = optimize.minimize(loss, start, jac=slope, method="BFGS", options={"gtol": 1e-9})
        assert np.abs(slope(found.x)).max() < 1e-5
        weights.append(found.x.reshape(width, num_actions))
    return [special.softmax(x @ weights[i % folds], axis=1) for i, x in enumerate(inputs)]


def scores(probs, data, folds, num_actions):
    """log_loss, brier, baseline_log_loss, baseline_brier [fold], and the smallest probability."""
    result = {name: [[] for _ in range(folds)] for name in ("log_loss", "brier")}
    result |= {f"baseline_{name}": [[] for _ in range(folds)] for name in ("log_loss", "brier")}
    smallest = np.inf
    for i, traj in enumerate(data):
        share = shares(training(data, i % folds, folds), num_actions)
        for row, a in zip(probs[i], traj["actions"], strict=True):
            smallest = min(smallest, row[a])
            for prefix, p in (("", row), ("baseline_", share)):
                happened = [float(a == b) for b in range(num_actions)]
                squares = sum((x - y) ** 2 for x, y in zip(p, happened, strict=True))
                result[f"{prefix}log_loss"][i % folds].append(-np.log(p[a]))
                result[f"{prefix}brier"][i % folds].append(squares)
    means = {name: [np.mean(v) for v in values] for name, values in result.items()}
    return means, smallest


def calibration(probs, data, num_actions, bins=10):
    """(predicted, observed, count) by bin, and the expected calibration error."""
    pairs = [
        (p, a == b)
        for rows, traj in zip(probs, data, strict=True)
        for row, a in zip(rows, traj["actions"], strict=True)
        for b, p in zip(range(num_actions), row, strict=True)
    ]
    table, error = [], 0.0
    for number in range(bins):
        inside = [
            (p, hit)
            for p, hit in pairs
            if number / bins <= p < (number + 1) / bins or (number == bins - 1 and p >= 1)
        ]
        if inside:
            predicted, observed = np.mean([p for p, _ in inside]), np.mean([h for _, h in inside])
            error += len(inside) / len(pairs) * abs(predicted - observed)
            table.append((predicted, observed, len(inside)))
        else:
            table.append((np.nan, np.nan, 0))
    return table, error
