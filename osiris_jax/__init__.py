"""Off-policy evaluation in JAX: importance sampling that omits the ratios that do not matter."""

from osiris_jax.batch import TrajectoryBatch, bucket_length, pad_to, pad_to_bucket, trim
from osiris_jax.estimate import estimate, relevance_pvalues
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.io import (
    LinearBins,
    from_arrays,
    from_dataframe,
    from_episodes,
    with_policies,
    with_states,
)
from osiris_jax.relevance import RELEVANCE, omit

__version__ = "0.1.0"

__all__ = [
    "ESTIMATORS",
    "RELEVANCE",
    "LinearBins",
    "TrajectoryBatch",
    "bucket_length",
    "estimate",
    "from_arrays",
    "from_dataframe",
    "from_episodes",
    "omit",
    "pad_to",
    "pad_to_bucket",
    "relevance_pvalues",
    "trim",
    "with_policies",
    "with_states",
]
