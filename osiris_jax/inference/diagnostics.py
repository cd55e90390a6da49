"""What an omission does to the data at hand: how much it omits, and whether it shows a bias."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, WEIGHTING, refuse_unknown, traced
from osiris_jax.inference.checks import check_numbers
from osiris_jax.pipeline import compose
from osiris_jax.pipeline.estimate import DEFAULT_RELEVANCE
from osiris_jax.pipeline.spec import Composition, Spec, check_batch, make_spec


@dataclasses.dataclass(frozen=True)
class Omission:
    """What an omission does.

    Attributes:
      lengths: [traj] steps of each trajectory.
      effective_lengths: [traj] ratios that are kept of it.
      log_weights: [traj] log of the product of the ratios kept.
      share_kept: of all ratios, those kept.
      states_kept: [state] the states whose ratios are kept; None where it is decided by step.
      covariance: of g rho_kept and rho_omitted, which is the target's value less the mean of the
        estimate (Theorem 2 of Shen et al. 2021): minus the bias.
      interval: bootstrap interval of the covariance, the map held fixed.
      confidence: of the interval.
    """

    lengths: np.ndarray
    effective_lengths: np.ndarray
    log_weights: np.ndarray
    share_kept: float
    states_kept: np.ndarray | None
    covariance: float
    interval: tuple[float, float]
    confidence: float

    @property
    def biased(self) -> bool:
        """Whether the interval excludes 0."""
        low, high = self.interval
        return low > 0 or high < 0

    def warnings(self) -> list[str]:
        """What a reader of the estimate should know, in words; empty if nothing."""
        texts = []
        low, high = self.interval
        if self.biased:
            texts.append(
                f"the omission is biased: it changes the estimate by {-self.covariance:.3g} on "
                f"average ({100 * self.confidence:g} % interval {-high:.3g} to {-low:.3g}); "
                "keep more states, by a larger alpha"
            )
        if not np.isfinite([self.covariance, low, high]).all():
            texts.append("the ratios are too large to judge the bias of the omission")
        if self.share_kept == 0:
            texts.append("no ratio is kept: the estimate is the behaviour policy's value")
        return texts

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"ratios kept: {100 * self.share_kept:.1f} %, "
            f"{self.effective_lengths.mean():.3g} of {self.lengths.mean():.3g} steps on average",
            f"covariance of kept estimate and omitted ratios: {self.covariance:.3g} "
            f"({100 * self.confidence:g} % interval {low:.3g} to {high:.3g})",
        ]
        return "\n".join(lines + [f"warning: {text}" for text in self.warnings()])


def omission_diagnostics(
    batch: TrajectoryBatch,
    relevance: str = DEFAULT_RELEVANCE,
    *,
    alpha: ArrayLike = ALPHA,
    threshold: ArrayLike | None = None,
    discount: ArrayLike = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    max_kept: Any = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    key: Array | None = None,
    **options: Any,
) -> Omission:
    """How much an omission omits, and whether the data show that it is biased.

    The bias is estimated by the covariance of what is kept and what is omitted, which is as noisy
    as the omitted weights: that no bias is shown does not prove that there is none.

    Args:
      batch: the data, with states and ratios; [traj, time].
      relevance, alpha, threshold, discount, weighting, ddof, max_kept: as for `estimate`.
      confidence: of the interval.
      resamples: of the bootstrap over trajectories.
      key: a `jax.random.key`, consumed; key(0) if None.
      **options: further options of the test, by name.

    Example:
      >>> print(oj.omission_diagnostics(batch, "welch", alpha=0.05))
    """
    composition = Composition.of("is", relevance)
    check_batch(batch)
    refuse_unknown(options, composition.functions[1:])
    check_numbers(confidence, resamples)
    key = random.key(0) if key is None else traced("key", key, batch.dtype)
    settings = {"alpha": alpha, "threshold": threshold, "max_kept": max_kept, "key": key}
    settings |= {"discount": discount, "weighting": weighting, "ddof": ddof}
    spec = make_spec(batch, composition, settings | options)
    if spec.levels.ndim:
        level = composition.test.level_name if composition.test else "alpha"
        raise ValueError(f"{level}: expected one number, got {settings[level]!r}")
    return omission_of(batch, spec, key, confidence=confidence, resamples=resamples)[0]


class Kept(NamedTuple):
    """What relevance keeps.

    Attributes:
      evidence: of every state, or step.
      states: the map at the level used.
      shares: [level] of all ratios, those kept at other levels.
    """

    evidence: Any
    states: Any
    shares: np.ndarray


def omission_of(
    batch: TrajectoryBatch,
    spec: Spec,
    key: Array,
    *,
    confidence: float,
    resamples: int,
    levels: Any = (),
) -> tuple[Omission, Kept]:
    """`omission_diagnostics` of a specification, and what is kept at these levels."""
    steps, kept, log_weights, covariance, drawn = _omission(
        batch, spec, key, np.asarray(levels, batch.dtype), resamples=int(resamples)
    )
    effective_lengths, lengths = np.asarray(steps).sum(1), np.asarray(batch.mask).sum(-1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(drawn, np.float64), [tail, 1 - tail])
    by_state = isinstance(kept.states, Array) and kept.states.ndim == 1
    omission = Omission(
        lengths=lengths,
        effective_lengths=effective_lengths,
        log_weights=np.asarray(log_weights),
        share_kept=float(effective_lengths.sum() / lengths.sum()),
        states_kept=np.asarray(kept.states) if by_state else None,
        covariance=float(covariance),
        interval=(float(low), float(high)),
        confidence=confidence,
    )
    return omission, kept._replace(shares=np.asarray(kept.shares, np.float64))


@compiled(static_argnames="resamples", quick=True)
def _omission(
    batch: TrajectoryBatch,
    spec: Spec,
    key: Array,
    levels: Float[Array, " level"],
    *,
    resamples: int,
) -> tuple[Bool[Array, "traj time"], Kept, Array, Array, Float[Array, " resample"]]:
    test_key, key = random.split(key)
    evidence = spec.evidence(batch, key=test_key)

    def steps_at(level: Array) -> Bool[Array, "traj time"]:
        return compose.steps_at(batch, evidence, level, spec.max_kept) & batch.mask

    keep = steps_at(spec.levels)
    shares = lax.map(lambda level: steps_at(level).sum() / batch.mask.sum(), levels)
    seen = Kept(evidence.value, compose.map_at(evidence, spec.levels), shares)
    kept, omitted = (compose.kept_weights(batch, steps) for steps in (keep, ~keep))
    value = masked.returns(batch.reward, batch.mask, spec.for_estimator.keywords["discount"])
    pair = value * jnp.exp(kept), jnp.exp(omitted)
    number = len(value)

    def covariance(rows: Int[Array, " traj"]) -> Float[Array, ""]:
        x, y = (column[rows] for column in pair)
        return jnp.mean((x - x.mean()) * (y - y.mean()))

    rows = random.randint(key, (resamples, number), 0, number)
    drawn = lax.map(covariance, rows, batch_size=64)
    return keep, seen, kept, covariance(jnp.arange(number)), drawn
