"""How far to trust each estimate: what is omitted, the weights that are used, and a verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.faces import is_point
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.evaluation.choosing import verdicts_on_choice
from osiris_jax.evaluation.result import NOT_JUDGED, Curve, Row, States
from osiris_jax.inference import Estimated
from osiris_jax.inference.diagnostics import Kept, Omission, omission_of
from osiris_jax.inference.exact import log_weights_of
from osiris_jax.inference.propensities import check_propensities
from osiris_jax.inference.weights import (
    CAREFUL,
    EFFECTIVE_SIZE,
    NO_TRUST,
    SEVERITY,
    Verdict,
    Weights,
    overall,
    support,
    unsupported_share,
    verdicts,
    verdicts_on_log,
    weight_diagnostics,
)
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.estimate import choice_of, values_of
from osiris_jax.pipeline.spec import Composition, Spec, make_spec
from osiris_jax.relevance import THRESHOLDS

UNDEFINED_SHARE = 0.05
NOTHING_KEPT = (
    "no ratio is kept, and the log says too little of the target to show that none matters"
)
OF_BEHAVIOR = "no ratios are used: this is the value of the behaviour policy"
OF_MODEL = "no ratios are used: it stands and falls with the fitted model"
UNSUPPORTED = (
    "{:.3g} % of the steps are in states where the target takes none of the logged actions: there "
    "it follows the behaviour"
)
OTHER_WEIGHTS = "its weights are not those of whole trajectories, and are not judged"


class Asked(NamedTuple):
    """The arguments of `evaluate` that every data set shares."""

    labels: tuple[str, ...]
    methods: tuple[str, ...]
    relevance: str
    level: dict[str, Any]
    common: dict[str, Any]
    sampling: dict[str, Any]
    bounds: dict[str, Any]
    options: dict[str, Any]

    @property
    def parameter(self) -> str:
        return "threshold" if self.relevance in THRESHOLDS else "alpha"

    @property
    def level_used(self) -> Any:
        """The one number, or the word that chooses it."""
        alpha, threshold = self.level["alpha"], self.level["threshold"]
        if self.parameter == "alpha":
            return alpha
        if threshold is None:
            return alpha if isinstance(alpha, str) else THRESHOLDS[self.relevance]
        return threshold

    def spec(self, batch: TrajectoryBatch, label: str, **level: Any) -> Spec:
        """An estimator after omission at this level, with the options that it or its test has."""
        composition = Composition.of(parse_name(label)[0], self.relevance, **level)
        settings = self.common | self.options | level
        own = {k: v for k, v in settings.items() if not composition.why_idle(k, settings)}
        return make_spec(batch, composition, own)


def judge(
    batch: TrajectoryBatch, asked: Asked, estimates: Mapping[str, Estimated]
) -> dict[str, Any]:
    """Every estimate with the weights that it uses and what they are worth.

    Returns:
      Fields of an `Evaluation`: the rows, and what they were judged by.
    """
    lengths, log_weights = np.asarray(batch.mask).sum(-1), np.zeros(len(batch.mask))
    if batch.log_ratio is not None:
        log_weights = log_weights_of(batch)
    choices = _choices(batch, asked)
    omissions, states, curve = _omissions(batch, asked, estimates, choices)
    of_log = {
        "supported": support(batch),
        "propensities": check_propensities(batch),
        "cut_off": None if batch.truncated is None else float(np.mean(np.asarray(batch.truncated))),
    }
    rows = []
    for label, estimated in estimates.items():
        (plain_name, omits), omission = parse_name(label), omissions.get(label)
        level, chosen = _level(asked, choices.get(label)) if omits else (None, False)
        weights, before = None, None
        if ESTIMATORS[plain_name].per_decision is not None:
            weights = weight_diagnostics(log_weights, lengths)
            clip = asked.options.get("clip") if ESTIMATORS[plain_name].takes("clip") else None
            if omission is not None or clip is not None:
                before, used = weights, (log_weights, lengths)
                if omission is not None:
                    used = (omission.log_weights, omission.effective_lengths)
                heaviest = np.inf if clip is None else np.log(clip)
                weights = weight_diagnostics(np.minimum(used[0], heaviest), used[1])
        doubts = _doubts(estimated)
        if ESTIMATORS[plain_name].chooses:
            doubts += verdicts_on_choice(batch, asked.common["discount"])
            doubts += verdicts_on_log(
                of_log["supported"],
                propensities=of_log["propensities"],
                cut_off=of_log["cut_off"],
            )
        if ESTIMATORS[plain_name].takes("unsupported"):
            doubts += _doubts_of_support(batch, None if omission is None else omission.states_kept)
        verdict, reasons = _verdict(plain_name, doubts, weights, before, omission, of_log)
        rows.append(
            Row(
                estimator=label,
                relevance=asked.relevance if omits else None,
                alpha=level if asked.parameter == "alpha" else None,
                threshold=level if asked.parameter == "threshold" else None,
                level_chosen=chosen,
                value=estimated.value,
                standard_error=estimated.standard_error,
                intervals=estimated.intervals,
                undefined=estimated.undefined,
                weights=weights,
                verdict=verdict,
                reasons=reasons,
            )
        )
    return {
        "rows": tuple(rows),
        "omissions": omissions,
        "states": states,
        "curve": curve,
        "support": of_log["supported"],
        "propensities": of_log["propensities"],
        "log_weights": log_weights,
        "lengths": lengths,
    }


def _choices(batch: TrajectoryBatch, asked: Asked) -> dict[str, selection.Choice]:
    """How levels are chosen, if they are, of all that omit; else how the curve's would be."""
    omitting = [label for label in asked.labels if parse_name(label)[1]]
    word = asked.level_used if isinstance(asked.level_used, str) else None
    choices = {}
    for label in _of_curve(omitting) if word is None else omitting:
        with contextlib.suppress(ValueError):  # arguments are good: this test has no such choice
            spec = asked.spec(batch, label, alpha=word or selection.AUTO)
            choices[label] = choice_of(batch, spec)
    return choices


def _of_curve(omitting: Sequence[str]) -> list[str]:
    """The estimator whose curve is drawn: osirwis, or the first that omits by state."""
    by_state = [name for name in omitting if not compose.is_by_lag(parse_name(name)[0])]
    return ["osirwis"] if "osirwis" in by_state else by_state[:1]


def _level(asked: Asked, choice: selection.Choice | None) -> tuple[float | None, bool]:
    """The level that an estimator used, and whether it was chosen from the data."""
    if not isinstance(asked.level_used, str):
        return float(asked.level_used), False
    return None if choice is None else decimal(choice.level), True


def decimal(x: Any) -> float:
    """The number as it was written: 0.05 and not what float32 makes of it."""
    return float(str(np.asarray(x)))


def _omissions(
    batch: TrajectoryBatch,
    asked: Asked,
    estimates: Mapping[str, Estimated],
    choices: Mapping[str, selection.Choice],
) -> tuple[dict[str, Omission], States | None, Curve | None]:
    """Estimator -> what its omission does, once for each level; evidence; a curve over levels."""
    omitting = [label for label in estimates if parse_name(label)[1]]
    levels = {label: _level(asked, choices.get(label))[0] for label in omitting}
    by_state = [
        label
        for label, level in levels.items()
        if level is not None and not compose.is_by_lag(parse_name(label)[0])
    ]
    drawn, states, curve = _of_curve(by_state), None, None
    at: dict[Any, Omission] = {}
    for label in (*drawn, *by_state):
        level = levels[label]
        if level in at:
            continue
        beside = _levels_beside(asked, choices.get(label), level) if label in drawn else ()
        at[level], kept = omission_of(
            batch,
            asked.spec(batch, "is", **{asked.parameter: level}),
            asked.common["key"],
            confidence=asked.sampling["confidence"],
            resamples=asked.sampling["resamples"],
            levels=beside,
        )
        if label in drawn:
            states = _states(batch, asked, kept)
            curve = _curve(
                batch, asked, estimates[label], choices.get(label), np.asarray(beside), kept.shares
            )
    return {label: at[levels[label]] for label in by_state}, states, curve


def _levels_beside(asked: Asked, choice: selection.Choice | None, level: Any) -> np.ndarray:
    """The levels to choose among, and after them the one used."""
    usual = selection.THRESHOLDS if asked.parameter == "threshold" else selection.ALPHAS
    levels = np.array(usual if choice is None else [decimal(x) for x in np.asarray(choice.levels)])
    return np.append(levels[~np.isclose(levels, level, rtol=1e-6, atol=0)], level)


def _states(batch: TrajectoryBatch, asked: Asked, kept: Kept) -> States | None:
    evidence = kept.evidence
    if not isinstance(evidence, Array) or evidence.ndim != 1 or batch.state is None:
        return None
    mask = np.asarray(batch.mask)
    visits = np.bincount(np.asarray(batch.state)[mask], minlength=batch.num_states)
    return States(
        asked.parameter, np.asarray(evidence, np.float64), visits, np.asarray(kept.states)
    )


def _curve(
    batch: TrajectoryBatch,
    asked: Asked,
    estimated: Estimated,
    choice: selection.Choice | None,
    levels: np.ndarray,
    shares: np.ndarray,
) -> Curve:
    """The estimate against the level; a choice has compared all but the one used already."""
    if choice is not None:
        compared = np.array([decimal(x) for x in np.asarray(choice.levels)])
        others = np.asarray(choice.values)[np.isin(compared, levels[:-1])]
    else:
        spec = asked.spec(batch, estimated.estimator, **{asked.parameter: levels[:-1]})
        others = values_of(batch, spec)
    order = np.argsort(-levels if asked.parameter == "threshold" else levels)
    return Curve(
        estimator=estimated.estimator,
        parameter=asked.parameter,
        levels=levels[order],
        values=np.append(np.asarray(others, np.float64), estimated.value)[order],
        share_kept=shares[order],
        used=float(levels[-1]),
        automatic=None if choice is None else decimal(choice.level),
    )


def _verdict(
    plain_name: str,
    doubts: list[Verdict],
    weights: Weights | None,
    before: Weights | None,
    omission: Omission | None,
    of_log: Mapping[str, Any],
) -> tuple[str, tuple[Verdict, ...]]:
    """The verdict on an estimate and its reasons, the gravest first."""
    is_empty = omission is not None and omission.share_kept == 0
    if is_empty and before is not None and before.effective_size < EFFECTIVE_SIZE[0]:
        doubts.append(Verdict(NO_TRUST, NOTHING_KEPT))
    if ESTIMATORS[plain_name].chooses:
        doubts.sort(key=lambda doubt: -SEVERITY.index(doubt.level))
        return overall(doubts), tuple(doubts)
    if weights is None:
        entry = ESTIMATORS[plain_name]
        of_no_ratios = OF_BEHAVIOR if entry.may_omit else OF_MODEL
        reason = Verdict(NOT_JUDGED, OTHER_WEIGHTS if entry.reads_ratios else of_no_ratios)
        return (overall(doubts) if doubts else NOT_JUDGED, (*doubts, reason))
    warnings = [] if omission is None else omission.warnings()
    doubts += verdicts(weights, warnings=warnings, before=before, **of_log)
    doubts.sort(key=lambda doubt: -SEVERITY.index(doubt.level))
    return overall(doubts), tuple(doubts)


def _doubts(estimated: Estimated) -> list[Verdict]:
    """Doubts that the estimate and its resamples raise themselves."""
    resamples = len(estimated.resampled)
    if np.isnan(estimated.value):
        return [Verdict(NO_TRUST, "the estimate is undefined")]
    doubts = []
    if estimated.undefined:
        level = NO_TRUST if estimated.undefined > UNDEFINED_SHARE * resamples else CAREFUL
        text = f"{estimated.undefined} of {resamples} resamples have no estimate"
        doubts.append(Verdict(level, text))
    if any(is_point(*interval) for interval in estimated.intervals.values()):
        text = "all resamples agree, so the interval has no width and says nothing of the error"
        doubts.append(Verdict(CAREFUL, text))
    return doubts


def _doubts_of_support(batch: TrajectoryBatch, kept: np.ndarray | None) -> list[Verdict]:
    share = unsupported_share(batch, kept)
    return [Verdict(CAREFUL, UNSUPPORTED.format(100 * share))] if share else []


def graver(one: str, other: str) -> str:
    """The graver of two verdicts; one that was not judged says nothing."""
    judged = [level for level in (one, other) if level in SEVERITY]
    return max(judged, key=SEVERITY.index, default=NOT_JUDGED)
