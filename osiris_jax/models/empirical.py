"""The data's own Markov chain: what omission does in the MDP whose transitions are those observed.

Every visit to a state is as likely as any other visit to it, whatever came before: trajectories are
cut at states and put together again. The ratios of a state are divided by their mean there, so that
they are ratios in that MDP too. A trajectory's last visit leads to an end; but at the time when the
longest trajectory ends it may have been cut, so visits at that time are left out of the states that
have any other. For any map of kept states it gives the value of the composite
policy and the second moments of its weights, with far less noise than the trajectories themselves.
"""

from __future__ import annotations

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
    pairs, weight = _links(batch)
    num_places = batch.num_states + 1
    discount = jnp.asarray(discount, batch.dtype)
    kept = jnp.pad(keep, ((0, 0), (0, 1))).T[:, None]
    ended = (jnp.arange(num_places) == batch.num_states)[:, None, None]
    at_end = jnp.array([0, 1, 0, 0], batch.dtype)[None, :, None]

    def sweep(_, moments: Float[Array, "place 4 map"]) -> Float[Array, "place 4 map"]:
        plain, weighted = _after_links(pairs, weight, moments, discount)
        return jnp.where(ended, at_end, jnp.where(kept, weighted, plain))

    start = jnp.broadcast_to(at_end, (num_places, 4, len(keep)))
    moments = lax.fori_loop(0, batch.lengths.max(), sweep, start)
    first = masked.fill(batch.mask, batch.require("state", PURPOSE))[:, 0]
    value, square_0, square_1, square_2 = moments[first].mean(0)
    centred = square_2 - 2 * value * square_1 + value**2 * square_0
    return CompositeMoments(value, square_2, centred, moments[:-1, 0].T)


def _after_links(
    pairs: masked.Pairs,
    weight: Float[Array, "link 3 3"],
    moments: Float[Array, "place 4 map"],
    discount,
) -> tuple[Float[Array, "place 4 map"], Float[Array, "place 4 map"]]:
    """One step back, where ratios are omitted and where they are kept."""

    def add_block(number: Int[Array, ""] | int, sums: Array) -> Array:
        state, following, sums_of_block = (
            lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK)
            for x in (pairs.first, pairs.second, weight)
        )
        value, *squares = jnp.moveaxis(moments[following], 1, 0)

        def after(ratio_power: int, reward_power: int, x: Array) -> Array:
            return sums_of_block[:, ratio_power, reward_power, None] * x

        def step(power_of_value: int, power_of_squares: int) -> Array:
            one, two = power_of_value, power_of_squares
            zeroth, first, second = squares
            return jnp.stack(
                [
                    after(one, 1, jnp.ones_like(value)) + discount * after(one, 0, value),
                    after(two, 0, zeroth),
                    after(two, 1, zeroth) + discount * after(two, 0, first),
                    after(two, 2, zeroth)
                    + 2 * discount * after(two, 1, first)
                    + discount**2 * after(two, 0, second),
                ],
                1,
            )

        return sums.at[state].add(jnp.stack([step(0, 0), step(1, 2)], 1))

    blank = jnp.zeros((len(moments), 2, *moments.shape[1:]), moments.dtype)
    sums = lax.fori_loop(0, -(-pairs.number // BLOCK), add_block, blank)
    return sums[:, 0], sums[:, 1]


def _links(batch: TrajectoryBatch) -> tuple[masked.Pairs, Float[Array, "link 3 3"]]:
    """The pairs of states that follow each other in the data, and sums over their visits.

    `num_states` as the second of a pair is the end of a trajectory. The sums, by powers j of the
    ratio and k of the reward, are those of rho^j r^k over the number of visits that the state has.
    """
    nowhere = batch.num_states
    state = masked.fill(batch.mask, batch.require("state", PURPOSE), nowhere)
    following = jnp.pad(state[:, 1:], ((0, 0), (0, 1)), constant_values=nowhere).ravel()
    used = used_visits(batch, state)
    state, reward = masked.fill(used, state, nowhere).ravel(), masked.fill(used, batch.reward)
    ratio, share = _ratios_and_shares(batch, used, state)
    powers = jnp.arange(3, dtype=batch.dtype)
    weight = share[:, None, None] * (ratio[:, None] ** powers[None])[:, :, None]
    weight = weight * (reward.ravel()[:, None] ** powers[None])[:, None, :]

    pairs = masked.group_pairs(state, following, nowhere, block=BLOCK)
    return pairs, jax.ops.segment_sum(weight, pairs.of_item, len(pairs.first))


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
