"""A slow oracle for MAGIC: resamples one by one, and all sets of members that may have a share.

Data and Q-hat as in `oracles.doubly_robust`. Arithmetic is in long double.
"""

import itertools

import numpy as np

from oracles import doubly_robust
from oracles.core import LD, horizon
from oracles.random_bits import words

STREAM = 2**32 - 13  # of the key
OWN_ERROR = LD(1e-6)


def drawn_rows(number, resamples, seed=0):
    """The trajectories of each resample: a random word of 32 bits times their number, over 2^32."""
    drawn = words(seed, STREAM, resamples * number) * np.uint64(number)
    return (drawn >> np.uint64(32)).astype(int).reshape(resamples, number)


def padded(rows, steps):
    """[traj, time] of ragged rows, 0 after the end."""
    return np.array([[*row, *[LD(0)] * (steps - len(row))] for row in rows], LD)


def tables(data, qhat):
    """[traj, time] of rho_{1:t}, r_t - Q-hat and V-hat; a weight stays, the others end."""
    steps, values = horizon(data), list(doubly_robust.step_values(data, qhat))
    ratios = [np.exp(np.asarray(traj["log_ratio"], LD)) for traj in data]
    weight = np.array([np.cumprod([*x, *[LD(1)] * (steps - len(x))]) for x in ratios])
    pairs = zip(data, values, strict=True)
    surprise = [np.asarray(traj["rewards"], LD) - taken for traj, (taken, _) in pairs]
    return weight, padded(surprise, steps), padded([value for _, value in values], steps)


def wdr(weight, surprise, value, discount):
    """sum_t gamma^(t-1) [sum_i w_t (r_t - Q-hat) + w_{t-1} V-hat]; NaN where no weight is left."""
    before = np.hstack([np.ones_like(weight[:, :1]), weight[:, :-1]])
    # what is drawn may end before the data, when its weights no longer matter
    used = np.flatnonzero((surprise != 0).any(0) | (value != 0).any(0))
    total = LD(0)
    for t in range(max(used, default=-1) + 1):
        if weight[:, t].sum() == 0:
            return LD(np.nan)
        corrected = (weight[:, t] * surprise[:, t]).sum() / weight[:, t].sum()
        baseline = (before[:, t] * value[:, t]).sum() / before[:, t].sum()
        total += LD(discount) ** t * (corrected + baseline)
    return total


def member_lengths(longest):
    """0, 1, 2, 4, ... below the longest, and the longest."""
    lengths = [0, *(2**k for k in range(longest.bit_length()))]
    return [j for j in lengths if j < longest] + [longest]


def member_terms(weight, surprise, value, discount):
    """[traj, member] what each trajectory adds to g^(j)."""
    number, longest = weight.shape
    share = weight / weight.sum(0)[None]
    share = np.hstack([np.full((number, 1), LD(1) / number), share])
    value = np.hstack([value, np.zeros((number, 1), LD)])
    columns = []
    for j in member_lengths(longest):
        of_steps = [
            LD(discount) ** t * (share[:, t + 1] * surprise[:, t] + share[:, t] * value[:, t])
            for t in range(j)
        ]
        columns.append(sum(of_steps, LD(discount) ** j * share[:, j] * value[:, j]))
    return np.stack(columns, axis=1)


def error_matrix(terms, low, high, own_error=OWN_ERROR):
    """Omega + b b', its diagonal larger by a share, and by what 100 roundings may have added."""
    number, estimates = len(terms), terms.sum(0)
    centred = terms - terms.mean(0)[None]
    centred[:, np.all(terms == terms[:1], axis=0)] = 0
    omega = LD(number) / max(number - 1, 1) * sum(np.outer(row, row) for row in centred)
    bias = np.array([g - high if g > high else g - low if g < low else LD(0) for g in estimates])
    matrix = omega + np.outer(bias, bias)
    rounding = (100 * np.finfo(float).eps * np.abs(terms).max()) ** 2 if own_error else 0
    return matrix + np.diag(own_error * np.diag(matrix) + rounding)


def solve(matrix, right):
    """Gauss and Jordan, without pivots: the matrix is positive definite."""
    table = np.hstack([matrix, right[:, None]]).astype(LD)
    for k in range(len(table)):
        table[k] = table[k] / table[k, k]
        for row in range(len(table)):
            if row != k:
                table[row] = table[row] - table[row, k] * table[k]
    return table[:, -1]


def least_shares(matrix):
    """The x of sum 1, none below 0, of least x' matrix x: the best over all sets of members."""
    size = len(matrix)
    scale = np.sqrt(np.diag(matrix))
    if not scale.all():  # nothing varies
        return np.full(size, LD(1) / size)
    best, least = None, np.inf
    for number in range(1, size + 1):
        for some in map(list, itertools.combinations(range(size), number)):
            related = matrix[np.ix_(some, some)] / np.outer(scale[some], scale[some])
            found = solve(related, 1 / scale[some]) / scale[some]
            if np.all(found >= 0):
                shares = np.zeros(size, LD)
                shares[some] = found / found.sum()
                objective = shares @ matrix @ shares
                if objective < least:
                    best, least = shares, objective
    return best


def interval(values, value, confidence=0.9):
    """The percentile interval of those that are defined, widened to hold the value."""
    known = [x for x in values if not np.isnan(x)]
    tail = (1 - confidence) / 2
    ends = np.quantile(known, [tail, 1 - tail]) if known else (value, value)
    return min(ends[0], value), max(ends[1], value)


def parts(data, qhat, discount=1.0, rows=None, resamples=200):
    """What each trajectory adds to every member, and the interval of `wdr`."""
    found = tables(data, qhat)
    rows = drawn_rows(len(data), resamples) if rows is None else rows
    value = wdr(*found, discount)
    drawn = [wdr(*(x[row] for x in found), discount) for row in rows]
    return member_terms(*found, discount), interval(drawn, value)


def magic(data, qhat, discount=1.0, **drawing):
    """The members g^(j) by the shares that make x' (Omega + b b') x least."""
    found = tables(data, qhat)
    if not found[0].sum(0).all() or np.isnan(found[0]).any():
        return float("nan")
    terms, ends = parts(data, qhat, discount, **drawing)
    return float(least_shares(error_matrix(terms, *ends)) @ terms.sum(0))
