"""INCRIS on wild data sets against long double: is a value further off than its type explains?

    python benchmarks/incris_wild.py [data sets, by default 2000]

Ratios from e^-50 to e^50, zeros, rewards of three sizes, five shapes, both float types. The choice
of a cut is not continuous, so a cut is judged by its exact score: it may exceed the best one's by
documented ties and rounding, which is 1 unit; and the mean there by rounding alone. An estimate may
be NaN or infinite only where one of its means cannot be represented.
"""

import importlib
import sys
import time
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import osiris_jax as oj
from osiris_jax.estimators import incremental

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
wild = importlib.import_module("oracle_wild")

DATA_SETS = 2000


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
    known = [one for one in legal if one.representable]
    return {
        "illegal cuts": len(judged) - len(legal),
        "score": max((one.score_units for one in legal), default=0.0),
        "mean": max((one.mean_units for one in known), default=0.0),
        "undefined": int(not np.isfinite(value)),
        "wrongly": int(not np.isfinite(value) and len(known) == len(judged)),
    }


def main():
    """Prints a row for each float type."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else DATA_SETS
    print("| float type | data sets | illegal cuts | score | mean | not finite | wrongly |")
    print("|---|---|---|---|---|---|---|")
    for float_type in ("float32", "float64"):
        start, total, worst = time.perf_counter(), Counter(), Counter()
        with jax.enable_x64(float_type == "float64"):
            for seed in range(number):
                found = judge(seed, float_type)
                for name in ("score", "mean"):
                    worst[name] = max(worst[name], found[name])
                total.update({k: found[k] for k in ("illegal cuts", "undefined", "wrongly")})
                if max(found["score"], found["mean"]) > 1 or found["wrongly"]:
                    print(f"data set {seed}: {found}", file=sys.stderr)
        print(
            f"| {float_type} | {number} | {total['illegal cuts']} | {worst['score']:.2g} | "
            f"{worst['mean']:.2g} | {total['undefined']} | {total['wrongly']} |"
        )
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
