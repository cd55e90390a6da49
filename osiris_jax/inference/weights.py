"""Whether weights can be trusted: effective size, mean, support, and a verdict in words.

The limits were set on one half of the simulated logs of benchmarks/verdict_logs.py and measured on
the other, by benchmarks/verdicts.py: docs/verdicts.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import faces
from osiris_jax.inference.propensities import Propensities

FINE, CAREFUL, NO_TRUST = "fine", "careful", "do not trust"
SEVERITY = (FINE, CAREFUL, NO_TRUST)
FEWEST_IN_TAIL = 5

EFFECTIVE_SIZE = (30, 10)
EFFECTIVE_SIZE_BEFORE_OMISSION = (30, 5)
MEAN_WEIGHT_ERRORS = (2, 4)
PROPENSITY_ERRORS = (3, 6)
UNSUPPORTED_MASS = (0, 0.05)
CUT_OFF_SHARE = 0.05
LEAST_ERROR = 1e-5


@dataclasses.dataclass(frozen=True)
class Weights:
    """What the trajectories' weights are like.

    Attributes:
      number: of trajectories.
      effective_size: (sum w)^2 / sum w^2 (Kish 1965): as many equal weights would be as good.
      largest_share: of the sum of weights, that of the largest.
      zero_share: of the trajectories, those whose weight is 0.
      mean: of the weights, which should be 1.
      mean_error: its standard error.
      tail_index: shape k of the generalised Pareto distribution of the largest weights (Vehtari et
        al. 2024); the weights have about 1 / k moments. None where there are too few to tell.
      length_correlation: rank correlation of weight and length (Figure 3 of Shen et al. 2021);
        None where either does not vary.
    """

    number: int
    effective_size: float
    largest_share: float
    zero_share: float
    mean: float
    mean_error: float
    tail_index: float | None
    length_correlation: float | None

    @property
    def mean_off(self) -> float:
        """How many standard errors the mean weight is above 1; 0 if it is 1, NaN if unknown."""
        if self.mean == 1:
            return 0.0
        return (self.mean - 1) / self.mean_error if self.mean_error > 0 else math.nan


class Support(NamedTuple):
    """Actions that the target takes and the behaviour never does.

    Attributes:
      share: of the steps, those at which there is such an action.
      mass: the target's probability of such actions, on average over all steps.
    """

    share: float
    mass: float


class Verdict(NamedTuple):
    """How far to trust, and why: level is "fine", "careful" or "do not trust"."""

    level: str
    reason: str


def weight_diagnostics(log_weight: Any, length: Any) -> Weights:
    """What these weights are like.

    Args:
      log_weight: [traj] log of each trajectory's weight, -inf for 0.
      length: [traj] steps of each, or the number of its ratios that are kept.

    Example:
      >>> found = oj.omission_diagnostics(batch, alpha=0.05)
      >>> weight_diagnostics(found.log_weights, found.effective_lengths)
    """
    log_weight, length = np.asarray(log_weight, np.float64), np.asarray(length)
    if log_weight.ndim != 1 or log_weight.shape != length.shape or not len(log_weight):
        raise ValueError(
            f"log_weight: expected one for each trajectory, got shape {log_weight.shape} beside "
            f"lengths of shape {length.shape}"
        )
    peak = log_weight.max()
    weight = np.exp(log_weight - peak) if np.isfinite(peak) else np.zeros_like(log_weight)
    total, number = weight.sum(), len(weight)
    with np.errstate(over="ignore"):
        scale = np.exp(peak) if np.isfinite(peak) else 1.0
    spread = weight.std(ddof=1) / math.sqrt(number) if number > 1 else math.nan
    return Weights(
        number=number,
        effective_size=float(total**2 / np.sum(weight**2)) if total else 0.0,
        largest_share=float(weight.max() / total) if total else math.nan,
        zero_share=float(np.mean(np.isneginf(log_weight))),
        mean=float(weight.mean() * scale),
        mean_error=float(spread * scale),
        tail_index=tail_index(log_weight),
        length_correlation=_rank_correlation(log_weight, length),
    )


def tail_index(log_weight: np.ndarray) -> float | None:
    """k of a generalised Pareto fitted to the largest weights, the min(N / 5, 3 sqrt(N)) above.

    The fit of Zhang and Stephens (2009) with the weak prior of Vehtari et al. (2024), who call
    estimates from weights reliable for k below 0.5 and hopeless above 0.7.
    """
    number = len(log_weight)
    in_tail = math.ceil(min(number / 5, 3 * math.sqrt(number)))
    ordered = np.sort(np.asarray(log_weight, np.float64))
    if in_tail < FEWEST_IN_TAIL or not np.isfinite(ordered[-in_tail - 1]):
        return None
    scaled = np.exp(ordered[-in_tail - 1 :] - ordered[-1])
    beyond = scaled[1:] - scaled[0]
    if beyond[int(in_tail / 4 + 0.5) - 1] <= 0:  # ties at the cut: the fit would have no scale
        return None
    beyond = np.maximum(beyond, np.finfo(float).tiny)
    shape = _pareto_shape(beyond)
    prior_size, prior_shape = 10, 0.5
    return float((in_tail * shape + prior_size * prior_shape) / (in_tail + prior_size))


def _pareto_shape(beyond: np.ndarray) -> float:
    """The shape by Zhang and Stephens (2009): a posterior mean over a grid of b = -k / sigma."""
    number = len(beyond)
    points = 30 + int(math.sqrt(number))
    quartile = beyond[int(number / 4 + 0.5) - 1]
    grid = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    rate = grid / (3 * quartile) + 1 / beyond[-1]

    def shape_of(rate: np.ndarray) -> np.ndarray:
        return np.log1p(-np.multiply.outer(rate, beyond)).mean(-1)

    shapes = shape_of(rate)
    likelihood = number * (np.log(-rate / shapes) - shapes - 1)
    posterior = 1 / np.exp(likelihood[None] - likelihood[:, None]).sum(1)
    return float(shape_of(np.sum(rate * posterior) / posterior.sum()))


def _rank_correlation(log_weight: np.ndarray, length: np.ndarray) -> float | None:
    from scipy.stats import spearmanr

    if len(np.unique(log_weight)) < 2 or len(np.unique(length)) < 2:
        return None
    correlation, _ = spearmanr(log_weight, length)
    return float(correlation)  # pyright: ignore[reportArgumentType]


def support(batch: TrajectoryBatch) -> Support | None:
    """Where the target does what the behaviour never does; None without both policies' tables."""
    if batch.behavior_probs is None or batch.target_probs is None:
        return None
    mask = np.asarray(batch.mask)
    forbidden = np.asarray(batch.behavior_probs)[mask] <= 0
    target = np.asarray(batch.target_probs, np.float64)[mask]
    unsupported = forbidden & (target > 0)
    return Support(
        float(unsupported.any(1).mean()), float(np.where(unsupported, target, 0).sum(1).mean())
    )


def unsupported_share(batch: TrajectoryBatch, kept: np.ndarray | None = None) -> float:
    """The share of steps in states where the target takes none of the logged actions.

    Args:
      kept: [state] whose ratios are kept; None for all.
    """
    mask = np.asarray(batch.mask)
    state, log_ratio = (
        np.asarray(batch.require(name, "support by state"))[mask] for name in ("state", "log_ratio")
    )
    log_ratio = log_ratio if kept is None else np.where(kept[state], log_ratio, 0)
    largest = np.full(batch.num_states, -np.inf)
    np.maximum.at(largest, state, log_ratio)
    return float(np.mean(np.isneginf(largest[state])))


def verdicts(
    weights: Weights,
    supported: Support | None = None,
    warnings: Sequence[str] = (),
    *,
    before: Weights | None = None,
    propensities: Propensities | None = None,
    cut_off: float | None = None,
) -> list[Verdict]:
    """Every reason for trust or doubt, the gravest first.

    Args:
      weights: of the estimate to be judged.
      supported: of the log, where known.
      warnings: of the omission, see `omission_diagnostics`; each calls for care.
      before: the weights before omission and clipping, where there is any. That a ratio does not
        matter is learned from the log, and one that says little of the target cannot teach it.
      propensities: whether they fit the log.
      cut_off: share of the trajectories whose end the log does not hold.
    """
    if not weights.effective_size:
        return [Verdict(NO_TRUST, "every weight is 0: the data say nothing about the target")]
    whole = weights if before is None else before
    judged = [_of_size(weights, EFFECTIVE_SIZE, "the weights are")]
    if before is not None:
        text = "with every ratio in full the weights are"
        judged.append(_of_size(before, EFFECTIVE_SIZE_BEFORE_OMISSION, text))
    judged.append(_of_mean(whole))
    judged.append(
        Verdict(FINE, f"the largest weight is {100 * weights.largest_share:.3g} % of all")
    )
    if weights.tail_index is not None:
        text = f"tail index of the weights {weights.tail_index:.2f}, which decides nothing: "
        judged.append(Verdict(FINE, text + "above 0.5 their squares may have no mean"))
    judged += verdicts_on_log(supported, propensities=propensities, cut_off=cut_off)
    judged += [Verdict(CAREFUL, text) for text in warnings]
    return sorted(judged, key=lambda verdict: -SEVERITY.index(verdict.level))


def verdicts_on_log(
    supported: Support | None, *, propensities: Propensities | None, cut_off: float | None
) -> list[Verdict]:
    """Reasons for trust or doubt that lie in the log, whatever the estimate."""
    judged = []
    if supported is not None and supported.mass > 0:
        reason = (
            f"{100 * supported.mass:.2g} % of what the target does, the behaviour never does "
            f"(at {100 * supported.share:.2g} % of the steps)"
        )
        judged.append(judged_by(supported.mass, UNSUPPORTED_MASS, reason))
    if propensities is not None:
        judged += _of_propensities(propensities)
    if cut_off:
        level = CAREFUL if cut_off > CUT_OFF_SHARE else FINE
        text = f"{100 * cut_off:.2g} % of the episodes are cut off and count as ended with value 0"
        judged.append(Verdict(level, text))
    return judged


def _of_size(weights: Weights, limits: tuple[float, float], subject: str) -> Verdict:
    text = f"{subject} worth {_rounded(weights.effective_size)} of {weights.number:,} trajectories"
    return judged_by(-weights.effective_size, (-limits[0], -limits[1]), text)


def _of_mean(whole: Weights) -> Verdict:
    """The verdict on the mean weight; what cannot be told calls for care."""
    off, text = whole.mean_off, f"the mean weight is {with_error(whole.mean, whole.mean_error)}"
    if math.isnan(off):
        return Verdict(CAREFUL, f"{text} and should be 1, and its error cannot be told")
    meaning = ", as it should be"
    if off < -MEAN_WEIGHT_ERRORS[0]:
        meaning = " and should be 1: what the target would do is too rare in this log"
    elif off > MEAN_WEIGHT_ERRORS[0]:
        meaning = " and should be 1: wrong propensities, or something hidden behind the actions"
    return judged_by(abs(off), MEAN_WEIGHT_ERRORS, text + meaning)


def _of_propensities(propensities: Propensities) -> list[Verdict]:
    verdicts = []
    if propensities.mean_ratio_error > 0:
        off = abs(propensities.mean_ratio - 1) / propensities.mean_ratio_error
        mean = with_error(propensities.mean_ratio, propensities.mean_ratio_error)
        text = f"the mean ratio of a step is {mean} and should be 1: "
        text += "the propensities do not fit the log"
        verdicts.append(judged_by(off, PROPENSITY_ERRORS, text))
    if propensities.repeats is not None:
        text = (
            "back in a state, the behaviour repeats its action more often than its propensities "
            f"allow ({propensities.repeats:.1f} standard errors): it knew more than the log"
        )
        verdicts.append(judged_by(propensities.repeats, PROPENSITY_ERRORS, text))
    return [verdict for verdict in verdicts if verdict.level != FINE]


def with_error(value: float, error: float) -> str:
    """A number and its standard error, to the digits that the error allows."""
    if not math.isfinite(value) or error < LEAST_ERROR:
        return f"{value:.3g}"
    return faces.with_error(value, error, alone=".3g")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def judged_by(value: float, limits: tuple[float, float], reason: str) -> Verdict:
    """The verdict on a value that is bad when large."""
    return Verdict(SEVERITY[sum(value > limit for limit in limits)], reason)


def overall(verdicts: Sequence[Verdict]) -> str:
    """The gravest of the verdicts."""
    return max((verdict.level for verdict in verdicts), key=SEVERITY.index, default=FINE)
