"""Plain NumPy forms of the method, as one would write them without JAX: what ours is timed against.

In the manner of the paper's public code, from the definitions: vectorised over trajectories, loops
over steps, states, levels and cuts. Padding holds ratio 1, reward 0 and state 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

TIE = 1e-9
ASYMPTOTIC_ABOVE = 250_000


class Log(NamedTuple):
    """[traj, time] arrays of one data set, in float64."""

    reward: np.ndarray
    log_ratio: np.ndarray
    state: np.ndarray
    mask: np.ndarray
    num_states: int


def returns(log: Log) -> np.ndarray:
    return log.reward.sum(1)


def weights(log: Log) -> np.ndarray:
    """[traj] rho, the product of a trajectory's ratios."""
    return np.exp(log.log_ratio.sum(1))


def weights_so_far(log: Log) -> np.ndarray:
    """[traj, time] the product of the ratios up to each step."""
    return np.exp(log.log_ratio.cumsum(1))


def weighted_mean(weight: np.ndarray, values: np.ndarray) -> Any:
    return (weight * values).sum(0) / weight.sum(0)


def per_horizon(log: Log) -> float:
    """WIS of each length, averaged with the share of the length."""
    weight, gain, length = weights(log), returns(log), log.mask.sum(1)
    total = 0.0
    for one in np.unique(length):
        same = length == one
        total += same.mean() * weighted_mean(weight[same], gain[same])
    return total


def incremental(log: Log) -> float:
    """INCRIS: for each reward t every cut k, cov(A, B r)^2 + var(B r), ties to the smallest k."""
    ratio, total = np.exp(log.log_ratio), 0.0
    before = np.pad(np.cumprod(ratio, axis=1), ((0, 0), (1, 0)), constant_values=1)
    for t in range(log.reward.shape[1]):
        scores, means = [], []
        kept = log.reward[:, t]
        for k in range(t + 2):
            moments = np.cov(before[:, t + 1 - k], kept, bias=True)
            scores.append(moments[0, 1] ** 2 + moments[1, 1])
            means.append(kept.mean())
            if k <= t:
                kept = kept * ratio[:, t - k]
        good = np.array(scores) <= min(scores) * (1 + TIE)
        total += means[int(good.argmax())]
    return total


def marginalised(log: Log) -> float:
    """MIS by a matrix of transitions for every step; a finished trajectory is in a state apart."""
    states = log.num_states + 1
    ratio, place = np.exp(log.log_ratio), np.where(log.mask, log.state, log.num_states)
    share = np.bincount(place[:, 0], minlength=states) / len(place)
    total, steps = 0.0, place.shape[1]
    for t in range(steps):
        here = place[:, t]
        count = np.maximum(np.bincount(here, minlength=states), 1)
        gain = np.bincount(here, ratio[:, t] * log.reward[:, t], minlength=states) / count
        total += share @ gain
        if t + 1 < steps:
            transition = np.zeros((states, states))
            np.add.at(transition, (here, place[:, t + 1]), ratio[:, t])
            share = share @ (transition / count[:, None])
            share = share / share.sum()
    return float(total)


def chain(log: Log, past: int = 1) -> float:
    """STAR at gamma = 1: links between states by recent ratios, and a system of equations."""
    ratio = np.exp(log.log_ratio)
    weight = ratio.cumprod(1) if past == 0 else ratio.copy()
    for back in range(1, min(past, ratio.shape[1])):
        weight[:, back:] *= ratio[:, :-back]
    following = np.pad(log.state[:, 1:], ((0, 0), (0, 1)))
    goes_on = np.pad(log.mask[:, 1:], ((0, 0), (0, 1)))[log.mask]
    here, there, weight = log.state[log.mask], following[log.mask], weight[log.mask]
    share = weight / np.bincount(here, weight, log.num_states)[here]
    flow = np.zeros((log.num_states, log.num_states))
    np.add.at(flow, (here[goes_on], there[goes_on]), share[goes_on])
    gain = np.bincount(here, share * log.reward[log.mask], log.num_states)
    return float(np.linalg.solve(np.eye(log.num_states) - flow, gain)[log.state[:, 0]].mean())


def samples(log: Log, weighting: str = "none") -> np.ndarray:
    """[traj, time] x: the return to go, weighed by the ratios from here on."""
    backwards = (slice(None), slice(None, None, -1))
    to_go = log.reward[backwards].cumsum(1)[backwards]
    if weighting == "none":
        return to_go
    log_weight = log.log_ratio[backwards].cumsum(1)[backwards]
    if weighting == "future":
        log_weight = np.pad(log_weight[:, 1:], ((0, 0), (0, 1)))
    return to_go * np.exp(log_weight)


def by_state(
    log: Log, pvalue: Callable[[np.ndarray, np.ndarray], float], weighting: str
) -> np.ndarray:
    """[state] p-values of a two-sample test, 1 where it cannot decide."""
    value, likelier = samples(log, weighting)[log.mask], log.log_ratio[log.mask] > 0
    state = log.state[log.mask]
    pvalues = np.ones(log.num_states)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of groups of one, which have no variance
        for one in range(log.num_states):
            here = state == one
            plus, minus = value[here & likelier], value[here & ~likelier]
            if len(plus) and len(minus):
                chance = pvalue(plus, minus)
                pvalues[one] = 1.0 if np.isnan(chance) else min(max(chance, 0.0), 1.0)
    return pvalues


def welch(log: Log, weighting: str = "none") -> np.ndarray:
    """[state] p-values of SciPy's `ttest_ind(equal_var=False)`."""
    from scipy import stats

    def pvalue(plus: np.ndarray, minus: np.ndarray) -> float:
        test: Any = stats.ttest_ind(plus, minus, equal_var=False)
        return test.pvalue

    return by_state(log, pvalue, weighting)


def smirnov(log: Log, weighting: str = "none") -> np.ndarray:
    """[state] p-values of SciPy's `ks_2samp`, exact where the groups are not too large."""
    from scipy import stats

    def pvalue(plus: np.ndarray, minus: np.ndarray) -> float:
        method = "asymp" if len(plus) * len(minus) > ASYMPTOTIC_ABOVE else "exact"
        test: Any = stats.ks_2samp(plus, minus, method=method)
        return test.pvalue

    return by_state(log, pvalue, weighting)


def omit(log: Log, pvalues: np.ndarray, alpha: float) -> Log:
    """The log with the ratios of states above the level set to 1."""
    keep = (pvalues <= alpha * (1 + 1e-12)) & (alpha > 0)
    return log._replace(log_ratio=np.where(keep[log.state], log.log_ratio, 0))


def pipeline(log: Log, names: Sequence[str], alphas: Sequence[float]) -> np.ndarray:
    """The plain estimators, then "osiris" and "osirwis" at the levels, of one data set."""
    values = [ESTIMATORS[name](log) for name in names if name not in OMITTING]
    if omitting := [ESTIMATORS[OMITTING[name]] for name in names if name in OMITTING]:
        pvalues = welch(log)
        omitted = [omit(log, pvalues, alpha) for alpha in alphas]
        values += [estimator(one) for estimator in omitting for one in omitted]
    return np.array(values)


OMITTING = {"osiris": "is", "osirwis": "wis"}
ESTIMATORS: dict[str, Callable[[Log], float]] = {
    "mc": lambda log: returns(log).mean(),
    "is": lambda log: (weights(log) * returns(log)).mean(),
    "wis": lambda log: weighted_mean(weights(log), returns(log)),
    "pdis": lambda log: (weights_so_far(log) * log.reward).sum(1).mean(),
    "cwpdis": lambda log: weighted_mean(weights_so_far(log), log.reward).sum(),
    "phwis": per_horizon,
    "incris": incremental,
    "mis": marginalised,
    "star": chain,
}
RELEVANCE: dict[str, Callable[..., np.ndarray]] = {"welch": welch, "smirnov": smirnov}
