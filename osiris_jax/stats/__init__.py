"""Statistics over masked segments: moments, Welch's test, Student's tail, Smirnov's test."""

from osiris_jax.stats.moments import (
    Moments,
    family_moments,
    from_segment_origin,
    leave_one_out,
    merge,
    segment_median,
    segment_moments,
)
from osiris_jax.stats.smirnov import SmirnovResult, segment_smirnov, smirnov
from osiris_jax.stats.welch import WelchResult, student_two_sided, welch, welch_from_moments

__all__ = [
    "Moments",
    "SmirnovResult",
    "WelchResult",
    "family_moments",
    "from_segment_origin",
    "leave_one_out",
    "merge",
    "segment_median",
    "segment_moments",
    "segment_smirnov",
    "smirnov",
    "student_two_sided",
    "welch",
    "welch_from_moments",
]
