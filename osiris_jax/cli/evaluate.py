"""`osiris-jax evaluate`: a log in a file to a table, verdicts, pictures and a report."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from osiris_jax.cli import options
from osiris_jax.cli.options import Level, Numbers, Seed, Words, option, passed_on, typed_again
from osiris_jax.core.faces import to_json
from osiris_jax.core.files import check_folder, write_text
from osiris_jax.core.terminal import print_table, say, stages

if TYPE_CHECKING:
    from osiris_jax.batch import TrajectoryBatch
    from osiris_jax.data import Log
    from osiris_jax.evaluation import Evaluation
    from osiris_jax.models.behavior import BehaviorFit

AUTO_FIT = "auto"
BEHAVIOR = "behavior"
NEED_NO_TARGET = {"mc"}


@dataclasses.dataclass(frozen=True)
class EvaluateLog:
    """Your own log: estimates with intervals, how far to trust them, and a report to look at.

    Example: osiris-jax evaluate log.parquet --columns episode=patient_id --target policy.npz
    --estimators wis,osirwis --out runs/log
    """

    log: Path = options.argument("Parquet, CSV (also .csv.gz, .tsv) or .npz.")
    columns: str | None = option("field=column: episode=patient_id,action=drug.")
    target: str | None = option("The policy to evaluate: a saved network or a table, .npz.")
    epsilon: float | None = option("Of targets that are networks.", usual="0")
    behavior: str | None = option(
        "The policy that made the log, .npz; or auto, tabular, logistic or "
        "network, to fit it. Fitted anyway if nothing tells it."
    )
    behavior_epsilon: float | None = option("Of a behaviour network.", usual="0")
    compare: str | None = option("Another target, .npz, or behavior: gives differences.")
    estimators: Words | None = option("wis,osirwis; by default all the usual ones.")
    relevance: str | None = options.relevance()
    alpha: Level | None = options.alpha()
    threshold: float | None = options.threshold()
    weighting: str | None = options.weighting()
    discount: float = options.discount(1.0)
    confidence: float = options.confidence()
    methods: Words = option("Of: percentile,bca,t,bernstein,hoeffding,hcope", ("percentile", "bca"))
    resamples: int | None = options.resamples()
    weight_bound: float | None = option("The largest weight possible, for bounds that hold always.")
    return_bounds: Numbers | None = option("The smallest and the largest return possible: 0,1.")
    seed: Seed = options.seed()
    out: Path = options.out(Path("runs/log"))

    @property
    def command(self) -> str:
        """What to type to get the same again."""
        return typed_again("evaluate", self, always=("seed", "out"))

    @property
    def compared(self) -> str:
        """What the other target is called."""
        return "the behaviour policy" if self.compare == BEHAVIOR else str(self.compare)

    def run(self) -> None:
        """Reads, evaluates, and only then writes; prints the guesses, the table, the verdicts."""
        from jax import random

        from osiris_jax.core.pictures import in_both_forms, write
        from osiris_jax.evaluation import evaluate
        from osiris_jax.evaluation.pictures import draw
        from osiris_jax.evaluation.report import About, as_markdown, render

        check_folder(self.out)
        ready = prepare(self)
        other = with_other_target(ready.batch, self)
        with stages() as progress:
            evaluation = evaluate(
                ready.batch,
                compare_with=other,
                key=random.key(self.seed),
                progress=progress,
                **passed_on(self, evaluate),
            )
        about = About(
            title=f"Evaluation of {self.log.name}",
            log=ready.log,
            fit=ready.fit,
            propensities=ready.propensities,
            target="the target of the log" if self.target is None else self.target,
            compared=self.compared,
            command=self.command,
        )
        pictures = {k: in_both_forms(figure) for k, figure in draw(evaluation).items()}
        page = render(evaluation, about, {name: forms["png"] for name, forms in pictures.items()})
        show(evaluation, self)
        log = {name: getattr(ready.log, name) for name in ("columns", "notes", "labels")}
        log["fitted_behavior"] = None if ready.fit is None else ready.fit.words
        summary = evaluation.summary() | {"command": self.command, "log": log}
        out = self.out
        tables = [write_text(out / "summary.json", to_json(summary))]
        tables.append(write_text(out / "evaluation.md", as_markdown(evaluation, about)))
        drawn = [path for k, forms in pictures.items() for path in write(forms, out, k)]
        report = write_text(out / "report.html", page)
        say("tables:", *tables)
        say("pictures:", *drawn)
        say("report:", report)


class Ready(NamedTuple):
    """A log with ratios, and how it came by them."""

    log: Log
    batch: TrajectoryBatch
    fit: BehaviorFit | None
    propensities: str | None


def prepare(request: EvaluateLog) -> Ready:
    """The log as a batch with ratios; the behaviour is fitted where nothing tells it."""
    from osiris_jax.core.options import default
    from osiris_jax.data import load_log
    from osiris_jax.data.policy_files import is_network
    from osiris_jax.models.behavior import METHODS, fit_behavior

    fits = request.behavior in (AUTO_FIT, *METHODS)
    asked: dict[str, Any] = passed_on(request, load_log)
    asked["columns"] = read_columns(request.columns)
    if fits:
        del asked["behavior"]
    compares_network = request.compare not in (None, BEHAVIOR) and is_network(request.compare)
    if compares_network and request.epsilon is not None:
        asked["epsilon"] = default(request.epsilon)  # it may be meant for the compared alone
    log = load_log(request.log, say=lambda line: say("-", line), **asked)
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


def with_other_target(batch: TrajectoryBatch, request: EvaluateLog) -> TrajectoryBatch | str | None:
    """The log with the ratios of the target to compare with."""
    if request.compare in (None, BEHAVIOR):
        return request.compare
    from osiris_jax.core.options import EPSILON
    from osiris_jax.data.policy_files import with_given_policies

    if batch.behavior_probs is None and batch.behavior_log_prob is None:
        raise ValueError(
            "compare: needs the behaviour's probabilities, where the log has ratios alone; "
            "give --behavior"
        )
    epsilons = (EPSILON if request.epsilon is None else request.epsilon, 0.0)
    return with_given_policies(
        batch, request.compare, None, epsilons, lambda line: say("- compared", line)
    )


def read_columns(text: str | None) -> dict[str, str | None] | None:
    """`episode=patient_id,action=drug`; what a field is set to may hold commas, or be nothing."""
    if text is None:
        return None
    columns: dict[str, str | None] = {}
    for part in re.split(r",(?=\s*\w+=)", text):
        field, equals, column = part.partition("=")
        if not equals or not field.strip():
            raise ValueError(f"columns: expected field=column with commas between, got {text!r}")
        if field.strip() in columns:
            raise ValueError(f"columns: {field.strip()} is given twice")
        columns[field.strip()] = column or None
    return columns


def show(evaluation: Evaluation, request: EvaluateLog) -> None:
    """The table, the verdicts and the notes, in the terminal."""
    from osiris_jax.evaluation.result import DIFFERENCE_HEADER, HEADER

    settings = evaluation.settings
    title = (
        f"{request.log.name}: {settings['trajectories']:,} trajectories, {settings['steps']:,} "
        f"steps, {100 * request.confidence:g} % {evaluation.main.interval[0]} intervals"
    )
    print_table(title, HEADER, evaluation.lines())
    for line in evaluation.doubts():
        say(line)
    if evaluation.differences:
        caption = f"difference: the target less {request.compared}"
        print_table(caption, DIFFERENCE_HEADER, evaluation.difference_lines())
    for note in evaluation.notes:
        say("-", note)
