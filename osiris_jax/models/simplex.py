"""Shares of sum 1, none below 0, for which a sum of squares is least."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float

OWN_ERROR, ROUNDINGS = 1e-6, 100
MOST_TURNS = 64  # for every member; a few for all of them are usual


def least_on_simplex(
    errors: Float[Array, "row member"],
    exists: Bool[Array, " member"],
    rounding: Float[Array, ""],
) -> Float[Array, " member"]:
    """The shares x of sum 1, none below 0, that make |errors x|^2 least.

    Where others do as well: those of members whose squares were each a millionth larger, of an
    error of their own, or as small as rounding, which are the most even ones.

    With z = D x for D the lengths of the columns, and R = D^-1 errors' errors D^-1, they are the z
    over its sum for which z >= 0, R z - D^-1 1 >= 0 and one of the two is 0 for each member.
    """
    errors = jnp.where(exists[None], errors, 0)
    largest = lax.stop_gradient(jnp.maximum(jnp.max(jnp.abs(errors), axis=0), ROUNDINGS * rounding))
    largest = jnp.where(largest > 0, largest, 1)
    unit = errors / largest[None]
    squares = (1 + OWN_ERROR) * jnp.sum(unit**2, axis=0) + (ROUNDINGS * rounding / largest) ** 2
    length = jnp.sqrt(jnp.where(squares > 0, squares, 1))
    unit, length = unit / length[None], length * largest
    related = jnp.matmul(unit.T, unit, precision=lax.Precision.HIGHEST)
    related = jnp.where(jnp.eye(len(exists), dtype=bool), 1, related)
    smallest = jnp.min(jnp.where(exists, length, jnp.inf))
    wanted = jnp.where(exists, smallest / length, 0)
    some = _support(lax.stop_gradient(related), lax.stop_gradient(wanted))
    share = jnp.where(some, jnp.maximum(_exchanged(related, wanted, some), 0), 0) * wanted
    return jnp.where(jnp.isnan(errors).any(), jnp.nan, share / share.sum())


def _support(
    related: Float[Array, "member member"], wanted: Float[Array, " member"]
) -> Bool[Array, " member"]:
    """The members of a share above 0, by exchanging the first that is wrong (Murty 1974)."""
    most = MOST_TURNS * len(wanted)
    rounding = jnp.finfo(wanted.dtype).eps

    def unfinished(state: tuple[Array, ...]) -> Array:
        _, slack, _, turn = state
        return jnp.any(slack < -rounding) & (turn < most)

    def turn(state: tuple[Array, ...]) -> tuple[Array, ...]:
        table, slack, some, turn = state
        wrong = jnp.argmax(slack < -rounding)
        table, slack = _exchange(table, slack, wrong)
        return table, slack, some ^ (jnp.arange(len(some)) == wrong), turn + 1

    nobody, first = jnp.zeros(len(wanted), bool), jnp.zeros((), jnp.int32)
    return lax.while_loop(unfinished, turn, (related, -wanted, nobody, first))[2]


def _exchanged(
    related: Float[Array, "member member"],
    wanted: Float[Array, " member"],
    some: Bool[Array, " member"],
) -> Float[Array, " member"]:
    """The z of some members for which R z = wanted, of them alone."""

    def step(state: tuple[Array, Array], member: Array) -> tuple[tuple[Array, Array], None]:
        table, slack = _exchange(*state, member)
        old_table, old_slack = state
        chosen = some[member]
        return (jnp.where(chosen, table, old_table), jnp.where(chosen, slack, old_slack)), None

    (_, z), _ = lax.scan(step, (related, -wanted), jnp.arange(len(some)))
    return z


def _exchange(
    table: Float[Array, "member member"], slack: Float[Array, " member"], member: Array
) -> tuple[Float[Array, "member member"], Float[Array, " member"]]:
    """y = table x + slack, solved for x of the member in place of y (a principal pivot)."""
    here = jnp.arange(len(slack)) == member
    row, column, pivot = table[member], table[:, member], table[member, member]
    onward = jnp.where(here, 1, column) / pivot
    others = jnp.where(here[:, None], 0, table) - onward[:, None] * row[None]
    solved = -slack[member] / pivot
    table = jnp.where(here[None], onward[:, None], others)
    return table, jnp.where(here, solved, slack + column * solved)
