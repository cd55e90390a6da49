"""Relevance tests: a p-value for every state (Algorithm 1 of Shen et al. 2021, and variants)."""

from __future__ import annotations

import math
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
from osiris_jax.core.options import takes_options_of
from osiris_jax.relevance.samples import Visits, visits, visits_of


class _Samples(NamedTuple):
    """The visits that a test compares, and the folds that are left out, one after another.

    `fold`: [traj] into which of `num_folds` each trajectory falls, whose own map is found from all
    other folds; None where nothing is left out.
    """

    batch: TrajectoryBatch
    visit: Visits
    classes: str
    fold: Int[Array, " traj"] | None
    num_folds: int

    def for_each_fold(self, of_visits: Callable[[Visits], Any]) -> Any:
        """[fold] what is found in the visits of all folds but that one, in classes of their own."""
        if self.fold is None:
            return jax.tree.map(lambda x: x[None], of_visits(self.visit))

        def without(k: Int[Array, ""]) -> Any:
            chosen = self.fold != k
            return of_visits(visits_of(self.visit, self.batch, chosen, classes=self.classes))

        return lax.map(without, jnp.arange(self.num_folds))

    def moments(self) -> tuple[stats.Moments, stats.Moments]:
        """[fold, state] of the samples below and above, of all folds but that of the row."""
        num_states = self.batch.num_states
        if self.classes == "ratio":
            return moments_by_class(self.visit, num_states, self.fold, self.num_folds)
        moments = self.for_each_fold(lambda kept: moments_by_class(kept, num_states))
        return jax.tree.map(lambda x: x[:, 0], moments)

    def by_trajectory(self, by_fold: Float[Array, "fold state"]) -> Float[Array, "*rows state"]:
        """The one row, or for each trajectory that of its fold."""
        return by_fold[0] if self.fold is None else by_fold[self.fold]


def _samples(
    batch: TrajectoryBatch,
    *,
    leave_one_out: bool = False,
    folds: int = 0,
    classes: str = "ratio",
    **sampling: Any,
) -> _Samples:
    if folds < 0 or folds == 1:
        raise ValueError(f"folds: expected 0, or 2 and more, got {folds}")
    if leave_one_out and folds:
        raise ValueError("folds: leave_one_out already leaves out each trajectory by itself")
    visit = visits(batch, classes=classes, **sampling)
    number = len(visit.state) if leave_one_out else folds
    fold = jnp.arange(len(visit.state)) % number if number else None
    return _Samples(batch, visit, classes, fold, number)


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
    folding = {"leave_one_out": leave_one_out, "folds": folds}
    sampling = {"weighting": weighting, "discount": discount, "first_visit": first_visit}
    samples = _samples(batch, classes=classes, **folding, **sampling)
    below, above = samples.moments()
    pvalue = stats.welch_from_moments(above, below, ddof=ddof).pvalue
    return samples.by_trajectory(decide(pvalue, undecided, samples.visit.unknown))


def welch_of_visits(visit: Visits, num_states: int, *, ddof=1) -> Float[Array, " state"]:
    """Welch's p-value in every state, NaN where it is undefined."""
    below, above = moments_by_class(visit, num_states)
    return stats.welch_from_moments(above, below, ddof=ddof).pvalue[0]


@takes_options_of(welch, without=("ddof",), first=True)
def smirnov(
    batch: TrajectoryBatch, *, undecided=1.0, **sampling: Any
) -> Float[Array, "*rows state"]:
    """Smirnov's two-sample test in place of Welch's (Shen et al. 2021, appendix).

    Options as for `welch`. Exact where the product of the group sizes is at most 250,000.
    """
    samples = _samples(batch, **sampling)

    def pvalues(visit: Visits) -> Float[Array, " state"]:
        pvalue = smirnov_of_visits(visit, batch.num_states).pvalue
        return decide(pvalue, undecided, visit.unknown)

    return samples.by_trajectory(samples.for_each_fold(pvalues))


@takes_options_of(welch, without=("ddof", "undecided"), first=True)
def effect(
    batch: TrajectoryBatch, *, discount=1.0, shrink: bool = True, **sampling: Any
) -> Float[Array, "*rows state"]:
    """Effect size: the groups' difference of means over the spread of returns, not a p-value.

    The difference d, known with standard error e, is shrunk to max(0, |d| - e^2 / |d|), as James
    and Stein do, so that what noise alone would show counts little. A state that Welch's test
    could not decide has effect 0. Options as for `welch`; a state is kept above a threshold.

    Args:
      shrink: False for the plain |d|.
    """
    samples = _samples(batch, discount=discount, **sampling)
    below, above = samples.moments()
    gap = jnp.abs(above.mean - below.mean)
    error = above.variance() / above.size + below.variance() / below.size
    decided = (above.size > 1) & (below.size > 1) & (gap > 0)
    safe_gap = jnp.where(decided, gap, 1)
    shrunk = safe_gap - jnp.where(decided, error, 0) / safe_gap if shrink else safe_gap
    spread = _spread_of_returns(samples, discount)
    # a scale may overflow, which must not meet an effect of 0
    scale = jnp.exp(samples.visit.log_scale)[None] / jnp.where(spread > 0, spread, 1)[:, None]
    size = jnp.where(decided & (shrunk > 0), shrunk * scale, 0)
    return samples.by_trajectory(jnp.where(samples.visit.unknown, jnp.nan, size))


def _spread_of_returns(samples: _Samples, discount) -> Float[Array, " fold"]:
    """Standard deviation of g, of all folds but each."""
    value = masked.returns(samples.batch.reward, samples.batch.mask, discount)
    if samples.fold is None:
        moments = stats.segment_moments(value, jnp.zeros(len(value), jnp.int32), 1)
    else:
        by_fold = stats.segment_moments(value, samples.fold, samples.num_folds)
        moments = stats.leave_one_out(by_fold)
    return jnp.sqrt(moments.variance(ddof=0))


def moments_by_class(
    visit: Visits, num_states: int, fold: Int[Array, " traj"] | None = None, num_folds: int = 0
) -> tuple[stats.Moments, stats.Moments]:
    """Moments [fold, state] of the samples below and above, of all folds but that of the row."""
    place = visit.state if fold is None else visit.state + num_states * fold[:, None]
    shape = (max(num_folds, 1), num_states, 2)
    segment = jnp.where(visit.used, 2 * place + visit.above, math.prod(shape))
    moments = stats.family_moments(visit.value.ravel(), segment.ravel(), shape)
    moments = moments if fold is None else stats.leave_one_out(moments)
    below, above = (stats.Moments(*(x[..., side] for x in moments)) for side in (0, 1))
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
