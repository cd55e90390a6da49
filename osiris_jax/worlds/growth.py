"""How fast the second moment of importance weights grows with the horizon."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from osiris_jax.worlds.mdp import TabularDynamics


def spectral_radius(onward: sparse.csr_array, places: np.ndarray) -> float:
    """Of a matrix [state, state] among these places; 0 where none leads back to itself."""
    chosen = np.flatnonzero(places)
    among = sparse.csr_array(onward)[chosen][:, chosen].toarray()
    return float(np.abs(np.linalg.eigvals(among)).max(initial=0.0))


def reached(step: sparse.csr_array, dynamics: TabularDynamics) -> np.ndarray:
    """[state] where a chain can be before it ends, however long it lasts.

    Args:
      step: [state, state] positive where it can go.
    """
    places, before = np.zeros(len(dynamics.terminal), bool), 0
    places[dynamics.start[dynamics.start_probability > 0]] = True
    while places.sum() > before:
        before = places.sum()
        places = (places | (step.T @ places.astype(float) > 0)) & ~dynamics.terminal
    return places
