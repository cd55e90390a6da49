"""Cases that are functions of data at hand: kernels on one log, or on many small data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

import osiris_jax as oj
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.bench import data, rivals, scope_rl
from osiris_jax.bench.case import TOLERANCE, Case, Rival, Settings, Work
from osiris_jax.bench.roofline import fields_of, least_bytes

ALPHAS = (0.05, 0.1, 0.25, 0.5, 1.0)
MANY_ALPHAS = tuple(round(0.05 * k, 2) for k in range(1, 21))
ON_ONE_LOG = (*oj.ESTIMATORS, "osiris", "osirwis", "osiris-stepwise")
BY_LAG = (*(name for name, entry in oj.ESTIMATORS.items() if entry.by_lag), "osiris-stepwise")
TESTS = ("welch", "smirnov", "effect", "nn-q")
GRIDWORLD = "dilly-dallying"
NUMPY, SCOPE_RL = "NumPy", "SCOPE-RL"
ASYMPTOTIC_ERROR = 1e-5  # of Smirnov's p-value in large groups, see `osiris_jax.stats`


class Kernel(NamedTuple):
    """A function of one data set.

    Attributes:
      fields: of the batch that it cannot do without.
      rival: the same from NumPy arrays.
      library: of the rival.
      tolerance: by how much the rival may differ.
      alphas: number of levels; 0 where nothing is said of it.
    """

    name: str
    function: Callable[[TrajectoryBatch], Array]
    fields: tuple[str, ...]
    rival: Callable[[rivals.Log], Any] | None = None
    library: str = NUMPY
    tolerance: float = TOLERANCE
    alphas: int = 0


def estimator(name: str) -> Kernel:
    """An estimator, its relevance test included if it omits."""
    function = partial(oj.estimate, estimator=name)
    return Kernel(name, function, fields_of(name), rivals.ESTIMATORS.get(name))


def osirwis(alphas: Sequence[float], name: str | None = None) -> Kernel:
    """Relevance by Welch's test, and OSIRWIS at all these levels."""

    def function(batch: TrajectoryBatch) -> Array:
        return oj.estimate(batch, "osirwis", alpha=jnp.asarray(alphas, batch.dtype))

    return Kernel(
        name or f"welch + osirwis, {len(alphas)} alphas",
        function,
        fields_of("osirwis"),
        lambda log: rivals.pipeline(log, ("osirwis",), alphas),
        alphas=len(alphas),
    )


def relevance_test(test: str, label: str = "", **options: Any) -> Kernel:
    """A test of relevance, with options that its rival takes too."""
    rival = rivals.RELEVANCE.get(test)
    return Kernel(
        test + label,
        partial(oj.relevance_pvalues, test=test, **options),
        fields_of(test),
        rival and partial(rival, **options),
        tolerance=ASYMPTOTIC_ERROR if test == "smirnov" else TOLERANCE,
    )


def on_log(
    settings: Settings,
    group: str,
    kernel: Kernel,
    shape: tuple[int, int, int] | None = None,
    axis: str | None = None,
) -> Case:
    """The kernel compiled, on one log, with its rival beside it."""
    sizes = shape or settings.log_shape

    def make() -> Work:
        batch, compiled = data.log(*sizes), jax.jit(kernel.function)
        beside = None
        if kernel.rival is not None:
            with jax.enable_x64(True):
                same = data.log(*sizes)
            theirs = partial(kernel.rival, data.as_numpy(same))
            ours = partial(compiled, same)
            beside = Rival(kernel.library, theirs, ours, tolerance=kernel.tolerance)
        return Work(partial(compiled, batch), beside, _moved(kernel.fields, compiled, batch))

    named = log_sizes(sizes) | ({"alphas": kernel.alphas} if kernel.alphas else {})
    return Case(group, kernel.name, named, make, axis=axis)


def log_sizes(shape: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("trajectories", "steps", "states"), shape, strict=True))


def _moved(
    fields: tuple[str, ...], function: Callable[..., Any], batch: TrajectoryBatch
) -> Callable[[], int]:
    return lambda: least_bytes(fields, batch, jax.eval_shape(function, batch))


def on_datasets(settings: Settings, kernel: Kernel) -> Case:
    """The kernel over many data sets of the gridworld at once, by vmap."""
    trials = settings.size(100 if kernel.name in BY_LAG else 1000, 4)
    world = oj.make(GRIDWORLD)

    def make() -> Work:
        keys = jax.random.split(jax.random.key(0), trials)
        batches = world.rollout(keys, world.size, probs="target_probs" in kernel.fields)
        compiled = jax.jit(jax.vmap(kernel.function))
        return Work(partial(compiled, batches), moved=_moved(kernel.fields, compiled, batches))

    sizes = log_sizes((world.size, world.horizon, world.num_states))
    return Case("datasets", kernel.name, {"trials": trials} | sizes, make)


def estimators(settings: Settings) -> list[Case]:
    """Each estimator on one log, and OSIRWIS at twenty levels."""
    kernels = [estimator(name) for name in settings.size(ON_ONE_LOG, ("wis", "mis"))]
    kernels.append(osirwis(settings.size(MANY_ALPHAS, MANY_ALPHAS[-3:])))
    return [on_log(settings, "estimators", kernel) for kernel in kernels]


def relevance(settings: Settings) -> list[Case]:
    """Each relevance test on one log."""
    kernels = [relevance_test(name) for name in TESTS]
    kernels += [relevance_test(name, ", none", weighting="none") for name in TESTS[:2]]
    alone = relevance_test("welch", ", leave one out", leave_one_out=True)
    kernels.append(alone._replace(rival=None))
    return [on_log(settings, "relevance", one) for one in settings.size(kernels, kernels[:1])]


def datasets(settings: Settings) -> list[Case]:
    """Each estimator and test over many data sets."""
    kernels = [estimator(name) for name in (*oj.ESTIMATORS, "osiris-stepwise")]
    kernels += [*map(relevance_test, TESTS[:2]), osirwis(ALPHAS)]
    return [on_datasets(settings, one) for one in settings.size(kernels, [estimator("wis")])]


def beside_scope_rl(settings: Settings) -> list[Case]:
    """The estimators that SCOPE-RL has too, on the same log; none where it is not installed."""
    if not scope_rl.installed():
        return []
    return [
        on_log(settings, "scope-rl", estimator(name)._replace(rival=rival, library=SCOPE_RL))
        for name, rival in scope_rl.rivals(*settings.log_shape).items()
    ]


def intervals(settings: Settings) -> list[Case]:
    """The bootstrap, which finds relevance anew in every resample."""
    resamples = settings.size(1000, 20)

    def make(name: str) -> Work:
        given = {"methods": "percentile", "resamples": resamples}
        return Work(partial(oj.intervals, data.log(*settings.log_shape), (name,), **given))

    shape = log_sizes(settings.log_shape) | {"resamples": resamples}
    return [
        Case("intervals", f"bootstrap of {name}", shape, partial(make, name))
        for name in settings.size(("wis", "osirwis"), ("wis",))
    ]
