"""Simulation: many trajectories at once, each a function of its own key alone.

A fixed number of lanes runs side by side, a block of steps at a time. A lane whose trajectory has
ended takes up the next one, so the cost follows the real steps and not the longest trajectory.
Trajectory i of a data set uses fold_in(key, i) for all its randomness: neither the lanes, nor the
chunks, nor how many others there are can change it.

What is simulated is given by two pytrees. The dynamics have `reset(key)`, `observe(inner)`,
`step(key, inner, action) -> (inner, reward, done)` and `state_of(observation)`, for one trajectory;
the decider maps `(observation, uniform)` to `(action, log_ratio)`, and its `probs(observation)` are
those of all actions under the policy that acts and under the target; `prepared()` is the same
decider, with what it would compute at every step computed once.

Dynamics may have `visit(key, inner, action)`, one of `num_visits` numbers from which all that a
step shows can be looked up again by `fields_of(decider, visit)`. Then only that number is recorded.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import bits
from osiris_jax.data.policies import choose, log_probs_of

BLOCK = 16
_RESET, _STEPS = 2**32 - 1, 2**32 - 2  # beyond every number of a block


class Outcomes(NamedTuple):
    """What became of each trajectory: its return and its number of steps, [..., traj]."""

    returns: Array
    lengths: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FollowPolicy:
    """Draws from one policy and weighs by another; None for data of the target itself."""

    sampler: Any
    target: Any

    def __call__(self, observation: Array, uniform: Array) -> tuple[Array, Array]:
        log_probs = log_probs_of(self.sampler, observation)
        action = choose(jnp.exp(log_probs), uniform)
        if self.target is None:
            return action, jnp.zeros((), log_probs.dtype)
        return action, log_probs_of(self.target, observation)[action] - log_probs[action]

    def prepared(self) -> FollowPolicy:
        return self

    def probs(self, observation: Array) -> tuple[Array, Array]:
        target = self.sampler if self.target is None else self.target
        both = (log_probs_of(policy, observation) for policy in (self.sampler, target))
        return tuple(map(jnp.exp, both))  # pyright: ignore[reportReturnType]


class _Lanes(NamedTuple):
    """One trajectory per lane; `number` counts over all data sets, beyond the last when idle."""

    number: Array
    time: Array
    running: Array
    total: Array
    key: Array
    inner: Any


class Recorded(NamedTuple):
    """Trajectories as recorded: fields [trial, traj, time, ...] and lengths [trial, traj]."""

    fields: Any
    lengths: Array

    def pad_or_cut(self, steps: int) -> Recorded:
        """The time axis made `steps` long; no trajectory may be longer."""

        def changed(x: Array) -> Array:
            widths = [(0, 0)] * x.ndim
            widths[2] = (0, max(steps - x.shape[2], 0))
            return jnp.pad(x[:, :, :steps], widths)

        return Recorded(jax.tree.map(changed, self.fields), self.lengths)


@partial(jax.jit, static_argnames=("shared", "size", "steps", "lanes", "observations", "probs"))
def _record(leaves, keys, shared, size, steps, lanes, observations, probs) -> TrajectoryBatch:
    dynamics, decider = shared.restore(leaves)
    options = {"observations": observations, "probs": probs}
    found = record_fields(dynamics, decider, keys, size, steps=steps, lanes=lanes, **options)
    return batch_of(dynamics, decider, found.pad_or_cut(steps), probs=probs)


def record_fields(
    dynamics, decider, keys, size, *, steps: int, lanes: int, observations: bool, probs: bool
) -> Recorded:
    """What `batch_of` makes a batch of, in whole blocks of steps; for use under `jit`."""
    count, blocks = len(keys) * size, -(-steps // BLOCK)

    def cell(key, inner, observation, action, reward, log_ratio):
        if hasattr(dynamics, "visit"):
            narrow = np.min_scalar_type(dynamics.num_visits)
            return dynamics.visit(key, inner, action).astype(narrow)
        fields = {"reward": reward, "log_ratio": log_ratio, "action": action}
        fields["state"] = dynamics.state_of(observation)
        if probs:
            fields |= _probs_of(decider, observation)
        return fields | ({"observation": observation} if observations else {})

    def write(sink, lane: _Lanes, after: _Lanes, cells):
        place = (lane.number, lane.time // BLOCK)
        return jax.tree.map(lambda whole, part: whole.at[place].set(part, mode="drop"), sink, cells)

    blank = jax.eval_shape(lambda: _cell_of_one(dynamics, decider, cell))
    sink = jax.tree.map(lambda x: jnp.zeros((count, blocks, BLOCK, *x.shape), x.dtype), blank)
    lengths, fields = _run(dynamics, decider, keys, size, steps, 1.0, lanes, cell, write, sink)

    def by_trajectory(x: Array) -> Array:
        return x.reshape(len(keys), size, blocks * BLOCK, *x.shape[3:])

    return Recorded(jax.tree.map(by_trajectory, fields), lengths.reshape(len(keys), size))


def batch_of(dynamics, decider, recorded: Recorded, *, probs: bool) -> TrajectoryBatch:
    """The batch [trial, traj, time] of recorded trajectories."""
    fields, lengths = recorded
    if hasattr(dynamics, "visit"):
        visit = fields
        fields = dynamics.fields_of(decider, visit)
        fields |= _probs_of(decider, fields["state"]) if probs else {}
    steps = jax.tree.leaves(fields)[0].shape[2]
    mask = jnp.arange(steps)[None, None] < lengths[..., None]
    return TrajectoryBatch(
        **jax.tree.map(lambda x: _select(mask, x, jnp.zeros_like(x)), fields),
        mask=mask,
        num_states=dynamics.num_states,
        num_actions=dynamics.num_actions,
    )


def _probs_of(decider, observation) -> dict[str, Array]:
    names = ("behavior_probs", "target_probs")
    return dict(zip(names, decider.probs(observation), strict=True))


@partial(jax.jit, static_argnames=("shared", "size", "lanes"))
def _outcomes(leaves, keys, steps, discount, shared, size, lanes) -> Outcomes:
    dynamics, decider = shared.restore(leaves)

    def cell(key, inner, observation, action, reward, log_ratio):
        return {}

    def write(sink, lane: _Lanes, after: _Lanes, cells):
        return sink.at[lane.number].set(after.total, mode="drop")

    sink = jnp.zeros((len(keys) * size,))
    lengths, totals = _run(dynamics, decider, keys, size, steps, discount, lanes, cell, write, sink)
    shape = (len(keys), size)
    return Outcomes(totals.reshape(shape), lengths.reshape(shape))


def _run(dynamics, decider, keys, size, steps, discount, lanes, cell, write, sink):
    """Runs every trajectory to its end. Returns the lengths [trial * size] and the filled sink."""
    count = len(keys) * size
    decider = decider.prepared()

    def start(number: Array) -> _Lanes:
        number = jnp.minimum(number, count)
        key = random.fold_in(keys[number // size], number % size)
        return _Lanes(
            number=number,
            time=jnp.zeros((), jnp.int32),
            running=number < count,
            total=jnp.zeros(()),
            key=key,
            inner=dynamics.reset(random.fold_in(key, _RESET)),
        )

    def advance(lane: _Lanes, uniform: Array) -> tuple[_Lanes, Any]:
        observation = dynamics.observe(lane.inner)
        action, log_ratio = decider(observation, uniform)
        step_key = random.fold_in(random.fold_in(lane.key, _STEPS), lane.time)
        inner, reward, done = dynamics.step(step_key, lane.inner, action)
        seen = cell(step_key, lane.inner, observation, action, reward, log_ratio)
        seen = jax.tree.map(lambda x: jnp.where(lane.running, x, jnp.zeros_like(x)), seen)
        gain = reward * jnp.asarray(discount, reward.dtype) ** lane.time
        time = lane.time + lane.running
        after = lane._replace(
            time=time,
            running=lane.running & ~done & (time < steps),
            total=lane.total + jnp.where(lane.running, gain, 0),
            inner=inner,
        )
        return after, seen

    def refill(lane: _Lanes, following: Array) -> tuple[_Lanes, Array]:
        ended = ~lane.running
        fresh = jax.vmap(start)(following + jnp.cumsum(ended, dtype=jnp.int32) - 1)
        lane = jax.tree.map(lambda new, old: _select(ended, new, old), fresh, lane)
        return lane, jnp.minimum(following + ended.sum(dtype=jnp.int32), count)

    def advance_block(carry):
        lane, following, lengths, sink = carry
        lane, following = refill(lane, following)
        uniforms = jax.vmap(_block_uniforms)(lane.key, lane.time // BLOCK)
        after, cells = lax.scan(jax.vmap(advance), lane, uniforms.T)
        sink = write(sink, lane, after, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), cells))
        lengths = lengths.at[lane.number].set(after.time, mode="drop")
        return after, following, lengths, sink

    def blank(like: jax.ShapeDtypeStruct) -> Array:
        is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
        return jnp.broadcast_to(keys[0] if is_key else jnp.zeros((), like.dtype), like.shape)

    idle = jax.tree.map(blank, jax.eval_shape(jax.vmap(start), jnp.arange(lanes, dtype=jnp.int32)))
    carry = idle, jnp.int32(0), jnp.zeros(count, jnp.int32), sink
    *_, lengths, sink = lax.while_loop(
        lambda c: (c[1] < count) | c[0].running.any(), advance_block, carry
    )
    return lengths, sink


def _block_uniforms(key: Array, block: Array) -> Array:
    """Always float32, so that both float types see the same data."""
    return bits.uniforms(key, block, BLOCK)


def _select(which: Array, new: Array, old: Array) -> Array:
    if jnp.issubdtype(new.dtype, jax.dtypes.prng_key):
        return jnp.where(which, new, old)
    return jnp.where(which.reshape(which.shape + (1,) * (new.ndim - which.ndim)), new, old)


def _cell_of_one(dynamics, decider, cell):
    inner = dynamics.reset(random.key(0))
    observation = dynamics.observe(inner)
    action, log_ratio = decider(observation, jnp.zeros(()))
    _, reward, _ = dynamics.step(random.key(0), inner, action)
    return cell(random.key(0), inner, observation, action, reward, log_ratio)


@dataclasses.dataclass(frozen=True)
class Shared:
    """How to rebuild a tree whose equal leaves were passed once.

    Two policies over one network then share its arrays inside jit, and XLA evaluates it once.
    """

    structure: Any
    places: tuple[int, ...]

    @classmethod
    def split(cls, tree: Any) -> tuple[list, Shared]:
        leaves, structure = jax.tree.flatten(tree)
        first = {id(leaf): number for number, leaf in reversed(list(enumerate(leaves)))}
        kept = sorted(set(first.values()))
        places = tuple(kept.index(first[id(leaf)]) for leaf in leaves)
        return [leaves[number] for number in kept], cls(structure, places)

    def restore(self, leaves: list) -> Any:
        return jax.tree.unflatten(self.structure, [leaves[place] for place in self.places])


def record(
    dynamics: Any,
    decider: Any,
    keys: Array,
    size: int,
    *,
    steps: int,
    lanes: int,
    observations: bool,
    probs: bool = False,
) -> TrajectoryBatch:
    """`size` trajectories of at most `steps` steps for each key: a batch [trial, traj, time]."""
    leaves, shared = Shared.split((dynamics, decider))
    return _record(leaves, keys, shared, size, steps, lanes, observations, probs)


def outcomes(
    dynamics: Any, decider: Any, keys: Array, size: int, *, steps, discount, lanes: int
) -> Outcomes:
    """Returns and lengths of what `record` would hold, [trial, traj], without holding it."""
    leaves, shared = Shared.split((dynamics, decider))
    return _outcomes(leaves, keys, steps, discount, shared, size, lanes)
