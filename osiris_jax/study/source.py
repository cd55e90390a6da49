"""Where a study's data sets come from: simulated in JAX, or played in a world outside of it.

Trial k has the key fold_in(key(seed), k), and all that is random in it a stream of that key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import bucket_length, pad_or_cut
from osiris_jax.core.compiled import compiled
from osiris_jax.core.random_streams import METHOD_STREAM, TARGET_STREAM
from osiris_jax.study.plan import Study
from osiris_jax.worlds.rollout import Shared, batch_of, outcomes, record_fields
from osiris_jax.worlds.world import World

ASKED_FOR_LENGTHS = 8
PILOT_TRIALS, MANY_TRIALS = 64, 10_000
LARGEST_ONLY = (1.0,)

_fold_in_all = compiled(jax.vmap(random.fold_in, (None, 0)))


def keys_of(seed: int, trials: np.ndarray) -> Array:
    """[trial] the keys of these trials of a seed."""
    return _fold_in_all(random.key(seed), trials)


def target_keys(keys: Array) -> Array:
    """[trial] the keys of the target policy's own trajectories."""
    return jax.vmap(random.fold_in, (0, None))(keys, TARGET_STREAM)


def method_key(key: Array, size: int) -> Array:
    """The key of what is random in a method, from a trial's key."""
    return random.fold_in(random.fold_in(key, METHOD_STREAM), size)


class DataSets(NamedTuple):
    """The data sets of some trials.

    Attributes:
      key: [trial] see `keys_of`.
      data: behaviour data, a batch [trial, traj, time], or as `Recorded`.
      on_policy: [trial, traj] returns of the target policy, if asked for.
    """

    key: Array
    data: Any
    on_policy: Array | None

    @property
    def longest(self) -> np.ndarray:
        """[trial] the length of the longest trajectory of each data set."""
        return np.asarray(self.data.lengths).max(1)


Taker = Callable[[DataSets, np.ndarray, int], DataSets]


class Simulated:
    """Data sets of a world that runs in JAX, each of them simulated once.

    How long the trajectories are is not known before. Those of a few trials tell a length that is
    mostly enough for all; the trials in which it is not are simulated again.
    """

    def __init__(self, study: Study):
        self.study, self.world, self.size = study, study.world, max(study.sizes)
        behavior, target = self.world.decider("behavior"), self.world.decider("target")
        self.simulator = Shared.split((self.world.dynamics, behavior, target))
        self._reader = Shared.split((self.world.dynamics, behavior))
        self._enough = 0

    @cached_property
    def steps_needed(self) -> int:
        """A length of the time axis that holds the study's first trials."""
        some = keys_of(self.study.seed, np.arange(ASKED_FOR_LENGTHS, dtype=np.uint32))
        return self.world.steps_needed(some, self.size)

    def draw(self, keys: Array, device: Any) -> DataSets:
        """The data sets of these trials as recorded, on the device."""
        guess = min(bucket_length(3 * self.steps_needed // 2), self.world.horizon)
        with jax.default_device(device):
            keys, steps = jax.device_put(keys, device), max(guess, self._enough)
            drawn = self._record(keys, steps)
            if steps < self.world.horizon and drawn.longest.max() >= steps:
                steps = self.world.steps_needed(keys, self.size)
                self._enough = max(steps, self._enough)
                drawn = self._record(keys, steps)
            return jax.block_until_ready(drawn)

    def _record(self, keys: Array, steps: int) -> DataSets:
        leaves, shared = self.simulator
        return _simulate(
            jax.device_put(leaves),
            keys,
            self.study.discount,
            shared=shared,
            size=self.size,
            steps=steps,
            lanes=self.world.lanes(len(keys) * self.size),
            probs=self.study.needs_probs,
            horizon=self.world.horizon if self.study.is_on_policy else None,
        )

    def pilot_lengths(self, drawn: list[DataSets]) -> np.ndarray:
        """[trial] the lengths by which a study decides to what it pads its data sets."""
        return np.concatenate([some.longest for some in drawn])

    def taker(self, device: Any) -> Taker:
        """What gives the data sets at some places as batches of so many steps."""
        leaves, shared = self._reader
        leaves, probs = jax.device_put(leaves, device), self.study.needs_probs
        return partial(_restore, leaves, shared=shared, probs=probs)


class Played:
    """Data sets of a world that is played episode by episode; it is slow, and knows its states."""

    def __init__(self, study: Study):
        self.study, self.world, self.size = study, study.world, max(study.sizes)

    @property
    def steps_needed(self) -> int:
        return self.world.horizon

    def draw(self, keys: Array, device: Any) -> DataSets:
        batch = self.world.rollout(
            keys, self.size, observations=False, probs=self.study.needs_probs
        )
        batch = batch.replace(num_states=bucket_length(batch.num_states))
        returns = None
        if self.study.is_on_policy:
            discount = self.study.discount
            played = self.world.returns(target_keys(keys), self.size, discount=discount)
            returns = jnp.asarray(played.returns, batch.dtype)
        return jax.block_until_ready(jax.device_put(DataSets(keys, batch, returns), device))

    def pilot_lengths(self, drawn: list[DataSets]) -> np.ndarray:
        """A guess, for such worlds are not played only to be asked."""
        return np.array([-(-self.world.horizon // 8)])

    def taker(self, device: Any) -> Taker:
        return _take


def pilot_of(study: Study) -> np.ndarray:
    """The trials whose lengths decide to what all are padded."""
    return np.arange(min(PILOT_TRIALS, study.trials), dtype=np.uint32)


def same_pilot(trials: int, others: int) -> bool:
    """Whether studies of so many trials are padded to the same lengths."""
    return len({(min(n, PILOT_TRIALS), n >= MANY_TRIALS) for n in (trials, others)}) == 1


def padded_lengths(study: Study, needed: np.ndarray, shares: Sequence[float]) -> tuple[int, ...]:
    """To which lengths data sets may be padded, rising.

    Some quantiles of what the study's first trials need, and twice, four times, ... the largest, up
    to the horizon. With few trials, compiling for many lengths takes more time than padding, so
    only the largest.
    """
    horizon, few = study.world.horizon, study.trials < MANY_TRIALS
    quantiles = (np.quantile(needed, share) for share in (LARGEST_ONLY if few else shares))
    lengths = [bucket_length(int(length)) for length in quantiles]
    while lengths[-1] < horizon:
        lengths.append(2 * lengths[-1])
    return tuple(sorted({min(length, horizon) for length in lengths}))


def source_of(study: Study) -> Simulated | Played:
    """The source of a study's data sets."""
    return Simulated(study) if isinstance(study.world, World) else Played(study)


def simulated(
    leaves,
    keys: Array,
    discount,
    *,
    shared: Shared,
    size: int,
    steps: int,
    lanes: int,
    probs: bool,
    horizon: int | None,
) -> DataSets:
    """The data sets as recorded; with a horizon also the target's returns, played up to it."""
    dynamics, behavior, target = shared.restore(leaves)
    options = {"steps": steps, "observations": False, "probs": probs}
    data = record_fields(dynamics, behavior, keys, size, lanes=lanes, **options)
    if horizon is None:
        return DataSets(keys, data, None)
    options = {"steps": horizon, "discount": discount}
    played = outcomes(dynamics, target, target_keys(keys), size, lanes=lanes, **options)
    return DataSets(keys, data, played.returns)


_simulate = compiled(
    simulated, static_argnames=("shared", "size", "steps", "lanes", "probs", "horizon")
)


@compiled(static_argnames=("shared", "probs", "steps"))
def _restore(
    leaves, drawn: DataSets, places, steps: int, *, shared: Shared, probs: bool
) -> DataSets:
    """The simulated data sets at these places, with so many steps.

    Compiled apart, so that what is looked up is looked up once, and not again in every kernel.
    """
    dynamics, behavior = shared.restore(leaves)
    key, data, on_policy = jax.tree.map(lambda x: x[places], drawn)
    batch = batch_of(dynamics, behavior, data, steps=steps, probs=probs)
    return DataSets(key, batch, on_policy)


@compiled(static_argnames="steps")
def _take(drawn: DataSets, places, steps: int) -> DataSets:
    """The played data sets at these places, with so many steps."""
    key, batch, on_policy = jax.tree.map(lambda x: x[places], drawn)
    return DataSets(key, pad_or_cut(batch, steps), on_policy)
