"""Relevance tests: a p-value for every state (Algorithm 1 of Shen et al. 2021, and variants)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.relevance.samples import Visits, visits, visits_of


class Folds(NamedTuple):
    """Into which fold each trajectory falls; its own map is found from all other folds."""

    of_trajectory: Int[Array, " traj"]
    number: int


def welch(
    batch: TrajectoryBatch,
    *,
    weighting: str = "none",
    ddof=1,
    discount=1.0,
    undecided=1.0,
    first_visit: bool = False,
    classes: str = "ratio",
    leave_one_out: bool = False,
    folds: int = 0,
) -> Float[Array, "*rows state"]:
    """Welch's t-test of what follows actions with rho > 1 against the rest (Shen et al. 2021).

    Args:
      weighting: what return-to-go is weighed by, see `visits`.
      ddof: 1 for sample variances, 0 for population variances (as the paper's code).
      discount: gamma in [0, 1].
      undecided: p-value of a state that the test cannot decide (a group is empty, or 0 / 0).
      first_visit: use only a trajectory's first visit to a state, which makes samples independent.
      classes: how actions are divided into two groups, see `visits`.
      leave_one_out: a row of p-values for each trajectory, from the data without it.
      folds: a row of p-values for each trajectory i, from those j with j mod folds != i mod folds;
        0 for one row from all data.
    """
    visit = visits(
        batch, weighting=weighting, discount=discount, first_visit=first_visit, classes=classes
    )
    left_out = folds_of(len(visit.state), folds=folds, leave_one_out=leave_one_out)
    below, above = _moments_without_folds(batch, visit, left_out, classes)
    pvalue = stats.welch_from_moments(above, below, ddof=ddof).pvalue
    pvalue = decide(pvalue, undecided, visit.unknown)
    return _by_trajectory(pvalue, left_out)


def welch_of_visits(visit: Visits, num_states: int, *, ddof=1) -> Float[Array, " state"]:
    """Welch's p-value in every state, NaN where it is undefined."""
    below, above = moments_by_class(visit, num_states, None)
    return stats.welch_from_moments(above, below, ddof=ddof).pvalue[0]


def smirnov(
    batch: TrajectoryBatch,
    *,
    weighting: str = "none",
    discount=1.0,
    undecided=1.0,
    first_visit: bool = False,
    classes: str = "ratio",
    leave_one_out: bool = False,
    folds: int = 0,
) -> Float[Array, "*rows state"]:
    """Smirnov's two-sample test in place of Welch's (Shen et al. 2021, appendix).

    Options as for `welch`. Exact where the product of the group sizes is at most 250,000.
    """
    visit = visits(
        batch, weighting=weighting, discount=discount, first_visit=first_visit, classes=classes
    )
    left_out = folds_of(len(visit.state), folds=folds, leave_one_out=leave_one_out)

    def pvalues(visit: Visits) -> Float[Array, " state"]:
        pvalue = smirnov_of_visits(visit, batch.num_states).pvalue
        return decide(pvalue, undecided, visit.unknown)

    if left_out is None:
        return pvalues(visit)
    return _by_trajectory(_for_each_fold(pvalues, batch, visit, left_out, classes), left_out)


def effect(
    batch: TrajectoryBatch,
    *,
    weighting: str = "none",
    discount=1.0,
    first_visit: bool = False,
    classes: str = "ratio",
    leave_one_out: bool = False,
    folds: int = 0,
    shrink: bool = True,
) -> Float[Array, "*rows state"]:
    """Effect size: the groups' difference of means over the spread of returns, not a p-value.

    The difference d, known with standard error e, is shrunk to max(0, |d| - e^2 / |d|), as James
    and Stein do, so that what noise alone would show counts little. A state that Welch's test
    could not decide has effect 0. Options as for `welch`; a state is kept above a threshold.

    Args:
      shrink: False for the plain |d|.
    """
    visit = visits(
        batch, weighting=weighting, discount=discount, first_visit=first_visit, classes=classes
    )
    left_out = folds_of(len(visit.state), folds=folds, leave_one_out=leave_one_out)
    below, above = _moments_without_folds(batch, visit, left_out, classes)
    gap = jnp.abs(above.mean - below.mean)
    error = above.variance() / above.size + below.variance() / below.size
    decided = (above.size > 1) & (below.size > 1) & (gap > 0)
    safe_gap = jnp.where(decided, gap, 1)
    shrunk = safe_gap - jnp.where(decided, error, 0) / safe_gap if shrink else safe_gap
    spread = _spread_of_returns(batch, discount, left_out)
    # a scale may overflow, which must not meet an effect of 0
    scale = jnp.exp(visit.log_scale)[None] / jnp.where(spread > 0, spread, 1)[:, None]
    size = jnp.where(decided & (shrunk > 0), shrunk * scale, 0)
    return _by_trajectory(jnp.where(visit.unknown, jnp.nan, size), left_out)


def _spread_of_returns(
    batch: TrajectoryBatch, discount, left_out: Folds | None
) -> Float[Array, " fold"]:
    """Standard deviation of g, of all folds but each."""
    value = masked.returns(batch.reward, batch.mask, discount)
    fold, num_folds = left_out or Folds(jnp.zeros(len(value), jnp.int32), 1)
    moments = stats.segment_moments(value, fold, num_folds)
    moments = stats.leave_one_out(moments) if left_out is not None else moments
    return jnp.sqrt(moments.variance(ddof=0))


def folds_of(num_trajectories: int, *, folds: int, leave_one_out: bool) -> Folds | None:
    """Folds by i mod `folds`, or one for each trajectory; None where nothing is left out."""
    if folds < 0 or folds == 1:
        raise ValueError(f"folds: expected 0, or 2 and more, got {folds}")
    if leave_one_out and folds:
        raise ValueError("folds: leave_one_out already leaves out each trajectory by itself")
    number = num_trajectories if leave_one_out else folds
    return Folds(jnp.arange(num_trajectories) % number, number) if number else None


def _by_trajectory(
    by_fold: Float[Array, "fold state"], left_out: Folds | None
) -> Float[Array, "*rows state"]:
    """The one row, or for each trajectory that of its fold."""
    return by_fold[0] if left_out is None else by_fold[left_out.of_trajectory]


def _for_each_fold(
    of_visits: Callable[[Visits], Any],
    batch: TrajectoryBatch,
    visit: Visits,
    left_out: Folds,
    classes: str,
) -> Any:
    """What is found in the visits of all folds but one, for each fold."""

    def without(k: Int[Array, ""]) -> Any:
        return of_visits(visits_of(visit, batch, left_out.of_trajectory != k, classes=classes))

    return lax.map(without, jnp.arange(left_out.number))


def _moments_without_folds(
    batch: TrajectoryBatch, visit: Visits, left_out: Folds | None, classes: str
) -> tuple[stats.Moments, stats.Moments]:
    """`moments_by_class`, where classes that depend on the data are made without the fold too."""
    if left_out is None or classes == "ratio":
        return moments_by_class(visit, batch.num_states, left_out)
    moments = _for_each_fold(
        lambda kept: moments_by_class(kept, batch.num_states, None), batch, visit, left_out, classes
    )
    return jax.tree.map(lambda x: x[:, 0], moments)


def moments_by_class(
    visit: Visits, num_states: int, left_out: Folds | None
) -> tuple[stats.Moments, stats.Moments]:
    """Moments [fold, state] of the samples below and above, of all folds but that of the row."""
    everything = Folds(jnp.zeros(len(visit.state), jnp.int32), 1)
    fold, num_folds = left_out or everything
    group = 2 * (visit.state + num_states * fold[:, None]) + visit.above
    segment = jnp.where(visit.used, group, 2 * num_states * num_folds)
    by_fold = stats.family_moments(visit.value.ravel(), segment.ravel(), (num_folds, num_states, 2))
    by_fold = stats.leave_one_out(by_fold) if left_out is not None else by_fold
    below, above = (stats.Moments(*(x[..., side] for x in by_fold)) for side in (0, 1))
    return below, above


def smirnov_of_visits(visit: Visits, num_states: int) -> stats.SmirnovResult:
    """Smirnov's test in every state, with its statistic and whether the p-value is exact."""
    segment = jnp.where(visit.used, visit.state, num_states)
    return stats.segment_smirnov(
        visit.value.ravel(), visit.above.ravel(), segment.ravel(), num_states
    )


def oracle(
    batch: TrajectoryBatch, *, keep: Shaped[Array | np.ndarray, "*rows state"]
) -> Float[Array, "*rows state"]:
    """A map given by the user: p = 0 where `keep` is true, 1 elsewhere.

    Args:
      keep: [state], or [traj, state], true for the states whose ratios are kept.
    """
    keep = jnp.asarray(keep)
    if keep.shape[-1:] != (batch.num_states,):
        raise ValueError(
            f"keep: its last axis must have the batch's {batch.num_states} states, "
            f"but its shape is {keep.shape}"
        )
    return jnp.where(keep.astype(bool), 0, 1).astype(batch.dtype)


def decide(
    pvalue: Float[Array, "*shape"], undecided, unknown: Bool[Array, ""] | bool = False
) -> Float[Array, "*shape"]:
    """p clipped to [0, 1], `undecided` where it is NaN; all NaN where a ratio is `unknown`."""
    decided = jnp.where(jnp.isnan(pvalue), undecided, jnp.clip(pvalue, 0, 1))
    return jnp.where(unknown, jnp.nan, decided)
