"""Over all levels of relevance: what is kept, what is estimated, and the relevance of states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.evaluation.judge import Asked, Judged, decimal
from osiris_jax.evaluation.result import Curve, States
from osiris_jax.inference.diagnostics import Kept
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.estimate import estimate


def by_level(
    batch: TrajectoryBatch,
    asked: Asked,
    judged: Judged,
    choices: Mapping[str, selection.Choice | None],
) -> tuple[States | None, Curve | None]:
    """What each state's evidence is, and the estimate and the share kept against the level."""
    if judged.curve is None:
        return None, None
    label, levels, kept = judged.curve
    row = next(row for row in judged.rows if row.estimator == label)
    choice = choices.get(label)
    values = np.append(_values(batch, asked, label, levels[:-1], choice), row.value)
    order = np.argsort(-levels if asked.parameter == "threshold" else levels)
    curve = Curve(
        estimator=label,
        parameter=asked.parameter,
        levels=levels[order],
        values=values[order],
        share_kept=kept.shares[order],
        used=float(levels[-1]),
        automatic=None if choice is None else decimal(choice.level),
    )
    return _states(batch, asked, kept), curve


def _values(
    batch: TrajectoryBatch,
    asked: Asked,
    label: str,
    levels: np.ndarray,
    choice: selection.Choice | None,
) -> np.ndarray:
    """The estimates at these levels, which a choice has compared already, if there is one."""
    if choice is not None:
        compared = np.array([decimal(x) for x in np.asarray(choice.levels)])
        return np.asarray(choice.values, np.float64)[np.isin(compared, levels)]
    plain_name, _ = parse_name(label)
    functions = [ESTIMATORS[plain_name], compose.test_for(plain_name, asked.relevance)]
    given: dict[str, Any] = {asked.parameter: levels, "relevance": asked.relevance}
    own = asked.options_of(*functions, omission=("max_kept",))
    return np.asarray(estimate(batch, label, **given, **asked.common, **own), np.float64)


def _states(batch: TrajectoryBatch, asked: Asked, kept: Kept) -> States | None:
    evidence = kept.evidence
    if not isinstance(evidence, Array) or evidence.ndim != 1 or batch.state is None:
        return None
    mask = np.asarray(batch.mask)
    visits = np.bincount(np.asarray(batch.state)[mask], minlength=batch.num_states)
    return States(
        asked.parameter, np.asarray(evidence, np.float64), visits, np.asarray(kept.states)
    )
