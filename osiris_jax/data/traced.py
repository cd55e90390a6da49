"""What checks values cannot be traced: said clearly, with the cure."""

from __future__ import annotations

from typing import Any

from jax.core import Tracer


def refuse_traced(function: str, **fields: Any) -> None:
    """Raises a ValueError for the first field that jit, vmap or grad is tracing."""
    for name, value in fields.items():
        if isinstance(value, Tracer):
            raise ValueError(
                f"{name}: is being traced by jit, vmap or grad, and {function} checks values; call "
                f"it outside, or build the batch inside by TrajectoryBatch(...), which checks none"
            )
