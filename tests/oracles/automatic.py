"""The automatic choice from its description in docs/automatic.md, in long double."""

import math

import numpy as np
import scipy.stats

from oracles import doubly_robust, estimators, marginal, markov, relevance, selection
from oracles.core import LD, mean, quotient, ratios, returns

LAGS, LEVELS = (1, 2, 4, 8), (0.05, 0.01)
DOUBT, EVIDENCE, LEAST_SQUARE, UNSEEN = 2.0, 6.9, 2.0, 5.0


def value(data, discount=1.0):
    """The estimate."""
    return decide(data, discount)["value"]


def decide(data, discount=1.0):
    """The estimate, and the values and weights of all members in the order of the package."""
    gains = [returns(traj, discount) for traj in data]
    form = by_states if "states" in data[0] else by_paths
    found = form(data, gains, discount)
    used = [w * v for w, v in zip(found["weights"], found["values"], strict=True) if w != 0]
    unknown = any(np.isnan(x) or x == np.inf for traj in data for x in traj["log_ratio"])
    return found | {"value": math.nan if unknown else float(sum(used))}


def by_paths(data, gains, discount):
    """The mean, `wis` and `cwpdis`; the last as far as it exceeds what chance explains."""
    average, by_step = mean(gains), estimators.ESTIMATORS["cwpdis"](data, discount)
    square = (by_step - average) ** 2
    doubt = weighted_variance(data, gains) + error(gains) ** 2
    weight = square / (square + doubt) if square > 0 and np.isfinite(square) else 0
    values = [average, estimators.ESTIMATORS["wis"](data, discount), by_step]
    return {"values": values, "weights": [1 - weight, 0, weight]}


def by_states(data, gains, discount):
    """A model; its correction beyond its error; the whole past; the mean of what was not seen."""
    num_states = 1 + max(int(s) for traj in data for s in traj["states"])
    with_probs = "target_probs" in data[0]
    pvalues = relevance.pvalues(data, num_states, discount=discount)
    model, terms = (fitted if with_probs else chain)(data, num_states, discount)
    answer = sum(v * w for v, w in model)
    past, squares, sizes = [], [], []
    for level in LEVELS:
        keep = relevance.keep_map(pvalues, level)
        omitted = relevance.omit(data, keep)
        whole = estimators.wis(omitted, discount)
        expected, _, centred = selection.composite_moments(data, keep, discount)
        spread = max(weighted_variance(omitted, gains), centred / len(data))
        surprise = whole - expected - (answer - model[0][0])
        square = surprise**2 / spread if spread > 0 else 0
        past.append(whole)
        squares.append(square if np.isfinite(square) else 0)
        sizes.append(effective_size(omitted))
    best = int(np.argmax(squares))
    evidence = against(data, num_states, discount, squares[best], sizes[best])
    dropped = evidence > EVIDENCE and squares[best] > LEAST_SQUARE
    weights = [0 if dropped else w for _, w in model]
    weights += [int(dropped and k == best) for k in range(len(LEVELS))]
    values = [v for v, _ in model] + past
    chosen, average = sum(w * v for w, v in zip(weights, values, strict=True) if w), mean(gains)
    apart = error([x - g for x, g in zip(terms, gains, strict=True)])
    wanted = UNSEEN * unseen(data) * (apart if np.isfinite(apart) else 0)
    distance = abs(chosen - average)
    trust = (distance / wanted) ** 2 if distance < wanted else 1
    trust = trust if any(np.any(traj["log_ratio"]) for traj in data) else 0
    weights = [1 - trust, *(trust * w for w in weights)]
    return {"values": [average, *values], "weights": weights, "evidence": evidence}


def fitted(data, num_states, discount):
    """[(value, share)] of `dm` and of `drl` from all data, and the terms of the latter."""
    num_actions = np.shape(data[0]["target_probs"])[1]
    qhat = doubly_robust.fitted(data, num_actions, discount=discount, folds=0, smoothing=0.1)
    first = [v[0] for _, v in doubly_robust.step_values(data, qhat)]
    terms = marginal.terms(data, qhat, marginal.fitted_weights(data, 0), discount)
    value, corrected = mean(first), mean(terms)
    square = (corrected - value) ** 2
    doubt = DOUBT * error([x - v for x, v in zip(terms, first, strict=True)]) ** 2
    share = max(0, 1 - doubt / square) if square > 0 and np.isfinite(doubt) else 0
    return [(value, 1 - share), (corrected, share)], terms


def chain(data, num_states, discount):
    """[(value, share)] of the data's chain, all ratios kept, and terms with its values of states.

    A term is v(s_1) + sum_t gamma^(t-1) [mu_t (r_t + gamma v(s_{t+1})) - m_t v(s_t)], m_t being the
    weight of the state and mu_t that times rho_t.
    """
    moments = selection.state_moments(data, np.ones(num_states, bool), discount)
    terms = []
    for traj, marginals in zip(data, marginal.fitted_weights(data, 0), strict=True):
        v = [moments[int(s)][0] for s in traj["states"]] + [LD(0)]
        total = v[0]
        for t, (reward, ratio) in enumerate(zip(traj["rewards"], ratios(traj), strict=True)):
            gained = marginals[t] * ratio * (LD(reward) + LD(discount) * v[t + 1])
            total += LD(discount) ** t * (gained - marginals[t] * v[t])
        terms.append(total)
    return [(mean([moments[int(traj["states"][0])][0] for traj in data]), 1)], terms


def error(terms):
    """The standard error of a mean."""
    spread = sum((x - mean(terms)) ** 2 for x in terms) / len(terms)
    return np.sqrt(spread / max(len(terms) - 1, 1))


def weighted_variance(data, gains):
    """sum of squares of share (g - wis)."""
    weights = [np.prod(ratios(traj)) for traj in data]
    total = sum(weights)
    centre = quotient(sum(w * g for w, g in zip(weights, gains, strict=True)), total)
    return sum(
        quotient(w, total) ** 2 * (g - centre) ** 2 for w, g in zip(weights, gains, strict=True)
    )


def effective_size(data):
    """(sum of weights)^2 over the sum of squares; 1 where all are 0."""
    weights = [np.prod(ratios(traj)) for traj in data]
    return sum(weights) ** 2 / sum(w**2 for w in weights) if any(weights) else 1


def against(data, num_states, discount, square, size):
    """-log of the p-value of the Markov check, least over lags and forms, and of the distance."""
    least, decided = [], 0
    for lag in LAGS:
        seen = markov.visits(data, num_states, lag, discount, by_step=True)
        single = markov.most_visited(data, num_states, lag, discount)
        forms = [markov.clusters(seen, least=20), markov.first_visits(single)]
        known = [p for p in forms if not np.isnan(p)]
        if known:
            decided += 1
            least.append(min(1.0, len(known) * min(known)))
    pvalue = min(1.0, max(decided * min(least), 1e-30)) if least else 1.0
    distance = 2 * scipy.stats.t.sf(math.sqrt(float(square)), max(float(size) - 1, 1))
    return -math.log(pvalue) - math.log(max(distance, 1e-300))


def unseen(data):
    """The target's chance of actions that were never taken in the state, over all steps.

    From its probabilities of all actions, or else of those logged; 0 where it is not known.
    """
    steps = [(traj, t, int(s)) for traj in data for t, s in enumerate(traj["states"])]
    taken = {(s, int(traj["actions"][t])) for traj, t, s in steps}
    if "target_probs" in data[0]:
        rows = [(s, traj["target_probs"][t]) for traj, t, s in steps]
        return mean([sum(LD(p) for a, p in enumerate(x) if (s, a) not in taken) for s, x in rows])
    if "target_prob" not in data[0]:
        return 0
    seen = {pair: [] for pair in taken}
    for traj, t, s in steps:
        seen[s, int(traj["actions"][t])].append(LD(traj["target_prob"][t]))
    chances = [sum(mean(x) for (s, _), x in seen.items() if s == own) for _, _, own in steps]
    return mean([max(LD(0), 1 - chance) for chance in chances])
