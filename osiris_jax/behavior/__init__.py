"""Missing propensities: the behaviour policy fitted to its own log, with its calibration."""

from osiris_jax.behavior.calibration import Calibration
from osiris_jax.behavior.fit import BehaviorFit, fit_behavior

__all__ = ["BehaviorFit", "Calibration", "fit_behavior"]
