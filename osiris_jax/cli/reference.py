"""`osiris-jax list --markdown`: the reference page, generated from the registries."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import jax.numpy as jnp

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.cli.listing import HEADER, TRUE, first_line, world_line
from osiris_jax.core.faces import markdown
from osiris_jax.core.options import keywords
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.models.qhat import QHAT
from osiris_jax.pipeline import compose
from osiris_jax.pipeline.estimate import estimate
from osiris_jax.pipeline.selection import ALPHAS, AUTO, DEFAULT_METHOD, SELECTION
from osiris_jax.pipeline.selection import THRESHOLDS as THRESHOLD_GRID
from osiris_jax.relevance import RELEVANCE, THRESHOLDS
from osiris_jax.study.checks import needs
from osiris_jax.study.plan import TRUE_TOLERANCE
from osiris_jax.worlds import WORLDS

REFRESH = "osiris-jax list --markdown > docs/reference.md"
FIELDS = (
    *("log_ratio", "state", "action", "observation"),
    *("target_probs", "behavior_probs"),
)
PASSED_TO_FITS = {"folds": "q_folds", "smoothing": "smoothing", "key": "key"}
REQUIRED = "required"

Registry = Mapping[str, Callable[..., Any]]


def reference() -> str:
    """The page: every table, and what every option means."""
    parts = [
        "# Reference",
        f"Generated from the registries by `{REFRESH}`. A test keeps it up to date, so edit the "
        "docstrings and not this page. Definitions and edge cases: [method.md](method.md).",
        *_estimators(),
        *_relevance(),
        *_selection(),
        *_fits(),
        "## Worlds",
        "Names for `oj.make` and for studies, with the half of the [arena](arena.md) they are "
        "in; more in [worlds.md](worlds.md).",
        markdown(HEADER, [[_code(name), world_line(name)] for name in WORLDS]),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _estimators() -> list[str]:
    rows = [
        [
            _code(name),
            _what(entry),
            entry.assumes,
            _listed(f for f in FIELDS if f in entry.reads),
            _defaults(entry),
        ]
        for name, entry in ESTIMATORS.items()
    ]
    return [
        "## Estimators",
        "`oj.estimate(batch, name, **options)`. Each but `dm` is also `osiris-<name>`, after "
        "omission; `osiris` and `osirwis` are short for `osiris-is` and `osiris-wis`. Beside "
        "`reward` a batch needs the fields of the fourth column, after omission also those that "
        "the test needs. With `q_steps` no `state` is needed for Q. Support: whatever the target "
        "may do in a state, the behaviour does there at times; known ratios: propensities are "
        "the behaviour's own.",
        markdown(["name", "what it is", "assumes", "needs", "options"], rows),
        _meanings(ESTIMATORS),
    ]


def _relevance() -> list[str]:
    rows = [
        [_code(name), _what(f), _level(name), _listed(_needs_of_test(name)), _defaults(f)]
        for name, f in RELEVANCE.items()
    ]
    rows.append(["`true`", TRUE, "", "a tabular world", f"`tolerance={TRUE_TOLERANCE:g}`"])
    lagged = {name: test.by_lag for name, test in RELEVANCE.items() if test.by_lag is not None}
    by_lag = ", ".join(map(_code, lagged))
    return [
        "## Relevance tests",
        "`oj.estimate(batch, name, relevance=test, **options)`, or `oj.relevance_pvalues(batch, "
        f"test, **options)`. With `stepwise` and `stepwise-dr` only {by_lag}, and then with the "
        "options " + _defaults(lagged["welch"]) + ".",
        markdown(["name", "what it is", "level", "needs", "options"], rows),
        _meanings(RELEVANCE),
    ]


def _selection() -> list[str]:
    rows = [[_code(name), _what(f), _defaults(f)] for name, f in SELECTION.items()]
    grids = (", ".join(f"{level:g}" for level in grid) for grid in (ALPHAS, THRESHOLD_GRID))
    return [
        "## Choices of the level",
        f'`alpha="{AUTO}"` is `alpha="{DEFAULT_METHOD}"`; `oj.choose_level(batch, name, '
        "method=...)` shows all that was compared. The candidates (`levels`) are by default the "
        "levels {} or the thresholds {}.".format(*grids),
        markdown([*HEADER, "options"], rows),
        _meanings(SELECTION),
    ]


def _fits() -> list[str]:
    rows = []
    for name, function in QHAT.items():
        taken = [_code(PASSED_TO_FITS[k]) for k in keywords(function) if k in PASSED_TO_FITS]
        rows.append([_code(name), _what(function), ", ".join(taken)])
    users = [name for name, function in ESTIMATORS.items() if "fit" in keywords(function)]
    return [
        "## Fits of Q",
        f"`fit=...` of {_listed(users)}, which pass on the options of the third column.",
        markdown([*HEADER, "options of the estimator that it uses"], rows),
    ]


def _code(name: str) -> str:
    return f"`{name}`"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(" or ".join(_code(word) for word in name.split(" or ")) for name in names)


def _what(function: Callable) -> str:
    """The first line of the docstring, and what it says further on about bias."""
    body = inspect.cleandoc(function.__doc__ or "").split("\nArgs:")[0]
    text = " ".join(" ".join(body.splitlines()[1:]).split())
    said = [s for s in re.split(r"(?<=\.) (?=[A-Z])", text) if re.match("Unbiased|Consistent", s)]
    return " ".join([first_line(function), *said])


def _level(test: str) -> str:
    """What the evidence of a test is compared with."""
    if test in THRESHOLDS:
        return f"above `threshold={THRESHOLDS[test]}`"
    return "" if test == "oracle" else "p <= `alpha`"


def _defaults(function: Callable) -> str:
    """The options as they would be written in a call."""
    written = []
    for name, parameter in keywords(function).items():
        default = parameter.default
        if default is inspect.Parameter.empty:
            written.append(f"`{name}` ({REQUIRED})")
        else:
            literal = f'"{default}"' if isinstance(default, str) else repr(default)
            written.append(f"`{name}={literal}`")
    return ", ".join(written)


def _meanings(registry: Registry) -> str:
    """A table of what the options mean, in the words of the docstrings."""
    explained = options_explained(registry)
    names = dict.fromkeys(name for f in registry.values() for name in keywords(f))
    return markdown(["option", "meaning"], [[_code(name), explained[name]] for name in names])


def options_explained(registry: Registry) -> dict[str, str]:
    """Option -> meaning: as `estimate` says, else as the first function says that explains it."""
    explained: dict[str, str] = {}
    for function in (estimate, *registry.values()):
        for name, meaning in _arguments(function).items():
            if not meaning.startswith("as for"):
                explained.setdefault(name, meaning)
    return explained


def _arguments(function: Callable) -> dict[str, str]:
    """The entries of the docstring's `Args:`, each on one line."""
    _, _, after = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", after)[0]
    entries = re.findall(r"^  (\w+): (.*(?:\n    .*)*)", section, re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def _needs_of_test(name: str) -> list[str]:
    """What importance sampling after omission by this test needs."""
    given = {"keep": jnp.ones(2, bool)} if name == "oracle" else {}

    def kernel(batch: TrajectoryBatch) -> Any:
        batch = batch.replace(target_probs=None)  # else omission would need the behaviour's too
        evidence = compose.gather(batch, "is", name, **given)
        return compose.value_at(batch, "is", evidence, 0.5)

    return fields_needed(kernel)


def fields_needed(kernel: Callable[[TrajectoryBatch], Any]) -> list[str]:
    """The fields without which the kernel refuses a batch; "a or b" where either will do."""
    refused_without = partial(needs, kernel, observation=jnp.zeros((2, 3, 2)))
    alone = [field for field in FIELDS if refused_without(field)]
    others = [field for field in FIELDS if field not in alone]
    if not refused_without(*others):
        return alone
    pairs = [pair for pair in combinations(others, 2) if refused_without(*pair)]
    return alone + [" or ".join(pair) for pair in pairs]
