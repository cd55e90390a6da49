"""Evidence of relevance by state, and omission, from the definitions."""

import numpy as np

from oracles.core import LD, mean, ratios, returns, returns_to_go, variance
from oracles.stats import two_sample


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


def pvalues(data, num_states, test="welch", weighting="none", ddof=1, undecided=1.0, **sampling):
    """p-value of every state, see `decided`; options of `samples`."""
    return decided(samples(data, weighting, **sampling), num_states, test, ddof, undecided)


def decided(groups, num_states, test, ddof, undecided):
    """p-value of every state, clipped to [0, 1]; `undecided` where a group is empty or p is NaN."""
    result = np.full(num_states, float(undecided))
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


def given(data, num_states, keep):
    """0 for the states of the map, 1 for the others."""
    return np.array([0.0 if keep[state] else 1.0 for state in range(num_states)])


def by_fold(reference, data, folds, *args, **options):
    """[N, num_states]: row i is the evidence of the trajectories j with j mod K != i mod K."""
    rows = []
    for i in range(len(data)):
        others = [traj for j, traj in enumerate(data) if j % folds != i % folds]
        rows.append(reference(others, *args, **options))
    return np.stack(rows)


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
