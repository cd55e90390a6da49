"""Over all levels of relevance: what is kept, what is estimated, and the relevance of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array, lax

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.options import Options, bind, traced
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.evaluation.judge import Asked, decimal, of_curve
from osiris_jax.evaluation.result import Curve, Row, States
from osiris_jax.pipeline import compose, selection
from osiris_jax.pipeline.estimate import estimate


def by_level(
    batch: TrajectoryBatch,
    asked: Asked,
    rows: Sequence[Row],
    choices: Mapping[str, selection.Choice | None],
) -> tuple[States | None, Curve | None]:
    """What each state's evidence is, and the estimate and the share kept against the level."""
    labels = of_curve([row.estimator for row in rows if row.relevance is not None])
    row = next((row for row in rows if row.estimator in labels), None)
    level = None if row is None else row.alpha if row.threshold is None else row.threshold
    if row is None or level is None:
        return None, None
    choice = choices.get(row.estimator)
    levels, values = _values(batch, asked, row, level, choice)
    test = compose.test_for("is", asked.relevance)
    settings = asked.common | asked.options_of(test)
    most = asked.options.get("max_kept")
    share, evidence, kept = _kept(
        batch,
        traced(asked.parameter, levels, batch.dtype),
        traced(asked.parameter, level, batch.dtype),
        None if most is None else traced("max_kept", most, batch.dtype),
        bind(test, settings, batch.dtype),
        relevance=asked.relevance,
    )
    curve = Curve(
        estimator=row.estimator,
        parameter=asked.parameter,
        levels=levels,
        values=values,
        share_kept=np.asarray(share, np.float64),
        used=level,
        automatic=None if choice is None else decimal(choice.level),
    )
    return _states(batch, asked, evidence, kept), curve


def _values(
    batch: TrajectoryBatch, asked: Asked, row: Row, level: float, choice: selection.Choice | None
) -> tuple[np.ndarray, np.ndarray]:
    """The levels, from the one that keeps least, the row's own among them, and their estimates."""
    if choice is not None:
        levels = np.array([decimal(x) for x in np.asarray(choice.levels)])
        values = np.asarray(choice.values, np.float64)
    else:
        plain_name, _ = parse_name(row.estimator)
        functions = [ESTIMATORS[plain_name], compose.test_for(plain_name, asked.relevance)]
        by_threshold = asked.parameter == "threshold"
        levels = np.asarray(selection.THRESHOLDS if by_threshold else selection.ALPHAS)
        given: dict[str, Any] = {asked.parameter: levels, "relevance": asked.relevance}
        own = asked.options_of(*functions, omission=("max_kept",))
        found = estimate(batch, row.estimator, **given, **asked.common, **own)
        values = np.asarray(found, np.float64)
    elsewhere = ~np.isclose(levels, level, rtol=1e-6, atol=0)
    levels = np.append(levels[elsewhere], level)
    values = np.append(values[elsewhere], row.value)
    order = np.argsort(-levels if asked.parameter == "threshold" else levels)
    return levels[order], values[order]


@compiled(static_argnames="relevance")
def _kept(
    batch: TrajectoryBatch,
    levels: Array,
    used: Array,
    max_kept: Array | None,
    for_test: Options,
    *,
    relevance: str,
) -> tuple[Array, Any, Any]:
    """[level] the share of ratios kept, the evidence, and the map at the level used."""
    evidence = compose.gather(batch, "is", relevance, **for_test.keywords)

    def share(level: Array) -> Array:
        keep = compose.steps_at(batch, evidence, level, max_kept) & batch.mask
        return keep.sum() / batch.mask.sum()

    return lax.map(share, levels), evidence.value, compose.map_at(evidence, used)


def _states(batch: TrajectoryBatch, asked: Asked, evidence: Any, kept: Any) -> States | None:
    if not isinstance(evidence, Array) or evidence.ndim != 1 or batch.state is None:
        return None
    mask = np.asarray(batch.mask)
    visits = np.bincount(np.asarray(batch.state)[mask], minlength=batch.num_states)
    return States(asked.parameter, np.asarray(evidence, np.float64), visits, np.asarray(kept))
