"""The numbers behind the paper's figures, from data sets in chunks [trial, traj, time].

How data is drawn and which states are kept are arguments: the published protocol and independent
trials go through the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch, bucket_length
from osiris_jax.core import masked
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.paper import published
from osiris_jax.paper.protocol import INDEPENDENT
from osiris_jax.relevance import RELEVANCE
from osiris_jax.relevance.omission import keep_steps, omit, relevant
from osiris_jax.study import Study
from osiris_jax.study.plan import ON_POLICY
from osiris_jax.study.summary import Truth, cell_moments, rows_of
from osiris_jax.worlds.world import World

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
SIZES = (25, 50, 100, 250, 500)
SHORT_SIZES, SHORT_HORIZON = (25, 50, 100), 100
CHUNK_CELLS = 2**21
PLAYED_TRUTH_EPISODES = 2000

KeepMap = Callable[[TrajectoryBatch, Array], Array]
Data = Callable[[Any, int, int], Iterable[TrajectoryBatch]]


def keep_as_defined(
    batch: TrajectoryBatch, alphas: Float[Array, " alpha"]
) -> Bool[Array, "alpha state"]:
    """Algorithm 1 of Shen et al. 2021 as printed: Welch's test of returns weighed by rho_{t:T}."""
    pvalue = RELEVANCE["welch"](batch, weighting="to-go")
    return jax.vmap(partial(relevant, pvalue))(alphas)


def keep_as_published(
    batch: TrajectoryBatch, alphas: Float[Array, " alpha"]
) -> Bool[Array, "alpha state"]:
    """What the paper's code keeps: unweighted returns, population variances, never a NaN."""
    pvalue = published.pvalues_published(batch)
    return jax.vmap(partial(published.keep_published, pvalue))(alphas)


KEEP_MAPS: dict[str, KeepMap] = {"independent": keep_as_defined, "published": keep_as_published}


def independent_data(seed: int = 0) -> Data:
    """Independent trials, trial k from fold_in(key(seed), k) as in a `Study`.

    All chunks of a call have one length of time, so that each kernel is compiled once, and no more
    than about `CHUNK_CELLS` steps, so that memory does not grow with the trials.
    """

    def chunks(world: Any, size: int, trials: int) -> Iterator[TrajectoryBatch]:
        numbers = jnp.arange(trials, dtype=jnp.uint32)
        keys = jax.vmap(random.fold_in, (None, 0))(random.key(seed), numbers)
        simulated = isinstance(world, World)
        steps = world.steps_needed(keys, size) if simulated else world.horizon
        number = -(-trials // max(1, CHUNK_CELLS // (size * steps)))
        step = -(-trials // number)
        for start in range(0, trials, step):
            some = keys[start : start + step]
            yield _simulate(some, world, size, steps) if simulated else _play(some, world, size)

    return chunks


@partial(jax.jit, static_argnames=("world", "size", "steps"))
def _simulate(keys: Array, world: World, size: int, steps: int) -> TrajectoryBatch:
    return world.rollout(keys, size, steps=steps)


def _play(keys: Array, world: Any, size: int) -> TrajectoryBatch:
    batch = world.rollout(keys, size)
    return batch.replace(num_states=bucket_length(batch.num_states))


class WeightsAndLengths(NamedTuple):
    """OSIRIS weights and what is left of each trajectory, at every level.

    Attributes:
      log_weight: [alpha, trial, traj] log of the product of the kept ratios.
      length: [alpha, trial, traj] effective length, the sum of theta(s_t).
    """

    log_weight: np.ndarray
    length: np.ndarray


def weights_and_lengths(
    batches: Iterable[TrajectoryBatch],
    alphas: Sequence[float] = ALPHAS,
    *,
    keep: KeepMap = keep_as_defined,
) -> WeightsAndLengths:
    """OSIRIS weights and effective lengths of all trajectories (Figure 3 of Shen et al. 2021).

    Args:
      batches: chunks [trial, traj, time], each gone through once.
      alphas: levels.
      keep: the states kept at each level.
    """
    parts = [_weights(batch, jnp.asarray(alphas, batch.dtype), keep) for batch in batches]
    log_weight, length = (np.concatenate(x, axis=1) for x in zip(*parts, strict=True))
    return WeightsAndLengths(log_weight.astype(np.float64), length)


@partial(jax.jit, static_argnames="keep")
def _weights(batches: TrajectoryBatch, alphas: Array, keep: KeepMap) -> tuple[Array, Array]:
    return jax.vmap(lambda batch: weights_of_data_set(batch, alphas, keep), out_axes=1)(batches)


def weights_of_data_set(
    batch: TrajectoryBatch, alphas: Float[Array, " alpha"], keep: KeepMap
) -> tuple[Float[Array, "alpha traj"], Int[Array, "alpha traj"]]:
    """Log-weights and effective lengths at every level."""

    def at_level(states: Bool[Array, " state"]) -> tuple[Array, Array]:
        kept = keep_steps(states, batch) & batch.mask
        log_ratio = omit(batch.require("log_ratio", "weights"), kept)
        return masked.log_weights(log_ratio, batch.mask), masked.lengths(kept)

    return jax.vmap(at_level)(keep(batch, alphas))


def osirwis_values(
    batches: Iterable[TrajectoryBatch],
    alphas: Sequence[float] = ALPHAS,
    *,
    keep: KeepMap = keep_as_defined,
) -> Float[np.ndarray, "trial alpha"]:
    """OSIRWIS of every data set at every level; arguments as for `weights_and_lengths`."""
    parts = [_osirwis(batch, jnp.asarray(alphas, batch.dtype), keep) for batch in batches]
    return np.concatenate(parts).astype(np.float64)


@partial(jax.jit, static_argnames="keep")
def _osirwis(batches: TrajectoryBatch, alphas: Array, keep: KeepMap) -> Array:
    def of_data_set(batch: TrajectoryBatch) -> Array:
        def at_level(states: Bool[Array, " state"]) -> Float[Array, ""]:
            log_ratio = batch.require("log_ratio", "osirwis")
            return ESTIMATORS["wis"](batch, omit(log_ratio, keep_steps(states, batch)))

        return jax.vmap(at_level)(keep(batch, alphas))

    return jax.vmap(of_data_set)(batches)


def consistency_study(
    world: Any,
    trials: int,
    seed: int = 0,
    *,
    sizes: Sequence[int] | None = None,
    alphas: Sequence[float] = ALPHAS,
    on_policy: bool = True,
) -> Study:
    """OSIRWIS over sizes and levels (Figure 2 of Shen et al. 2021), to be run.

    Args:
      world: a name or a world.
      trials, seed: of the study.
      sizes: |D|; by default up to 500 in worlds of at most `SHORT_HORIZON` steps, else up to 100.
      alphas: levels.
      on_policy: whether to estimate from data of the target policy too.
    """
    study = Study(
        world=world,
        trials=trials,
        seed=seed,
        alphas=tuple(alphas),
        estimators=("osirwis", ON_POLICY) if on_policy else ("osirwis",),
        weighting=INDEPENDENT.weighting,
    )
    usual = SIZES if study.world.horizon <= SHORT_HORIZON else SHORT_SIZES
    simulated = isinstance(study.world, World)
    return dataclasses.replace(
        study,
        sizes=tuple(sizes or usual),
        truth_episodes=study.truth_episodes if simulated else PLAYED_TRUTH_EPISODES,
    )


def consistency_rows(
    study: Study,
    data: Data,
    truth: Truth,
    *,
    keep: KeepMap,
    protocol: str = "independent",
) -> list[dict[str, Any]]:
    """The rows of a study's OSIRWIS, from other data or with other maps.

    Args:
      study: the world, trials, sizes and levels; see `consistency_study`.
      data: the data sets of each size.
      truth: what errors are measured from.
      keep: the states kept at each level.
      protocol: what the rows say of it.
    """
    study = dataclasses.replace(study, estimators=("osirwis",))
    values = np.concatenate(
        [
            osirwis_values(data(study.world, size, study.trials), study.levels, keep=keep)
            for size in study.sizes
        ],
        axis=1,
    )
    moments = cell_moments(lambda: iter([values]), truth.value)
    return [row | {"protocol": protocol} for row in rows_of(study, moments, truth)]
