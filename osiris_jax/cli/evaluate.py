"""`osiris-jax evaluate`: a log in a file to a table, verdicts, pictures and a report."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.files import check_folder, write_text
from osiris_jax.core.options import ALPHA, EPSILON, RELEVANCE, RESAMPLES, WEIGHTING, default, given
from osiris_jax.core.terminal import markdown, print_table, say, stages
from osiris_jax.core.text import literal, printable
from osiris_jax.data import Log, load_log
from osiris_jax.data.policy_files import is_network, with_given_policies
from osiris_jax.evaluation import Evaluation, evaluate
from osiris_jax.evaluation.result import DIFFERENCE_HEADER, HEADER
from osiris_jax.evaluation.run import BEHAVIOR
from osiris_jax.models.behavior import METHODS as FITS
from osiris_jax.models.behavior import BehaviorFit, fit_behavior

AUTO_FIT = "auto"
NEED_NO_TARGET = {"mc"}


@dataclasses.dataclass(frozen=True)
class Request:
    """What the user asked for; None leaves a default."""

    log: Path
    columns: str | None = None
    target: str | None = None
    epsilon: float = EPSILON
    behavior: str | None = None
    behavior_epsilon: float = EPSILON
    compare: str | None = None
    estimators: tuple[str, ...] | None = None
    relevance: str = RELEVANCE
    alpha: Any = ALPHA
    threshold: float | None = None
    weighting: str = WEIGHTING
    discount: float = 1.0
    confidence: float = 0.95
    methods: tuple[str, ...] = ("percentile", "bca")
    resamples: int = RESAMPLES
    weight_bound: float | None = None
    return_bounds: tuple[float, ...] | None = None
    seed: int = 0
    out: Path = Path("runs/log")

    @property
    def command(self) -> str:
        """What to type to get the same again."""
        words = ["osiris-jax", "evaluate", str(self.log)]
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if given(value) and (value != field.default or field.name in ("seed", "out")):
                text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
                words += [f"--{field.name.replace('_', '-')}", text]
        return shlex.join(words)


class Ready(NamedTuple):
    """A log with ratios, and how it came by them."""

    log: Log
    batch: TrajectoryBatch
    fit: BehaviorFit | None
    propensities: str | None


def evaluate_log(request: Request) -> None:
    """Reads, evaluates, and only then writes; prints the guesses, the table and the verdicts."""
    from jax import random

    from osiris_jax import plots
    from osiris_jax.evaluation.pictures import draw
    from osiris_jax.evaluation.report import About, render

    check_folder(request.out)
    ready = prepare(request)
    other = compared(ready.batch, request)
    with stages() as progress:
        found = evaluate(
            ready.batch,
            request.estimators,
            relevance=request.relevance,
            alpha=request.alpha,
            threshold=request.threshold,
            discount=request.discount,
            weighting=request.weighting,
            confidence=request.confidence,
            methods=request.methods,
            resamples=request.resamples,
            compare_with=other,
            weight_bound=request.weight_bound,
            return_bounds=request.return_bounds,  # pyright: ignore[reportArgumentType]
            key=random.key(request.seed),
            progress=progress,
        )
    about = About(
        title=f"Evaluation of {request.log.name}",
        log=ready.log,
        fit=ready.fit,
        propensities=ready.propensities,
        target="the target of the log" if request.target is None else request.target,
        compared=_name_of(request.compare),
        command=request.command,
    )
    page, figures = render(found, about), draw(found)
    show(found, request)
    words = ready.fit.words if ready.fit is not None else ()
    summary = found.summary() | {"command": request.command, "log": log_facts(ready)}
    out = request.out
    tables = [write_text(out / "summary.json", json.dumps(summary, indent=2))]
    tables.append(write_text(out / "evaluation.md", as_markdown(found, request, words)))
    pictures = [path for name in figures for path in plots.save(figures[name], out, name)]
    report = write_text(out / "report.html", page)
    say("tables:", *tables)
    say("pictures:", *pictures)
    say("report:", report)


def prepare(request: Request) -> Ready:
    """The log as a batch with ratios; the behaviour is fitted where nothing tells it."""
    fits = request.behavior in (AUTO_FIT, *FITS)
    of_compared = request.compare not in (None, BEHAVIOR) and is_network(request.compare)
    log = load_log(
        request.log,
        columns=read_columns(request.columns),
        target=request.target,
        behavior=None if fits else request.behavior,
        epsilon=default(float(request.epsilon)) if of_compared else request.epsilon,
        behavior_epsilon=request.behavior_epsilon,
        say=lambda line: say("-", line),
    )
    batch = log.batch
    if batch.log_ratio is None and batch.target_probs is None and batch.target_log_prob is None:
        if request.estimators and {*request.estimators} <= NEED_NO_TARGET:
            return Ready(log, batch, None, "No probabilities are used.")
        raise ValueError(
            f"target: {request.log} says nothing of the policy to evaluate; give --target "
            "policy.npz, or a column target_prob; --estimators mc needs none"
        )
    if not fits and batch.log_ratio is not None:
        told = None
        if request.behavior is not None:
            told = f"The probabilities of the logged actions are those of {request.behavior}."
        return Ready(log, batch, None, told)
    fit = fit_behavior(batch, method=request.behavior or AUTO_FIT if fits else AUTO_FIT)
    for line in fit.words:
        say("-", line)
    fit.batch.require("log_ratio", "an evaluation")
    return Ready(log, fit.batch, fit, None)


def compared(batch: TrajectoryBatch, request: Request) -> TrajectoryBatch | str | None:
    """The log with the ratios of the other target."""
    if request.compare in (None, BEHAVIOR):
        return request.compare
    if batch.behavior_probs is None and batch.behavior_log_prob is None:
        raise ValueError(
            "compare: needs the behaviour's probabilities, where the log has ratios alone; "
            "give --behavior"
        )
    epsilons = (request.epsilon, 0.0)
    told = lambda line: say("- compared", line)  # noqa: E731
    return with_given_policies(batch, request.compare, None, epsilons, told)


def read_columns(text: str | None) -> dict[str, str | None] | None:
    """`episode=patient_id,action=drug`; what a field is set to may hold commas, or be nothing."""
    if text is None:
        return None
    found: dict[str, str | None] = {}
    for part in re.split(r",(?=\s*\w+=)", text):
        field, equals, column = part.partition("=")
        if not equals or not field.strip():
            raise ValueError(f"columns: expected field=column with commas between, got {text!r}")
        if field.strip() in found:
            raise ValueError(f"columns: {field.strip()} is given twice")
        found[field.strip()] = column or None
    return found


def show(found: Evaluation, request: Request) -> None:
    """The table, the verdicts and the notes, in the terminal."""
    settings = found.settings
    title = (
        f"{request.log.name}: {settings['trajectories']:,} trajectories, {settings['steps']:,} "
        f"steps, {100 * request.confidence:g} % {found.main.interval[0]} intervals"
    )
    print_table(title, HEADER, found.lines())
    for line in found.doubts():
        say(line)
    if found.differences:
        caption = f"difference: the target less {_name_of(request.compare)}"
        print_table(caption, DIFFERENCE_HEADER, found.difference_lines())
    for note in found.notes:
        say("-", note)


def as_markdown(found: Evaluation, request: Request, words: tuple[str, ...]) -> str:
    """The tables, verdicts and notes as a page of Markdown."""
    parts = [f"# Evaluation of {literal(request.log.name)}\n", markdown(HEADER, found.lines())]
    verdicts = [
        [row.label, row.verdict, "; ".join(v.reason for v in row.reasons)] for row in found.rows
    ]
    parts.append(markdown(["estimator", "verdict", "reasons"], verdicts))
    if found.differences:
        parts.append(f"The target less {literal(_name_of(request.compare))}:\n")
        parts.append(markdown(DIFFERENCE_HEADER, found.difference_lines()))
    parts.append("".join(f"- {printable(line)}\n" for line in (*words, *found.notes)))
    parts.append(f"```sh\n{printable(request.command)}\n```\n")
    return "\n".join(part for part in parts if part)


def log_facts(ready: Ready) -> dict[str, Any]:
    """How the log was read and where its propensities come from."""
    return {
        "columns": dict(ready.log.columns),
        "notes": list(ready.log.notes),
        "labels": {name: list(labels) for name, labels in ready.log.labels.items()},
        "fitted_behavior": None if ready.fit is None else list(ready.fit.words),
    }


def _name_of(compare: str | None) -> str:
    return "the behaviour policy" if compare == BEHAVIOR else str(compare)
