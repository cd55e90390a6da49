"""What exact answers are: moments of an estimator, and the terms of its variance."""

from __future__ import annotations

from typing import Any, NamedTuple


class Moments(NamedTuple):
    """The sampling distribution of an estimator over data sets of n trajectories."""

    mean: Any
    bias: Any
    std: Any
    rmse: Any


class VarianceTerms(NamedTuple):
    """Theorem 1 of Shen et al. 2021: the variance of OSIRIS as a sum of terms.

    Attributes:
      importance_sampling: the variance of IS.
      centers: the squared mean of IS less that of OSIRIS, over n.
      omitted_variance: what the variance of the omitted ratios' product takes away; never above 0.
      covariance: minus the covariance of squared OSIRIS and squared omitted product, over n.
      variance: the variance of OSIRIS, computed on its own.
    """

    importance_sampling: Any
    centers: Any
    omitted_variance: Any
    covariance: Any
    variance: Any

    @property
    def total(self):
        """The sum of the terms, which the theorem says is the variance."""
        return self.importance_sampling + self.centers + self.omitted_variance + self.covariance
