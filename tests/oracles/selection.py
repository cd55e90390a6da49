"""Slow, plain oracles for the data's own Markov chain and for the choice of a level.

A data set is a list of trajectories as in `oracles`.
"""

import numpy as np

from oracles import core
from oracles.core import LD

END = None


def visits_by_state(data):
    """State -> [(ratio, reward, successor)], the visits of the chain.

    A visit at the last step of a trajectory leads to the end. One at the time when the longest
    trajectory ends may have been cut: it is left out unless the state has visits of this kind only.
    """
    longest = core.horizon(data)
    early, late = {}, {}
    for traj in data:
        states = [int(s) for s in traj["states"]]
        for t, state in enumerate(states):
            ratio = np.exp(LD(traj["log_ratio"][t]))
            after = states[t + 1] if t + 1 < len(states) else END
            into = early if t + 1 < longest else late
            into.setdefault(state, []).append((ratio, LD(traj["rewards"][t]), after))
    return late | early


def divided_by_their_mean(visits):
    """The visits with ratios over their mean; 0 where all are 0."""
    mean = sum(ratio for ratio, _, _ in visits) / len(visits)
    return [(ratio / mean if mean > 0 else LD(0), *rest) for ratio, *rest in visits]


def state_moments(data, keep, discount=1.0):
    """State -> (V, M^0, M^1, M^2) of the composite policy of a map, in the chain.

    With h steps to go, in every state: V_h = E[u (r + gamma V_{h-1})], and for k = 0, 1, 2
    M_h^k = E[u^2 sum_j (k over j) r^(k-j) gamma^j M_{h-1}^j], the mean over the state's visits.
    """
    by_state = {s: divided_by_their_mean(v) for s, v in visits_by_state(data).items()}
    gamma = LD(discount)
    nothing = (LD(0), LD(1), LD(0), LD(0))
    moments = dict.fromkeys(by_state, nothing)
    for _ in range(core.horizon(data)):
        longer = {}
        for state, visits in by_state.items():
            total = [LD(0)] * 4
            for ratio, reward, after in visits:
                u = ratio if keep[state] else LD(1)
                value, zeroth, first, second = nothing if after is END else moments[after]
                total[0] += u * (reward + gamma * value)
                total[1] += u**2 * zeroth
                total[2] += u**2 * (reward * zeroth + gamma * first)
                total[3] += u**2 * (
                    reward**2 * zeroth + 2 * reward * gamma * first + gamma**2 * second
                )
            longer[state] = tuple(x / len(visits) for x in total)
        moments = longer
    return moments


def composite_moments(data, keep, discount=1.0):
    """(v, E[(rho g)^2], E[(rho (g - v))^2]) of the composite policy of a map, in the chain."""
    moments = state_moments(data, keep, discount)
    starts = [moments[int(traj["states"][0])] for traj in data]
    value, zeroth, first, second = (sum(column) / len(data) for column in zip(*starts, strict=True))
    return float(value), float(second), float(second - 2 * value * first + value**2 * zeroth)


# --- scores, given the candidates' estimates --------------------------------------------------


def weights_and_returns(data, keep, discount):
    """(product of kept ratios, return) of each trajectory; `keep` is [step] by trajectory."""
    pairs = zip(data, keep, strict=True)
    weights = [np.prod(np.where(kept, core.ratios(traj), 1)) for traj, kept in pairs]
    return np.array(weights), np.array([core.returns(traj, discount) for traj in data])


def sample_variance(data, keep, discount, *, normalised):
    """Of IS: the population variance of rho g over N; of WIS: sum w^2 (g - WIS)^2."""
    weights, returns = weights_and_returns(data, keep, discount)
    if not normalised:
        return np.mean((weights * returns - np.mean(weights * returns)) ** 2) / len(data)
    weights = weights / np.sum(weights)
    return np.sum(weights**2 * (returns - np.sum(weights * returns)) ** 2)


def correction(data, value_of, discount):
    """(c, e^2): what the data say against V, and its squared standard error; NaN where undefined.

    c = sum_t gamma^(t-1) sum_i w_it d_it with d_it = r_t + gamma V(s_{t+1}) - V(s_t) and w_it =
    rho_{1:t} normalised over all i, ended ones with their final weight and d = 0; V = 0 after the
    end; e^2 is the sum over i of (sum_t gamma^(t-1) w_it (d_it - sum_j w_jt d_jt))^2.
    """
    gamma, total, influence = LD(discount), LD(0), np.zeros(len(data), LD)
    for t in range(core.horizon(data)):
        weights, surprises = [], []
        for traj in data:
            weights.append(np.prod(core.ratios(traj)[: t + 1]))
            values = [value_of[int(s)] for s in traj["states"]] + [LD(0)]
            alive = t < len(traj["rewards"])
            surprises.append(traj["rewards"][t] + gamma * values[t + 1] - values[t] if alive else 0)
        weights, surprises = np.array(weights), np.array(surprises, LD)
        if weights.sum() == 0:
            return LD(np.nan), LD(np.nan)
        share = weights / weights.sum()
        mean = np.sum(share * surprises)
        total += gamma**t * mean
        influence += gamma**t * share * (surprises - mean)
    return total, np.sum(influence**2)


def shrunk(correction, squared_error):
    """James and Stein: c max(0, 1 - 2 e^2 / c^2); 0 where all weights are 0 at a step."""
    if np.isnan(correction) or correction**2 <= 2 * squared_error:
        return LD(0)
    return correction - 2 * squared_error / correction


def corrected_value(data, value_of, discount):
    """Mean of V(s_1), plus the shrunk correction."""
    start = np.mean([value_of[int(traj["states"][0])] for traj in data])
    return start + shrunk(*correction(data, value_of, discount))


def model_scores(data, values, maps, keeps, discount, *, normalised):
    """Half the squared distance from the target, plus the larger of two variances."""
    chain = state_moments(data, np.ones_like(maps[0]), discount)
    target = corrected_value(data, {s: x[0] for s, x in chain.items()}, discount)
    scores = []
    for value, keep, steps in zip(values, maps, keeps, strict=True):
        composite, second, centred = composite_moments(data, keep, discount)
        in_chain = (centred if normalised else second - composite**2) / len(data)
        in_sample = sample_variance(data, steps, discount, normalised=normalised)
        scores.append((value - target) ** 2 / 2 + max(in_chain, in_sample))
    return np.array(scores, float)


def filled(replicates):
    """Replicates [resample, level] with what is not finite replaced by the level's mean."""
    result = np.array(replicates, float)
    for column in result.T:
        good = np.isfinite(column)
        column[~good] = np.mean(column[good]) if good.any() else np.nan
    return result


def lepski_choice(values, replicates, width):
    """The last level whose interval, and those of all before it, have a point in common.

    Levels without an estimate are not there.
    """
    spread = filled(replicates).std(0)
    chosen, low, high = 0, -np.inf, np.inf
    for number, (value, error) in enumerate(zip(values, spread, strict=True)):
        if not np.isfinite(value):
            continue
        low, high = max(low, value - width * error), min(high, value + width * error)
        if low > high:
            break
        chosen = number
    return chosen


def bootstrap_scores(values, replicates, confidence):
    """Variance of the replicates, plus the squared distance from the first level's interval.

    The first level is the first with an estimate.
    """
    replicates, tail, scores = filled(replicates), (1 - confidence) / 2, []
    first = next(n for n, value in enumerate(values) if np.isfinite(value))
    low, high = np.quantile(replicates[:, first], [tail, 1 - tail])
    low, high = min(low, values[first]), max(high, values[first])
    for value, column in zip(values, replicates.T, strict=True):
        distance = low - value if value < low else max(value - high, 0)
        scores.append(np.mean((column - column.mean()) ** 2) + distance**2)
    return np.array(scores)


def choice(scores, values):
    """The first level of the smallest score; one that is undefined, or its estimate, is worse."""

    def rank(number):
        undefined = not np.isfinite(scores[number])
        return np.isnan(values[number]), undefined, 0 if undefined else scores[number], number

    return min(range(len(scores)), key=rank)
