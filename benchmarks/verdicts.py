"""How good verdicts are: errors and intervals by verdict, on simulated logs of known truth.

    python benchmarks/verdicts.py design          # the half on which the limits were set
    python benchmarks/verdicts.py report          # the other half
    python benchmarks/verdicts.py express         # the paper's gridworlds, N = 25
    python benchmarks/verdicts.py dilly-dallying

For each verdict: |error| in standard deviations of the return, |error| in stated standard errors
(at most 10 count, for an error of 0 may be stated), and the share of 95 % intervals that hold the
truth; between neighbours the difference in its own standard errors.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd
import typer
from verdict_logs import KINDS, LOGS_OF_A_KIND, draw_log

import osiris_jax as oj
from osiris_jax.inference.weights import SEVERITY

ESTIMATORS = ("osirwis", "wis")
MEASURES = {"|error|": 1, "in standard errors": 1, "intervals that hold": -1}
MOST_ERRORS = 10
GRIDWORLD_LOGS = 200


def simulated(half: str) -> Iterator[tuple[str, oj.TrajectoryBatch, float]]:
    """Kind, log and truth of every log of the half."""
    for kind in range(len(KINDS)):
        for number in range(half == "report", LOGS_OF_A_KIND, 2):
            log = draw_log(kind, number)
            yield f"{log.kind}, {'Markov' if log.markov else 'not Markov'}", log.batch, log.truth


def gridworld(name: str) -> Iterator[tuple[str, oj.TrajectoryBatch, float]]:
    """The paper's data sets of 25 trajectories, in units of the return."""
    world = oj.make(name)
    truth = world.exact().value
    for trial in range(GRIDWORLD_LOGS):
        key = jax.random.fold_in(jax.random.key(2026), trial)
        yield name, oj.pad_to(world.rollout(key, 25), 100), truth


def judged(kind: str, batch: oj.TrajectoryBatch, truth: float) -> list[dict[str, Any]]:
    """A row for each estimator."""
    rows = []
    for row in oj.evaluate(batch, ESTIMATORS, methods="percentile").rows:
        error = abs(row.value - truth)
        low, high = row.interval[1]
        in_errors = error / row.standard_error if row.standard_error > 0 else math.inf
        rows.append(
            {
                "kind": kind,
                "estimator": row.estimator,
                "verdict": row.verdict,
                "|error|": error,
                "in standard errors": min(in_errors, MOST_ERRORS),
                "intervals that hold": float(low <= truth <= high),
            }
        )
    return rows


def show(table: pd.DataFrame) -> None:
    """Prints the measures by verdict, and how far neighbours are apart."""
    for estimator, rows in table.groupby("estimator"):
        print(f"\n{estimator}: {len(rows)} logs")
        by_verdict = rows.groupby("verdict")
        mean = by_verdict[list(MEASURES)].mean().reindex(SEVERITY)
        error = by_verdict[list(MEASURES)].sem().reindex(SEVERITY)
        share = (by_verdict.size() / len(rows)).reindex(SEVERITY, fill_value=0)
        for verdict in SEVERITY:
            cells = [f"{mean.loc[verdict, m]:.3f}±{error.loc[verdict, m]:.3f}" for m in MEASURES]
            print(f"  {verdict:13} {100 * share[verdict]:5.1f} %  ", "  ".join(cells))
        for better, worse in itertools.pairwise(SEVERITY):
            apart = [
                sign
                * (mean.loc[worse, m] - mean.loc[better, m])
                / np.hypot(error.loc[worse, m], error.loc[better, m])
                for m, sign in MEASURES.items()
            ]
            words = "  ".join(f"{x:13.1f}" for x in apart)
            print(f"  {better} better than {worse}, in standard errors: {words}")
    osirwis = table[table["estimator"] == "osirwis"]
    print("\n", pd.crosstab(osirwis["kind"], osirwis["verdict"]), sep="")


def main(half: Literal["design", "report", "express", "dilly-dallying"]) -> None:
    """Prints the measures of each verdict."""
    logs = simulated(half) if half in ("design", "report") else gridworld(half)
    start, rows = time.perf_counter(), []
    for number, log in enumerate(logs):
        rows += judged(*log)
        if number % 100 == 99:
            print(f"{number + 1} logs, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{half}: columns are {', '.join(MEASURES)}")
    show(pd.DataFrame(rows))


if __name__ == "__main__":
    typer.run(main)
