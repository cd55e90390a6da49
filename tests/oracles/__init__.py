"""Slow, plain oracles, written straight from the definitions, a module or two for each room.

A data set is a list of trajectories; a trajectory is a dict of 1-D arrays `states`, `actions`,
`rewards` and `log_ratio` (which may hold -inf). Arithmetic is in long double, estimates are Python
floats, NaN where a normaliser is empty. Nothing here imports the library under test.
"""

from oracles.core import LD, horizon, ratios, returns, returns_to_go
from oracles.estimators import (
    ESTIMATORS,
    incris_scores,
    is_,
    marginalised,
    mc,
    mis,
    pdis,
    phwis,
    pick,
    window_scores,
    wis,
)
from oracles.relevance import (
    at_steps,
    by_fold,
    keep_map,
    most_relevant,
    omit,
    omit_steps,
    pvalues,
    samples,
)
from oracles.stats import smirnov, two_sample
