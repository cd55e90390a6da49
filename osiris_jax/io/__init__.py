"""Ways in: logged data of several forms to a TrajectoryBatch, checked once, here."""

from osiris_jax.io.annotate import LinearBins, with_policies, with_states
from osiris_jax.io.arrays import from_arrays
from osiris_jax.io.episodes import from_episodes
from osiris_jax.io.table import from_dataframe

__all__ = [
    "LinearBins",
    "from_arrays",
    "from_dataframe",
    "from_episodes",
    "with_policies",
    "with_states",
]
