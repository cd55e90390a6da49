"""What is gained until the end, from the links between the states of a data set.

A link leads from a state to the one that followed, or to the end, as often as it weighs among the
links of its state. States are eliminated one after another without a subtraction (Grassmann,
Taksar & Heyman 1985), so that however seldom the end is reached the values are exact to rounding; a
state from which it is never reached is found exactly, and has no value.

Only states that were visited have a place: the data set that has most of them decides how large the
matrices are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Bool, Float, Int

from osiris_jax.core.segments import look_up, segment_max, segment_sum

GAINED, ENDED, NOWHERE, COLUMNS = 0, 1, 2, 3
SMALLEST, SMALL_BLOCK, BLOCK = 8, 8, 32
MANY = 128
END = -1


class Links(NamedTuple):
    """Visits, each a link between places, which are numbers of visited states.

    Attributes:
      place: [visit] where it begins; the number of states for a visit that is left out.
      following: [visit] where it leads, or `END`.
      first: [traj] where trajectories begin.
      number: of places.
    """

    place: Int[Array, " visit"]
    following: Int[Array, " visit"]
    first: Int[Array, " traj"]
    number: Int[Array, ""]


def links_between(
    state: Int[Array, "traj time"],
    following: Int[Array, "traj time"],
    first: Int[Array, " traj"],
    num_states: int,
) -> Links:
    """The links of visits; as a state `num_states` is none, and behind one the end."""
    visit = state.ravel()
    visited = segment_max(jnp.ones_like(visit), visit, num_states) > 0
    rank = jnp.cumsum(visited, dtype=jnp.int32) - 1
    of_state, ended = (jnp.append(rank, x) for x in (num_states, END))
    places = (look_up(of_state, x) for x in (visit, first))
    place, first = places
    return Links(place, look_up(ended, following.ravel()), first, rank[-1] + 1)


def mean_gain(
    links: Links,
    weight: Float[Array, " visit"],
    reward: Float[Array, " visit"],
    barred: Bool[Array, " place"],
    discount,
    sweeps=None,
) -> Float[Array, ""]:
    """The mean of v in the first places; v is the weighted mean of r + discount v, 0 at the end.

    Args:
      weight: of each visit among those of its place, in any unit.
      barred: places without a value.
      sweeps: so many turns of the recursion from v = 0; None for its solution.

    Returns:
      NaN where a first place may lead to one without a value.
    """
    given = (links, weight, reward, barred, jnp.asarray(discount, reward.dtype))
    if sweeps is not None:
        given = (*given, jnp.asarray(sweeps, jnp.int32))
    return _of_sets(1)(*jax.tree.map(lambda x: x[None], given))[0]


@cache
def _of_sets(sets: int) -> Callable[..., Array]:
    """`_of_size` of operands [set, ...], as large as the set with most places needs."""

    def by_most(links: Links, *others: Array) -> Float[Array, " set"]:
        num_states = others[2].shape[1]
        doubled = (SMALLEST << doublings for doublings in itertools.count())
        sizes = [*itertools.takewhile(lambda size: size < num_states, doubled), num_states]
        forms = [jax.vmap(partial(_of_size, size)) for size in sizes]
        least = jnp.searchsorted(jnp.array(sizes), links.number.max())
        return lax.switch(least, forms, links, *others)

    form = custom_vmap(by_most)

    @form.def_vmap
    def of_more_sets(number: int, batched: Any, *operands: Any):
        def flat(x: Array, is_batched: bool) -> Array:
            every = x if is_batched else jnp.broadcast_to(x[None], (number, *x.shape))
            return every.reshape(number * sets, *every.shape[2:])

        found = _of_sets(number * sets)(*jax.tree.map(flat, operands, tuple(batched)))
        return found.reshape(number, sets), True

    # the derivative is that of the plain form
    function = jax.custom_jvp(form)

    @function.defjvp
    def differentiate(given: Any, changes: Any):
        whole = partial(_of_size, given[3].shape[1])
        return jax.jvp(jax.vmap(whole), given, changes)

    return function


def _of_size(
    size: int,
    links: Links,
    weight: Float[Array, " visit"],
    reward: Float[Array, " visit"],
    barred: Bool[Array, " place"],
    discount: Float[Array, ""],
    sweeps: Int[Array, ""] | None = None,
) -> Float[Array, ""]:
    """The mean gain of one set with at most so many places.

    Of a matrix with a row for where trajectories begin, and one for every place. Its columns are
    what is gained in a step, and the weights of the end, of being barred, and of every place.
    """
    width = size + COLUMNS
    column = jnp.where(links.following == END, ENDED, COLUMNS + links.following)
    cell = jnp.where(links.place < size, links.place * width + column, size * width)
    flow = segment_sum(weight, cell, size * width).reshape(size, width)
    stays = (1 - discount) * flow.sum(1)
    gained = segment_sum(weight * reward, links.place, size)
    flow = (discount * flow).at[:, ENDED].add(stays).at[:, GAINED].set(gained)
    flow = flow.at[:, NOWHERE].set(barred[:size].astype(flow.dtype))
    begins = segment_sum(jnp.ones(links.first.shape, flow.dtype), COLUMNS + links.first, width)
    matrix = jnp.concatenate([begins[None] / len(links.first), flow])
    row = _eliminated(matrix) if sweeps is None else _swept(matrix, sweeps)
    return jnp.where(row[NOWHERE] > 0, jnp.nan, row[GAINED])


def _swept(matrix: Float[Array, "row column"], sweeps: Int[Array, ""]) -> Float[Array, " column"]:
    """The first row's gain, and whether it meets a barred place, in so many steps."""
    away = matrix.at[:, GAINED].set(0).sum(1, keepdims=True)
    matrix = matrix / jnp.where(away > 0, away, 1)
    product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)

    def sweep(_: Any, values: Float[Array, "place column"]) -> Float[Array, "place column"]:
        return matrix[1:, :COLUMNS] + product(matrix[1:, COLUMNS:], values)

    values = lax.fori_loop(0, sweeps, sweep, jnp.zeros_like(matrix[1:, :COLUMNS]))
    return product(matrix[0, COLUMNS:], values)


def _eliminated(matrix: Float[Array, "row column"]) -> Float[Array, " column"]:
    """The first row once all places are eliminated, the last ones first, a block at a time."""
    remaining = len(matrix) - 1
    block = SMALL_BLOCK if remaining <= MANY else BLOCK
    while remaining:
        before = max(remaining - block, 0)
        left = _left(matrix[1 + before :], COLUMNS + before)
        into = matrix[: 1 + before, COLUMNS + before :]
        around = jnp.matmul(into, left, precision=lax.Precision.HIGHEST)
        matrix = matrix[: 1 + before, : COLUMNS + before] + around
        remaining = before
    return matrix[0]


def _left(rows: Float[Array, "place column"], first: int) -> Float[Array, "place outside"]:
    """Where the places of a block lead once it is left, and what is gained until then.

    Args:
      rows: of the block, whose own places are the columns from `first` on.
    """
    column = jnp.arange(rows.shape[1])
    nowhere = (column == NOWHERE).astype(rows.dtype)

    def eliminate(number: Array | int, rows: Array) -> Array:
        own = column == first + number
        row = lax.dynamic_index_in_dim(rows, number, 0, keepdims=False)
        away = jnp.sum(jnp.where(own | (column == GAINED), 0, row))
        onward = jnp.where(away > 0, row / jnp.where(away > 0, away, 1), nowhere)
        onward = jnp.where(own, 0, onward)
        into = lax.dynamic_index_in_dim(rows, first + number, 1)
        others = jnp.where(own[None], 0, rows) + into * onward[None]
        return lax.dynamic_update_index_in_dim(others, onward, number, 0)

    return lax.fori_loop(0, len(rows), eliminate, rows)[:, :first]
