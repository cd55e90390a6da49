"""Intervals: bootstrap over trajectories, Student's t, and bounds that hold always.

A resample is a vector of counts, one for each trajectory: estimators that are sums over
trajectories are computed from those (`forms`), Welch's test of relevance too (`welch`).
"""

from osiris_jax.inference.methods import INTERVALS, Interval, Sample
from osiris_jax.inference.run import Estimated, intervals

__all__ = ["INTERVALS", "Estimated", "Interval", "Sample", "intervals"]
