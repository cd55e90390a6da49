"""Whether the logged propensities fit the log: two checks that need no truth."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from osiris_jax.batch import TrajectoryBatch

FEWEST_REPEATS = 10


class Propensities(NamedTuple):
    """What the log says of its own propensities.

    Attributes:
      mean_ratio: of all steps; the ratio of a step has mean 1 whatever came before it, if the
        propensities are right and the behaviour can do all that the target does.
      mean_ratio_error: its standard error, steps of a trajectory counted together.
      repeats: how many standard errors more often than its probabilities allow the behaviour
        takes the same action when it comes back to a state; large where it knew something, such
        as a patient's frailty, that the log does not hold. None where this cannot be told.
    """

    mean_ratio: float
    mean_ratio_error: float
    repeats: float | None


def check_propensities(batch: TrajectoryBatch) -> Propensities | None:
    """Checks the propensities against the log; None for a log without ratios."""
    if batch.log_ratio is None:
        return None
    mask = np.asarray(batch.mask)
    ratio = np.exp(np.asarray(batch.log_ratio, np.float64)[mask])
    trajectory = np.nonzero(mask)[0]
    surplus = np.bincount(trajectory, ratio - 1, len(mask))
    steps = len(ratio)
    return Propensities(
        mean_ratio=float(1 + surplus.sum() / steps),
        mean_ratio_error=math.sqrt(float(surplus @ surplus)) / steps,
        repeats=_repeats(batch, mask, trajectory),
    )


def _repeats(batch: TrajectoryBatch, mask: np.ndarray, trajectory: np.ndarray) -> float | None:
    """z of sum_a e_t(a) e_u(a) over the pairs of visits t < u of a trajectory to one state.

    e_t(a) = [a_t = a] - pi_b(a | s_t) has mean 0 given the past, so the products have mean 0 too;
    a hidden cause that lasts for the episode makes them positive.
    """
    probs = _behavior_probs(batch, mask)
    if probs is None or batch.state is None or batch.action is None:
        return None
    action, state = np.asarray(batch.action)[mask], np.asarray(batch.state)[mask]
    residual = -probs
    residual[np.arange(len(action)), action] += 1
    place = trajectory.astype(np.int64) * batch.num_states + state
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(place[order]) > 0))
    together = np.add.reduceat(residual[order], first, axis=0)
    alone = np.add.reduceat((residual[order] ** 2).sum(1), first)
    visits = np.diff(np.append(first, len(order)))
    products = np.where(visits > 1, (together**2).sum(1) - alone, 0.0)
    of_trajectory = np.bincount(trajectory[order][first], products, len(mask))
    spread = math.sqrt(float(of_trajectory @ of_trajectory))
    if np.count_nonzero(of_trajectory) < FEWEST_REPEATS or not spread > 0:
        return None
    return float(of_trajectory.sum()) / spread


def _behavior_probs(batch: TrajectoryBatch, mask: np.ndarray) -> np.ndarray | None:
    """[step, action] pi_b; of the logged actions alone, if it is one number for state and action.

    The residual of each action has mean 0 by itself, so one never seen in a state may be left out.
    """
    if batch.behavior_probs is not None:
        return np.array(batch.behavior_probs, np.float64)[mask]
    if batch.behavior_log_prob is None or batch.state is None or batch.action is None:
        return None
    state, action = np.asarray(batch.state)[mask], np.asarray(batch.action)[mask]
    logged = np.exp(np.asarray(batch.behavior_log_prob, np.float64)[mask])
    table = np.zeros((batch.num_states, batch.num_actions))
    table[state, action] = logged
    if not np.allclose(table[state, action], logged, rtol=1e-5, atol=0):
        return None
    return table[state]
