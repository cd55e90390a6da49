"""The data's own Markov chain: what omission does in the MDP whose transitions are those observed.

Every visit to a state is as likely as any other visit to it, whatever came before: trajectories are
cut at states and put together again. The ratios of a state are divided by their mean there, so that
they are ratios in that MDP too. A trajectory's last visit leads to an end; but at the time when the
longest trajectory ends it may have been cut, so visits at that time are left out of the states that
have any other. For any map of kept states it gives the value of the composite
policy and the second moments of its weights, with far less noise than the trajectories themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.segments import look_up, segment_sum

PURPOSE = "the data's Markov chain"
BLOCK = 512
MOST_CELLS = 2**18  # of a matrix of states


class CompositeMoments(NamedTuple):
    """Of the composite policy of each map, and of the products rho of its ratios.

    Attributes:
      value: v, its value.
      second: E[(rho g)^2].
      centred: E[(rho (g - v))^2].
      by_state: the value from every state.
    """

    value: Float[Array, " map"]
    second: Float[Array, " map"]
    centred: Float[Array, " map"]
    by_state: Float[Array, "map state"]


def composite_moments(
    batch: TrajectoryBatch, keep: Bool[Array, "map state"], *, discount
) -> CompositeMoments:
    """Moments of omission by each map, over paths as long as the longest trajectory.

    With h steps to go V' = E[u (r + gamma V)], and the products of squared ratios with G^0, G^1
    and G^2 likewise, where u is the ratio in kept states and 1 elsewhere. The rows of kept and of
    omitted states are the same whatever the map, so that all maps are columns of one sum.
    """
    chex.assert_shape(keep, (None, batch.num_states))
    num_places = batch.num_states + 1
    discount = jnp.asarray(discount, batch.dtype)
    visits = _visits(batch)
    form = _after_states if batch.num_states * num_places <= MOST_CELLS else _after_links
    after = form(visits, discount)
    kept = jnp.pad(keep, ((0, 0), (0, 1))).T[:, None]
    ended = (jnp.arange(num_places) == batch.num_states)[:, None, None]
    at_end = jnp.array([0, 1, 0, 0], batch.dtype)[None, :, None]

    def sweep(_, moments: Float[Array, "place 4 map"]) -> Float[Array, "place 4 map"]:
        plain, weighted = after(moments)
        return jnp.where(ended, at_end, jnp.where(kept, weighted, plain))

    start = jnp.broadcast_to(at_end, (num_places, 4, len(keep)))
    moments = lax.fori_loop(0, batch.lengths.max(), sweep, start)
    first = masked.fill(batch.mask, batch.require("state", PURPOSE))[:, 0]
    value, square_0, square_1, square_2 = moments[first].mean(0)
    centred = square_2 - 2 * value * square_1 + value**2 * square_0
    return CompositeMoments(value, square_2, centred, moments[:-1, 0].T)


class _Visits(NamedTuple):
    """Links from visits to what followed them; `num_states` is the end, or no visit at all.

    `weight` by powers j of the ratio and k of the reward is rho^j r^k over the number of visits
    that the state has.
    """

    state: Int[Array, " visit"]
    following: Int[Array, " visit"]
    weight: Float[Array, "visit 3 3"]
    num_states: int


_After = Callable[
    [Float[Array, "place 4 map"]], tuple[Float[Array, "place 4 map"], Float[Array, "place 4 map"]]
]


def _after_states(visits: _Visits, discount: Float[Array, ""]) -> _After:
    """One step back, where ratios are omitted and where they are kept, by a matrix of all states.

    Faster than by links where it fits: a sweep is two products.
    """
    num_states, num_places = visits.num_states, visits.num_states + 1
    cell = visits.state * num_places + visits.following
    sums = segment_sum(visits.weight.reshape(-1, 9), cell, num_states * num_places)
    matrices = jnp.moveaxis(sums.reshape(num_states, num_places, 3, 3), (2, 3), (0, 1))
    product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def after(moments: Array) -> tuple[Array, Array]:
        def step(power_of_value: int, power_of_squares: int) -> Array:
            of_value, of_squares = matrices[power_of_value], matrices[power_of_squares]
            value = of_value[1].sum(1)[:, None] + discount * product(of_value[0], moments[:, 0])
            squares = moments[:, 1:].reshape(num_places, -1)
            by_power = product(of_squares.reshape(-1, num_places), squares)
            by_power = by_power.reshape(3, num_states, 3, -1)
            zeroth, first = by_power[0, :, 0], by_power[1, :, 0] + discount * by_power[0, :, 1]
            second = by_power[2, :, 0] + 2 * discount * by_power[1, :, 1]
            second = second + discount**2 * by_power[0, :, 2]
            return jnp.pad(jnp.stack([value, zeroth, first, second], 1), ((0, 1), (0, 0), (0, 0)))

        return step(0, 0), step(1, 2)

    return after


def _after_links(visits: _Visits, discount: Float[Array, ""]) -> _After:
    """The same by the pairs of states that follow each other in the data."""
    nowhere = visits.num_states
    pairs = masked.group_pairs(visits.state, visits.following, nowhere, block=BLOCK)
    weight = jax.ops.segment_sum(visits.weight, pairs.of_item, len(pairs.first))

    def after(moments: Array) -> tuple[Array, Array]:
        def add_block(number: Int[Array, ""] | int, sums: Array) -> Array:
            state, following, sums_of_block = (
                lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK)
                for x in (pairs.first, pairs.second, weight)
            )
            value, *squares = jnp.moveaxis(moments[following], 1, 0)

            def of_powers(ratio: int, reward: int, x: Array) -> Array:
                return sums_of_block[:, ratio, reward, None] * x

            def step(one: int, two: int) -> Array:
                zeroth, first, second = squares
                gained = of_powers(one, 1, jnp.ones_like(value))
                return jnp.stack(
                    [
                        gained + discount * of_powers(one, 0, value),
                        of_powers(two, 0, zeroth),
                        of_powers(two, 1, zeroth) + discount * of_powers(two, 0, first),
                        of_powers(two, 2, zeroth)
                        + 2 * discount * of_powers(two, 1, first)
                        + discount**2 * of_powers(two, 0, second),
                    ],
                    1,
                )

            return sums.at[state].add(jnp.stack([step(0, 0), step(1, 2)], 1))

        blank = jnp.zeros((len(moments), 2, *moments.shape[1:]), moments.dtype)
        sums = lax.fori_loop(0, -(-pairs.number // BLOCK), add_block, blank)
        return sums[:, 0], sums[:, 1]

    return after


def _visits(batch: TrajectoryBatch) -> _Visits:
    """The visits whose successor is known, see `used_visits`."""
    nowhere = batch.num_states
    state = masked.fill(batch.mask, batch.require("state", PURPOSE), nowhere)
    following = jnp.pad(state[:, 1:], ((0, 0), (0, 1)), constant_values=nowhere).ravel()
    used = used_visits(batch, state)
    state, reward = masked.fill(used, state, nowhere).ravel(), masked.fill(used, batch.reward)
    ratio, share = _ratios_and_shares(batch, used, state)
    powers = jnp.arange(3, dtype=batch.dtype)
    weight = share[:, None, None] * (ratio[:, None] ** powers[None])[:, :, None]
    weight = weight * (reward.ravel()[:, None] ** powers[None])[:, None, :]
    return _Visits(state, following, weight, nowhere)


def used_visits(batch: TrajectoryBatch, state: Int[Array, "traj time"]) -> Bool[Array, "traj time"]:
    """Visits whose successor is known, and all visits of a state that has none of these."""
    followed = batch.mask & masked.followed(batch.mask)[None]
    some = jnp.zeros(batch.num_states + 1, bool).at[state].max(followed)
    return batch.mask & (followed | ~some[state])


def _ratios_and_shares(
    batch: TrajectoryBatch, used: Bool[Array, "traj time"], state: Int[Array, " visit"]
) -> tuple[Float[Array, " visit"], Float[Array, " visit"]]:
    """Ratios over their mean in the state, and one over its number of visits; 0 elsewhere."""
    real, num_places = used.ravel(), batch.num_states + 1
    log_ratio = masked.fill(used, batch.require("log_ratio", PURPOSE), -jnp.inf).ravel()
    peak = masked.segment_peak(log_ratio, state, num_places)
    relative = jnp.exp(log_ratio - look_up(peak, state))
    ones = jnp.where(real, jnp.ones_like(relative), 0)
    count, total = (look_up(segment_sum(x, state, num_places), state) for x in (ones, relative))
    ratio = jnp.where(total > 0, relative * count / jnp.where(total > 0, total, 1), 0)
    return ratio, jnp.where(real, 1 / jnp.maximum(count, 1), 0)
