"""The data's own Markov chain: what omission does in the MDP whose transitions are those observed.

Every visit to a state is as likely as any other visit to it, whatever came before: trajectories are
cut at states and put together again. The ratios of a state are divided by their mean there, so that
they are ratios in that MDP too. For any map of kept states it gives the value of the composite
policy and the second moments of its weights, with far less noise than the trajectories themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

from osiris_jax import masked
from osiris_jax.batch import TrajectoryBatch


class CompositeMoments(NamedTuple):
    """Of the composite policy of each map, and of the products rho of its ratios.

    Attributes:
      value: v, its value.
      second: E[(rho g)^2].
      centred: E[(rho (g - v))^2].
    """

    value: Float[Array, " map"]
    second: Float[Array, " map"]
    centred: Float[Array, " map"]


class _Visit(NamedTuple):
    """One row for every cell of the batch; padded cells are in a place of their own."""

    place: Array
    following: Array
    reward: Array
    ratio: Array
    share: Array  # 1 / number of visits to the place


def composite_moments(
    batch: TrajectoryBatch, keep: Bool[Array, "map state"], *, discount
) -> CompositeMoments:
    """Moments of omission by each map, by backward recursion over the longest trajectory's steps.

    With h steps to go V' = E[u (r + gamma V)], and the products of squared ratios with G^0, G^1
    and G^2 likewise, where u is the ratio in kept states and 1 elsewhere. Rows of kept and of
    omitted states come from the same two chains whatever the map, so that all maps are columns of
    one product.
    """
    visit, num_states = _visits(batch), batch.num_states
    kept = jnp.pad(keep, ((0, 0), (0, 1))).T
    ended = (jnp.arange(num_states + 1) == num_states)[:, None]
    chain = _dense_chain if (num_states + 1) ** 2 <= 4 * batch.reward.size else _flat_chain
    weights = (visit.share, visit.ratio * visit.share, visit.ratio**2 * visit.share)
    plain, once, twice = (chain(visit, weight, num_states + 1) for weight in weights)
    discount = jnp.asarray(discount, batch.dtype)

    def step(_, moments):
        value, *squares = moments
        after_value = (jnp.ones_like(value), value)
        value = jnp.where(kept, once(1, after_value, discount), plain(1, after_value, discount))
        squares = [
            jnp.where(kept, twice(k, squares, discount), plain(k, squares, discount))
            for k in range(3)
        ]
        at_end = (0, 1, 0, 0)
        return tuple(
            jnp.where(ended, jnp.asarray(end, x.dtype), x)
            for x, end in zip((value, *squares), at_end, strict=True)
        )

    zero = jnp.zeros(kept.shape, batch.dtype)
    start = (zero, zero + 1, zero, zero)
    moments = lax.fori_loop(0, batch.lengths.max(), step, start)
    first = masked.fill(batch.mask, batch.require("state", "the data's Markov chain"))[:, 0]
    value, square_0, square_1, square_2 = (x[first].mean(0) for x in moments)
    centred = square_2 - 2 * value * square_1 + value**2 * square_0
    return CompositeMoments(value, square_2, centred)


def _visits(batch: TrajectoryBatch) -> _Visit:
    nowhere = batch.num_states
    state = batch.require("state", "the data's Markov chain")
    log_ratio = batch.require("log_ratio", "the data's Markov chain")
    place = masked.fill(batch.mask, state, nowhere)
    following = jnp.pad(place[:, 1:], ((0, 0), (0, 1)), constant_values=nowhere)
    peak = masked.segment_peak(
        masked.fill(batch.mask, log_ratio, -jnp.inf).ravel(), place.ravel(), nowhere + 1
    )
    relative = masked.fill(batch.mask, jnp.exp(log_ratio - peak[place]))
    sums = jax.ops.segment_sum(
        jnp.stack([batch.mask.astype(batch.dtype), relative], -1).reshape(-1, 2),
        place.ravel(),
        nowhere + 1,
    )
    count, total = sums[place].reshape(-1, 2).T
    share = jnp.where(batch.mask.ravel(), 1 / jnp.maximum(count, 1), 0)
    ratio = jnp.where(total > 0, relative.ravel() * count / jnp.where(total > 0, total, 1), 0)
    reward = masked.fill(batch.mask, batch.reward).ravel()
    return _Visit(place.ravel(), following.ravel(), reward, ratio, share)


Chain = Callable[[int, tuple | list, Array], Array]


def _binomial(k: int, powers: tuple | list, discount: Array, moment) -> Array:
    """The weighted mean of (r + gamma G')^k, from those of r^(k-j) and the following G^j."""
    coefficients = ((1,), (1, 1), (1, 2, 1))[k]
    terms = [c * discount**j * moment(k - j, powers[j]) for j, c in enumerate(coefficients)]
    return sum(terms[1:], terms[0])


def _dense_chain(visit: _Visit, weight: Array, num_places: int) -> Chain:
    """By matrices [place, place] of summed weights times r^k."""

    def matrix(power: int) -> Array:
        entries = weight * visit.reward**power
        zero = jnp.zeros((num_places, num_places), weight.dtype)
        return zero.at[visit.place, visit.following].add(entries)

    matrices = [matrix(power) for power in range(3)]
    return lambda k, powers, discount: _binomial(
        k, powers, discount, lambda power, x: matrices[power] @ x
    )


def _flat_chain(visit: _Visit, weight: Array, num_places: int) -> Chain:
    """By sums over the visits themselves, for more places than the data could fill."""

    def chain(k: int, powers: tuple | list, discount: Array) -> Array:
        following = [x[visit.following] for x in powers[: k + 1]]
        reward = visit.reward[:, None]
        by_visit = _binomial(k, following, discount, lambda power, x: reward**power * x)
        return jax.ops.segment_sum(weight[:, None] * by_visit, visit.place, num_places)

    return chain
