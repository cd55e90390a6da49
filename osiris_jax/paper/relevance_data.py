"""How often states are called relevant, over the visits to them (Figure 4 of Shen et al. 2021)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.paper.figure_parts import Measured
from osiris_jax.paper.kernel import keep_map
from osiris_jax.paper.protocol import Protocol
from osiris_jax.relevance.omission import keep_steps


@dataclasses.dataclass(frozen=True)
class MeanRelevance:
    """Visit-weighted mean of theta in bins, with errors from the spread between trials.

    Kept and visits of a trial, one after the other, are one vector z [2 * bin]; its sum and the sum
    of z z' over trials are all that means and their errors need, however many trials there are.

    Attributes:
      trials: number of data sets.
      total: [*rows, 2 * bin] sum of z.
      second: [*rows, 2 * bin, 2 * bin] sum of z z'.
    """

    trials: int
    total: np.ndarray
    second: np.ndarray

    @classmethod
    def of_counts(cls, parts: Iterable[tuple[Any, Any]]) -> MeanRelevance:
        """From chunks of kept and visits, [trial, *rows, bin] each, gone through once."""
        trials, total, second = 0, np.zeros(()), np.zeros(())
        for kept, visits in parts:
            z = np.concatenate([kept, visits], axis=-1).astype(np.float64)
            trials += len(z)
            total = total + z.sum(0)
            second = second + np.einsum("k...i,k...j->...ij", z, z)
        if not trials:
            raise ValueError("batches: no data sets")
        return cls(trials, total, second)

    def __getitem__(self, rows: Any) -> MeanRelevance:
        return MeanRelevance(self.trials, self.total[rows], self.second[rows])

    @property
    def kept(self) -> np.ndarray:
        """[*rows, bin] visits at which the state was called relevant."""
        return self.total[..., : self.total.shape[-1] // 2]

    @property
    def visits(self) -> np.ndarray:
        """[*rows, bin] visits in all trials."""
        return self.total[..., self.total.shape[-1] // 2 :]

    @property
    def mean(self) -> np.ndarray:
        """[*rows, bin] NaN where there are no visits."""
        return self.kept / np.where(self.visits > 0, self.visits, np.nan)

    @property
    def standard_error(self) -> np.ndarray:
        """[*rows, bin] of the mean; NaN for bins visited in fewer than two trials."""
        bins = self.visits.shape[-1]
        ids = np.arange(bins)
        kept, visits = self.second[..., ids, ids], self.second[..., ids + bins, ids + bins]
        both = self.second[..., ids, ids + bins]
        residual = kept - 2 * self.mean * both + self.mean**2 * visits
        several = visits < self.visits**2
        error = np.sqrt(np.maximum(residual, 0) * self._correction) / self.visits.clip(1)
        return np.where(several, error, np.nan)

    def pooled(
        self, bins: Bool[np.ndarray, " bin"], less: Bool[np.ndarray, " bin"] | None = None
    ) -> Measured:
        """Mean over all visits to some bins, less that to others in the same trials."""
        mean, direction = self._direction(bins)
        if less is not None:
            other, other_direction = self._direction(less)
            mean, direction = mean - other, direction - other_direction
        square = direction @ self.second @ direction
        return Measured(mean, float(np.sqrt(np.maximum(square, 0) * self._correction)))

    def _direction(self, bins: np.ndarray) -> tuple[float, np.ndarray]:
        """The ratio of sums, and its derivative by the sums."""
        kept, visits = self.kept[bins].sum(), self.visits[bins].sum()
        if not visits:
            return np.nan, np.full(len(self.total), np.nan)
        mean = float(kept / visits)
        return mean, np.concatenate([bins, -mean * bins]) / visits

    @property
    def _correction(self) -> float:
        return self.trials / (self.trials - 1) if self.trials > 1 else np.nan


def mean_relevance(
    batches: Iterable[TrajectoryBatch],
    alpha: float,
    protocol: Protocol,
    edges: Float[np.ndarray, "dim edge"] | None = None,
) -> MeanRelevance:
    """Mean of theta over the visits to each state; or to each bin of every observed dimension.

    Args:
      batches: chunks [trial, traj, time], with observations or with state ids that mean the same
        in all trials.
      alpha: the level.
      protocol: by which states are kept.
      edges: rising; bin b holds edges[b] <= x < edges[b + 1], other visits count nowhere. With
        them, the means have rows [dim].
    """
    parts = (_count(batch, alpha, protocol, edges) for batch in batches)
    relevance = MeanRelevance.of_counts(parts)
    return relevance[0] if edges is None else relevance


@partial(jax.jit, static_argnames="protocol")
def _count(
    batches: TrajectoryBatch, alpha: Float[Array, ""], protocol: Protocol, edges: Any
) -> tuple[Int[Array, "trial dim bin"], Int[Array, "trial dim bin"]]:
    """Visits at which the state is kept, and all visits; states are the bins of one dimension."""

    def of_data_set(batch: TrajectoryBatch) -> tuple[Array, Array]:
        if edges is None:
            places, number = batch.require("state", "relevance by state")[None], batch.num_states
        else:
            observed = jnp.moveaxis(batch.require("observation", "relevance by dimension"), -1, 0)
            search = jax.vmap(partial(jnp.searchsorted, side="right"))
            places = search(jnp.asarray(edges, batch.dtype), observed) - 1
            number = edges.shape[1] - 1

        def count(used: Bool[Array, "traj time"]) -> Int[Array, "dim bin"]:
            def of_dimension(place: Int[Array, "traj time"]) -> Int[Array, " bin"]:
                place = masked.fill(used, place, number)
                return jax.ops.segment_sum(used.astype(jnp.int32).ravel(), place.ravel(), number)

            return jax.vmap(of_dimension)(places)

        kept = keep_steps(keep_map(protocol, batch, alpha), batch)
        return count(kept & batch.mask), count(batch.mask)

    return jax.vmap(of_data_set)(batches)
