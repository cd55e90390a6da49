"""Relevance: which states' actions matter to the return, and the registry of tests.

Every test takes `(batch, **options)` and returns evidence: p-values, [state] or [traj, state],
small where a state is relevant; or, for those in `THRESHOLDS`, a statistic that is large there.
Evidence does not depend on the level, so one test serves a whole grid of levels. To add a test,
write the function and add its line here.
"""

from osiris_jax.core.compiled import watched
from osiris_jax.relevance.lagged import RELEVANCE_BY_LAG
from osiris_jax.relevance.neural import nn_q
from osiris_jax.relevance.omission import (
    AtSteps,
    above,
    at_steps,
    composite,
    keep_steps,
    log_weights_of_levels,
    most_relevant,
    omit,
    relevant,
)
from osiris_jax.relevance.tests import effect, oracle, smirnov, welch

RELEVANCE = watched(
    {
        "welch": welch,
        "smirnov": smirnov,
        "effect": effect,
        "nn-q": nn_q,
        "oracle": oracle,
    }
)

THRESHOLDS = watched({"effect": 0.2, "nn-q": 0.4})

__all__ = [
    "RELEVANCE",
    "RELEVANCE_BY_LAG",
    "THRESHOLDS",
    "AtSteps",
    "above",
    "at_steps",
    "composite",
    "keep_steps",
    "log_weights_of_levels",
    "most_relevant",
    "omit",
    "relevant",
]
