"""The report: one HTML page that needs no other file, no network and no script; or Markdown."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.core.faces import Table, bullets, markdown, number, percent, plain, span
from osiris_jax.core.files import write_text
from osiris_jax.core.labels import with_rest
from osiris_jax.core.pictures import as_bytes
from osiris_jax.core.text import literal, printable
from osiris_jax.data import Log
from osiris_jax.evaluation.pictures import draw
from osiris_jax.evaluation.result import (
    DIFFERENCE_HEADER,
    HEADER,
    MEANINGS,
    Curve,
    Evaluation,
    States,
)
from osiris_jax.models.behavior import BehaviorFit

MOST_STATES = 50
CAPTIONS = {
    "intervals": "Every estimate with its intervals. Mark and colour are the verdict.",
    "levels": "The estimate against the level of relevance, with the share of ratios kept. "
    "A flat curve means that the level hardly matters.",
    "weights": "Each trajectory's weight against the number of ratios in it. Where weights spread "
    "over many powers of ten, a few trajectories decide the estimate.",
}
CLASSES = {"fine": "fine", "careful": "careful", "do not trust": "doubt"}
LOGGED = "The probabilities of the logged actions, or their ratios, are those of the log."


class About(NamedTuple):
    """What a report tells beyond the evaluation.

    Attributes:
      title: of the page.
      log: as read, for the names of columns and states and what was guessed.
      fit: of the behaviour policy, where propensities were missing.
      propensities: where they come from, in a sentence; by default by `fit`.
      target: what the policy evaluated is called.
      compared: what the one compared with is called.
      command: that repeats it.
    """

    title: str = "Evaluation of a policy from a log"
    log: Log | None = None
    fit: BehaviorFit | None = None
    propensities: str | None = None
    target: str = "the target"
    compared: str = "the other"
    command: str | None = None


def write_report(evaluation: Evaluation, path: str | Path, about: About | None = None) -> Path:
    """The report as a file, whole or not at all.

    Example:
      >>> write_report(oj.evaluate(batch), "report.html", About(title="Sepsis, 2019"))
    """
    return write_text(path, render(evaluation, about))


def render(
    evaluation: Evaluation, about: About | None = None, pictures: Mapping[str, bytes] | None = None
) -> str:
    """The report as HTML; whatever the log calls things is escaped.

    Args:
      evaluation: what it is about.
      about: what it tells beyond.
      pictures: name -> PNG, those of `draw` where they are drawn already.
    """
    if pictures is None:
        pictures = {name: as_bytes(drawn, "png") for name, drawn in draw(evaluation).items()}
    return from_template("report.html", page(evaluation, about or About(), pictures))


def from_template(name: str, values: Mapping[str, Any]) -> str:
    """A page of `templates/`; all text in it is escaped."""
    from importlib.resources import files

    from jinja2 import Environment, StrictUndefined

    source = files("osiris_jax.evaluation").joinpath(f"templates/{name}").read_text("utf-8")
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda cell: printable(cell) if type(cell) is str else cell,  # not markup
    )
    return environment.from_string(source).render(values)


def page(evaluation: Evaluation, about: About, pictures: Mapping[str, bytes]) -> dict[str, Any]:
    """What the template shows."""
    main, settings, log = evaluation.main, evaluation.settings, about.log
    method, ends = main.interval
    named = settings["state_labels"] or (log.labels.get("state", ()) if log is not None else ())
    told = (about.propensities or settings["fitted"] or LOGGED,)
    exact = [[name, _as_text(value)] for name, value in plain(settings).items()]
    return {
        "about": about,
        "main": main,
        "value": number(main.value),
        "interval": span(*ends),
        "method": method,
        "confidence": f"{100 * settings['confidence']:g} %",
        "kind": CLASSES.get(main.verdict, "unjudged"),
        "meaning": MEANINGS[main.verdict],
        "settings": settings,
        "estimates": Table(f"All with {method} intervals", HEADER, evaluation.lines()),
        "others": other_intervals(evaluation),
        "doubts": [(row.label, row.verdict, row.reasons) for row in evaluation.rows],
        "kinds": CLASSES,
        "differences": difference_table(evaluation, about),
        "pictures": [
            # inside their own addresses, for a page without other files
            {
                "uri": "data:image/png;base64," + base64.b64encode(png).decode("ascii"),
                "caption": CAPTIONS[name],
            }
            for name, png in pictures.items()
        ],
        "diagnostics": diagnostics_table(evaluation),
        "curve": None if evaluation.curve is None else curve_table(evaluation.curve),
        "states": None if evaluation.states is None else states_table(evaluation.states, named),
        "propensities": told if about.fit is None else about.fit.words,
        "calibration": None if about.fit is None else calibration_table(about.fit),
        "columns": None if log is None else columns_table(log.columns),
        "reader_notes": () if log is None else log.notes,
        "notes": evaluation.notes,
        "exact": Table("Settings", ["setting", "value"], exact, words=2),
    }


def as_markdown(evaluation: Evaluation, about: About) -> str:
    """The tables, verdicts and notes as a page of Markdown."""
    parts = [f"# {literal(about.title)}\n", markdown(HEADER, evaluation.lines())]
    verdicts = [
        [row.label, row.verdict, "; ".join(doubt.reason for doubt in row.reasons)]
        for row in evaluation.rows
    ]
    parts.append(markdown(["estimator", "verdict", "reasons"], verdicts))
    if evaluation.differences:
        parts.append(f"The target less {literal(about.compared)}:\n")
        parts.append(markdown(DIFFERENCE_HEADER, evaluation.difference_lines()))
    fitted = () if about.fit is None else about.fit.words
    parts.append(bullets((*fitted, *evaluation.notes)))
    if about.command is not None:
        parts.append(f"```sh\n{printable(about.command)}\n```\n")
    return "\n".join(part for part in parts if part)


def other_intervals(evaluation: Evaluation) -> Table | None:
    """The intervals beside the main one, if there are."""
    methods = [m for m in evaluation.settings["methods"] if m != evaluation.main.interval[0]]
    if not methods:
        return None
    lines = [
        [row.label, *(span(*row.intervals.get(m, (np.nan, np.nan))) for m in methods)]
        for row in evaluation.rows
    ]
    return Table("Intervals by the other methods", ["estimator", *methods], lines)


def difference_table(evaluation: Evaluation, about: About) -> Table | None:
    """The target against the one compared with, if there is one."""
    if not evaluation.differences:
        return None
    caption = f"{about.target} less {about.compared}, from the same resamples"
    return Table(caption, DIFFERENCE_HEADER, evaluation.difference_lines())


def diagnostics_table(evaluation: Evaluation) -> Table:
    """What the weights of every estimator are like."""
    header = ["estimator", "trajectories", "effective size", "largest weight", "weights of 0"]
    header += ["tail index", "length-weight correlation", "ratios kept", "bias of omission"]
    lines = []
    for row in evaluation.rows:
        if (of := row.weights) is None:
            continue
        kept, bias = "100 %", "-"
        if (omission := evaluation.omissions.get(row.estimator)) is not None:
            low, high = omission.interval
            kept, bias = percent(omission.share_kept), span(-high, -low)
        cells = [f"{of.number:,}", number(of.effective_size, 4), percent(of.largest_share)]
        cells += [percent(of.zero_share), number(of.tail_index, 3)]
        lines.append([row.label, *cells, number(of.length_correlation, 3), kept, bias])
    return Table("Weights", header, lines)


def curve_table(curve: Curve) -> Table:
    """The estimate and the share kept at every level."""
    lines = []
    columns = (column.tolist() for column in (curve.levels, curve.values, curve.share_kept))
    for level, value, share in zip(*columns, strict=True):
        marks = ["used"] * (level == curve.used)
        marks += ["chosen from the data"] * (curve.automatic == level)
        lines.append([f"{level:g}", number(value), percent(share), ", ".join(marks)])
    header = [curve.parameter, curve.estimator, "ratios kept", ""]
    return Table(f"{curve.estimator} against {curve.parameter}", header, lines)


def states_table(states: States, named: Sequence[str] = ()) -> Table:
    """The states whose action matters most, by the test."""
    seen = np.flatnonzero(states.visits)
    by_threshold = states.parameter == "threshold"
    sign = -1 if by_threshold else 1
    order = seen[np.lexsort((-states.visits[seen], sign * states.evidence[seen]))]
    lines = []
    for state in order[:MOST_STATES].tolist():
        name = [str(named[state])] if state < len(named) else ["-"] * bool(named)
        cells = [number(float(states.evidence[state]), 3), f"{states.visits[state]:,}"]
        lines.append([str(state), *name, *cells, "kept" if states.kept[state] else "omitted"])
    cut = f", the first {MOST_STATES}" if len(order) > MOST_STATES else ""
    kept = int(states.kept[seen].sum())
    caption = f"{len(seen):,} states were visited, the ratios of {kept:,} are kept{cut}"
    evidence = "statistic" if by_threshold else "p-value"
    header = ["state", *["name"] * bool(named), evidence, "visits", "ratio"]
    return Table(caption, header, lines, words=1 + bool(named))


def calibration_table(fit: BehaviorFit) -> Table:
    """Fitted probabilities against what was done, in bins."""
    told = fit.calibration
    lines = [
        [number(predicted, 3), number(observed, 3), f"{count:,}"]
        for predicted, observed, count in zip(
            told.predicted, told.observed, told.count, strict=True
        )
        if count
    ]
    header = ["fitted probability", "observed frequency", "steps times actions"]
    return Table("Calibration of the fitted behaviour policy", header, lines, words=0)


def columns_table(columns: Mapping[str, Any]) -> Table:
    """Which column of the log holds what."""
    lines = [[name, of if isinstance(of, str) else ", ".join(of)] for name, of in columns.items()]
    return Table("Columns", ["field", "column of the log"], lines, words=2)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return with_rest([_as_text(one) for one in value[:MOST_STATES]], value)
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
