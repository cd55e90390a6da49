"""Ways in: logged data of several forms to a TrajectoryBatch, checked once, here."""

from osiris_jax.data.annotate import LinearBins, with_policies, with_states
from osiris_jax.data.arrays import from_arrays
from osiris_jax.data.episodes import from_episodes
from osiris_jax.data.minari import from_minari
from osiris_jax.data.policy_files import load_policy
from osiris_jax.data.read import Log, load_log, read_log
from osiris_jax.data.scope_rl import from_scope_rl
from osiris_jax.data.table import from_dataframe

__all__ = [
    "LinearBins",
    "Log",
    "from_arrays",
    "from_dataframe",
    "from_episodes",
    "from_minari",
    "from_scope_rl",
    "load_log",
    "load_policy",
    "read_log",
    "with_policies",
    "with_states",
]
