"""As many CPU devices as there are cores, for commands that divide their work over devices."""

from __future__ import annotations

import os
import sys

NUMBER_VARIABLE, FLAG = "JAX_NUM_CPU_DEVICES", "xla_force_host_platform_device_count"


def use_all_cores() -> None:
    """Divides the CPU into its cores, unless the user has divided it, or JAX has begun.

    One device leaves a core idle for much of the time. Accelerators are not concerned.
    """
    if "jax" not in sys.modules and FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ.setdefault(NUMBER_VARIABLE, str(cores()))


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
