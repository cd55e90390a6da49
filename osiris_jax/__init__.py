"""Off-policy evaluation in JAX: importance sampling that omits the ratios that do not matter.

Everything is imported on first use, so that `osiris-jax --help` need not wait for JAX.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osiris_jax.batch import TrajectoryBatch, bucket_length, pad_to, pad_to_bucket, trim
    from osiris_jax.behavior import fit_behavior
    from osiris_jax.diagnostics import omission_diagnostics
    from osiris_jax.envs import WORLDS, make
    from osiris_jax.envs.gridworld import GridWorld
    from osiris_jax.envs.gymnax_world import GymnaxWorld
    from osiris_jax.envs.tabular import TabularWorld
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
    from osiris_jax.join import concatenate
    from osiris_jax.relevance import RELEVANCE, THRESHOLDS, omit
    from osiris_jax.selection import SELECTION
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
    "concatenate",
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

_HOMES = {
    "batch": ("TrajectoryBatch", "bucket_length", "pad_to", "pad_to_bucket", "trim"),
    "behavior": ("fit_behavior",),
    "diagnostics": ("omission_diagnostics",),
    "envs": ("WORLDS", "make"),
    "envs.gridworld": ("GridWorld",),
    "envs.gymnax_world": ("GymnaxWorld",),
    "envs.tabular": ("TabularWorld",),
    "estimate": ("choose_level", "estimate", "relevance_pvalues"),
    "estimators": ("ESTIMATORS",),
    "evaluation": ("evaluate",),
    "intervals": ("INTERVALS", "intervals"),
    "io": (
        *("LinearBins", "from_arrays", "from_dataframe", "from_episodes", "from_minari"),
        *("from_scope_rl", "load_log", "read_log", "with_policies", "with_states"),
    ),
    "join": ("concatenate",),
    "relevance": ("RELEVANCE", "THRESHOLDS", "omit"),
    "selection": ("SELECTION",),
    "study": ("Study",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES and name not in _HOME_OF:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """Keeps `estimate` and `intervals` the functions, where Python would put their modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOME_OF.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
