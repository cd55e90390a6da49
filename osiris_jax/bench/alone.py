"""One case in a process of its own: `python -m osiris_jax.bench.alone ORDER`, used by the suite.

Pinned before JAX starts, because XLA's flags for one thread do not keep a device from using two
cores.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys


def main(text: str) -> None:
    """Prints the row of the case that the order names, as JSON."""
    order = json.loads(text)
    cores, devices = order["place"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    from osiris_jax.bench.case import Settings
    from osiris_jax.bench.suite import GROUPS, row_of

    settings = Settings(**order["settings"])
    listed = GROUPS[order["group"]](settings)
    case = next(case for case in listed if case.name == order["name"])
    row = row_of(case._replace(place=None), settings, order["roof"])
    print(json.dumps(dataclasses.asdict(row)))


if __name__ == "__main__":
    main(sys.argv[1])
