"""Calibration of the Markov check: in how many data sets it rejects, and in how many it is silent.

Where states are Markov a rejection is an error, but for those that a step cap causes; where they
are not, the share of rejections is its power.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch, bucket_length, trim
from osiris_jax.core.compiled import compiled
from osiris_jax.pipeline.markov import LAGS, check_lags
from osiris_jax.relevance.markov import holm, markov_pvalues, of_both
from osiris_jax.study.arena import worlds_of
from osiris_jax.study.checks import number, settle_data_sets, some_of
from osiris_jax.study.chunks import Progress, by_size, silent

FORMS = ("clustered", "first visits", "both")
CHUNK_CELLS = 2**21


@dataclasses.dataclass(frozen=True)
class _DataSets:
    """Those of one world."""

    world: Any
    trials: int
    sizes: tuple[int, ...]
    seed: int

    def __post_init__(self):
        settle_data_sets(self, "the check needs a tabular world, whose states are known", 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarkovCalibration:
    """How often the Markov check rejects, in independent data sets of tabular worlds.

    Attributes:
      worlds: "design", "report", "all", names, or worlds.
      trials, sizes, seed: as in a `Study`.
      alphas: levels.
      lags: as for `markov_check`.
      discount: gamma in [0, 1].
    """

    worlds: Any = ("first-look", "waiting-room")
    trials: int = 1000
    sizes: tuple[int, ...] = (25, 100)
    alphas: tuple[float, ...] = (0.05,)
    lags: tuple[int, ...] = LAGS
    discount: float = 1.0
    seed: int = 0

    def __post_init__(self):
        of_worlds = (
            _DataSets(world, self.trials, self.sizes, self.seed) for world in worlds_of(self.worlds)
        )
        object.__setattr__(self, "worlds", tuple(one.world for one in of_worlds))
        some_of(self, "alphas")
        for alpha in self.alphas:
            number("alphas", alpha, 0, 1)
        check_lags(self.lags)
        number("discount", self.discount, 0, 1)

    def run(self, progress: Progress | None = None) -> list[dict[str, Any]]:
        """One row per world, size, form, lag and level.

        Lag None is the check: whether any lag is rejected after Holm. The others are lags by
        themselves. `rate` is the share of all data sets, undecided ones among them.
        """
        tell, lags, rows = progress or silent, check_lags(self.lags), []
        done, total = 0, len(self.worlds) * len(self.sizes) * self.trials

        def statistic(_: Array, batch: TrajectoryBatch) -> Array:
            return _pvalues(trim(batch, bucket_length), lags, self.discount)

        for world in self.worlds:
            data_sets = _DataSets(world, self.trials, self.sizes, self.seed)
            cells = CHUNK_CELLS * world.horizon // max(world.horizon, world.num_states)
            for size, pvalues in by_size(data_sets, cells, statistic, None):
                done += self.trials
                tell(world.name, done, total)
                rows += self._rows(world, size, pvalues)
        return rows

    def _rows(self, world: Any, size: int, pvalues: np.ndarray) -> list[dict[str, Any]]:
        """`pvalues` is [trial, form, 1 + lag], the check's first."""
        rows, labels = [], {"world": world.name, "markov": world.is_markov, "size": size}
        for form, of_form in zip(FORMS, np.moveaxis(pvalues, 1, 0), strict=True):
            for lag, pvalue in zip((None, *self.lags), of_form.T, strict=True):
                for alpha in self.alphas:
                    rate = float(np.mean(pvalue <= alpha))
                    found = {"form": form, "lag": lag, "alpha": alpha, "rate": rate}
                    found["rate_se"] = float(np.sqrt(rate * (1 - rate) / len(pvalue)))
                    found["undecided"] = float(np.mean(np.isnan(pvalue)))
                    rows.append({**labels, **found, "trials": len(pvalue)})
        return rows


@compiled
def _pvalues(batch: TrajectoryBatch, lags: Array, discount: Any) -> Array:
    """[trial, form, 1 + lag] the least after Holm, and those of all lags."""

    def of_data_set(batch: TrajectoryBatch) -> Array:
        clustered, first = (
            markov_pvalues(batch, lags, first_visit=first_visit, discount=discount)
            for first_visit in (False, True)
        )
        forms = jnp.stack([clustered, first, of_both(clustered, first)])
        adjusted = jax.vmap(holm)(forms)
        least = jnp.where(jnp.isnan(adjusted), jnp.inf, adjusted).min(1)
        least = jnp.where(jnp.isinf(least), jnp.nan, least)
        return jnp.concatenate([least[:, None], forms], 1)

    return jax.vmap(of_data_set)(batch)
