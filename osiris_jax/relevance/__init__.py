"""Relevance: which states' actions matter to the return, and the registry of tests.

Every test takes `(batch, **options)` and returns p-values, [state] or [traj, state]. Small means
relevant; p-values do not depend on alpha, so one test serves a whole grid of levels. To add a
test, write the function and add its line here.
"""

from osiris_jax.relevance.omission import keep_steps, omit, relevant
from osiris_jax.relevance.tests import oracle, smirnov, welch

RELEVANCE = {
    "welch": welch,
    "smirnov": smirnov,
    "oracle": oracle,
}

__all__ = ["RELEVANCE", "keep_steps", "omit", "relevant"]
