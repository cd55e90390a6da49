"""The README's first look over many seeds: how often intervals of default arguments hold 0.8.

python benchmarks/first_look.py --seeds 200
"""

import random

import pandas as pd
import typer

import osiris_jax as oj

TRUTH = 0.8


def episode(steps):
    """As in the README: in state 0 the action decides the reward, in state 1 it does not."""
    actions = random.choices([0, 1], k=steps)
    return {
        "states": [0] + [1] * (steps - 1),
        "actions": actions,
        "rewards": [0.0] * (steps - 1) + [random.gauss(actions[0], 0.5)],
        "behavior_prob": [0.5] * steps,
        "target_prob": [[0.2, 0.8][a] for a in actions],
    }


def looks(seed):
    """The headline and two estimators on the data set of a seed: name, value, holds, verdict."""
    random.seed(seed)
    batch = oj.from_episodes([episode(random.randint(2, 14)) for _ in range(400)])
    result = oj.evaluate(batch)
    for name in ("headline", "osirwis", "wis"):
        row = result.main if name == "headline" else result[name]
        low, high = row.interval[1]
        yield name, row.value, low <= TRUTH <= high, row.verdict


def main(seeds: int = 200):
    """Prints how often each interval holds, and the verdicts."""
    rows = [row for seed in range(seeds) for row in looks(seed)]
    table = pd.DataFrame(rows, columns=["name", "value", "holds", "verdict"])
    for name, looked in table.groupby("name", sort=False):
        rmse = ((looked["value"] - TRUTH) ** 2).mean() ** 0.5
        print(
            f"{name}: mean {looked['value'].mean():.4f}, RMSE {rmse:.4f}, "
            f"holds {TRUTH} in {looked['holds'].sum()} of {seeds}"
        )
    verdicts = table["verdict"][table["name"] == "headline"].value_counts().sort_index()
    print("verdicts:", verdicts.to_dict())


if __name__ == "__main__":
    typer.run(main)
