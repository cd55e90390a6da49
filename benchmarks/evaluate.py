"""`osiris-jax evaluate` on 1,000,000 rows of Parquet: 20,000 ragged episodes, 100 states.

    python benchmarks/evaluate.py [--resamples 1000] [--folder runs/large]

Makes the log, runs the command in a process of its own, from the file to the report, and prints
the seconds and the peak of memory of that process, compilation included.
"""

import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import typer
from workbench import SIX, large_log, machine, timed


def main(resamples: int = 1000, folder: Path = Path("runs/large")):
    """Prints what the command prints, then seconds and memory."""
    log = folder / "log.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    large_log().to_parquet(log)
    print(f"{log}: {log.stat().st_size / 2**20:.0f} MB, {machine()}", flush=True)
    command = [sys.executable, "-m", "osiris_jax.cli", "evaluate", str(log)]
    command += ["--estimators", ",".join(SIX), "--resamples", str(resamples)]
    command += ["--out", str(folder / "out")]
    _, seconds = timed(partial(subprocess.run, command, check=True))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, cpu = used.ru_maxrss / 2**20, used.ru_utime + used.ru_stime
    print(f"{seconds:.1f} s ({cpu:.1f} s of processor time), {peak:.2f} GB at most")


if __name__ == "__main__":
    typer.run(main)
