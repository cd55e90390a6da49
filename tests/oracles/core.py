"""Sums over one trajectory and over data sets, in long double."""

import numpy as np

LD = np.longdouble


def ratios(traj):
    """rho_t = exp(log_ratio_t) for every t."""
    return np.exp(np.asarray(traj["log_ratio"], LD))


def rewards(traj):
    """r_t for every t."""
    return np.asarray(traj["rewards"], LD)


def discounted_sum(values, discount):
    """sum_t gamma^(t-1) x_t."""
    return sum((LD(discount) ** t * value for t, value in enumerate(values)), LD(0))


def returns(traj, discount=1.0):
    """g = sum_t gamma^(t-1) r_t."""
    return discounted_sum(rewards(traj), discount)


def returns_to_go(traj, discount=1.0):
    """g_{t:T} = sum_{u >= t} gamma^(u-t) r_u for every t, as g_{t:T} = r_t + gamma g_{t+1:T}."""
    result = rewards(traj).copy()
    for t in reversed(range(len(result) - 1)):
        result[t] += LD(discount) * result[t + 1]
    return result


def horizon(data):
    """The length of the longest trajectory."""
    return max(len(traj["rewards"]) for traj in data)


def mean(values):
    """The mean, without rounding residue where all values are equal."""
    values = np.asarray(values, LD)
    return values[0] if np.all(values == values[0]) else np.sum(values) / len(values)


def quotient(top, bottom):
    """top / bottom, NaN where the normaliser is empty."""
    return top / bottom if bottom != 0 else LD(np.nan)


def variance(values, ddof):
    """sum (x - mean)^2 / (n - ddof)."""
    values = np.asarray(values, LD)
    return np.sum((values - mean(values)) ** 2) / (len(values) - ddof)
