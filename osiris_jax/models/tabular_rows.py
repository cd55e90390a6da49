"""A tabular Q-hat from the pairs of state and action that were seen, where tables would be empty.

A row is a pair that was seen, a link one with the state that followed; columns are the models of
the folds. Loops go over blocks up to the last that holds any: data sets are taken one by one.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Float, Int

from osiris_jax.core import masked
from osiris_jax.core.segments import segment_sum
from osiris_jax.models.tabular_parts import (
    Sizes,
    StepValues,
    Visited,
    cross_fitting,
    mean_policy,
    mean_where_seen,
    shrink,
)

BLOCK = 256


class _Rows(NamedTuple):
    """What was seen; links and rows from `number` on are none, and their pair is beyond the last.

    Attributes:
      row: [link] the row of each link.
      following: [link] the state that followed; the end is beyond the last.
      pair: [row] its pair.
      state: [row] its state; beyond the last where there is none.
      number: of links, and at most so many are rows.
      of_visit: [visit] the row of each visit.
      link_of_visit: [visit] likewise.
    """

    row: Int[Array, " link"]
    following: Int[Array, " link"]
    pair: Int[Array, " row"]
    state: Int[Array, " row"]
    number: Int[Array, ""]
    of_visit: Int[Array, " visit"]
    link_of_visit: Int[Array, " visit"]


def _rows_of(visited: Visited, sizes: Sizes) -> _Rows:
    links = masked.group_pairs(
        visited.pair.ravel(), visited.successor.ravel(), sizes.pairs, block=BLOCK
    )
    begins = jnp.append(False, links.first[1:] != links.first[:-1])
    row = jnp.cumsum(begins, dtype=jnp.int32)
    pair = jnp.full_like(links.first, sizes.pairs).at[row].set(links.first)
    return _Rows(
        row=row,
        following=links.second,
        pair=pair,
        state=pair // sizes.actions,
        number=links.number,
        of_visit=row[links.of_item],
        link_of_visit=links.of_item,
    )


@cache
def values_from_rows(sizes: Sizes) -> Any:
    """A function of what was visited, the discount and the smoothing to Q-hat along the data."""

    def values(visited: Visited, discount: Array, smoothing: Array) -> StepValues:
        return _values(visited, discount, smoothing, sizes)

    form = custom_vmap(values)

    @form.def_vmap
    def one_after_another(number: int, batched: Any, *operands: Any):
        every = jax.tree.map(
            lambda x, is_batched: (
                x if is_batched else jnp.broadcast_to(x[None], (number, *x.shape))
            ),
            operands,
            tuple(batched),
        )
        found = lax.map(lambda one: values(*one), every)
        return found, jax.tree.map(lambda _: True, found)

    return form


def _values(
    visited: Visited, discount: Float[Array, ""], smoothing: Float[Array, ""], sizes: Sizes
) -> StepValues:
    model_of, learns = cross_fitting(len(visited.mask), sizes.folds)
    dtype, rows = visited.reward.dtype, _rows_of(visited, sizes)
    learned = jnp.repeat(learns.T.astype(dtype), visited.mask.shape[1], axis=0)
    followed = visited.mask & masked.followed(visited.mask)[None]
    num_rows = len(rows.pair)

    def summed(x: Array, place: Array) -> Float[Array, "row model"]:
        return segment_sum(learned * x.reshape(-1, 1).astype(dtype), place, num_rows)

    def by_state(x: Float[Array, "row model"]) -> Float[Array, "state model"]:
        return _sum_of_blocks(rows.number, rows.state, x, sizes.states)

    counts, ahead_counts = summed(visited.mask, rows.of_visit), summed(followed, rows.of_visit)
    counts_of_state, ahead_counts_of_state = by_state(counts), by_state(ahead_counts)
    paid = summed(visited.reward, rows.of_visit)
    link_weight = summed(followed, rows.link_of_visit)
    reward_of_state = mean_where_seen(by_state(paid), counts_of_state)
    state_of_row = jnp.minimum(rows.state, sizes.states - 1)
    reward = shrink(paid, counts, reward_of_state[state_of_row], smoothing)
    policy = mean_policy(visited, sizes.states)
    chance = policy.ravel()[jnp.minimum(rows.pair, sizes.pairs - 1)][:, None]

    def step_back(carry: tuple[Array, Array], inputs: tuple[Array, ...]):
        following, above_usual = carry
        runs, state, pair, probs = inputs
        ends = jnp.pad(following, ((0, 1), (0, 0)))
        total = _ahead(rows, link_weight, ends)
        usual_ahead = mean_where_seen(by_state(total), ahead_counts_of_state)
        usual = reward_of_state + discount * usual_ahead

        def put(number: Array | int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            gained, table = carry
            of_block = _block_at(number)
            place, sum_ahead, times, own = map(of_block, (rows.pair, total, ahead_counts, reward))
            home = jnp.minimum(of_block(rows.state), sizes.states - 1)
            ahead = shrink(sum_ahead, times, usual_ahead[home], smoothing)
            above = own + discount * ahead - usual[home]
            gained = gained.at[of_block(rows.state)].add(of_block(chance) * above, mode="drop")
            return gained, table.at[place].set(above, mode="drop")

        blocks = -(-rows.number // BLOCK)
        gained, above_usual = lax.fori_loop(0, blocks, put, (jnp.zeros_like(usual), above_usual))
        value = jnp.where(runs, usual * policy.sum(1)[:, None] + gained, 0)
        every = jnp.arange(sizes.actions)[None]
        above = above_usual[state[:, None] * sizes.actions + every, model_of[:, None]]
        own = usual[state, model_of]
        q = own + above_usual[jnp.minimum(pair, sizes.pairs - 1), model_of]
        return (value, above_usual), (q, own * probs.sum(-1) + (probs * above).sum(-1))

    fields = (visited.state, visited.pair, visited.probs)
    inputs = (masked.alive(visited.mask), *(jnp.moveaxis(x, 1, 0) for x in fields))
    models = learned.shape[1]
    start = jnp.zeros((sizes.states, models), dtype), jnp.zeros((sizes.pairs, models), dtype)
    _, (q, v) = lax.scan(step_back, start, inputs, reverse=True)
    return StepValues(masked.fill(visited.mask, q.T), masked.fill(visited.mask, v.T))


def _block_at(number: Array | int) -> Any:
    """What takes a block of an array."""
    return lambda x: lax.dynamic_slice_in_dim(x, number * BLOCK, BLOCK)


def _sum_of_blocks(number: Array, place: Array, x: Array, size: int) -> Array:
    """[size, model] the sum of x [row, model] by place, up to the last block that holds any."""

    def add(block: Array | int, total: Array) -> Array:
        of_block = _block_at(block)
        return total.at[of_block(place)].add(of_block(x), mode="drop")

    return lax.fori_loop(0, -(-number // BLOCK), add, jnp.zeros((size, x.shape[1]), x.dtype))


def _ahead(
    rows: _Rows, weight: Float[Array, "link model"], value: Float[Array, "place model"]
) -> Float[Array, "row model"]:
    """The sum over a row's links of the weighted values of what follows."""

    def add(block: Array | int, total: Array) -> Array:
        of_block = _block_at(block)
        gained = of_block(weight) * value[of_block(rows.following)]
        return total.at[of_block(rows.row)].add(gained)

    return lax.fori_loop(0, -(-rows.number // BLOCK), add, jnp.zeros_like(weight))
