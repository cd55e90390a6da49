"""How far to trust each estimate: the weights that it uses, and a verdict on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.faces import is_point
from osiris_jax.core.options import keywords
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.evaluation.result import NOT_JUDGED, Row
from osiris_jax.inference import Estimated
from osiris_jax.inference.diagnostics import Kept, Omission, omission_of
from osiris_jax.inference.exact import log_weights_of
from osiris_jax.inference.propensities import Propensities, check_propensities
from osiris_jax.inference.weights import (
    CAREFUL,
    EFFECTIVE_SIZE,
    NO_TRUST,
    SEVERITY,
    Support,
    Verdict,
    Weights,
    overall,
    support,
    verdicts,
    weight_diagnostics,
)
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.estimate import choose_level
from osiris_jax.pipeline.spec import METHODS as CHOOSERS
from osiris_jax.pipeline.spec import Composition, make_spec
from osiris_jax.relevance import THRESHOLDS

UNDEFINED_SHARE = 0.05
OF_BEHAVIOR = "no ratios are used: this is the value of the behaviour policy"
OF_MODEL = "no ratios are used: it stands and falls with the fitted model"
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

    def options_of(self, *functions: Any, omission: Sequence[str] = ()) -> dict[str, Any]:
        """Those options that these functions take."""
        taken = {name for function in functions for name in keywords(function)} | {*omission}
        return {name: value for name, value in self.options.items() if name in taken}


def chooser(level: Any) -> list[Any]:
    """The function that chooses the level, if it is a word."""
    if not isinstance(level, str):
        return []
    return [selection.SELECTION[selection.DEFAULT_METHOD if level == selection.AUTO else level]]


def choices_of(batch: TrajectoryBatch, asked: Asked) -> dict[str, selection.Choice | None]:
    """For estimators that omit: how the level is chosen, if it is; else for the curve's alone."""
    omitting = [label for label in asked.labels if parse_name(label)[1]]
    wanted = omitting if isinstance(asked.level_used, str) else of_curve(omitting)
    choices: dict[str, selection.Choice | None] = {}
    for label in wanted:
        plain_name, _ = parse_name(label)
        method = asked.level_used if asked.level_used in CHOOSERS else selection.AUTO
        functions = [ESTIMATORS[plain_name], compose.test_for(plain_name, asked.relevance)]
        own = asked.options_of(*functions, *chooser(method), omission=("max_kept", "levels"))
        try:
            choices[label] = choose_level(
                batch, label, method=method, relevance=asked.relevance, **asked.common, **own
            )
        except ValueError:  # the arguments are known to be good: this test has no such choice
            choices[label] = None
    return choices


def of_curve(omitting: Sequence[str]) -> list[str]:
    """The estimator whose curve is drawn: osirwis, or the first that omits by state."""
    by_state = [name for name in omitting if not compose.is_by_lag(parse_name(name)[0])]
    return ["osirwis"] if "osirwis" in by_state else by_state[:1]


class Judged(NamedTuple):
    """The rows, and what they were judged by."""

    rows: tuple[Row, ...]
    omissions: dict[str, Omission]
    curve: KeptAt | None
    support: Support | None
    propensities: Propensities | None
    log_weights: np.ndarray


def judge(
    batch: TrajectoryBatch,
    asked: Asked,
    estimates: Mapping[str, Estimated],
    choices: Mapping[str, selection.Choice | None],
) -> Judged:
    """Every estimate with the weights that it uses and what they are worth."""
    lengths, supported = np.asarray(batch.mask).sum(-1), support(batch)
    everything = np.zeros(len(lengths))
    if batch.log_ratio is not None:
        everything = log_weights_of(batch)
    omissions, curve = _omissions(batch, asked, list(estimates), choices)
    propensities = check_propensities(batch)
    of_log = {
        "supported": supported,
        "propensities": propensities,
        "cut_off": cut_off_share(batch),
    }
    rows = []
    for label, estimated in estimates.items():
        plain_name, omits = parse_name(label)
        level, chosen = level_of(asked, choices.get(label)) if omits else (None, False)
        omission = omissions.get(label)
        weights, before, warnings = None, None, [] if omission is None else omission.warnings()
        if ESTIMATORS[plain_name].per_decision is not None:
            used = (everything, lengths)
            clip = asked.options_of(ESTIMATORS[plain_name]).get("clip")
            if omission is not None or clip is not None:
                before = weight_diagnostics(*used)
            if omission is not None:
                used = (omission.log_weights, omission.effective_lengths)
            weights = weight_diagnostics(_clipped(used[0], clip), used[1])
        doubts = [*_of_estimate(estimated), *_of_nothing_kept(omission, before)]
        if weights is None:
            verdict, reasons = _without_weights(plain_name, doubts)
        else:
            doubts += verdicts(weights, warnings=warnings, before=before, **of_log)
            doubts.sort(key=lambda doubt: -SEVERITY.index(doubt.level))
            verdict, reasons = overall(doubts), tuple(doubts)
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
    return Judged(tuple(rows), omissions, curve, supported, propensities, everything)


def cut_off_share(batch: TrajectoryBatch) -> float | None:
    """Of the trajectories, those whose end the log does not hold; None where it is not known."""
    truncated = getattr(batch, "truncated", None)
    return None if truncated is None else float(np.mean(np.asarray(truncated)))


class KeptAt(NamedTuple):
    """What relevance keeps at the levels of a curve, the last of which is the one used."""

    estimator: str
    levels: np.ndarray
    kept: Kept


def _omissions(
    batch: TrajectoryBatch,
    asked: Asked,
    labels: Sequence[str],
    choices: Mapping[str, selection.Choice | None],
) -> tuple[dict[str, Omission], KeptAt | None]:
    """Estimator -> what its omission does, once for each level; and what the curve's keeps."""
    omitting = [label for label in labels if parse_name(label)[1]]
    drawn, curve = of_curve(omitting), None
    omissions: dict[str, Omission] = {}
    at: dict[float, Omission] = {}
    for label in sorted(omitting, key=lambda label: label not in drawn):
        level = level_of(asked, choices.get(label))[0]
        if level is None or compose.is_by_lag(parse_name(label)[0]):
            continue
        if label in drawn:
            levels = _levels_beside(asked, choices.get(label), level)
            at[level], kept = _omission(batch, asked, level, levels)
            curve = KeptAt(label, levels, kept)
        elif level not in at:
            at[level], _ = _omission(batch, asked, level)
        omissions[label] = at[level]
    return {label: omissions[label] for label in labels if label in omissions}, curve


def _levels_beside(asked: Asked, choice: selection.Choice | None, level: float) -> np.ndarray:
    """The levels to choose among, and after them the one used."""
    usual = selection.THRESHOLDS if asked.parameter == "threshold" else selection.ALPHAS
    levels = np.array(usual if choice is None else [decimal(x) for x in np.asarray(choice.levels)])
    return np.append(levels[~np.isclose(levels, level, rtol=1e-6, atol=0)], level)


def _clipped(log_weights: np.ndarray, clip: float | None) -> np.ndarray:
    return log_weights if clip is None else np.minimum(log_weights, np.log(clip))


def decimal(x: Any) -> float:
    """The number as it was written: 0.05 and not what float32 makes of it."""
    return float(str(np.asarray(x)))


def level_of(asked: Asked, choice: selection.Choice | None) -> tuple[float | None, bool]:
    """The level that an estimator used, and whether it was chosen from the data."""
    if not isinstance(asked.level_used, str):
        return float(asked.level_used), False
    return None if choice is None else decimal(choice.level), True


def _omission(
    batch: TrajectoryBatch, asked: Asked, level: float, levels: Any = ()
) -> tuple[Omission, Kept]:
    composition = Composition.of("is", asked.relevance)
    own = asked.options_of(*composition.functions[1:], omission=("max_kept",))
    settings = asked.common | own | {asked.parameter: level}
    return omission_of(
        batch,
        make_spec(batch, composition, settings),
        asked.common["key"],
        confidence=asked.sampling["confidence"],
        resamples=asked.sampling["resamples"],
        levels=levels,
    )


def _of_estimate(estimated: Estimated) -> list[Verdict]:
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


def _of_nothing_kept(omission: Omission | None, before: Weights | None) -> list[Verdict]:
    """That no state was found relevant means little in a log that says little of the target."""
    if omission is None or before is None or omission.share_kept > 0:
        return []
    if before.effective_size >= EFFECTIVE_SIZE[0]:
        return []
    text = "no ratio is kept, and the log says too little of the target to show that none matters"
    return [Verdict(NO_TRUST, text)]


def _without_weights(plain_name: str, doubts: Sequence[Verdict]) -> tuple[str, tuple[Verdict, ...]]:
    entry = ESTIMATORS[plain_name]
    of_no_ratios = OF_BEHAVIOR if entry.may_omit else OF_MODEL
    reason = Verdict(NOT_JUDGED, OTHER_WEIGHTS if entry.reads_ratios else of_no_ratios)
    return (overall(doubts) if doubts else NOT_JUDGED, (*doubts, reason))


def graver(one: str, other: str) -> str:
    """The graver of two verdicts; one that was not judged says nothing."""
    judged = [level for level in (one, other) if level in SEVERITY]
    return max(judged, key=SEVERITY.index, default=NOT_JUDGED)
