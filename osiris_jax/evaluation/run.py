"""`evaluate`: a log judged as a whole: estimates, intervals, diagnostics, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from osiris_jax.batch import TrajectoryBatch, pad_to_bucket
from osiris_jax.core.labels import shown
from osiris_jax.core.options import ALPHA, DDOF, RELEVANCE, RESAMPLES, WEIGHTING, given, traced
from osiris_jax.estimators import ESTIMATORS, names_of, parse_name
from osiris_jax.evaluation.judge import Asked, graver, judge
from osiris_jax.evaluation.result import Difference, Evaluation, Row
from osiris_jax.inference import Estimated, Sample
from osiris_jax.inference.checks import (
    check_bounds,
    check_methods,
    check_numbers,
    refusal,
    refuse_idle,
)
from osiris_jax.inference.methods import NEEDS, percentile
from osiris_jax.inference.run import MEMORY, Progress, of_shared_shape, with_intervals
from osiris_jax.pipeline.spec import Spec, check_batch, make_specs

DEFAULT_ESTIMATORS = ("auto", "osirwis", "wis", "pdis", "cwpdis", "osiris", "is", "mc")
CHOICE_RESAMPLES = 200  # where none are asked for: a choice is dear
BEHAVIOR = "behavior"
NOTES = {
    "bca": "The main interval is the percentile one: an estimate after omission jumps where a "
    "state passes the test, and in coverage studies bca then held the truth less often.",
    "per-decision": "Per-decision estimators are judged by the weights of whole trajectories, the "
    "heaviest that they use; rewards that come early have lighter ones.",
    "mc": "`mc` is the mean return in the log: the value of the behaviour policy, to compare with.",
}


def evaluate(
    batch: TrajectoryBatch,
    estimators: str | Sequence[str] | None = None,
    *,
    relevance: str = RELEVANCE,
    alpha: Any = ALPHA,
    threshold: Any = None,
    discount: Any = 1.0,
    weighting: str = WEIGHTING,
    ddof: Any = DDOF,
    confidence: float = 0.95,
    methods: str | Sequence[str] = ("percentile", "bca"),
    resamples: int = RESAMPLES,
    compare_with: TrajectoryBatch | str | None = None,
    weight_bound: float | None = None,
    return_bounds: tuple[float, float] | None = None,
    key: Array | None = None,
    memory: int = MEMORY,
    progress: Progress | None = None,
    **options: Any,
) -> Evaluation:
    """The target's value by several estimators, with intervals, and how far to trust each.

    The verdict on an estimator comes from the weights it uses: those of the ratios kept after
    omission, of all ratios without. The main interval is `percentile`; `bca` covers less after
    omission, which is not smooth.

    Args:
      batch: the log, with ratios; [traj, time].
      estimators: names as for `estimate`; by default those of `DEFAULT_ESTIMATORS` that the log
        allows. The headline is auto if it is among them, else osirwis, else the first.
      relevance, alpha, threshold, discount, weighting, ddof: as for `estimate`; alpha="auto"
        chooses the level, in every resample anew.
      confidence, methods, resamples, weight_bound, return_bounds, memory, progress: as for
        `intervals`; an estimator goes without a method that is not for it, and a note says so.
      compare_with: the same log with another target's ratios, or "behavior" for the policy that
        made the log: gives differences with percentile intervals from the same resamples.
      key: a `jax.random.key`, consumed; key(0) if None.
      **options: further options of the estimators or the test, by name; each gets those it has.

    Example:
      >>> found = oj.evaluate(batch, ["wis", "osirwis"], alpha="auto")
      >>> print(found)
      >>> found.main.value, found.main.verdict
    """
    asked = Asked(
        labels=(),
        methods=check_methods(methods),
        relevance=relevance,
        level={"alpha": alpha, "threshold": threshold},
        common={"discount": discount, "weighting": weighting, "ddof": ddof, "key": key},
        sampling={"confidence": confidence, "resamples": resamples, "memory": memory},
        bounds={"weight_bound": weight_bound, "return_bounds": return_bounds},
        options=options,
    )
    return _evaluation(batch, estimators, compare_with, asked, progress)


def _evaluation(
    batch: TrajectoryBatch,
    estimators: Any,
    compare_with: Any,
    asked: Asked,
    progress: Progress | None,
) -> Evaluation:
    check_batch(batch)
    labels, notes = _labels(batch, estimators)
    other = _other(batch, compare_with)
    asked = _checked(batch, asked._replace(labels=labels))
    if other is not None and not any("resampled" in NEEDS[name] for name in asked.methods):
        raise ValueError("compare_with: needs resamples; add percentile to methods")
    if not any(np.ndim(x) for x in asked.options.values()):
        batch, other = pad_to_bucket(batch), None if other is None else pad_to_bucket(other)
    estimated = _estimated(batch, asked, progress, notes)
    judged = judge(batch, asked, estimated)
    compared, differences = (), ()
    if other is not None:
        again = _estimated(other, asked, progress, [])
        compared = judge(other, asked, again)["rows"]
        confidence = asked.sampling["confidence"]
        differences = _differences(judged["rows"], compared, estimated, again, confidence)
    return Evaluation(
        **judged,
        compared=compared,
        differences=differences,
        settings=_settings(batch, asked, compare_with),
        notes=(*_notes_of_log(batch), *notes, *_notes(asked)),
    )


def _checked(batch: TrajectoryBatch, asked: Asked) -> Asked:
    """With a key; raises a ValueError for what is wrong, or what nothing would use."""
    key = asked.common["key"]
    key = random.key(0) if key is None else traced("key", key, batch.dtype)
    asked = asked._replace(common=asked.common | {"key": key})
    check_numbers(**asked.sampling)
    check_bounds(**asked.bounds)
    specs = _specs(batch, asked)
    omits = any(spec.test is not None for spec in specs.values())
    resamples = None if omits else asked.sampling["resamples"]  # an omission's bias is resampled
    refuse_idle({"resamples": resamples, **asked.bounds}, asked.methods, specs)
    return asked


def _labels(batch: TrajectoryBatch, estimators: Any) -> tuple[tuple[str, ...], list[str]]:
    """The estimators wanted, or all that the log allows."""
    if estimators is not None:
        return names_of(estimators), []
    if batch.state is not None:
        return DEFAULT_ESTIMATORS, []
    plain = tuple(name for name in DEFAULT_ESTIMATORS if not parse_name(name)[1])
    return plain, ["The log has no states, so nothing is omitted; with_states makes them."]


def _other(batch: TrajectoryBatch, compare_with: Any) -> TrajectoryBatch | None:
    if isinstance(compare_with, TrajectoryBatch):
        _check_same_log(batch, compare_with)
    if compare_with is None or isinstance(compare_with, TrajectoryBatch):
        return compare_with
    if not isinstance(compare_with, str) or compare_with != BEHAVIOR:
        raise ValueError(
            f'compare_with: expected a TrajectoryBatch or "{BEHAVIOR}", got {compare_with!r}'
        )
    return batch.replace(log_ratio=jnp.zeros_like(batch.reward), target_probs=batch.behavior_probs)


def _check_same_log(batch: TrajectoryBatch, other: TrajectoryBatch) -> None:
    check_batch(other)
    real = np.asarray(batch.mask)
    same = real.shape == other.mask.shape and np.array_equal(real, np.asarray(other.mask))
    for name in ("reward", "action") if same else ():
        mine, its = getattr(batch, name), getattr(other, name)
        if mine is not None and its is not None:
            same = same and np.array_equal(np.asarray(mine)[real], np.asarray(its)[real])
    if not same:
        raise ValueError(
            "compare_with: not the same trajectories, so differences have no pairs; "
            "give the same log with the other target's ratios, see with_policies"
        )


def _estimated(
    batch: TrajectoryBatch, asked: Asked, progress: Progress | None, notes: list[str]
) -> dict[str, Estimated]:
    """Estimates and intervals; estimators with the same methods are computed together."""
    batch = of_shared_shape(batch, asked.options, asked.relevance)
    specs = _specs(batch, asked)
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    wanted = asked.sampling["resamples"]
    fewer = wanted if given(wanted) else min(wanted, CHOICE_RESAMPLES)
    least = float((asked.bounds["return_bounds"] or (0.0,))[0])
    for label, spec in specs.items():
        refused = {name: refusal(name, spec, least) for name in asked.methods}
        notes += [f"{label} has no interval by {k}: {why}." for k, why in refused.items() if why]
        methods = tuple(k for k, why in refused.items() if not why)
        resamples = fewer if spec.estimator.chooses else wanted
        groups.setdefault((methods, resamples), []).append(label)
    estimates: dict[str, Estimated] = {}
    for (methods, resamples), labels in groups.items():
        if not methods:
            reason = refusal(asked.methods[0], specs[labels[0]], least)
            raise ValueError(f"methods: none is available for `{labels[0]}`: {reason}")
        estimates |= with_intervals(
            batch,
            {label: specs[label] for label in labels},
            methods,
            key=asked.common["key"],
            progress=progress,
            **asked.sampling | {"resamples": resamples},
            **asked.bounds,
        )
    return {label: estimates[label] for label in asked.labels}


def _specs(batch: TrajectoryBatch, asked: Asked) -> dict[str, Spec]:
    settings = asked.level | asked.common | asked.options
    return make_specs(batch, asked.labels, asked.relevance, settings)


def _differences(
    rows: Sequence[Row],
    compared: Sequence[Row],
    estimates: Mapping[str, Estimated],
    again: Mapping[str, Estimated],
    confidence: float,
) -> tuple[Difference, ...]:
    """Target less target compared, resample by resample."""
    differences = []
    for row, its in zip(rows, compared, strict=True):
        drawn = estimates[row.estimator].resampled - again[row.estimator].resampled
        value, defined = row.value - its.value, drawn[np.isfinite(drawn)]
        sample = Sample(row.estimator, np.asarray(value), resampled=drawn)
        low, high = map(float, percentile(sample, confidence))
        differences.append(
            Difference(
                estimator=row.estimator,
                value=row.value,
                compared=its.value,
                difference=value,
                standard_error=float(defined.std(ddof=1)) if len(defined) > 1 else float("nan"),
                low=low,
                high=high,
                undefined=int(np.isnan(drawn).sum()),
                verdict=graver(row.verdict, its.verdict),
            )
        )
    return tuple(differences)


def _notes_of_log(batch: TrajectoryBatch) -> list[str]:
    """What the log calls its ids, how it came by its propensities, and which episodes it cuts."""
    named = {"States": batch.state_labels, "Actions": batch.action_labels}
    notes = [f"{name}: {shown(labels, quoted=True)}." for name, labels in named.items() if labels]
    if batch.fitted is not None:
        notes.append(batch.fitted)
    cut = 0 if batch.truncated is None else int(np.count_nonzero(batch.truncated))
    if cut:
        number = len(batch.reward)
        notes.append(
            f"{cut:,} of {number:,} episodes ({100 * cut / number:.3g} %) are cut off: the log "
            "ends though they had not. They count as ended, with a value of 0 from then on."
        )
    return notes


def _notes(asked: Asked) -> list[str]:
    names = {parse_name(label) for label in asked.labels}
    omits = any(omits for _, omits in names)
    wanted = {
        "bca": omits and {"bca", "percentile"} <= {*asked.methods},
        "per-decision": any(ESTIMATORS[name].per_decision for name, _ in names),
        "mc": ("mc", False) in names,
    }
    return [NOTES[name] for name, applies in wanted.items() if applies]


def _settings(batch: TrajectoryBatch, asked: Asked, compare_with: Any) -> dict[str, Any]:
    """All that is needed to repeat it, of plain types where the arguments were."""
    import osiris_jax

    numbers = {**asked.common, **asked.sampling}
    return {
        "estimators": list(asked.labels),
        "methods": list(asked.methods),
        "relevance": asked.relevance,
        asked.parameter: asked.level_used,
        **{name: value for name, value in numbers.items() if name not in ("key", "memory")},
        **{name: value for name, value in asked.bounds.items() if value is not None},
        **asked.options,
        "compare_with": compare_with if isinstance(compare_with, str | None) else "another target",
        "key": np.asarray(random.key_data(asked.common["key"])).tolist(),
        "trajectories": len(batch.reward),
        "steps": int(np.asarray(batch.mask).sum()),
        "states": batch.num_states,
        "actions": batch.num_actions,
        "state_labels": batch.state_labels,
        "action_labels": batch.action_labels,
        "fitted": batch.fitted,
        "dtype": str(batch.dtype),
        "osiris_jax": osiris_jax.__version__,
        "jax": jax.__version__,
    }
