"""The numbers behind the paper's figures, from data sets in chunks [trial, traj, time].

How data is drawn and which states are kept are arguments: the published protocol and independent
trials go through the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.paper import published
from osiris_jax.paper.draws import Data
from osiris_jax.paper.protocol import INDEPENDENT
from osiris_jax.pipeline import compose
from osiris_jax.relevance import RELEVANCE
from osiris_jax.relevance.omission import keep_steps, relevant
from osiris_jax.study import Study
from osiris_jax.study.plan import ON_POLICY
from osiris_jax.study.summary import Truth, cell_moments, rows_of
from osiris_jax.worlds.world import World

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
SIZES = (25, 50, 100, 250, 500)
SHORT_SIZES, SHORT_HORIZON = (25, 50, 100), 100
PLAYED_TRUTH_EPISODES = 2000

KeepMap = Callable[[TrajectoryBatch, Array], Array]
Statistic = Callable[[TrajectoryBatch, Array], Any]


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
    """[alpha, trial, traj] log-weights and effective lengths."""

    def statistic(batch: TrajectoryBatch, kept: Array) -> tuple[Array, Array]:
        return compose.kept_weights(batch, kept), masked.lengths(kept & batch.mask)

    return jax.vmap(partial(_at_levels, alphas, keep, statistic), out_axes=1)(batches)


def _at_levels(alphas: Array, keep: KeepMap, statistic: Statistic, batch: TrajectoryBatch) -> Any:
    """[alpha, ...] the statistic of a data set and of the steps that are kept at every level."""
    maps = keep(batch, alphas)
    return jax.vmap(lambda states: statistic(batch, keep_steps(states, batch)))(maps)


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
    """[trial, alpha]."""

    def statistic(batch: TrajectoryBatch, kept: Array) -> Array:
        return compose.value_of(batch, "wis", kept)

    return jax.vmap(partial(_at_levels, alphas, keep, statistic))(batches)


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
