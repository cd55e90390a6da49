"""Estimators without a Q-hat and without lags, from the definitions."""

import math

import numpy as np

from oracles.core import LD, discounted_sum, horizon, mean, quotient, ratios, returns, rewards

ABSORBED = -1  # the state id of a finished trajectory


def mc(data, discount=1.0):
    """mean of g."""
    return float(mean([returns(traj, discount) for traj in data]))


def cut(weight, clip):
    """The weight, at most `clip`."""
    return weight if clip is None else min(weight, LD(clip))


def is_(data, discount=1.0, clip=None):
    """mean of g rho."""
    weights = [cut(np.prod(ratios(traj)), clip) for traj in data]
    return float(mean([w * returns(traj, discount) for w, traj in zip(weights, data, strict=True)]))


def weighted_mean_return(data, discount, clip=None):
    """sum g rho / sum rho, in long double."""
    weights = [cut(np.prod(ratios(traj)), clip) for traj in data]
    top = sum(w * returns(traj, discount) for w, traj in zip(weights, data, strict=True))
    return quotient(top, sum(weights))


def wis(data, discount=1.0, clip=None):
    """sum g rho / sum rho."""
    return float(weighted_mean_return(data, discount, clip))


def pdis(data, discount=1.0, clip=None):
    """mean of sum_t gamma^(t-1) r_t rho_{1:t}."""
    totals = []
    for traj in data:
        weights = [cut(weight, clip) for weight in np.cumprod(ratios(traj))]
        totals.append(discounted_sum(rewards(traj) * np.array(weights), discount))
    return float(mean(totals))


def cwpdis(data, discount=1.0, finished="keep", clip=None):
    """sum_t gamma^(t-1) sum_i w_it r_it / sum_i w_it, w_it = rho_{1:t}.

    A finished trajectory stays in the normaliser with its final weight ("keep"), leaves it
    ("drop"), or leaves it and step t is multiplied by the share of trajectories alive ("share").
    """
    total = LD(0)
    for t in range(horizon(data)):
        top, everyone, alive, num_alive = LD(0), LD(0), LD(0), 0
        for traj in data:
            weight = cut(np.prod(ratios(traj)[: t + 1]), clip)
            everyone += weight
            if t < len(traj["rewards"]):
                top += weight * rewards(traj)[t]
                alive += weight
                num_alive += 1
        step = {
            "keep": quotient(top, everyone),
            "drop": quotient(top, alive),
            "share": quotient(top, alive) * num_alive / len(data),
        }[finished]
        total += LD(discount) ** t * step
    return float(total)


def phwis(data, discount=1.0, length_probs=None, clip=None):
    """sum over lengths of P(length) times the WIS of the trajectories of that length.

    P is the share among the data, or the dict `length_probs` as it is: a length of probability 0
    is skipped, one of positive probability that the data lack makes the result NaN.
    """
    groups = {}
    for traj in data:
        groups.setdefault(len(traj["rewards"]), []).append(traj)
    if length_probs is None:
        length_probs = {length: LD(len(group)) / len(data) for length, group in groups.items()}
    total = LD(0)
    for length, prob in length_probs.items():
        if prob > 0:
            total += LD(prob) * weighted_mean_return(groups.get(length, []), discount, clip)
    return float(total)


def rcis(data, discount=1.0):
    """mean of g E[rho | g], the expectation for i from those j with j mod 5 != i mod 5.

    It is the mean rho of those in the bin of g; n returns make B = ceil(sqrt(N)) bins that end
    at the ceil(b n / B)-th smallest, that one included, b = 1..B; NaN where there are none.
    """
    number, total = len(data), LD(0)
    g = [returns(traj, discount) for traj in data]
    for i in range(number):
        others = [j for j in range(number) if j % 5 != i % 5]
        if not others:
            return float("nan")
        ordered = sorted(g[j] for j in others)
        num_bins = math.ceil(math.sqrt(number))
        ends = [ordered[-(-b * len(others) // num_bins) - 1] for b in range(1, num_bins + 1)]

        def end_of_bin(value, ends=ends):
            return min((end for end in ends if value <= end), default=ends[-1])

        mates = [j for j in others if end_of_bin(g[j]) == end_of_bin(g[i])]
        total += g[i] * mean([np.prod(ratios(data[j])) for j in mates])
    return float(total / number)


def squared_error(before, kept, divisor=1):
    """cov(before, kept)^2 + var(kept) / divisor, population moments."""
    before, kept = np.asarray(before, LD), np.asarray(kept, LD)
    covariance = mean((before - mean(before)) * (kept - mean(kept)))
    return covariance**2 + mean((kept - mean(kept)) ** 2) / divisor


def pick(scores, tie):
    """The mean that goes with the smallest k whose score is <= best (1 + tie)."""
    best = min(score for score, _ in scores)
    return next(value for score, value in scores if score <= best * (1 + LD(tie)))


def window_scores(data, t, end, divisor=1):
    """[(cov(A, B r_t)^2 + var(B r_t) / divisor, mean(B r_t)) for k = 0..t], t from 1.

    A = rho_{1:t-k}, B = rho_{t-k+1:end}; after the end of a trajectory ratios are 1 and rewards 0.
    """
    reward = [rewards(traj)[t - 1] if t <= len(traj["rewards"]) else LD(0) for traj in data]
    scores = []
    for k in range(t + 1):
        before = [np.prod(ratios(traj)[: t - k]) for traj in data]
        window = [np.prod(ratios(traj)[t - k : end]) for traj in data]
        kept = [b * r for b, r in zip(window, reward, strict=True)]
        scores.append((squared_error(before, kept, divisor), mean(kept)))
    return scores


def incris_scores(data, discount, t, variance="of-one"):
    """[(Chat_k^2 + Vhat_k, mean(B r_t)) for k = 0..t], r_t including its gamma^(t-1).

    B = rho_{t-k+1:t}, moments over all N; variance="of-mean" is Vhat_k / N.
    """
    scale = LD(discount) ** (t - 1)
    divisor = {"of-one": 1, "of-mean": len(data)}[variance]
    scores = window_scores(data, t, t, divisor)
    return [(score * scale**2, value * scale) for score, value in scores]


def incris(data, discount=1.0, variance="of-one", tie=1e-9):
    """sum_t gamma^(t-1) mean(B r_t), at each t with the smallest k of least score."""
    steps = range(1, horizon(data) + 1)
    return float(sum(pick(incris_scores(data, discount, t, variance), tie) for t in steps))


def state_at(traj, t):
    """s_t (t from 0), ABSORBED after the end."""
    return int(traj["states"][t]) if t < len(traj["states"]) else ABSORBED


def marginalised(data, discount, count_pairs):
    """sum_t gamma^(t-1) sum_i d_t(s_t) rho_t r_t / n_t(s_t); d_1 = n_1 / N.

    d_{t+1}(s') is sum_i [s_{t+1} = s'] d_t(s_t) rho_t / n, scaled to sum 1, with n = n_t(s_t), or
    n_t(s_t, s') if `count_pairs`. In ABSORBED the ratio is 1 and the reward 0.
    """
    total, mass = LD(0), {}
    for traj in data:
        mass[state_at(traj, 0)] = mass.get(state_at(traj, 0), LD(0)) + LD(1) / len(data)
    for t in range(horizon(data)):
        pairs = [(state_at(traj, t), state_at(traj, t + 1)) for traj in data]
        states = [state for state, _ in pairs]
        following = {}
        for traj, (state, target) in zip(data, pairs, strict=True):
            alive = t < len(traj["rewards"])
            ratio, reward = (ratios(traj)[t], rewards(traj)[t]) if alive else (LD(1), LD(0))
            total += LD(discount) ** t * mass[state] * ratio * reward / states.count(state)
            count = pairs.count((state, target)) if count_pairs else states.count(state)
            following[target] = following.get(target, LD(0)) + mass[state] * ratio / count
        norm = sum(following.values())
        mass = {state: quotient(value, norm) for state, value in following.items()}
        total = total if norm != 0 else LD(np.nan)
    return float(total)


def mis(data, discount=1.0):
    """Tabular marginalised IS (Xie, Ma & Wang 2019) with an absorbing state: `marginalised`."""
    return marginalised(data, discount, count_pairs=False)


ESTIMATORS = {"mc": mc, "is": is_, "wis": wis, "pdis": pdis}
ESTIMATORS |= {"cwpdis": cwpdis, "phwis": phwis, "incris": incris, "mis": mis, "rcis": rcis}
