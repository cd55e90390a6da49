"""The behaviour policy of a log that does not tell its propensities."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch, bucket_length, log_ratio_of, to_cells
from osiris_jax.core import memory
from osiris_jax.core.options import check_word
from osiris_jax.models import behavior_models as models

PURPOSE = "fit_behavior"
METHODS = {
    "tabular": "counts per state",
    "logistic": "logistic regression on the observations",
    "network": "a small network on the observations",
}
UNREPAIRED = (
    "No fit can repair hidden confounding: where something that the log does not hold drove both "
    "actions and rewards, every estimate is biased, however good the fit."
)
BYTES_PER_PAIR = 48  # of a step and an action, measured at the peak of a fit's calibration
BYTES_PER_FOLD = {"logistic": 12}  # and of fits whose folds are fitted all at once
POOR_CALIBRATION = 0.05
FEWEST_STEPS = 64


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


@dataclasses.dataclass(frozen=True, eq=False)
class BehaviorFit:
    """A fitted behaviour policy.

    Attributes:
      batch: the log with `behavior_probs` and `behavior_log_prob`, and with `log_ratio` where the
        target policy is known.
      probs: [traj, time, action] the fitted probabilities, 0 in the padding.
      method: "tabular", "logistic" or "network".
      folds: number of folds; trajectory i is in fold i mod folds.
      smoothing: as given.
      calibration: predicted probabilities against what happened, out of fold.
      compared: mean out-of-fold log-loss of every method that was tried.
      converged: whether every fold's fit found its minimum.
      replaced: whether the log had propensities of its own.
    """

    batch: TrajectoryBatch
    probs: Array
    method: str
    folds: int
    smoothing: float
    calibration: Calibration
    compared: Mapping[str, float]
    converged: bool
    replaced: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """What was done, how well it went and what it cannot do, in sentences."""
        told, own = self.calibration, self.calibration.mean_log_loss
        shares = told.mean_baseline_log_loss
        crossed = (
            f"each trajectory from those of the other folds ({self.folds} folds)"
            if self.folds > 1
            else "on the very trajectories it answers for, so the scores below flatter it"
        )
        lines = [
            f"{_fitted_by(self.method, self.replaced)}, {crossed}.",
            f"Log-loss {own:.4g} per step, where the actions' shares alone give {shares:.4g}.",
            f"Predicted probabilities are {told.error:.2g} off the observed frequencies; "
            f"the smallest of an action taken is {told.smallest:.2g}.",
            "Estimates carry the error of this fit, and intervals only if it is repeated inside.",
            UNREPAIRED,
        ]
        if not self.converged:
            lines.append("Careful: a fit did not reach its minimum.")
        if own >= shares:
            lines.append("Careful: the fit predicts no better than the actions' shares.")
        if told.error > POOR_CALIBRATION:
            lines.append("Careful: the fitted probabilities are poorly calibrated.")
        return tuple(lines)

    def __str__(self) -> str:
        return "\n".join(self.words)


def _fitted_by(method: str, replaced: bool) -> str:
    how = "fitted, in place of those logged," if replaced else "not logged but fitted"
    return f"The propensities were {how} by {METHODS[method]}"


def fit_behavior(
    batch: TrajectoryBatch,
    *,
    method: str = "auto",
    folds: int = 5,
    smoothing: float = 1.0,
    hidden: Sequence[int] = (32,),
    steps: int = 2000,
    key: Array | None = None,
) -> BehaviorFit:
    """The behaviour policy, fitted to the log and cross-fitted over trajectories.

    With propensities estimated on other trajectories than they weigh, their errors and the
    returns are independent (double machine learning: Chernozhukov et al. 2018).

    Where the log tells the target's probabilities, also of the logged actions alone, the result
    has ratios. `fit.batch.fitted` says in a sentence that propensities were fitted, and so do all
    results that come from it.

    Args:
      batch: a log; its own propensities, if any, are replaced.
      method: "tabular" (needs states), "logistic" or "network" (need observations), or "auto":
        "tabular" or "logistic", whichever the log allows, or predicts better out of fold.
      folds: trajectory i is answered for by the trajectories j with j mod folds other than i mod
        folds; 1 fits all to all.
      smoothing: above 0; of "tabular" the number of imagined visits per state, of the others the
        L2 penalty.
      hidden: of "network": sizes of the hidden layers.
      steps: of "network": number of minibatches.
      key: of "network", consumed; by default `jax.random.key(0)`.

    Raises:
      ValueError: names the option, or the field that the log lacks.

    Example:
      >>> fit = oj.fit_behavior(batch)
      >>> print(fit)
      >>> oj.with_policies(fit.batch, target=policy)
    """
    mask = np.asarray(batch.mask)
    _check(mask, method, folds, smoothing, {"hidden": min(hidden, default=1), "steps": steps})
    action = np.asarray(batch.require("action", PURPOSE))[mask]
    fold = np.repeat(np.arange(len(mask), dtype=np.int32) % folds, mask.sum(1))
    taken = models.Taken(_filled(action), _filled(fold, -1), folds, batch.num_actions)
    shares = np.asarray(models.action_shares(taken, dtype=batch.dtype))
    first_key = random.key(0) if key is None else key
    network = partial(models.network, first_key, hidden=tuple(hidden), steps=steps)
    scored = {}
    for name in _candidates(batch, method, len(action), folds):
        log_probs, converged = _fitted(name, batch, taken, smoothing, network)
        log_probs = np.asarray(log_probs, np.float64)[: len(action)]
        scored[name] = log_probs, converged, calibrate(log_probs, action, fold, shares)
    compared = {name: told.mean_log_loss for name, (_, _, told) in scored.items()}
    best = min(compared, key=lambda name: compared[name])
    log_probs, converged, told = scored[best]
    replaced = batch.behavior_log_prob is not None
    sentence = f"{_fitted_by(best, replaced)}. {UNREPAIRED}"
    result = _with_fitted(batch, mask, action, log_probs).replace(fitted=sentence)
    fit = result, result.require("behavior_probs", PURPOSE), best, folds, float(smoothing)
    return BehaviorFit(*fit, told, compared, bool(np.all(converged)), replaced)


def _fitted(
    name: str,
    batch: TrajectoryBatch,
    taken: models.Taken,
    smoothing: float,
    network: Callable[..., models.Fitted],
) -> models.Fitted:
    mask, penalty = np.asarray(batch.mask), jnp.asarray(smoothing, batch.dtype)
    if name == "tabular":
        state = _filled(np.asarray(batch.require("state", PURPOSE))[mask])
        return models.tabular(taken, state, penalty, num_states=batch.num_states)
    fit = models.logistic if name == "logistic" else network
    return fit(taken, _filled(_standardised(batch, mask)), penalty)


def _filled(column: np.ndarray, value: float = 0) -> Array:
    """Steps filled to a bucket length, so that logs of nearby sizes share a compilation."""
    extra = max(bucket_length(len(column)), FEWEST_STEPS) - len(column)
    widths = [(0, extra), *[(0, 0)] * (column.ndim - 1)]
    return jnp.asarray(np.pad(column, widths, constant_values=value))


def _check(
    mask: np.ndarray, method: str, folds: Any, smoothing: Any, least: Mapping[str, Any]
) -> None:
    if mask.ndim != 2:
        raise ValueError(f"batch: expected one data set [traj, time], got axes {mask.shape}")
    check_word("method", method, ("auto", *METHODS))
    if not isinstance(folds, int) or isinstance(folds, bool) or folds < 1:
        raise ValueError(f"folds: expected a whole number, 1 or more, got {folds!r}")
    if folds > len(mask):
        raise ValueError(f"folds: {folds} folds of {len(mask)} trajectories leave some empty")
    if not (isinstance(smoothing, int | float) and 0 < smoothing < np.inf):
        raise ValueError(f"smoothing: expected a number above 0, got {smoothing!r}")
    for name, size in least.items():
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{name}: expected whole numbers of at least 1, got {size!r}")


def _candidates(batch: TrajectoryBatch, method: str, steps: int, folds: int) -> list[str]:
    """The methods to try, if there is room for their fits."""
    allowed = {"tabular": batch.state, "logistic": batch.observation}
    names = [name for name, field in allowed.items() if field is not None]
    if method != "auto":
        names = [method]
    elif not names:
        batch.require("state", PURPOSE)
    per_pair = BYTES_PER_PAIR + folds * max(BYTES_PER_FOLD.get(name, 0) for name in names)
    memory.check_fits(
        per_pair * steps * batch.num_actions,
        f"action: fitting the propensities of {batch.num_actions} actions at {steps} steps",
        "pool rare actions, or log the propensities",
    )
    return names


def _standardised(batch: TrajectoryBatch, mask: np.ndarray) -> np.ndarray:
    """Observations of mean 0 and deviation 1 over the whole log; no action enters."""
    rows = np.asarray(batch.require("observation", PURPOSE), np.float64)[mask]
    spread = rows.std(0)
    constant = rows.min(0) == rows.max(0)  # whose deviation may be a rounding residue
    centred = np.where(constant, 0, rows - rows.mean(0))
    return (centred / np.where(constant, 1, spread)).astype(batch.dtype)


def _with_fitted(
    batch: TrajectoryBatch, mask: np.ndarray, action: np.ndarray, log_probs: np.ndarray
) -> TrajectoryBatch:
    """The batch with the fitted probabilities in place of its own."""
    behavior = np.take_along_axis(log_probs, action[:, None], 1)[:, 0]
    target = _target_log_prob(batch, mask, action)
    columns = {"behavior_probs": np.exp(log_probs), "behavior_log_prob": behavior}
    if target is not None:
        columns["log_ratio"] = log_ratio_of(target, behavior, batch.dtype)
    cells = {name: to_cells(column, mask, batch.dtype) for name, column in columns.items()}
    return batch.replace(**{"log_ratio": None, "target_log_prob": None, **cells})


def _target_log_prob(
    batch: TrajectoryBatch, mask: np.ndarray, action: np.ndarray
) -> np.ndarray | None:
    """Of the actions taken: from the target's probabilities, or from the ratio that was logged."""
    if batch.target_probs is not None:
        probs = np.asarray(batch.target_probs, np.float64)[mask]
        with np.errstate(divide="ignore"):
            return np.log(np.take_along_axis(probs, action[:, None], 1)[:, 0])
    if batch.target_log_prob is not None:
        return np.asarray(batch.target_log_prob, np.float64)[mask]
    if batch.log_ratio is not None and batch.behavior_log_prob is not None:
        logged = np.asarray(batch.behavior_log_prob, np.float64)[mask]
        return np.asarray(batch.log_ratio, np.float64)[mask] + logged
    return None


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
