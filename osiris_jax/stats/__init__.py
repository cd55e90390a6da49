"""Statistics over masked segments: moments, and tests by Welch, Smirnov and outer quarters."""

from osiris_jax.stats.moments import (
    Moments,
    family_moments,
    from_segment_origin,
    leave_one_out,
    merge,
    segment_median,
    segment_moments,
)
from osiris_jax.stats.quarters import TIE, QuartersResult, quarters
from osiris_jax.stats.smirnov import SmirnovResult, segment_smirnov, smirnov
from osiris_jax.stats.welch import WelchResult, student_two_sided, welch, welch_from_moments

__all__ = [
    "TIE",
    "Moments",
    "QuartersResult",
    "SmirnovResult",
    "WelchResult",
    "family_moments",
    "from_segment_origin",
    "leave_one_out",
    "merge",
    "quarters",
    "segment_median",
    "segment_moments",
    "segment_smirnov",
    "smirnov",
    "student_two_sided",
    "welch",
    "welch_from_moments",
]
