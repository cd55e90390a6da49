"""One computation on different platforms, and over many devices.

A form for a platform is chosen when a program is lowered for one: what is lowered for a TPU on a
machine without one is what would be lowered with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

GPUS = ("cuda", "rocm")
GPU_STEPS = 16
ASSUMED: str | None = None  # for tests, which run on a CPU what is for other platforms
AXIS = "trials"
EACH, ALL = P(AXIS), P()


def by_platform(
    *operands: Any,
    default: Callable[..., Any],
    tpu: Callable[..., Any] | None = None,
    gpu: Callable[..., Any] | None = None,
) -> Any:
    """The form for the platform that the program is for, of the operands."""
    forms = {} if tpu is None else {"tpu": tpu}
    forms |= {} if gpu is None else dict.fromkeys(GPUS, gpu)
    if ASSUMED is not None:
        return forms.get(ASSUMED, default)(*operands)
    return lax.platform_dependent(*operands, default=default, **forms)


def scan(step: Callable[..., Any], start: Any, inputs: Any, *, reverse: bool = False) -> Any:
    """`lax.scan`; several steps at a time on a GPU, where a step takes less than starting it."""
    traced_once = jax.jit(step, inline=True)

    def unrolled(turns: int) -> Callable[..., Any]:
        return lambda *trees: lax.scan(traced_once, *trees, reverse=reverse, unroll=turns)

    return by_platform(start, inputs, default=unrolled(1), gpu=unrolled(GPU_STEPS))


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """The devices in a row, over which trials or resamples are divided."""
    return Mesh(np.array(devices), (AXIS,))


def everywhere(mesh: Mesh | None, tree: Any) -> Any:
    """The tree on every device of the mesh; as it is without one."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, ALL))


def over_devices(
    function: Callable[..., Any], mesh: Mesh | None, common: tuple[Any, ...], *own: Any
) -> Any:
    """`function(*common, *own)`, each device of the mesh with its part of `own`'s leading axis.

    No device waits for another; without a mesh it is the plain call.
    """
    if mesh is None:
        return function(*common, *own)

    def of_device(common: tuple[Any, ...], own: tuple[Any, ...]) -> Any:
        return function(*common, *own)

    divided = jax.shard_map(
        of_device, mesh=mesh, in_specs=(ALL, EACH), out_specs=EACH, check_vma=False
    )
    return divided(common, own)
