"""Data sets with ratios from e^-50 to e^50, and INCRIS on them in long double, with error bounds.

The choice of a cut is not continuous: where scores are nearer than rounding can tell, the mean at
either cut is right. So the oracle gives every cut's score and mean with what a float type explains
of an error in each.
"""

from typing import NamedTuple

import numpy as np

from oracles.core import LD

SHAPES = ((7, 5), (50, 40), (2, 3), (20, 12), (5, 25))
TIE = {"float32": 1e-4, "float64": 1e-9}  # documented: scores so near are ties
LEAST_UNITS = 64  # a bound counts at least so many rounding errors


class Wild(NamedTuple):
    """A data set as arrays [traj, time], all real numbers of the float type; mask is a prefix."""

    reward: np.ndarray
    log_ratio: np.ndarray
    mask: np.ndarray


def wild_data(seed, float_type, shapes=SHAPES):
    """The data set of this number; shapes, ranges, zeros and rewards take turns."""
    rng = np.random.default_rng([seed, 16])
    number, steps = shapes[seed % len(shapes)]
    lengths = rng.integers(1, steps + 1, size=number)
    lengths[rng.integers(number)] = steps
    mask = np.arange(steps)[None] < lengths[:, None]
    log_ratio = rng.uniform(-1, 1, (number, steps)) * rng.choice([50, 50, 10, 1.4])
    if rng.random() < 0.3:  # two ratios, as of two policies over two actions
        log_ratio = np.sign(log_ratio) * rng.choice([50, 10, 1.4])
    log_ratio[rng.random((number, steps)) < rng.choice([0.0, 0.0, 0.1, 0.5])] = -np.inf
    reward = rng.normal(rng.choice([0, 1, 100]), 1, (number, steps)) * rng.choice([1, 1e-12, 1e12])
    if rng.random() < 0.3:
        reward = np.ones((number, steps))
    reward[rng.random((number, steps)) < rng.choice([0.0, 0.0, 0.7])] = 0
    fields = (np.where(mask, x, 0).astype(float_type) for x in (reward, log_ratio))
    return Wild(*fields, mask)


class Cuts(NamedTuple):
    """For one reward, by cut 0..t: A is the product up to the cut, B that from it to t.

    Attributes:
      score: cov(A, B r)^2 + var(B r) / divisor, population moments.
      score_error, mean_error: what rounding explains.
      mean: of B r.
    """

    score: np.ndarray
    score_error: np.ndarray
    mean: np.ndarray
    mean_error: np.ndarray


def moment(x):
    """The mean over trajectories, exact where all are equal."""
    shift = x - x[:1]
    return x[0] + shift.sum(0) / len(x)


def cuts_of_reward(data, t, divisor=1):
    """All cuts of the reward of step t, from 1."""
    eps = LD(np.finfo(data.reward.dtype).eps)
    zero = np.isneginf(data.log_ratio)
    finite = np.where(zero, 0, data.log_ratio).astype(LD)
    path = np.pad(np.cumsum(finite, 1), ((0, 0), (1, 0)))[:, : t + 1]
    gone = np.pad(np.cumsum(zero, 1), ((0, 0), (1, 0)))[:, : t + 1]
    reward = data.reward[:, t - 1 : t].astype(LD)
    before = np.where(gone == 0, np.exp(path), 0)
    kept = np.where(gone == gone[:, -1:], np.exp(path[:, -1:] - path), 0) * reward
    mean = moment(kept)
    centred = kept - mean[None]
    covariance = ((before - moment(before)[None]) * centred).mean(0)
    spread = (centred**2).mean(0) / divisor
    # a log-weight is rounded in proportion to itself, and its weight by as much, relatively
    sizes = np.log(np.abs(reward[reward != 0])) if np.any(reward) else np.zeros(1, LD)
    units = 4 * np.abs(path).max() + 2 * np.abs(sizes).max() + 8 + len(reward)
    delta = eps * max(units, LEAST_UNITS)
    square = (kept**2).mean(0)
    loose = delta * np.sqrt((before**2).mean(0) * square)
    score = covariance**2 + spread
    error = 2 * np.abs(covariance) * loose + loose**2 + delta * (square / divisor + score)
    return Cuts(score, error, mean, delta * np.abs(kept).mean(0))


class Judged(NamedTuple):
    """How a chosen cut and its mean compare; units are of what rounding and ties explain."""

    legal: bool
    score_units: float
    mean_units: float
    representable: bool


def judge_cut(cuts, cut, mean, float_type):
    """The chosen cut's score above the best one's, and its mean's distance from the exact one."""
    if not 0 <= cut < len(cuts.score):
        return Judged(False, np.inf, np.inf, True)
    best = np.argmin(cuts.score)
    slack = cuts.score[best] * LD(TIE[float_type])
    slack = slack + cuts.score_error[cut] + cuts.score_error[best]
    above = cuts.score[cut] - cuts.score[best]
    limits = np.finfo(float_type)
    exact, error = cuts.mean[cut], cuts.mean_error[cut]
    representable = abs(exact) + error <= limits.max
    off = abs(LD(mean) - exact)
    return Judged(
        legal=True,
        score_units=float(above / slack) if above > 0 else 0.0,
        mean_units=float(off / (error + limits.tiny)) if np.isfinite(mean) else np.inf,
        representable=bool(representable),
    )
