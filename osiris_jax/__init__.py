"""Off-policy evaluation in JAX: importance sampling that omits the ratios that do not matter."""

from typing import TYPE_CHECKING, Any

from osiris_jax.batch import TrajectoryBatch, bucket_length, pad_to, pad_to_bucket, trim
from osiris_jax.behavior import fit_behavior
from osiris_jax.diagnostics import omission_diagnostics
from osiris_jax.envs import WORLDS, make
from osiris_jax.estimate import choose_level, estimate, relevance_pvalues
from osiris_jax.estimators import ESTIMATORS
from osiris_jax.evaluation import evaluate
from osiris_jax.intervals import INTERVALS, intervals
from osiris_jax.io import (
    LinearBins,
    from_arrays,
    from_dataframe,
    from_episodes,
    from_minari,
    from_scope_rl,
    load_log,
    read_log,
    with_policies,
    with_states,
)
from osiris_jax.relevance import RELEVANCE, THRESHOLDS, omit
from osiris_jax.selection import SELECTION

if TYPE_CHECKING:
    from osiris_jax.envs.gridworld import GridWorld
    from osiris_jax.envs.gymnax_world import GymnaxWorld
    from osiris_jax.envs.tabular import TabularWorld
    from osiris_jax.study import Study

__version__ = "0.1.0"

__all__ = [
    "ESTIMATORS",
    "INTERVALS",
    "RELEVANCE",
    "SELECTION",
    "THRESHOLDS",
    "WORLDS",
    "GridWorld",
    "GymnaxWorld",
    "LinearBins",
    "Study",
    "TabularWorld",
    "TrajectoryBatch",
    "bucket_length",
    "choose_level",
    "estimate",
    "evaluate",
    "fit_behavior",
    "from_arrays",
    "from_dataframe",
    "from_episodes",
    "from_minari",
    "from_scope_rl",
    "intervals",
    "load_log",
    "make",
    "omission_diagnostics",
    "omit",
    "pad_to",
    "pad_to_bucket",
    "read_log",
    "relevance_pvalues",
    "trim",
    "with_policies",
    "with_states",
]

_ON_FIRST_USE = {
    "GridWorld": "osiris_jax.envs.gridworld",
    "GymnaxWorld": "osiris_jax.envs.gymnax_world",
    "Study": "osiris_jax.study",
    "TabularWorld": "osiris_jax.envs.tabular",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_ON_FIRST_USE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
