"""The README's first look over many seeds: how often intervals of default arguments hold 0.8.

python benchmarks/first_look.py --seeds 200
"""

from __future__ import annotations

import argparse
import random

import numpy as np

import osiris_jax as oj

TRUTH = 0.8


def episode(steps: int) -> dict[str, list]:
    """As in the README: in state 0 the action decides the reward, in state 1 it does not."""
    actions = random.choices([0, 1], k=steps)
    return {
        "states": [0] + [1] * (steps - 1),
        "actions": actions,
        "rewards": [0.0] * (steps - 1) + [random.gauss(actions[0], 0.5)],
        "behavior_prob": [0.5] * steps,
        "target_prob": [[0.2, 0.8][a] for a in actions],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    found: dict[str, list[tuple[float, bool, str]]] = {}
    for seed in range(seeds):
        random.seed(seed)
        batch = oj.from_episodes([episode(random.randint(2, 14)) for _ in range(400)])
        result = oj.evaluate(batch)
        rows = {"headline": result.main, "osirwis": result["osirwis"], "wis": result["wis"]}
        for name, row in rows.items():
            low, high = row.interval[1]
            found.setdefault(name, []).append((row.value, low <= TRUTH <= high, row.verdict))
    for name, rows in found.items():
        values = np.array([value for value, _, _ in rows])
        rmse = np.sqrt(np.mean((values - TRUTH) ** 2))
        held = sum(holds for _, holds, _ in rows)
        print(
            f"{name}: mean {values.mean():.4f}, RMSE {rmse:.4f}, holds {TRUTH} in {held} of {seeds}"
        )
    verdicts = [verdict for _, _, verdict in found["headline"]]
    print("verdicts:", {verdict: verdicts.count(verdict) for verdict in sorted({*verdicts})})


if __name__ == "__main__":
    main()
