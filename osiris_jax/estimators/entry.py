"""All that the package knows of an estimator: its entry in the registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.registry import Entry

RATIOS = ("reward", "mask", "log_ratio")


class Counted(NamedTuple):
    """An estimator's form for many resamples, each of which is a count for every trajectory.

    Options are those of the estimator, and the data's `mask`.

    Attributes:
      parts: `(batch, log_ratio, **options)` to what all resamples share.
      values: `(counts [resample, traj], parts, **options)` to [resample] estimates; None where they
        are best computed one by one.
      of_weights: `(count [traj], log_weight [traj], parts, **options)` to one estimate, also for
        weights that differ between resamples; None where it needs more than those of trajectories.
      terms: `parts` to the terms that the estimate is the mean of and the weights in them; None
        where there are none.
    """

    parts: Callable[..., Any]
    values: Callable[..., Any] | None
    of_weights: Callable[..., Any] | None = None
    terms: Callable[..., Any] | None = None

    def estimates(self, counts: Array, parts: Any, log_weight: Any = None, **options: Any) -> Array:
        """[resample] estimates; by log-weights of all resamples or of each, in place of the own."""
        if log_weight is None and self.values is not None:
            return self.values(counts, parts, **options)
        log_weight = parts.log_weight if log_weight is None else log_weight
        one = self.of_weights
        assert one is not None
        axes = (0, None if log_weight.ndim == 1 else 0)
        return jax.vmap(lambda *each: one(*each, parts, **options), axes)(counts, log_weight)


@dataclasses.dataclass(frozen=True)
class Estimator(Entry):
    """An estimator: `function(batch, log_ratio, *, discount, **options)` to a scalar.

    Attributes:
      reads: the fields of a batch that it reads.
      reads_if_there: those that it reads where a batch has them, and does without elsewhere.
      normalised: whether its weights are divided by their sum, or centred by Q-hat, on which its
        variance depends; else twice the ratios of the first steps are twice the estimate.
      per_decision: whether each reward is weighed by the ratios up to it (True) or a trajectory by
        all of its own (False); None where weights are of another kind, or there are none.
      mean_of_terms: whether the estimate is the mean of independent terms, one a trajectory.
      may_omit: whether there are ratios to omit.
      chooses: whether it chooses among others, so that it jumps from one resample to the next.
      assumes: what it takes for granted, in a few words; "" where nothing is said.
      of_weights: the same from the log-weights [traj] of trajectories; None where there is none.
      of_counts: the same for many resamples at once; None where there is none.
    """

    reads: tuple[str, ...] = RATIOS
    reads_if_there: tuple[str, ...] = ()
    normalised: bool = True
    per_decision: bool | None = None
    mean_of_terms: bool = False
    may_omit: bool = True
    chooses: bool = False
    assumes: str = ""
    of_weights: Callable[..., Any] | None = None
    of_counts: Counted | None = None

    def __call__(self, batch: TrajectoryBatch, log_ratio: Any, **options: Any) -> Any:
        chex.assert_rank(batch.reward, 2)
        chex.assert_equal_shape([batch.reward, batch.mask, log_ratio])
        return self.function(batch, log_ratio, **options)

    @property
    def by_lag(self) -> bool:
        """Whether it omits by lag: it takes a map `theta` of lags and states."""
        return self.takes("theta")

    @property
    def why_no_omission(self) -> str:
        """Why there are no ratios to omit, where there are none."""
        return "chooses itself what to omit" if self.chooses else "uses no ratios"

    @property
    def reads_ratios(self) -> bool:
        return "log_ratio" in self.reads
