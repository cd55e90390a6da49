"""Relevance: which states' actions matter to the return, and the registry of tests.

Every test takes `(batch, **options)` and returns evidence: p-values, [state] or [traj, state],
small where a state is relevant; or, for those in `THRESHOLDS`, a statistic that is large there.
Evidence does not depend on the level, so one test serves a whole grid of levels. To add a test,
write the function and add its entry here.
"""

from osiris_jax.core.registry import Registry
from osiris_jax.relevance.entry import RelevanceTest, Thresholds
from osiris_jax.relevance.lagged import lagged_welch
from osiris_jax.relevance.neural import nn_q
from osiris_jax.relevance.omission import AtSteps, above, keep_steps, omit, relevant
from osiris_jax.relevance.tests import effect, oracle, smirnov, welch

RELEVANCE: Registry[RelevanceTest] = Registry(
    RelevanceTest,
    {
        "welch": RelevanceTest(welch, by_lag=lagged_welch),
        "smirnov": RelevanceTest(smirnov),
        "effect": RelevanceTest(effect, large_is_relevant=True, default_level=0.2),
        "nn-q": RelevanceTest(
            nn_q,
            large_is_relevant=True,
            default_level=0.4,
            reads=("reward", "mask", "state", "action"),
        ),
        "oracle": RelevanceTest(oracle, reads=("state",)),
    },
)
THRESHOLDS = Thresholds(RELEVANCE)

__all__ = [
    "RELEVANCE",
    "THRESHOLDS",
    "AtSteps",
    "RelevanceTest",
    "above",
    "keep_steps",
    "omit",
    "relevant",
]
