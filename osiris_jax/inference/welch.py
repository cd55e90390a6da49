"""Welch's test in many resamples at once: a resample is a count for each trajectory.

Visits are first gathered into entries, the moments of one trajectory's visits to one group (a
state and a class of actions). Groups that many trajectories visit are columns of a matrix, so
that their moments in all resamples are one product; those of few are lists, whose moments are
found in two passes. In both, equal values have variance exactly 0, as in the plain test.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch, bucket_length
from osiris_jax.core import masked
from osiris_jax.relevance.samples import Visits, log_weights_of, visits
from osiris_jax.relevance.tests import decide

SLOTS = 8
FEW = 64
SMALL = 32
MANY_COLUMNS, MANY_ROWS = 256, 512


class Sizes(NamedTuple):
    """Static sizes: rows of lists, columns of the matrix, and above how many a group is one."""

    blocks: int
    columns: int
    few: int


class Listed(NamedTuple):
    """Groups that few trajectories visit, in rows of one group each.

    Attributes:
      entries: size, mean and squares of samples, measured from an origin of the group, and 1 where
        a sample is so small that its square may vanish, else 0.
      trajectory: whose each is; the number of trajectories where there is no entry.
      group: that of each row; beyond the last group where a row is empty.
    """

    entries: Float[Array, "block slot 4"]
    trajectory: Int[Array, "block slot"]
    group: Int[Array, " block"]


class Columns(NamedTuple):
    """The other groups: [traj, 4 x column] size, sum, sum of squares from an origin, and small."""

    sums: Float[Array, "traj column4"]
    group: Int[Array, " column"]
    origin: Float[Array, " column"]


class Visited(NamedTuple):
    """All that the test needs to know of the data."""

    listed: Listed
    columns: Columns


class _Groups(NamedTuple):
    """Entries in order of their groups: which visit belongs to which, and where groups begin."""

    pairs: masked.Pairs
    first: Int[Array, " group"]
    number: Int[Array, " group"]


def _groups(visit: Visits, num_groups: int) -> _Groups:
    group = jnp.where(visit.used, 2 * visit.state + visit.above, num_groups)
    row = jnp.broadcast_to(jnp.arange(len(group))[:, None], group.shape)
    pairs = masked.group_pairs(group.ravel(), row.ravel(), num_groups, block=1)
    edges = jnp.searchsorted(pairs.first, jnp.arange(num_groups + 1)).astype(jnp.int32)
    return _Groups(pairs, edges[:-1], edges[1:] - edges[:-1])


def trajectories_by_group(batch: TrajectoryBatch) -> Int[np.ndarray, "*trial group"]:
    """How many trajectories visit each (state, class of actions), at most; computed by NumPy."""
    mask, number = np.asarray(batch.mask), 2 * batch.num_states
    state = np.asarray(batch.require("state", "relevance by state"), np.int64)
    above = np.asarray(batch.require("log_ratio", "relevance by state")) > 0
    *trials, trajectories, _ = mask.shape
    trajectory = np.arange(mask[..., 0].size).reshape(*trials, trajectories, 1)
    visited = np.unique((trajectory * number + 2 * state + above)[mask])
    group = visited // number // trajectories * number + visited % number
    return np.bincount(group, minlength=math.prod(trials) * number).reshape(*trials, number)


def plan_sizes(by_group: np.ndarray, num_trajectories: int, itemsize: int, memory: int) -> Sizes:
    """Sizes that hold every data set of `by_group`, [data set, group], within the memory.

    Where there are few groups, sizes that hold any data set of this shape, so that another one
    compiles nothing; else those of these data, rounded up to a power of two.
    """
    few, num_groups = FEW, by_group.shape[-1]
    while True:
        wide = int((by_group > few).sum(-1).max(initial=0))
        columns = _roomy(wide, num_groups if num_trajectories > few else 0, MANY_COLUMNS)
        if 4 * itemsize * num_trajectories * columns <= memory or not wide:
            break
        few *= 4
    rows = int(np.where(by_group > few, 0, -(-by_group // SLOTS)).sum(-1).max(initial=0))
    most = num_groups * -(-min(few, num_trajectories) // SLOTS)
    return Sizes(_roomy(max(rows, SMALL), max(most, SMALL), MANY_ROWS), columns, few)


def _roomy(needed: int, most: int, many: int) -> int:
    """The most that there can be, unless it is many: then so many, or a power of two that holds."""
    return bucket_length(most) if most <= many else max(many, 1 << (needed - 1).bit_length())


def visited(
    batch: TrajectoryBatch, sizes: Sizes, *, weighting: str, discount, first_visit: bool
) -> Visited:
    """The entries of a data set, arranged for `pvalues_by_counts`."""
    visit = visits(batch, weighting=weighting, discount=discount, first_visit=first_visit)
    num_groups, num_trajectories = 2 * batch.num_states, len(batch.reward)
    groups = _groups(visit, num_groups)
    place = jnp.where(visit.used, visit.state, batch.num_states).ravel()
    value = stats.from_segment_origin(visit.value.ravel(), place, batch.num_states)
    num_rows = len(groups.pairs.first)
    segment = jnp.where(visit.used.ravel(), groups.pairs.of_item, num_rows)
    moments = stats.segment_moments(value, segment, num_rows)
    small = jax.ops.segment_max(_small(batch, visit, weighting, discount), segment, num_rows)
    entries = jnp.stack([*moments, jnp.maximum(small, 0).astype(value.dtype)], 1)
    exists = groups.pairs.first < num_groups
    trajectory = jnp.where(exists, groups.pairs.second, num_trajectories).astype(jnp.int32)
    wide = groups.number > sizes.few
    place, group = _rows(groups, ~wide, sizes.blocks)
    listed = Listed(
        entries.at[place].get(mode="fill", fill_value=0),
        trajectory.at[place].get(mode="fill", fill_value=num_trajectories),
        group,
    )
    shape = (num_trajectories, sizes.columns)
    return Visited(listed, _columns(entries, trajectory, groups, wide, shape))


def _small(
    batch: TrajectoryBatch, visit: Visits, weighting: str, discount
) -> Float[Array, " item"]:
    """1 where a sample is not 0, but so small beside its state's largest that its square may be."""
    to_go = masked.returns_to_go(batch.reward, batch.mask, discount)
    nonzero = (to_go != 0) & ~jnp.isneginf(log_weights_of(batch, weighting))
    tiny = jnp.abs(visit.value) < (1e-120 if visit.value.dtype == jnp.float64 else 1e-12)
    return (visit.used & nonzero & tiny).astype(visit.value.dtype).ravel()


def _rows(
    groups: _Groups, chosen: Bool[Array, " group"], blocks: int
) -> tuple[Int[Array, "block slot"], Int[Array, " block"]]:
    """The entries of the chosen groups, beyond the last where there is none, in rows of one group.

    And the group of each row.
    """
    rows = jnp.where(chosen, -(-groups.number // SLOTS), 0)
    first_row = jnp.cumsum(rows) - rows
    number = jnp.arange(len(groups.pairs.first))
    inside = chosen.at[groups.pairs.first].get(mode="fill", fill_value=False)
    group = jnp.where(inside, groups.pairs.first, 0)
    slot = first_row[group] * SLOTS + number - groups.first[group]
    slot = jnp.where(inside, slot, blocks * SLOTS)
    source = jnp.full(blocks * SLOTS, len(number)).at[slot].set(number, mode="drop")
    of_row = jnp.full(blocks, len(chosen)).at[slot // SLOTS].set(group, mode="drop")
    return source.reshape(blocks, SLOTS), of_row


def _columns(
    entries: Float[Array, "entry 4"],
    trajectory: Int[Array, " entry"],
    groups: _Groups,
    chosen: Bool[Array, " group"],
    shape: tuple[int, int],
) -> Columns:
    """The chosen groups as columns, measured from the median trajectory.

    That origin is within one standard deviation of the mean, so a sum of squares about it loses
    few digits; and where nearly all samples are equal it is that value, whose sums are exactly 0.
    """
    size, mean, squares, small = entries.T
    columns = shape[1]
    column = jnp.where(chosen, jnp.cumsum(chosen) - 1, columns)
    of_entry = column.at[groups.pairs.first].get(mode="fill", fill_value=columns)
    origin = stats.segment_median(mean, of_entry, columns)
    mean = mean - origin.at[of_entry].get(mode="fill", fill_value=0)
    sums = jnp.stack([size, size * mean, squares + size * mean**2, small], 1)
    matrix = jnp.zeros((*shape, 4), mean.dtype).at[trajectory, of_entry].add(sums, mode="drop")
    group = jnp.full(columns, len(chosen)).at[column].set(jnp.arange(len(chosen)), mode="drop")
    return Columns(matrix.reshape(shape[0], 4 * columns), group, origin)


def _listed_moments(
    listed: Listed, counts: Float[Array, "resample traj"], number: int
) -> tuple[stats.Moments, Bool[Array, "group resample"]]:
    """Moments of a group in every resample, and whether they are in doubt."""
    group = listed.group
    count = jnp.pad(counts.T, ((0, 1), (0, 0)))[listed.trajectory]
    size_of, mean_of, squares_of, small_of = jnp.moveaxis(listed.entries, -1, 0)[..., None]

    def add(x: Array) -> Array:
        return jax.ops.segment_sum(x.sum(1), group, number)

    times, included = count * size_of, count > 0
    size = add(times)
    mean = add(times * mean_of) / jnp.maximum(size, 1)
    lowest = jnp.where(included, mean_of, jnp.inf).min(1)
    highest = jnp.where(included, mean_of, -jnp.inf).max(1)
    lowest = jax.ops.segment_min(lowest, group, number)
    highest = jax.ops.segment_max(highest, group, number)
    within = add(count * squares_of)
    constant = (lowest == highest) & (within == 0)
    mean = jnp.where(constant, lowest, mean)
    gap = mean_of - mean.at[group].get(mode="fill", fill_value=0)[:, None]
    squares = jnp.where(constant, 0, within + add(times * gap**2))
    vanishing = (add(count * small_of) > 0) & (squares + size * mean**2 < _least(mean.dtype))
    return stats.Moments(size, mean, squares), vanishing


def _least(dtype) -> float:
    """A sum of squares below which those of small samples may be missed."""
    return 1e-180 if dtype == jnp.float64 else 1e-18


def _column_moments(
    columns: Columns, counts: Float[Array, "resample traj"]
) -> tuple[stats.Moments, Bool[Array, "column resample"]]:
    """The same of the groups that are columns."""
    sums = jnp.matmul(counts, columns.sums, precision=lax.Precision.HIGHEST)
    by_column = sums.reshape(len(counts), len(columns.group), 4)
    size, total, square, small = jnp.moveaxis(by_column, (2, 0), (0, 2))
    shift = total / jnp.maximum(size, 1)
    squares = jnp.maximum(square - total * shift, 0)
    lost = (square > 0) & (squares < (1e-7 if size.dtype == jnp.float64 else 1e-3) * square)
    vanishing = (small > 0) & (square < _least(size.dtype))
    mean = columns.origin[:, None] + shift
    return stats.Moments(size, mean, squares), lost | vanishing


def pvalues_by_counts(
    visited: Visited, counts: Float[Array, "resample traj"], num_states: int, *, ddof, undecided
) -> tuple[Float[Array, "resample state"], Bool[Array, ""]]:
    """Welch's p-value of every state in every resample, and whether all can be trusted."""
    few, few_doubtful = _listed_moments(visited.listed, counts, 2 * num_states)
    many, many_doubtful = _column_moments(visited.columns, counts)
    moments = jax.tree.map(lambda x, y: x.at[visited.columns.group].set(y, mode="drop"), few, many)
    by_class = [x.reshape(num_states, 2, len(counts)) for x in moments]
    below, above = (stats.Moments(*(x[:, side] for x in by_class)) for side in (0, 1))
    pvalue = decide(stats.welch_from_moments(above, below, ddof=ddof).pvalue, undecided)
    exists = (visited.columns.group < 2 * num_states)[:, None]
    return pvalue.T, ~(few_doubtful.any() | (many_doubtful & exists).any())
