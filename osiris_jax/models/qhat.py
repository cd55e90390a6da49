"""Q-hat: action values fitted to the data, or supplied, for the doubly robust estimators.

Every fit takes `(batch, *, discount, folds, ...)` and returns `StepValues`, or just its q and v. To
add one, write the function and add its line here.
"""

from __future__ import annotations

from typing import Any

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import watched
from osiris_jax.core.options import keywords
from osiris_jax.models.neural import neural
from osiris_jax.models.tabular import StepValues, supplied, tabular

QHAT = watched({"tabular": tabular, "nn-q": neural})


def step_values(
    batch: TrajectoryBatch,
    *,
    discount,
    q: Any = None,
    q_steps: Any = None,
    fit: str,
    **options: Any,
) -> StepValues:
    """Q-hat as supplied, or else fitted by `QHAT[fit]` with those of the options that it takes."""
    if q is not None or q_steps is not None:
        return supplied(batch, q=q, q_steps=q_steps)
    if fit not in QHAT:
        raise ValueError(f"fit: {fit!r} is unknown; there are {', '.join(QHAT)}")
    taken = {name: value for name, value in options.items() if name in keywords(QHAT[fit])}
    return StepValues(*QHAT[fit](batch, discount=discount, **taken))


__all__ = ["QHAT", "StepValues", "neural", "step_values", "supplied", "tabular"]
