"""Whether predicted probabilities are what happens: a table, its error, and scores."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted probabilities of all actions at all steps against what was done.

    Attributes:
      predicted: [bin] mean predicted probability of the pairs (step, action) in ten equal bins of
        it; NaN where there are none.
      observed: [bin] how often that action was the one taken.
      count: [bin] number of pairs.
      error: the expected calibration error: the mean of |predicted - observed| over all pairs.
      log_loss: [fold] mean of -log pi_b(a|s) of the actions taken.
      brier: [fold] mean over steps of the summed squares of probability minus what happened.
      baseline_log_loss: [fold] the same for the actions' shares in the other folds.
      baseline_brier: [fold] likewise.
      steps: [fold] number of steps.
      smallest: the smallest probability of an action that was taken.
    """

    predicted: np.ndarray
    observed: np.ndarray
    count: np.ndarray
    error: float
    log_loss: np.ndarray
    brier: np.ndarray
    baseline_log_loss: np.ndarray
    baseline_brier: np.ndarray
    steps: np.ndarray
    smallest: float

    @property
    def mean_log_loss(self) -> float:
        """Over all steps."""
        return float(np.average(self.log_loss, weights=self.steps))

    @property
    def mean_baseline_log_loss(self) -> float:
        """Over all steps."""
        return float(np.average(self.baseline_log_loss, weights=self.steps))


def calibrate(
    log_probs: np.ndarray,
    action: np.ndarray,
    fold: np.ndarray,
    shares: np.ndarray,
    *,
    bins: int = 10,
) -> Calibration:
    """The calibration of cross-fitted probabilities.

    Args:
      log_probs: [step, action].
      action: [step] the action taken.
      fold: [step].
      shares: [fold, action] what is predicted without looking at the state.
      bins: number of equal bins of [0, 1].
    """
    folds, num_actions = shares.shape
    log_probs, shares = log_probs.astype(np.float64), shares.astype(np.float64)
    probs = np.exp(log_probs)
    taken = np.arange(num_actions) == action[:, None]
    cell = np.minimum((probs * bins).astype(np.int64), bins - 1).ravel()
    count = np.bincount(cell, minlength=bins)
    with np.errstate(invalid="ignore"):
        predicted = np.bincount(cell, probs.ravel(), bins) / count
        observed = np.bincount(cell, taken.ravel(), bins) / count
    gap = np.where(count > 0, np.abs(predicted - observed), 0)
    of_taken = log_probs[taken]
    steps = np.bincount(fold, minlength=folds)

    def per_fold(of_step: np.ndarray) -> np.ndarray:
        return np.bincount(fold, of_step, folds) / steps

    return Calibration(
        predicted=predicted,
        observed=observed,
        count=count,
        error=float((gap * count).sum() / count.sum()),
        log_loss=per_fold(-of_taken),
        brier=per_fold(((probs - taken) ** 2).sum(1)),
        baseline_log_loss=per_fold(-np.log(shares[fold, action])),
        baseline_brier=per_fold(((shares[fold] - taken) ** 2).sum(1)),
        steps=steps,
        smallest=float(np.exp(of_taken.min())),
    )
