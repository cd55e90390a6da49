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
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int, Key, PyTree

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.platforms import scan
from osiris_jax.core.random_streams import RESET_STREAM, STEPS_STREAM, uniforms
from osiris_jax.data.policies import choose, log_probs_of

BLOCK = 16
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.999)
Keys = Key[Array, " trial"]


class Outcomes(NamedTuple):
    """What became of each trajectory: its return and its number of steps."""

    returns: Float[Array, "*trial traj"]
    lengths: Int[Array, "*trial traj"]


class Value(NamedTuple):
    """A policy's value over simulated episodes, and how long they were."""

    mean: float
    standard_error: float
    episodes: int
    mean_length: float
    longest: int
    quantiles: dict[str, float]

    @classmethod
    def of(cls, returns: Any, lengths: Any) -> Value:
        returns, lengths = np.asarray(returns, np.float64), np.asarray(lengths)
        return cls(
            mean=float(returns.mean()),
            standard_error=float(returns.std(ddof=1) / np.sqrt(len(returns))),
            episodes=len(returns),
            mean_length=float(lengths.mean()),
            longest=int(lengths.max()),
            quantiles={str(p): float(np.quantile(lengths, p)) for p in QUANTILES},
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FollowPolicy:
    """Draws from one policy and weighs by another; None for data of the target itself."""

    sampler: Any
    target: Any

    def __call__(self, observation: Array, uniform: Float[Array, ""]) -> tuple[Array, Array]:
        log_probs = log_probs_of(self.sampler, observation)
        action = choose(jnp.exp(log_probs), uniform)
        if self.target is None:
            return action, jnp.zeros((), log_probs.dtype)
        return action, log_probs_of(self.target, observation)[action] - log_probs[action]

    def prepared(self) -> FollowPolicy:
        return self

    def probs(self, observation: Array) -> tuple[Array, Array]:
        target = self.sampler if self.target is None else self.target
        return tuple(jnp.exp(log_probs_of(p, observation)) for p in (self.sampler, target))  # pyright: ignore[reportReturnType]


class Recorded(NamedTuple):
    """Trajectories as recorded; `batch_of` makes a batch of them."""

    fields: PyTree[Array, "trial traj time ..."]  # pyright: ignore
    lengths: Int[Array, "trial traj"]


class _Lanes(NamedTuple):
    """One trajectory per lane; `number` counts over all data sets, beyond the last when idle."""

    number: Int[Array, " lane"]
    time: Int[Array, " lane"]
    running: Bool[Array, " lane"]
    total: Float[Array, " lane"]
    key: Key[Array, " lane"]
    inner: PyTree


class Place(NamedTuple):
    """Where a block belongs: in which trajectories, or in all in order, and in which block."""

    number: Int[Array, " lane"] | None
    block: Array

    def put(self, whole: Array, part: Array) -> Array:
        """[traj, block, ...] the whole with a part of every lane in its place."""
        if self.number is None:
            return lax.dynamic_update_index_in_dim(whole, part[: len(whole)], self.block, 1)
        return whole.at[self.number, self.block].set(part, mode="drop")


Show = Callable[[Key[Array, ""], PyTree, dict[str, Array]], PyTree]
Write = Callable[[PyTree, Place, _Lanes, PyTree], PyTree]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class _Simulation:
    """`size` trajectories of at most `steps` steps for each of the keys."""

    dynamics: Any
    decider: Any
    keys: Keys
    size: int
    steps: Int[Array, ""] | int
    lanes: int
    discount: Float[Array, ""] | float = 1.0

    @property
    def count(self) -> int:
        return len(self.keys) * self.size

    def run(
        self, show: Show, write: Write, sink: PyTree
    ) -> tuple[Int[Array, "trial traj"], PyTree]:
        """The lengths, and the sink into which `write` put what `show` sees of each block."""

        def advance_block(lanes):
            # always float32, so that both float types see the same data
            drawn = jax.vmap(partial(uniforms, number=BLOCK))(lanes.key, lanes.time // BLOCK)
            after, cells = scan(jax.vmap(partial(self.advance, show)), lanes, drawn.T)
            return after, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), cells)

        def advance_and_refill(carry):
            lanes, following, lengths, sink = carry
            after, cells = advance_block(lanes)
            sink = write(sink, Place(lanes.number, lanes.time // BLOCK), after, cells)
            lengths = lengths.at[lanes.number].set(after.time, mode="drop")
            return *self._refill(after, following), lengths, sink

        def advance_all(carry):
            lanes, block, sink = carry
            after, cells = advance_block(lanes)
            return after, block + 1, write(sink, Place(None, block), after, cells)

        lanes = jax.vmap(self.start)(jnp.arange(self.lanes, dtype=jnp.int32))
        if self.lanes >= self.count:
            carry = lanes, jnp.int32(0), sink
            lanes, _, sink = lax.while_loop(lambda c: c[0].running.any(), advance_all, carry)
            lengths = lanes.time[: self.count]
        else:
            carry = lanes, jnp.int32(self.lanes), jnp.zeros(self.count, jnp.int32), sink
            *_, lengths, sink = lax.while_loop(
                lambda c: c[0].running.any(), advance_and_refill, carry
            )
        return lengths.reshape(len(self.keys), self.size), sink

    def start(self, number: Int[Array, ""]) -> _Lanes:
        number = jnp.minimum(number, self.count)
        key = random.fold_in(self.keys[number // self.size], number % self.size)
        return _Lanes(
            number=number,
            time=jnp.zeros((), jnp.int32),
            running=number < self.count,
            total=jnp.zeros(()),
            key=key,
            inner=self.dynamics.reset(random.fold_in(key, RESET_STREAM)),
        )

    def advance(self, show: Show, lane: _Lanes, uniform: Float[Array, ""]) -> tuple[_Lanes, PyTree]:
        """The lane one step on, and what `show` makes of the step's key, place and fields."""
        step_key = random.fold_in(random.fold_in(lane.key, STEPS_STREAM), lane.time)
        observation = self.dynamics.observe(lane.inner)
        action, log_ratio = self.decider(observation, uniform)
        following, reward, done = self.dynamics.step(step_key, lane.inner, action)
        fields = {"reward": reward, "log_ratio": log_ratio, "action": action}
        cell = show(step_key, lane.inner, {**fields, "observation": observation})
        cell = jax.tree.map(lambda x: jnp.where(lane.running, x, jnp.zeros_like(x)), cell)
        gain = reward * jnp.asarray(self.discount, reward.dtype) ** lane.time
        time = lane.time + lane.running
        after = lane._replace(
            time=time,
            running=lane.running & ~done & (time < self.steps),
            total=lane.total + jnp.where(lane.running, gain, 0),
            inner=following,
        )
        return after, cell

    def _refill(self, lanes: _Lanes, following: Int[Array, ""]) -> tuple[_Lanes, Int[Array, ""]]:
        ended = ~lanes.running
        fresh = jax.vmap(self.start)(following + jnp.cumsum(ended, dtype=jnp.int32) - 1)
        lanes = jax.tree.map(lambda new, old: _select(ended, new, old), fresh, lanes)
        return lanes, jnp.minimum(following + ended.sum(dtype=jnp.int32), self.count)


def _select(which: Bool[Array, "..."], new: Array, old: Array) -> Array:
    return jnp.where(which.reshape(which.shape + (1,) * (new.ndim - which.ndim)), new, old)


def record_fields(
    dynamics: Any,
    decider: Any,
    keys: Keys,
    size: int,
    *,
    steps: int,
    lanes: int,
    observations: bool,
    probs: bool,
) -> Recorded:
    """What `batch_of` makes a batch of, in whole blocks of steps; for use under `jit`."""
    blocks = -(-steps // BLOCK)

    def show(key: Key[Array, ""], inner: PyTree, fields: dict[str, Array]) -> PyTree:
        if hasattr(dynamics, "visit"):
            narrow = np.min_scalar_type(dynamics.num_visits)
            return dynamics.visit(key, inner, fields["action"]).astype(narrow)
        observation = fields["observation"] if observations else fields.pop("observation")
        of_all = _probs_of(decider, observation) if probs else {}
        return {**fields, "state": dynamics.state_of(observation), **of_all}

    def write(sink: PyTree, place: Place, after: _Lanes, cells: PyTree) -> PyTree:
        return jax.tree.map(place.put, sink, cells)

    room = {"keys": keys, "size": size, "steps": steps, "lanes": lanes}
    simulation = _Simulation(dynamics=dynamics, decider=decider.prepared(), **room)
    shape = (simulation.count, blocks, BLOCK)
    first = jax.eval_shape(simulation.start, 0)
    _, cell = jax.eval_shape(partial(simulation.advance, show), first, jnp.zeros(()))
    sink = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), cell)
    lengths, fields = simulation.run(show, write, sink)

    def by_trajectory(x: Array) -> Array:
        return x.reshape(len(keys), size, blocks * BLOCK, *x.shape[3:])

    return Recorded(jax.tree.map(by_trajectory, fields), lengths)


def batch_of(
    dynamics: Any, decider: Any, recorded: Recorded, *, steps: int, probs: bool
) -> TrajectoryBatch:
    """The batch [trial, traj, time] of recorded trajectories, none longer than `steps`."""

    def pad_or_cut(x: Array) -> Array:
        widths = [(0, 0)] * x.ndim
        widths[2] = (0, max(steps - x.shape[2], 0))
        return jnp.pad(x[:, :, :steps], widths)

    fields = jax.tree.map(pad_or_cut, recorded.fields)
    mask = jnp.arange(steps)[None, None] < recorded.lengths[..., None]
    if hasattr(dynamics, "visit"):
        visit, fields = fields, dynamics.fields_of(decider, fields)
        fields |= _probs_of(decider, dynamics.observation_of(visit)) if probs else {}
    return TrajectoryBatch(
        **jax.tree.map(lambda x: _select(mask, x, jnp.zeros_like(x)), fields),
        mask=mask,
        num_states=dynamics.num_states,
        num_actions=dynamics.num_actions,
    )


def _probs_of(decider: Any, observation: Array) -> dict[str, Array]:
    names = ("behavior_probs", "target_probs")
    return dict(zip(names, decider.probs(observation), strict=True))


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
    dynamics: Any, decider: Any, keys: Keys, size: int, *, probs: bool = False, **options: Any
) -> TrajectoryBatch:
    """`size` trajectories for each key: a batch [trial, traj, time]; options of `record_fields`."""
    leaves, shared = Shared.split((dynamics, decider))
    return _record(jax.device_put(leaves), keys, shared=shared, size=size, probs=probs, **options)


@partial(jax.jit, static_argnames=("shared", "size", "steps", "lanes", "observations", "probs"))
def _record(leaves: list, keys: Array, *, shared: Shared, size: int, steps: int, **options: Any):
    dynamics, decider = shared.restore(leaves)
    recorded = record_fields(dynamics, decider, keys, size, steps=steps, **options)
    return batch_of(dynamics, decider, recorded, steps=steps, probs=options["probs"])


def outcomes(
    dynamics: Any, decider: Any, keys: Keys, size: int, *, steps: int, discount: float, lanes: int
) -> Outcomes:
    """Returns and lengths of what `record` would hold, [trial, traj], without holding it."""
    leaves, shared = Shared.split((dynamics, decider))
    options = {"size": size, "steps": steps, "discount": discount, "lanes": lanes}
    return _outcomes(jax.device_put(leaves), keys=keys, shared=shared, **options)


@partial(jax.jit, static_argnames=("shared", "size", "lanes"))
def _outcomes(leaves: list, *, shared: Shared, **options: Any) -> Outcomes:
    dynamics, decider = shared.restore(leaves)
    simulation = _Simulation(dynamics=dynamics, decider=decider.prepared(), **options)

    def write(sink: Array, place: Place, after: _Lanes, cells: PyTree) -> Array:
        if place.number is None:
            return after.total[: len(sink)]
        return sink.at[place.number].set(after.total, mode="drop")

    lengths, totals = simulation.run(lambda *_: {}, write, jnp.zeros(simulation.count))
    return Outcomes(totals.reshape(lengths.shape), lengths)
