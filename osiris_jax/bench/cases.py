"""Cases that are functions of data at hand: a log, or many small data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import osiris_jax as oj
from osiris_jax.bench import data, rivals, roofline, scope_rl
from osiris_jax.bench.case import TOLERANCE, Case, Rival, Settings, Work

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
MANY_ALPHAS = tuple(round(0.05 * k, 2) for k in range(1, 21))
QUICK = ("wis", "mis")
ON_ONE_LOG = (*oj.ESTIMATORS, "osiris", "osirwis", "osiris-stepwise")
BY_LAG = ("stepwise", "stepwise-dr", "osiris-stepwise")
TESTS = ("welch", "smirnov", "effect", "nn-q")
GRIDWORLD = "dilly-dallying"
NUMPY, SCOPE_RL = "NumPy", "SCOPE-RL"
ASYMPTOTIC_ERROR = 1e-5  # of Smirnov's p-value in large groups, see `osiris_jax.stats`


def log_case(
    settings: Settings,
    group: str,
    name: str,
    function: Callable[[Any], Any],
    *,
    shape: tuple[int, int, int] | None = None,
    rival: Callable[[rivals.Log], Any] | None = None,
    fields: tuple[str, ...] | None = None,
    results: int = 1,
    tolerance: float = TOLERANCE,
    **given: Any,
) -> Case:
    """A compiled function of one log, with its NumPy form beside it."""
    trajectories, steps, states = shape or settings.log_shape

    def make() -> Work:
        batch = data.log(trajectories, steps, states, settings.dtype)
        compiled = jax.jit(function)
        beside = None
        if rival is not None:
            theirs = partial(rival, data.as_numpy(batch))
            beside = Rival(
                NUMPY, theirs, lambda: compiled(data.in_double(batch)), tolerance=tolerance
            )
        moved = None
        if fields is not None:
            cells = trajectories * steps
            sizes = {"results": results, "num_actions": data.ACTIONS}
            moved = partial(roofline.least_bytes, fields, cells, settings.itemsize, **sizes)
        return Work(compiled, (batch,), beside, moved)

    sizes = {"trajectories": trajectories, "steps": steps, "states": states}
    extra = given.pop("extra", {})
    return Case(group, name, sizes | extra, make, **given)


def estimator_of(name: str, alphas: Sequence[float] | None = None) -> Callable[[Any], Any]:
    def function(batch: Any) -> Any:
        level: dict[str, Any] = (
            {} if alphas is None else {"alpha": jnp.asarray(alphas, batch.dtype)}
        )
        return oj.estimate(batch, name, **level)

    return function


def osirwis_case(settings: Settings, group: str, alphas: Sequence[float], **given: Any) -> Case:
    """Relevance by Welch's test, and OSIRWIS at all these levels."""
    return log_case(
        settings,
        group,
        given.pop("name", f"welch + osirwis, {len(alphas)} alphas"),
        estimator_of("osirwis", alphas),
        fields=roofline.fields_of("osirwis"),
        results=len(alphas),
        extra={"alphas": len(alphas)},
        **given,
    )


def estimators(settings: Settings) -> list[Case]:
    """Each estimator on one log, and OSIRWIS at twenty levels."""
    cases = [
        log_case(
            settings,
            "estimators",
            name,
            estimator_of(name),
            rival=rivals.ESTIMATORS.get(name),
            fields=roofline.fields_of(name),
        )
        for name in settings.size(ON_ONE_LOG, QUICK)
    ]
    alphas = settings.size(MANY_ALPHAS, MANY_ALPHAS[-3:])
    omission = osirwis_case(
        settings, "estimators", alphas, rival=lambda log: rivals.osirwis(log, alphas)
    )
    return [*cases, omission]


def relevance(settings: Settings) -> list[Case]:
    """Each relevance test on one log."""
    named: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in TESTS}
    named |= {f"{name}, none": (name, {"weighting": "none"}) for name in TESTS[:2]}
    named["welch, leave one out"] = ("welch", {"leave_one_out": True})
    if settings.quick:
        named = {"welch": ("welch", {})}
    cases = []
    for label, (test, given) in named.items():
        rows = settings.log_shape[0] if "leave_one_out" in given else 1
        theirs = rivals.RELEVANCE.get(test) if rows == 1 else None
        cases.append(
            log_case(
                settings,
                "relevance",
                label,
                partial(oj.relevance_pvalues, test=test, **given),
                rival=theirs and partial(theirs, **given),
                tolerance=ASYMPTOTIC_ERROR if test == "smirnov" else TOLERANCE,
                fields=roofline.READS[test],
                results=rows * settings.log_shape[2],
            )
        )
    return cases


def datasets(settings: Settings) -> list[Case]:
    """Each estimator and test over many data sets of the gridworld at once, by vmap."""
    names = [*oj.ESTIMATORS, "osiris-stepwise"]
    functions = {name: estimator_of(name) for name in names}
    functions |= {test: partial(oj.relevance_pvalues, test=test) for test in TESTS[:2]}
    functions["welch + osirwis, 5 alphas"] = estimator_of("osirwis", ALPHAS)
    chosen = settings.size(list(functions), QUICK[:1])
    return [_vmapped(settings, name, functions[name]) for name in chosen]


def _vmapped(settings: Settings, name: str, function: Callable[[Any], Any]) -> Case:
    trials = settings.size(100 if name in BY_LAG else 1000, 4)
    world = oj.make(GRIDWORLD)
    fields = roofline.READS.get(name) or roofline.fields_of("osirwis" if "+" in name else name)
    results = {"welch + osirwis, 5 alphas": len(ALPHAS)} | dict.fromkeys(TESTS, world.num_states)

    def make() -> Work:
        keys = jax.random.split(jax.random.key(0), trials)
        batches = world.rollout(keys, world.size, probs="target_probs" in fields)
        moved = partial(
            roofline.least_bytes,
            fields,
            batches.mask.size,
            settings.itemsize,
            results=trials * results.get(name, 1),
            num_actions=world.num_actions,
        )
        return Work(jax.jit(jax.vmap(function)), (batches,), moved=moved)

    sizes = {"trials": trials, "trajectories": world.size, "steps": world.horizon}
    return Case("datasets", name, sizes | {"states": world.num_states}, make, trials=trials)


def intervals(settings: Settings) -> list[Case]:
    """The bootstrap, which finds relevance anew in every resample."""
    trajectories, steps, states = settings.log_shape
    resamples = settings.size(1000, 20)

    def make(name: str) -> Work:
        batch = data.log(trajectories, steps, states, settings.dtype)
        given = {"methods": "percentile", "resamples": resamples}
        return Work(partial(oj.intervals, batch, (name,), **given))

    shape = {"trajectories": trajectories, "steps": steps, "states": states}
    shape["resamples"] = resamples
    return [
        Case("intervals", f"bootstrap of {name}", shape, partial(make, name))
        for name in settings.size(("wis", "osirwis"), ("wis",))
    ]


def beside_scope_rl(settings: Settings) -> list[Case]:
    """The estimators that SCOPE-RL has too, on the same log; none where it is not installed."""
    if not scope_rl.installed():
        return []
    return [_beside_scope_rl(settings, name) for name in scope_rl.THEIRS]


def _beside_scope_rl(settings: Settings, name: str) -> Case:
    case = log_case(settings, "scope-rl", name, estimator_of(name), fields=roofline.fields_of(name))

    def make() -> Work:
        theirs = scope_rl.estimator(name)
        given = scope_rl.arguments(*scope_rl.dictionaries(*settings.log_shape))
        work = case.make()
        return work._replace(
            rival=Rival(
                SCOPE_RL,
                lambda: theirs.estimate_policy_value(**given),
                lambda: work.function(data.log(*settings.log_shape, "float64")),
            )
        )

    return case._replace(make=make)
