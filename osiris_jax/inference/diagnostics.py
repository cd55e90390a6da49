"""What an omission does to the data at hand: how much it omits, and whether it shows a bias."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import ALPHA, DDOF, WEIGHTING, Options, bind, refuse_unknown, traced
from osiris_jax.pipeline import compose
from osiris_jax.pipeline.estimate import DEFAULT_RELEVANCE, check_batch
from osiris_jax.pipeline.uses import Use, refuse_idle
from osiris_jax.relevance import THRESHOLDS, omit


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
        found = []
        low, high = self.interval
        if self.biased:
            found.append(
                f"the omission is biased: it changes the estimate by {-self.covariance:.3g} on "
                f"average ({100 * self.confidence:g} % interval {-high:.3g} to {-low:.3g}); "
                "keep more states, by a larger alpha"
            )
        if not np.isfinite([self.covariance, low, high]).all():
            found.append("the ratios are too large to judge the bias of the omission")
        if self.share_kept == 0:
            found.append("no ratio is kept: the estimate is the behaviour policy's value")
        return found

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
    alpha: Any = ALPHA,
    threshold: Any = None,
    discount: Any = 1.0,
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
    function = compose.test_for("is", relevance)
    check_batch(batch)
    refuse_unknown(options, [function])
    of_omission = {"alpha": alpha, "threshold": threshold, "weighting": weighting, "ddof": ddof}
    refuse_idle(of_omission, [Use("is", relevance, None)])
    if not isinstance(confidence, float | np.floating) or not 0 < confidence < 1:
        raise ValueError(f"confidence: must be in (0, 1), got {confidence!r}")
    if not isinstance(resamples, int | np.integer) or resamples < 2:
        raise ValueError(f"resamples: expected a whole number, 2 or more, got {resamples!r}")
    key = random.key(0) if key is None else key
    test_key, draw_key = random.split(traced("key", key, batch.dtype))
    common = {"discount": discount, "weighting": weighting, "ddof": ddof, "key": test_key}
    level, name = alpha, "alpha"
    if relevance in THRESHOLDS:
        level, name = THRESHOLDS[relevance] if threshold is None else threshold, "threshold"
    if np.ndim(level) > 0:
        raise ValueError(f"{name}: expected one number, got {level!r}")
    keep, states, log_weights, covariance, drawn = _omission(
        batch,
        traced(name, level, batch.dtype),
        None if max_kept is None else traced("max_kept", max_kept, batch.dtype),
        traced("discount", discount, batch.dtype),
        draw_key,
        bind(function, common | options, batch.dtype),
        relevance=relevance,
        resamples=int(resamples),
    )
    kept = np.asarray(keep).sum(1)
    lengths = np.asarray(batch.mask).sum(-1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.asarray(drawn, np.float64), [tail, 1 - tail])
    return Omission(
        lengths=lengths,
        effective_lengths=kept,
        log_weights=np.asarray(log_weights),
        share_kept=float(kept.sum() / lengths.sum()),
        states_kept=None if states is None else np.asarray(states),
        covariance=float(covariance),
        interval=(float(low), float(high)),
        confidence=confidence,
    )


@compiled(static_argnames=("relevance", "resamples"))
def _omission(
    batch: TrajectoryBatch,
    level: Array,
    max_kept: Array | None,
    discount: Array,
    key: Array,
    for_test: Options,
    *,
    relevance: str,
    resamples: int,
) -> tuple[Bool[Array, "traj time"], Array | None, Array, Array, Float[Array, " resample"]]:
    evidence = compose.gather(batch, "is", relevance, **for_test.keywords)
    keep = compose.steps_at(batch, evidence, level, max_kept) & batch.mask
    chosen = compose.map_at(evidence, level)
    states = chosen if isinstance(chosen, Array) and chosen.ndim == 1 else None
    log_ratio = batch.require("log_ratio", "diagnostics of an omission")
    kept = masked.log_weights(omit(log_ratio, keep), batch.mask)
    omitted = masked.log_weights(omit(log_ratio, ~keep), batch.mask)
    value = masked.returns(batch.reward, batch.mask, discount)
    pair = value * jnp.exp(kept), jnp.exp(omitted)
    number = len(value)

    def covariance(rows: Int[Array, " traj"]) -> Float[Array, ""]:
        x, y = (column[rows] for column in pair)
        return jnp.mean((x - x.mean()) * (y - y.mean()))

    rows = random.randint(key, (resamples, number), 0, number)
    drawn = lax.map(covariance, rows, batch_size=64)
    return keep, states, kept, covariance(jnp.arange(number)), drawn
