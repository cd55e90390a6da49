"""`markov_check`: is what estimators see as states all that matters?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import Options, bind, given
from osiris_jax.pipeline.spec import check_batch
from osiris_jax.relevance.markov import LEAST_TRAJECTORIES, holm, markov_pvalues

LAGS = (1, 2, 4, 8)


def markov_check(
    batch: TrajectoryBatch,
    lags: Sequence[int] = LAGS,
    *,
    first_visit: bool = False,
    discount: Any = 1.0,
    least_trajectories: int = LEAST_TRAJECTORIES,
) -> Array:
    """P-values of "given the state, it does not matter what was done c steps before", by lag c.

    Small where states are not Markov and what forgets the past, as `mis` and `dm` do, is biased.
    Large p-values are no evidence that they are. Assumes that one behaviour policy, which reads the
    state alone, made all trajectories, and that no cap on steps cuts them.

    At lag c, a visit (i, t) with t > c is labelled by whether rho_{t-c} > 1. In each state the
    covariance of labels and returns to go is tested: all visits of a trajectory count as one
    draw, in states where both labels were seen in at least `least_trajectories` trajectories
    (normal approximation). P-values are multiplied by the number of states tested (Bonferroni)
    and adjusted over lags (Holm 1979). Where all returns in a state are equal, p is 1.

    Args:
      batch: the data, with states and ratios; [traj, time].
      lags: whole numbers of at least 1.
      first_visit: use the first of a trajectory's visits with t > c instead, and an exact
        permutation test at any number of trajectories: how many more of one label have returns in
        the highest quarter than in the lowest. Stronger where an early action decides.
        States whose sizes alone exclude so small a p-value are not counted (Tarone 1990).
      discount: gamma in [0, 1].
      least_trajectories: in which a state is tested, with either label; not with `first_visit`.

    Returns:
      [lag]; NaN where no state can be tested, or a ratio or reward is unknown.

    Example:
      >>> oj.markov_check(batch, lags=(1, 2, 4)) <= 0.05    # NaN, undecided, is not below
    """
    check_batch(batch)
    if first_visit and given(least_trajectories):
        raise ValueError("least_trajectories: has no effect, for first visits are tested exactly")
    settings = {"first_visit": first_visit, "discount": discount}
    settings |= {"least_trajectories": least_trajectories}
    options = bind(markov_pvalues, settings, batch.dtype)
    return _adjusted(batch, check_lags(lags), options)


def check_lags(lags: Any) -> np.ndarray:
    """The lags as an array, or a ValueError."""
    try:
        found = np.asarray(lags)
    except Exception:  # a tracer, or rows of unequal length
        found = np.asarray(None)
    if found.shape == (0,):
        raise ValueError("lags: none given")
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(f"lags: expected a list of whole numbers, got {lags!r}")
    if found.min() < 1:
        raise ValueError(f"lags: must be at least 1, got {found.min()}")
    return np.minimum(found, np.iinfo(np.int32).max).astype(np.int32)


@compiled(quick=True)
def _adjusted(batch: TrajectoryBatch, lags: Array, options: Options) -> Array:
    return holm(markov_pvalues(batch, jnp.asarray(lags), **options.keywords))
