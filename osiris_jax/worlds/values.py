"""What simulated episodes say of a policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.999)


class Value(NamedTuple):
    """A policy's value over simulated episodes, and how long they were."""

    mean: float
    standard_error: float
    episodes: int
    mean_length: float
    longest: int
    quantiles: dict[str, float]

    @classmethod
    def of(cls, returns: Any, lengths: Any) -> Value:
        returns, lengths = np.asarray(returns, np.float64), np.asarray(lengths)
        return cls(
            mean=float(returns.mean()),
            standard_error=float(returns.std(ddof=1) / np.sqrt(len(returns))),
            episodes=len(returns),
            mean_length=float(lengths.mean()),
            longest=int(lengths.max()),
            quantiles={str(p): float(np.quantile(lengths, p)) for p in QUANTILES},
        )
