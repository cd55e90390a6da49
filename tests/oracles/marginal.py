"""A slow oracle for `drl`: what other trajectories say of each one's states, step by step.

Data and Q-hat as in `oracles.doubly_robust`. Arithmetic is in long double.
"""

import numpy as np

from oracles import doubly_robust
from oracles.core import LD, horizon, ratios
from oracles.estimators import state_at


def state_weights(others, longest):
    """[{s: d_t(s) N / n_t(s)} for each t]; NaN where nothing weighs anything."""
    tables, mass = [], {}
    for traj in others:
        mass[state_at(traj, 0)] = mass.get(state_at(traj, 0), LD(0)) + LD(1) / len(others)
    for t in range(longest):
        here = [state_at(traj, t) for traj in others]
        tables.append({s: mass[s] * len(others) / LD(here.count(s)) for s in set(here)})
        following = {}
        for traj, state in zip(others, here, strict=True):
            ratio = ratios(traj)[t] if t < len(traj["rewards"]) else LD(1)
            after = state_at(traj, t + 1)
            added = mass[state] / here.count(state) * ratio
            following[after] = following.get(after, LD(0)) + added
        norm = sum(following.values())
        mass = {s: x / norm if norm != 0 else LD(np.nan) for s, x in following.items()}
        # a state that was not reached is unknown too where nothing is known
        if others and norm == 0:
            return tables + [None] * (longest - len(tables))
    return tables


def fitted_weights(data, folds):
    """[t] d_t(s_t) N / n_t(s_t) for each trajectory, from those of other folds."""
    found, longest = [], horizon(data)
    for i, traj in enumerate(data):
        others = [x for j, x in enumerate(data) if folds < 2 or j % folds != i % folds]
        tables = state_weights(others, longest)
        steps = enumerate(traj["states"])
        found.append(
            [LD(np.nan) if tables[t] is None else tables[t].get(int(s), LD(0)) for t, s in steps]
        )
    return found


def terms(data, qhat, marginals, discount=1.0):
    """sum_t gamma^(t-1) [mu_t (r_t - Qhat) + mu_{t-1} Vhat], mu_t = marginal_t rho_t, of each."""
    found, values = [], doubly_robust.step_values(data, qhat)
    for traj, marginal, (taken, value) in zip(data, marginals, values, strict=True):
        total, before = LD(0), LD(1)
        for t, (reward, ratio) in enumerate(zip(traj["rewards"], ratios(traj), strict=True)):
            weight = marginal[t] * ratio
            step = weight * (LD(reward) - taken[t]) + before * value[t]
            total, before = total + LD(discount) ** t * step, weight
        found.append(total)
    return found


def drl(data, qhat, marginals, discount=1.0):
    """The mean of its terms."""
    return float(sum(terms(data, qhat, marginals, discount)) / len(data))


def after_fit(data, discount=1.0, folds=5, smoothing=0.1):
    """`drl` with a Q-hat and marginals that are fitted to the data."""
    options = {"discount": discount, "folds": folds, "smoothing": smoothing}
    qhat = doubly_robust.fitted(data, np.shape(data[0]["target_probs"])[1], **options)
    return drl(data, qhat, fitted_weights(data, folds), discount)
