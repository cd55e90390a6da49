"""Relevance tests: a p-value for every state (Algorithm 1 of Shen et al. 2021, and variants)."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Shaped

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.relevance.samples import Visits, visits


def welch(
    batch: TrajectoryBatch,
    *,
    weighting: str = "to-go",
    ddof=1,
    discount=1.0,
    undecided=1.0,
    first_visit: bool = False,
    leave_one_out: bool = False,
) -> Float[Array, "*rows state"]:
    """Welch's t-test of what follows actions with rho > 1 against the rest (Shen et al. 2021).

    Args:
      weighting: what return-to-go is weighed by, see `visits`.
      ddof: 1 for sample variances, 0 for population variances (as the paper's code).
      discount: gamma in [0, 1].
      undecided: p-value of a state that the test cannot decide (a group is empty, or 0 / 0).
      first_visit: use only a trajectory's first visit to a state, which makes samples independent.
      leave_one_out: a row of p-values for each trajectory, from the data without it.
    """
    visit = visits(batch, weighting=weighting, discount=discount, first_visit=first_visit)
    pvalue = welch_of_visits(visit, batch.num_states, ddof=ddof, leave_one_out=leave_one_out)
    return decide(pvalue, undecided)


def welch_of_visits(
    visit: Visits, num_states: int, *, ddof=1, leave_one_out: bool = False
) -> Float[Array, "*rows state"]:
    """Welch's p-value in every state, NaN where it is undefined."""
    num_trajectories, num_groups = len(visit.state), 2 * num_states
    place = jnp.where(visit.used, visit.state, num_states).ravel()
    value = stats.from_segment_origin(visit.value.ravel(), place, num_states)
    group = 2 * visit.state + visit.above
    rows = num_trajectories if leave_one_out else 1
    row = jnp.arange(num_trajectories)[:, None] if leave_one_out else 0
    segment = jnp.where(visit.used, group + num_groups * row, rows * num_groups)
    moments = stats.segment_moments(value, segment.ravel(), rows * num_groups)
    by_row = stats.Moments(*(x.reshape(rows, num_states, 2) for x in moments))
    by_row = stats.leave_one_out(by_row) if leave_one_out else by_row
    below, above = (stats.Moments(*(x[..., side] for x in by_row)) for side in (0, 1))
    pvalue = stats.welch_from_moments(above, below, ddof=ddof).pvalue
    return pvalue if leave_one_out else pvalue[0]


def smirnov(
    batch: TrajectoryBatch,
    *,
    weighting: str = "to-go",
    discount=1.0,
    undecided=1.0,
    first_visit: bool = False,
    leave_one_out: bool = False,
) -> Float[Array, "*rows state"]:
    """Smirnov's two-sample test in place of Welch's (Shen et al. 2021, appendix).

    Options as for `welch`. Exact where the product of the group sizes is at most 250,000.
    """
    visit = visits(batch, weighting=weighting, discount=discount, first_visit=first_visit)

    def pvalues(used: Bool[Array, "traj time"]) -> Float[Array, " state"]:
        return decide(
            smirnov_of_visits(visit._replace(used=used), batch.num_states).pvalue, undecided
        )

    if not leave_one_out:
        return pvalues(visit.used)
    rows = jnp.arange(len(visit.used))
    return lax.map(lambda left_out: pvalues(visit.used & (rows != left_out)[:, None]), rows)


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


def decide(pvalue: Float[Array, "*shape"], undecided) -> Float[Array, "*shape"]:
    """p clipped to [0, 1], `undecided` where it is NaN."""
    return jnp.where(jnp.isnan(pvalue), undecided, jnp.clip(pvalue, 0, 1))
