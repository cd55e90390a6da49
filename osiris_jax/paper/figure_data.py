"""The numbers behind the paper's figures 2 and 3, under any protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.paper.kernel import keep_map
from osiris_jax.paper.numbers import Column
from osiris_jax.paper.protocol import INDEPENDENT, Protocol
from osiris_jax.paper.run import Reproduction
from osiris_jax.pipeline import compose
from osiris_jax.relevance.omission import keep_steps
from osiris_jax.study import Study
from osiris_jax.study.chunks import Progress
from osiris_jax.study.plan import ON_POLICY
from osiris_jax.study.run import compute
from osiris_jax.study.summary import cell_moments, rows_of, truth_of
from osiris_jax.worlds.world import World

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
SIZES = (25, 50, 100, 250, 500)
SHORT_SIZES, SHORT_HORIZON = (25, 50, 100), 100
PLAYED_TRUTH_EPISODES = 2000


class WeightsAndLengths(NamedTuple):
    """OSIRIS weights and what is left of each trajectory, at every level.

    Attributes:
      log_weight: [alpha, trial, traj] log of the product of the kept ratios.
      length: [alpha, trial, traj] effective length, the sum of theta(s_t).
    """

    log_weight: np.ndarray
    length: np.ndarray


def weights_and_lengths(
    batches: Iterable[TrajectoryBatch], alphas: Sequence[float], protocol: Protocol
) -> WeightsAndLengths:
    """OSIRIS weights and effective lengths of all trajectories (Figure 3 of Shen et al. 2021).

    Args:
      batches: chunks [trial, traj, time], each gone through once.
      alphas: levels.
      protocol: by which states are kept.
    """
    parts = [_weights(batch, jnp.asarray(alphas, batch.dtype), protocol) for batch in batches]
    log_weight, length = (np.concatenate(x, axis=1) for x in zip(*parts, strict=True))
    return WeightsAndLengths(log_weight.astype(np.float64), length)


@partial(jax.jit, static_argnames="protocol")
def _weights(
    batches: TrajectoryBatch, alphas: Float[Array, " alpha"], protocol: Protocol
) -> tuple[Array, Array]:
    """[alpha, trial, traj] log-weights and effective lengths."""

    def at_level(batch: TrajectoryBatch, alpha: Float[Array, ""]) -> tuple[Array, Array]:
        kept = keep_steps(keep_map(protocol, batch, alpha), batch)
        return compose.kept_weights(batch, kept), masked.lengths(kept & batch.mask)

    at_levels = jax.vmap(at_level, (None, 0))
    return jax.vmap(at_levels, (0, None), out_axes=1)(batches, alphas)


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
    study: Study, protocol: Protocol, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """The rows of a study's OSIRWIS under another protocol, its errors from the true value.

    Args:
      study: the world, trials, sizes and levels; see `consistency_study`.
      protocol: how data are drawn, and which states are kept.
      progress: called with ("trials", done, total) for each size.
    """
    columns = tuple(Column("osirwis", "welch", alpha) for alpha in study.levels)
    values = []
    for size in study.sizes:
        plan = Reproduction(study.world, (protocol,), columns, study.trials, size, study.seed)
        values.append(compute(plan, plan, progress=progress).values())
    truth = truth_of(study)
    moments = cell_moments(lambda: [np.concatenate(values, axis=1)], truth.value)
    osirwis = dataclasses.replace(study, estimators=("osirwis",))
    return rows_of(osirwis, moments, truth, protocol.name)
