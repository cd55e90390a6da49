"""Checks of propensities by loops over ragged lists, from their definitions."""

import math


def mean_ratio(episodes):
    """Mean over all steps of pi_e / pi_b of the action, and its error, trajectories together."""
    surplus, steps = [], 0
    for episode in episodes:
        ratios = [
            target[action] / behavior[action]
            for target, behavior, action in zip(
                episode["target_probs"], episode["behavior_probs"], episode["actions"], strict=True
            )
        ]
        surplus.append(sum(ratio - 1 for ratio in ratios))
        steps += len(ratios)
    return 1 + sum(surplus) / steps, math.sqrt(sum(x * x for x in surplus)) / steps


def repeats(episodes):
    """z of the products of residuals over all ordered pairs of visits to one state."""
    products = []
    for episode in episodes:
        total, steps = 0.0, range(len(episode["actions"]))
        for t in steps:
            for u in steps:
                if t != u and episode["states"][t] == episode["states"][u]:
                    for action, (at_t, at_u) in enumerate(
                        zip(episode["behavior_probs"][t], episode["behavior_probs"][u], strict=True)
                    ):
                        first = (episode["actions"][t] == action) - at_t
                        total += first * ((episode["actions"][u] == action) - at_u)
        products.append(total)
    return sum(products) / math.sqrt(sum(x * x for x in products))
