"""INCRIS on wild data sets against long double: is a value further off than its type explains?

    python benchmarks/incris_wild.py [data sets, by default 2000]

Ratios from e^-50 to e^50, zeros, rewards of three sizes, five shapes, both float types. The choice
of a cut is not continuous, so a cut is judged by its exact score: it may exceed the best one's by
documented ties and rounding, which is 1 unit; and the mean there by rounding alone. An estimate may
be NaN or infinite only where one of its means cannot be represented.
"""

import sys
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import typer
from workbench import of_tests, timed

import osiris_jax as oj
from osiris_jax.estimators import incremental

(wild,) = of_tests("oracles.incremental")


@jax.jit
def ours(batch):
    """The cuts, their means, and the estimate."""
    choice = incremental.choose_cuts(batch, batch.log_ratio)
    return choice, oj.ESTIMATORS["incris"](batch, batch.log_ratio)


def judge(seed, float_type):
    """What is wrong with one data set, and its worst errors in units."""
    data = wild.wild_data(seed, float_type)
    batch = oj.TrajectoryBatch(*map(jnp.asarray, (data.reward, data.mask, data.log_ratio)))
    choice, value = jax.tree.map(np.asarray, ours(batch))
    judged = [
        wild.judge_cut(wild.cuts_of_reward(data, t + 1), int(cut), mean, float_type)
        for t, (cut, mean) in enumerate(zip(*choice, strict=True))
    ]
    legal = [one for one in judged if one.legal]
    exact = [one for one in legal if one.representable]
    errors = {
        "illegal cuts": len(judged) - len(legal),
        "score": max((one.score_units for one in legal), default=0.0),
        "mean": max((one.mean_units for one in exact), default=0.0),
        "not finite": int(not np.isfinite(value)),
        "wrongly": int(not np.isfinite(value) and len(exact) == len(judged)),
    }
    if max(errors["score"], errors["mean"]) > 1 or errors["wrongly"]:
        print(f"data set {seed}: {errors}", file=sys.stderr)
    return errors


def main(datasets: Annotated[int, typer.Argument()] = 2000):
    """Prints a row for each float type."""
    print("| float type | data sets | illegal cuts | score | mean | not finite | wrongly |")
    print("|---|---|---|---|---|---|---|")
    for float_type in ("float32", "float64"):
        with jax.enable_x64(float_type == "float64"):
            rows, seconds = timed(lambda kind=float_type: [judge(i, kind) for i in range(datasets)])
        table = pd.DataFrame(rows)
        total, worst = table.sum().astype(int), table.max()
        print(
            f"| {float_type} | {datasets} | {total['illegal cuts']} | {worst['score']:.2g} | "
            f"{worst['mean']:.2g} | {total['not finite']} | {total['wrongly']} |"
        )
        print(f"{seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    typer.run(main)
