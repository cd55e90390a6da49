"""The terms of a mean in float64 on the host, with what the batch's float type left of them."""

from __future__ import annotations

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.estimators import Estimator


def terms_of(
    batch: TrajectoryBatch, estimator: Estimator, discount: float
) -> dict[str, np.ndarray]:
    """The terms of `mc`, `is` or `pdis`, and their weights and errors, as `Sample` has them.

    A stored reward, probability or discount is right to a rounding error of its own. So a log-ratio
    is off by as much of itself and of two probabilities, its weight by all up to it, and the power
    of the discount by one such error for every step.
    """
    eps = float(np.finfo(batch.dtype).eps)
    mask = np.asarray(batch.mask)
    reward = np.where(mask, np.asarray(batch.reward, np.float64), 0.0)
    age = np.arange(mask.shape[1])
    scaled = reward * np.float64(discount) ** age[None]
    off = eps * (1 + age[None])
    log_weight, log_error = _log_weights(batch, estimator, eps)
    with np.errstate(over="ignore", invalid="ignore"):
        if estimator.per_decision:
            weight, more = np.exp(log_weight), np.expm1(log_error)
            parts = np.where(scaled != 0, scaled * weight, 0.0)
            value, error = parts.sum(1), (np.abs(parts) * (more + off * (1 + more))).sum(1)
            weight, more = weight[:, -1], more[:, -1]
        else:
            weight, more = np.exp(log_weight[:, -1]), np.expm1(log_error[:, -1])
            total, lost = scaled.sum(1), (np.abs(scaled) * off).sum(1)
            value, error = total * weight, weight * (np.abs(total) * more + lost * (1 + more))
        return {"terms": value, "weights": weight, "error": error, "weight_error": weight * more}


def log_weights_of(batch: TrajectoryBatch) -> np.ndarray:
    """[traj] log-weights of whole trajectories; NaN where a ratio is unknown."""
    log_ratio = np.asarray(batch.require("log_ratio", "weights"), np.float64)
    log_ratio = np.where(np.isposinf(log_ratio), np.nan, log_ratio)
    with np.errstate(invalid="ignore"):
        return np.where(np.asarray(batch.mask), log_ratio, 0.0).sum(-1)


def _log_weights(
    batch: TrajectoryBatch, estimator: Estimator, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """[traj, time] log rho_{1:t}, and how far each may be off."""
    if not estimator.reads_ratios:
        return np.zeros(batch.mask.shape), np.zeros(batch.mask.shape)
    mask = np.asarray(batch.mask)
    log_ratio = np.asarray(batch.require("log_ratio", f"`{estimator.name}`"), np.float64)
    log_ratio = np.where(mask, log_ratio, 0.0)
    size = np.where(np.isfinite(log_ratio), np.abs(log_ratio), 0.0)
    return np.cumsum(log_ratio, 1), np.cumsum(np.where(mask, eps * (size + 2), 0.0), 1)
