"""Relevance to the reward a given number of steps away: p-values by lag and state."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Shaped

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import takes_options_of
from osiris_jax.relevance.samples import Visits, scale_to_unit, visits, weigh_by_state
from osiris_jax.relevance.tests import decide, welch, welch_of_visits


class LagBin(NamedTuple):
    """Lags first <= dt < first + width."""

    first: int
    width: int


def lag_bins(num_steps: int, *, exact: int = 16, growth: float = 1.5) -> tuple[LagBin, ...]:
    """The bins of all lags that `num_steps` steps can have, see `lag_edges`."""
    if exact < 1:
        raise ValueError(f"exact_lags: lag 0 must be a bin of its own, so at least 1, got {exact}")
    if growth < 1:
        raise ValueError(f"growth: bins do not shrink, so at least 1, got {growth}")
    bins, width = [LagBin(lag, 1) for lag in range(min(exact, num_steps))], 1.0
    while sum(bins[-1]) < num_steps:
        width *= growth
        bins.append(LagBin(sum(bins[-1]), math.ceil(width)))
    return tuple(bins)


def lag_edges(num_steps: int, *, exact: int = 16, growth: float = 1.5) -> tuple[int, ...]:
    """The first lag of every bin: 0, 1, ..., exact, then growing bins; the last bin is open.

    Bins from lag `exact` on hold growth, growth^2, ... lags, rounded up. `num_steps` only cuts
    this one sequence off, so that a lag is in the same bin however far the data are padded.

    Example:
      >>> lag_edges(10, exact=3)
      (0, 1, 2, 3, 5, 8)
    """
    return tuple(lags.first for lags in lag_bins(num_steps, exact=exact, growth=growth))


@takes_options_of(welch, without=("classes", "leave_one_out", "folds"), first=True)
def lagged_welch(
    batch: TrajectoryBatch, *, ddof=1, undecided=1.0, exact_lags: int = 16, **sampling: Any
) -> Float[Array, "lag state"]:
    """Welch's t-test of the reward dt steps after a visit, by lag and state (Shen et al. 2021).

    The sample of a visit (i, t) is x = r_{t+dt} times rho_{t:t+dt} ("to-go"), rho_{t+1:t+dt}
    ("future") or 1 ("none"), and 0 if the trajectory has ended by then. A bin of several lags
    pools them: x is the sum of gamma^(dt - first) times that. The rest is as in `welch`.

    Args:
      weighting, ddof, undecided, first_visit: as for `welch`.
      discount: gamma in [0, 1], within a bin.
      exact_lags: how many lags are bins of their own, see `lag_edges`.

    Returns:
      A row for each bin of `lag_edges(batch.reward.shape[1], exact=exact_lags)`.
    """
    visit, weighting = visits(batch, **sampling), sampling.get("weighting", "none")
    paths = _log_paths(batch, weighted=weighting != "none")
    origin = _before(paths) if weighting == "to-go" else paths
    discount = jnp.asarray(sampling.get("discount", 1.0), batch.dtype)
    bins = lag_bins(batch.reward.shape[1], exact=exact_lags)
    blocks = _blocks(batch, paths, discount, widest=max(lags.width for lags in bins))

    def pvalues(lags: tuple[Int[Array, ""], Int[Array, ""]]) -> Float[Array, " state"]:
        first, width = lags
        window = _window(blocks, paths, width, discount)
        value = _seen_from(visit, origin, paths, window, first, batch.num_states)
        pvalue = welch_of_visits(visit._replace(value=value), batch.num_states, ddof=ddof)
        return decide(pvalue, undecided, visit.unknown)

    firsts, widths = (jnp.array(column) for column in zip(*bins, strict=True))
    return lax.map(pvalues, (firsts, widths))


class _Paths(NamedTuple):
    """rho_{1:t} = [zeros = 0] exp(log_weight + log_rest); the rest is what rounding has lost."""

    log_weight: Float[Array, "traj time"]
    log_rest: Float[Array, "traj time"]
    zeros: Int[Array, "traj time"]


class _Pool(NamedTuple):
    """For each u, the sum over a window u, u+1, ... of r_v gamma^(v-u) rho_{1:v}, zeros apart.

    It is (value + rest) exp(log_weight + log_rest), the log-weight that of the heaviest term.
    Terms behind a ratio of zero that the first term is not behind are left out.
    """

    value: Float[Array, "traj time"]
    rest: Float[Array, "traj time"]
    log_weight: Float[Array, "traj time"]
    log_rest: Float[Array, "traj time"]


def _log_paths(batch: TrajectoryBatch, *, weighted: bool) -> _Paths:
    """Products of ratios from the start; of none at all unless `weighted`."""
    if not weighted:
        nothing = jnp.zeros_like(batch.reward)
        return _Paths(nothing, nothing, nothing.astype(jnp.int32))
    log_ratio = batch.require("log_ratio", "relevance by state")
    finite, zero = masked.split_zeros(log_ratio, batch.mask)

    def step(carry: _Paths, inputs: tuple[Array, Array]) -> tuple[_Paths, _Paths]:
        log_ratio_t, zero_t = inputs
        rounded, lost = masked.two_sum(carry.log_weight, log_ratio_t)
        log_weight = masked.two_sum(rounded, carry.log_rest + lost)
        carry = _Paths(*log_weight, carry.zeros + zero_t)
        return carry, carry

    start = jnp.zeros(len(finite), finite.dtype)
    _, paths = lax.scan(
        step, _Paths(start, start, start.astype(jnp.int32)), (finite.T, zero.T.astype(jnp.int32))
    )
    return jax.tree.map(jnp.transpose, paths)


def _before(paths: _Paths) -> _Paths:
    """rho_{1:t-1} in place of rho_{1:t}."""
    return jax.tree.map(lambda x: jnp.pad(x[:, :-1], ((0, 0), (1, 0))), paths)


def _ahead(x: Shaped[Array, "traj time"], steps: Int[Array, ""]) -> Shaped[Array, "traj time"]:
    """x_{t+steps}, 0 beyond the end."""
    num_steps = x.shape[1]
    return lax.dynamic_slice_in_dim(jnp.pad(x, ((0, 0), (0, num_steps))), steps, num_steps, 1)


def _blocks(batch: TrajectoryBatch, paths: _Paths, discount, *, widest: int) -> _Pool:
    """[power, traj, time] pools over windows of 1, 2, 4, ... steps, enough for the widest."""
    reward, _ = scale_to_unit(masked.fill(batch.mask, batch.reward))
    steps = _Pool(reward, jnp.zeros_like(reward), paths.log_weight, paths.log_rest)

    def double(block: _Pool, power: Int[Array, ""]) -> tuple[_Pool, _Pool]:
        return _join(block, block, paths, power, discount), block

    return lax.scan(double, steps, jnp.arange(widest.bit_length()))[1]


def _window(blocks: _Pool, paths: _Paths, width: Int[Array, ""], discount) -> _Pool:
    """Pools over windows of `width` steps, one block for each binary digit.

    Which blocks are joined depends on the width alone, so that windows of equal content are
    bit-equal wherever they stand, and nothing is ever subtracted.
    """

    def digit(power: Int[Array, ""], window: _Pool) -> _Pool:
        block = jax.tree.map(lambda x: x[power], blocks)
        longer = _join(block, window, paths, power, discount)
        return jax.tree.map(partial(jnp.where, (width >> power) & 1 == 1), longer, window)

    num_digits = jnp.int32(32) - lax.clz(width.astype(jnp.int32))
    window = jax.tree.map(lambda x: jnp.where(width & 1 == 1, x[0], jnp.zeros_like(x[0])), blocks)
    return lax.fori_loop(jnp.int32(1), num_digits, digit, window)


def _join(first: _Pool, second: _Pool, paths: _Paths, power: Int[Array, ""], discount) -> _Pool:
    """Pools over `first`, which is 2^power steps long, and `second` behind it."""
    steps = jnp.left_shift(1, power)
    behind = jax.tree.map(partial(_ahead, steps=steps), second)
    counts = (behind.value != 0) & (_ahead(paths.zeros, steps) == paths.zeros)
    gap = behind.log_weight - first.log_weight + (behind.log_rest - first.log_rest)
    heavier = counts & ((gap > 0) | (first.value == 0))
    lighter = jnp.exp(jnp.where(counts & (first.value != 0), -jnp.abs(gap), 0))
    scale_first = jnp.where(heavier, lighter, 1)
    scale_behind = jnp.where(counts, jnp.where(heavier, 1, lighter), 0) * discount**steps
    value, lost = masked.two_sum(first.value * scale_first, behind.value * scale_behind)
    rest = first.rest * scale_first + behind.rest * scale_behind + lost
    log_weight = jnp.where(heavier, behind.log_weight, first.log_weight)
    log_rest = jnp.where(heavier, behind.log_rest, first.log_rest)
    return _Pool(*masked.two_sum(value, rest), log_weight, log_rest)


def _seen_from(
    visit: Visits,
    origin: _Paths,
    paths: _Paths,
    window: _Pool,
    first: Int[Array, ""],
    num_states: int,
) -> Float[Array, "traj time"]:
    """The window that begins `first` steps after each visit, over a scale of the state's own."""
    counts: Bool[Array, "traj time"] = visit.used & (_ahead(paths.zeros, first) == origin.zeros)
    value = masked.fill(counts, _ahead(window.value, first))
    rest = _ahead(window.log_rest, first) - origin.log_rest
    log_weight, lost = masked.two_sum(_ahead(window.log_weight, first), -origin.log_weight)
    log_weight = log_weight + (lost + rest)
    return weigh_by_state(value, log_weight, visit.state, visit.used, num_states)[0]
