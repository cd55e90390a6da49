"""STAR from its definition: weights of visits, links of states, equations solved in long double."""

import numpy as np

from oracles.core import LD, horizon, mean, ratios, rewards

END = "end"


def star(
    data,
    discount=1.0,
    past=1,
    sweeps=None,
    cut="end",
    visits="discounted",
    unsupported="behavior",
    average=False,
):
    """The mean of v in the first states, v(s) = sum over visits of share (r + gamma v(s'))."""
    discount = LD(discount)
    by_state = visits_by_state(data, cut)
    weighing = {"discount": discount if visits == "discounted" else LD(1), "average": average}
    links, barred = {}, set()
    for state, those in by_state.items():
        found = None
        for length in (past, 1):
            weight = weights(data, those, length, **weighing)
            if sum(weight) > 0:
                found = weight
                break
        if found is None and unsupported == "nan":
            barred.add(state)
            continue
        found = [LD(1)] * len(those) if found is None else found
        total = sum(found)
        links[state] = [
            (w / total, rewards(data[i])[t], following(data[i], t))
            for w, (i, t) in zip(found, those, strict=True)
        ]
    first = [int(traj["states"][0]) for traj in data]
    if sweeps is not None:
        value = swept(links, barred, discount, int(sweeps))
    else:
        value = solved(links, barred, discount)
    return float(mean([value[state] for state in first]))


def visits_by_state(data, cut):
    """State -> visits (i, t); those at the last time are left out of states that have others."""
    every = {}
    for i, traj in enumerate(data):
        for t, state in enumerate(traj["states"]):
            every.setdefault(int(state), []).append((i, t))
    if cut == "end":
        return every
    last = horizon(data) - 1
    early = {s: [visit for visit in those if visit[1] < last] for s, those in every.items()}
    return {s: early[s] or those for s, those in every.items()}


def following(traj, t):
    """The state after step t, or the end."""
    return int(traj["states"][t + 1]) if t + 1 < len(traj["states"]) else END


def weights(data, those, past, discount, average):
    """gamma^t times the last `past` ratios, 0 for all; the last by actions seen if `average`."""
    before, logged = [], []
    for i, t in those:
        rho = ratios(data[i])
        start = 0 if past == 0 else max(0, t - past + 1)
        before.append(discount**t * np.prod(rho[start:t]))
        logged.append(rho[t])
    if not average:
        return [u * rho for u, rho in zip(before, logged, strict=True)]
    found = []
    for u, (i, t) in zip(before, those, strict=True):
        action = int(data[i]["actions"][t])
        chance = sum(
            v * LD(data[j]["target_probs"][k][action])
            for v, (j, k) in zip(before, those, strict=True)
        )
        same = sum(
            v
            for v, (j, k) in zip(before, those, strict=True)
            if int(data[j]["actions"][k]) == action
        )
        found.append(u * chance / same if same > 0 else LD(0))
    return found


def swept(links, barred, discount, sweeps):
    """v after so many turns from 0."""
    value = dict.fromkeys([*links, *barred], LD(0))
    for _ in range(sweeps):
        value = {
            **{
                s: sum(
                    (
                        p * (r + (discount * value[n] if n != END else 0))
                        for p, r, n in out
                        if p > 0
                    ),
                    LD(0),
                )
                for s, out in links.items()
            },
            **dict.fromkeys(barred, LD(np.nan)),
        }
    return value


def solved(links, barred, discount):
    """v by Gauss and Jordan, NaN where links lead to states from which the end is never reached."""
    lost = set(barred)
    if discount == 1:
        lost |= set(links) - leading_to(links, {END})
    nan = leading_to(links, lost) | lost if discount > 0 else lost
    states = [s for s in links if s not in nan]
    place = {s: k for k, s in enumerate(states)}
    matrix, right = np.eye(len(states), dtype=LD), np.zeros(len(states), LD)
    for s in states:
        for p, r, n in links[s]:
            right[place[s]] += p * r
            if n in place:
                matrix[place[s], place[n]] -= discount * p
    for k in range(len(states)):
        pivot = k + int(np.argmax(np.abs(matrix[k:, k])))
        matrix[[k, pivot]], right[[k, pivot]] = matrix[[pivot, k]], right[[pivot, k]]
        right[k], matrix[k] = right[k] / matrix[k, k], matrix[k] / matrix[k, k]
        for other in set(range(len(states))) - {k}:
            right[other] -= matrix[other, k] * right[k]
            matrix[other] -= matrix[other, k] * matrix[k]
    return dict(zip(states, right, strict=True)) | dict.fromkeys(nan, LD(np.nan))


def leading_to(links, goal):
    """The states from which links of positive share lead to one of these."""
    found, grows = set(), True
    while grows:
        more = {
            s
            for s, out in links.items()
            if s not in found and any(p > 0 and (n in goal or n in found) for p, _, n in out)
        }
        found, grows = found | more, bool(more)
    return found
