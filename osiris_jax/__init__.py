"""Off-policy evaluation in JAX: importance sampling that omits the ratios that do not matter.

Everything is imported on first use, so that `osiris-jax --help` need not wait for JAX.
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from osiris_jax.batch import TrajectoryBatch, bucket_length, pad_to, pad_to_bucket, trim
    from osiris_jax.core.compilations import keep_compilations
    from osiris_jax.data import (
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
    from osiris_jax.data.join import concatenate
    from osiris_jax.estimators import ESTIMATORS
    from osiris_jax.evaluation import choose, evaluate
    from osiris_jax.inference import INTERVALS, intervals
    from osiris_jax.inference.diagnostics import omission_diagnostics
    from osiris_jax.models.behavior import fit_behavior
    from osiris_jax.pipeline.estimate import choose_level, estimate, relevance_pvalues
    from osiris_jax.pipeline.markov import markov_check
    from osiris_jax.pipeline.selection import SELECTION
    from osiris_jax.relevance import RELEVANCE, THRESHOLDS, omit
    from osiris_jax.study import Arena, Study
    from osiris_jax.worlds import WORLDS, make
    from osiris_jax.worlds.gridworld import GridWorld
    from osiris_jax.worlds.gymnax_world import GymnaxWorld
    from osiris_jax.worlds.tabular import TabularWorld

__version__ = "0.1.0"

__all__ = [
    "ESTIMATORS",
    "INTERVALS",
    "RELEVANCE",
    "SELECTION",
    "THRESHOLDS",
    "WORLDS",
    "Arena",
    "GridWorld",
    "GymnaxWorld",
    "LinearBins",
    "Study",
    "TabularWorld",
    "TrajectoryBatch",
    "bucket_length",
    "choose",
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
    "keep_compilations",
    "load_log",
    "make",
    "markov_check",
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
    "core.compilations": ("keep_compilations",),
    "models.behavior": ("fit_behavior",),
    "inference.diagnostics": ("omission_diagnostics",),
    "worlds": ("WORLDS", "make"),
    "worlds.gridworld": ("GridWorld",),
    "worlds.gymnax_world": ("GymnaxWorld",),
    "worlds.tabular": ("TabularWorld",),
    "pipeline.estimate": ("choose_level", "estimate", "relevance_pvalues"),
    "pipeline.markov": ("markov_check",),
    "estimators": ("ESTIMATORS",),
    "evaluation": ("choose", "evaluate"),
    "inference": ("INTERVALS", "intervals"),
    "data": (
        *("LinearBins", "from_arrays", "from_dataframe", "from_episodes", "from_minari"),
        *("from_scope_rl", "load_log", "read_log", "with_policies", "with_states"),
    ),
    "data.join": ("concatenate",),
    "relevance": ("RELEVANCE", "THRESHOLDS", "omit"),
    "pipeline.selection": ("SELECTION",),
    "study": ("Arena", "Study"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("data", "estimators", "evaluation", "inference", "relevance", "study", "worlds")
# names of modules that 0.1.0 documented, and where they stand now
_MOVED = {
    f"{__name__}.policies": "osiris_jax.data.policies",
    f"{__name__}.propensities": "osiris_jax.inference.propensities",
    f"{__name__}.weights": "osiris_jax.inference.weights",
}


class _Moved(MetaPathFinder, Loader):
    """Imports a module that has moved under its old name: the same module, not a second one."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in _MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_MOVED[module.__name__])


sys.meta_path.append(_Moved())


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in _MOVED:
        return import_module(f"{__name__}.{name}")
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
