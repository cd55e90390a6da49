"""STAR: the value of the Markov chain whose links are weighed by the ratios of the recent past."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import check_word
from osiris_jax.core.segments import look_up, segment_max, segment_sum
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.estimators.per_decision import log_discounts
from osiris_jax.models.absorption import links_between, mean_gain
from osiris_jax.models.empirical import used_visits

PURPOSE = "the estimator `star`"


class _Visited(NamedTuple):
    """What the weights of visits are made of; the place of those left out is behind the others."""

    batch: TrajectoryBatch
    place: Int[Array, " visit"]
    log_ratio: Float[Array, "traj time"]
    log_discount: Float[Array, " time"]
    average: bool


@with_headroom
def star(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    past=1,
    sweeps=None,
    cut: str = "end",
    visits: str = "discounted",
    unsupported: str = "behavior",
    average: bool = False,
) -> Float[Array, "*past"]:
    """STAR: value of the data's chain of states, by recent ratios (Chaudhari et al. 2024).

    A visit (i, t) weighs gamma^(t-1) times its `past` most recent ratios; in every state the
    weights of all visits, at any time, are divided by their sum. Then v(s) is the weighted sum of
    r + gamma v(s') over the visits to s, v = 0 at the end, and the estimate the mean of v in the
    first states. NaN where a first state may lead to states from which no visit of positive weight
    leads to the end, unless gamma < 1. A state whose weights are all 0 has those of `past=1`.

    Args:
      past: how many ratios, 1 or more; 0 for all of them; an array gives one estimate for each.
      sweeps: so many turns of the recursion from v = 0, the value of as many steps; by default its
        solution.
      cut: "end": a trajectory's last visit leads to the end; "leave-out": visits at the time when
        the longest trajectory ends are left out of states that have others.
      visits: "undiscounted" leaves gamma^(t-1) out of the weights.
      unsupported: what a state has whose weights are 0 by `past=1` too: "behavior", equal weights;
        "nan", no value.
      average: average over the actions seen in a state by the target's probabilities, in place of
        weighing the one logged by its ratio.
    """
    check_word("cut", cut, ("end", "leave-out"))
    check_word("visits", visits, ("discounted", "undiscounted"))
    check_word("unsupported", unsupported, ("behavior", "nan"))
    num_states = batch.num_states
    state = masked.fill(batch.mask, batch.require("state", PURPOSE), num_states)
    following = jnp.pad(state[:, 1:], ((0, 0), (0, 1)), constant_values=num_states)
    used = batch.mask if cut == "end" else used_visits(batch, state)
    links = links_between(masked.fill(used, state, num_states), following, state[:, 0], num_states)
    visited = _Visited(
        batch,
        links.place,
        masked.fill(batch.mask, masked.known(log_ratio)),
        log_discounts(batch, discount if visits == "discounted" else 1.0),
        average,
    )
    reward = masked.fill(used, batch.reward).ravel()
    by_last, peak_by_last = _weights(visited, _log_weights(visited, jnp.ones((), jnp.int32)))

    def of_past(past: Array) -> Float[Array, ""]:
        weight, peak = _weights(visited, _log_weights(visited, past), by_last)
        weightless = jnp.isneginf(jnp.maximum(peak, peak_by_last))
        barred = weightless & (unsupported == "nan")
        return mean_gain(links, weight, reward, barred, discount, sweeps)

    past = jnp.asarray(past, batch.dtype)
    length = jnp.where(past > 0, past, batch.mask.shape[1])
    length = jnp.minimum(length, batch.mask.shape[1]).astype(jnp.int32)
    value = jax.vmap(of_past)(length.ravel()).reshape(past.shape)
    return jnp.where(masked.unknown(log_ratio, batch.mask), jnp.nan, value)


def _log_weights(visited: _Visited, past: Int[Array, ""]) -> Float[Array, "traj time"]:
    """The log-weight of every visit, from its so many most recent ratios."""
    before = _delayed(_recent(visited.log_ratio, past - 1), 1)
    log_weight = before + visited.log_discount[None]
    if not visited.average:
        return log_weight + visited.log_ratio
    return log_weight + _log_ratio_of_seen(visited, log_weight)


def _recent(x: Float[Array, "traj time"], number: Int[Array, ""]) -> Float[Array, "traj time"]:
    """The sum of x_{t-number+1:t}, from sums of 1, 2, 4, ... terms: nothing is subtracted."""

    def digit(power: Int[Array, ""], sums: tuple[Array, Array]) -> tuple[Array, Array]:
        total, block = sums
        longer = block + _delayed(total, 1 << power)
        total = jnp.where((number >> power) & 1 == 1, longer, total)
        return total, block + _delayed(block, 1 << power)

    # a loop, for XLA would compute the sums behind a sum anew for each
    digits = x.shape[1].bit_length()
    return lax.fori_loop(0, digits, digit, (jnp.zeros_like(x), x))[0]


def _delayed(x: Float[Array, "traj time"], steps: Array | int) -> Float[Array, "traj time"]:
    """x_{t-steps}, 0 where there is none."""
    num_steps = x.shape[1]
    padded = jnp.pad(x, ((0, 0), (num_steps, 0)))
    return lax.dynamic_slice_in_dim(padded, num_steps - steps, num_steps, 1)


def _log_ratio_of_seen(
    visited: _Visited, log_weight: Float[Array, "traj time"]
) -> Float[Array, "traj time"]:
    """The target's probability of the logged action over its share of the state's weight.

    Both are means over the visits to the state by these weights.
    """
    batch, place = visited.batch, visited.place
    probs = batch.require("target_probs", f"{PURPOSE} that averages over actions")
    action = masked.fill(batch.mask, batch.require("action", PURPOSE)).ravel()
    num_actions, num_places = probs.shape[-1], batch.num_states
    weight, _ = _weights(visited, log_weight, 0)
    chances = jnp.moveaxis(jnp.where(batch.mask[..., None], probs, 0), -1, 0)
    chances = weight[None] * chances.reshape(num_actions, -1)
    by_place = jax.vmap(partial(segment_sum, num_segments=num_places), (0, None))
    pair = place * num_actions + action
    chance = look_up(by_place(chances, place).T.ravel(), pair)
    share = look_up(segment_sum(weight, pair, num_places * num_actions), pair)
    known = (place < num_places) & (chance > 0) & (share > 0)
    ratio = jnp.where(known, chance, 1) / jnp.where(known, share, 1)
    return jnp.where(known, jnp.log(ratio), -jnp.inf).reshape(log_weight.shape)


def _weights(
    visited: _Visited, log_weight: Float[Array, "traj time"], otherwise: Array | int = 1
) -> tuple[Float[Array, " visit"], Float[Array, " place"]]:
    """Weights over the largest of their place, others where all are 0, and the largest logs."""
    num_places, log_weight = visited.batch.num_states, log_weight.ravel()
    peak = lax.stop_gradient(segment_max(log_weight, visited.place, num_places))
    largest = look_up(peak, visited.place)
    weighed = largest > -jnp.inf
    relative = jnp.where(weighed, log_weight - jnp.where(weighed, largest, 0), 0)
    return jnp.where(weighed, jnp.exp(relative), otherwise), peak
