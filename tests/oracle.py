"""Slow, plain oracles for the estimators and p-values, written straight from the definitions.

A data set is a list of trajectories; a trajectory is a dict of 1-D arrays `states`, `actions`,
`rewards` and `log_ratio` (which may hold -inf). Arithmetic is in long double, estimates are Python
floats, NaN where a normaliser is empty. Nothing here may import the library under test.
The doubly robust estimators are in `oracle_dr`, those by lag in `oracle_lagged`.
"""

import math
import warnings

import numpy as np
from scipy import stats

LD = np.longdouble
ABSORBED = -1  # the state id of a finished trajectory
EXACT_SMIRNOV_LIMIT = 250_000  # where n+ n- exceeds this the asymptotic p-value is used


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


# --- estimators -------------------------------------------------------------------------------


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


# --- relevance --------------------------------------------------------------------------------


def samples(data, weighting="none", discount=1.0, first_visit=False, classes="ratio"):
    """State -> (G+, G-): the x of its visits with rho_t > 1 and with rho_t <= 1.

    x is g_{t:T} times rho_{t:T} ("to-go"), rho_{t+1:T} ("future") or 1 ("none"). Ratios are sorted
    before they are multiplied, so that x equal but for the order of their ratios are tied.
    With classes="return", G+ are the visits with an action most of whose x exceed the median x.
    """
    visits = {}
    for traj in data:
        to_go, ratio, seen = returns_to_go(traj, discount), ratios(traj), set()
        for t, state in enumerate(int(s) for s in traj["states"]):
            if first_visit and state in seen:
                continue
            seen.add(state)
            first = {"to-go": t, "future": t + 1, "none": len(ratio)}[weighting]
            x = to_go[t] * np.prod(np.sort(ratio[first:]))
            visits.setdefault(state, []).append((x, traj["actions"][t], traj["log_ratio"][t] > 0))
    groups = {}
    for state, found in visits.items():
        above = [likelier for _, _, likelier in found]
        if classes == "return":
            chosen = actions_of_high_return(found)
            above = [action in chosen for _, action, _ in found]
        pairs = list(zip(found, above, strict=True))
        groups[state] = tuple([v[0] for v, a in pairs if a == side] for side in (True, False))
    return groups


def actions_of_high_return(visits):
    """The actions with more than half of their x above the median of all x."""
    ordered = sorted(x for x, _, _ in visits)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    median = low if low == high else (low + high) / 2
    chosen = set()
    for action in {action for _, action, _ in visits}:
        exceeds = [x > median for x, other, _ in visits if other == action]
        if 2 * sum(exceeds) > len(exceeds):
            chosen.add(action)
    return chosen


def constant(group):
    """Whether all values of a group are equal."""
    return bool(np.all(group == group[0]))


def welch(plus, minus, ddof=1):
    """Two-sided Welch p-value, NaN for a group of at most `ddof` values and for t = 0/0.

    With v = var/n: t = (m+ - m-) / sqrt(v+ + v-), df = (v+ + v-)^2 / sum v^2/(n - 1), and 1 where
    that holds a 0/0 (as for n = 1). The variance of equal values is exactly 0.
    """
    groups = (plus, minus)
    if min(len(g) for g in groups) <= ddof:
        return np.nan
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if ddof == 1 and not any(constant(g) for g in groups):
            return float(stats.ttest_ind(plus, minus, equal_var=False).pvalue)
        n = np.array([len(g) for g in groups])
        m = np.array([g[0] if constant(g) else np.mean(g) for g in groups])
        v = np.array([0.0 if constant(g) else np.var(g, ddof=ddof) for g in groups]) / n
        df = np.sum(v) ** 2 / np.sum(v**2 / (n - 1))
        t = (m[0] - m[1]) / np.sqrt(np.sum(v))
        return float(2 * stats.t.sf(abs(t), 1.0 if np.isnan(df) else df))


def smirnov(plus, minus):
    """Two-sided two-sample Kolmogorov-Smirnov p-value, exact while n+ n- is within the limit."""
    if len(plus) * len(minus) > EXACT_SMIRNOV_LIMIT:
        return float(stats.ks_2samp(plus, minus, method="asymp").pvalue)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(stats.ks_2samp(plus, minus, method="exact").pvalue)
        except RuntimeWarning:  # SciPy gives up exactness where p = 1 rounds to 1 + 2e-16
            return 1.0


def two_sample(test, plus, minus, ddof):
    """The p-value of one state, its x divided by the largest |x| before they become float64."""
    scale = max(abs(x) for x in plus + minus)
    scale = scale if scale > 0 else LD(1)
    plus, minus = (np.array([float(x / scale) for x in group]) for group in (plus, minus))
    if test not in ("welch", "smirnov"):
        raise ValueError(f"test={test!r}")
    return welch(plus, minus, ddof) if test == "welch" else smirnov(plus, minus)


def pvalues(
    data,
    num_states,
    test="welch",
    weighting="none",
    ddof=1,
    discount=1.0,
    undecided=1.0,
    first_visit=False,
    classes="ratio",
):
    """p-value of every state, clipped to [0, 1]; `undecided` where a group is empty or p is NaN."""
    result = np.full(num_states, float(undecided))
    groups = samples(data, weighting, discount, first_visit, classes)
    for state, (plus, minus) in groups.items():
        p = two_sample(test, plus, minus, ddof) if plus and minus else np.nan
        if not np.isnan(p):
            result[state] = np.clip(p, 0.0, 1.0)
    return result


def effects(data, num_states, shrink=True, discount=1.0, **options):
    """|d|, or max(0, |d| - e^2 / |d|), over the population sd of g (1 if that is 0), by state.

    d is the difference of the groups' means and e its standard error, from sample variances. 0
    where d is 0 or a group has fewer than two values.
    """
    spread = np.sqrt(variance([returns(traj, discount) for traj in data], ddof=0)) if data else 0
    result = np.zeros(num_states)
    for state, groups in samples(data, discount=discount, **options).items():
        if min(len(group) for group in groups) > 1:
            gap = abs(mean(groups[0]) - mean(groups[1]))
            error = sum(variance(group, ddof=1) / len(group) for group in groups)
            if gap > 0:
                size = max(LD(0), gap - error / gap) if shrink else gap
                result[state] = size / (spread if spread > 0 else 1)
    return result


def variance(values, ddof):
    """sum (x - mean)^2 / (n - ddof)."""
    values = np.asarray(values, LD)
    return np.sum((values - mean(values)) ** 2) / (len(values) - ddof)


def evidence(data, num_states, test, **options):
    """p-values, or effects, of every state."""
    if test == "effect":
        return effects(data, num_states, **options)
    return pvalues(data, num_states, test, **options)


def evidence_by_fold(data, num_states, test, folds, **options):
    """[N, num_states]: row i is `evidence` of the trajectories j with j mod K != i mod K."""
    rows = []
    for i in range(len(data)):
        others = [traj for j, traj in enumerate(data) if j % folds != i % folds]
        rows.append(evidence(others, num_states, test, **options))
    return np.stack(rows)


def pvalues_leave_one_out(data, num_states, test="welch", **options):
    """[N, num_states]: row i is `pvalues` of the data without trajectory i."""
    return evidence_by_fold(data, num_states, test, folds=len(data), **options)


# --- omission ---------------------------------------------------------------------------------


def keep_map(pvalues, alpha):
    """theta(s) = [p <= alpha (1 + 1e-12)], and nothing at alpha = 0."""
    return (np.asarray(pvalues) <= alpha * (1 + 1e-12)) & (alpha > 0)


def at_steps(data, by_state):
    """For each trajectory the values at its steps; by_state is [state] or [traj, state]."""
    by_state = np.asarray(by_state)
    rows = [by_state] * len(data) if by_state.ndim == 1 else by_state
    return [row[np.asarray(traj["states"])] for row, traj in zip(rows, data, strict=True)]


def most_relevant(kept, badness, max_kept):
    """Of the steps kept, the first `max_kept` by (badness, time)."""
    order = sorted(
        (bad, t) for t, (keep, bad) in enumerate(zip(kept, badness, strict=True)) if keep
    )
    chosen = {t for _, t in order[:max_kept]}
    return np.array([t in chosen for t in range(len(kept))])


def omit(data, keep):
    """The data with log_ratio 0 where the state is not kept; keep is [state] or [traj, state]."""
    return omit_steps(data, at_steps(data, np.asarray(keep, bool)))


def omit_steps(data, kept):
    """The data of the composite policy: at steps not kept the target does as the behaviour.

    That is log_ratio 0; and target_probs, if there are any, become behavior_probs, or certainty of
    the action taken where those are unknown.
    """
    result = []
    for traj, keep in zip(data, kept, strict=True):
        changed = {**traj, "log_ratio": np.where(keep, traj["log_ratio"], 0.0)}
        if "target_probs" in traj:
            target = np.array(traj["target_probs"])
            certain = np.eye(target.shape[1])[np.asarray(traj["actions"])]
            target[~keep] = np.asarray(traj.get("behavior_probs", certain))[~keep]
            changed["target_probs"] = target
        result.append(changed)
    return result
