"""What the compilers of TPUs and GPUs make of the kernels; no such device is needed, or used.

Every estimator, every relevance test and the whole step of a study are compiled ahead of time for a
TPU v5e or an NVIDIA H100. What the compiler says of each is written as JSON and as a table.

Run: python benchmarks/accelerators.py --platform tpu --out FOLDER
     python benchmarks/accelerators.py --platform cuda --only welch,dm --trials 4096 --out FOLDER
     python benchmarks/accelerators.py --platform tpu --only study --hlo FOLDER --out FOLDER
Needs the extra of the platform: pip install -e ".[tpu]" or ".[cuda]". It takes some minutes of
processor time for all.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"  # before JAX is imported: nothing runs on a device

import jax
import numpy as np
import typer
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import osiris_jax as oj
from osiris_jax.core.faces import markdown, to_json
from osiris_jax.core.files import write_text
from osiris_jax.core.platforms import mesh_of
from osiris_jax.study.mesh import program_of

TRAJECTORIES, STEPS, STATES, ACTIONS = 25, 100, 98, 4  # Dilly-Dallying's, at its usual size
FEW_TRIALS, STUDY_TRIALS, CHIPS = 256, 1024, 4
LEVELS = (0.05, 0.1, 0.2, 0.5, 1.0)
SETTINGS = {
    "tpu": {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    },
    "cuda": {"CUDA_VISIBLE_DEVICES": "-1"},
}
# what NVIDIA says of the H100 (SXM), in the words of XLA's description of a GPU
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132  fpus_per_core: 128  clock_rate_ghz: 1.98
  threads_per_warp: 32  threads_per_block_limit: 1024  threads_per_core_limit: 2048
  shared_memory_per_block: 49152  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_core_limit: 65536  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647  block_dim_limit_y: 65535  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
  memory_bandwidth: 3352320000000  l2_cache_size: 52428800  device_memory_size: 84942979072
  device_address_bits: 64  name: "NVIDIA H100 80GB HBM3"  device_vendor: "NVIDIA Corporation"
  driver_version: "13.0.0"  runtime_version: "12.8.0"  compile_time_toolkit_version: "12.8.0"
  dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
NO_KERNEL |= {"partition-id", "replica-id", "opt-barrier", "copy-done", "async-done", "domain"}
COLLECTIVE = re.compile(
    r"\b(all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
    r"|send|recv)(-start)?\("
)
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = .*?[\])}] ([a-z][\w-]*)\(")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{\s*$")


class Row(NamedTuple):
    """What a compiler says of one program; None for what it does not say."""

    name: str
    dtype: str
    trials: int
    platform: str
    ok: bool
    error: str | None = None
    compile_seconds: float | None = None
    temp_bytes: int | None = None
    scatters: int | None = None
    sorts: int | None = None
    loops: int | None = None
    kernels: int | None = None
    collectives: int | None = None
    estimated_cycles: int | None = None


class Hlo:
    """A compiled program, read."""

    def __init__(self, text: str):
        self.computations: dict[str, list[str]] = {}
        name = self.entry = ""
        for line in text.splitlines():
            if begins := COMPUTATION.match(line):
                name = begins[2]
                self.computations[name] = []
                self.entry = name if begins[1] else self.entry
            elif name:
                self.computations[name].append(line)

    def count(self, operation: str) -> int:
        """How often an operation stands in the program, inside of fusions too."""
        every = (line for lines in self.computations.values() for line in lines)
        return sum((found := INSTRUCTION.match(line)) is not None and found[1] == operation
                   for line in every)  # fmt: skip

    @property
    def collectives(self) -> int:
        every = (line for lines in self.computations.values() for line in lines)
        return sum(COLLECTIVE.search(line) is not None for line in every)

    def of_call(self, weigh: Callable[[str, str], int], name: str = "") -> int:
        """The sum over what one call runs; a loop of unknown length is counted once."""
        total = 0
        for line in self.computations[name or self.entry]:
            found = INSTRUCTION.match(line)
            if found is None:
                continue
            times, inside = 1, []
            if found[1] == "while":
                turns = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
                times = int(turns[1]) if turns else 1
                inside = re.findall(r"(?:body|condition)=%?([\w.-]+)", line)
            elif found[1] in ("call", "conditional", "async-start"):
                inside = re.findall(r"(?:to_apply|calls|_computation)=%?([\w.-]+)", line)
                branches = re.findall(r"branch_computations=\{(.*?)\}", line)
                inside += re.findall(r"%([\w.-]+)", "".join(branches))
            if inside:
                total += times * sum(self.of_call(weigh, one) for one in inside)
            else:
                total += weigh(found[1], line)
        return total

    @property
    def kernels(self) -> int:
        return self.of_call(lambda operation, _: operation not in NO_KERNEL)

    @property
    def cycles(self) -> int:
        def of(_: str, line: str) -> int:
            found = re.search(r'estimated_cycles":"(\d+)"', line)
            return int(found[1]) if found else 0

        return self.of_call(of)


def devices_of(platform: str) -> Any:
    """Four chips that are not there."""
    os.environ |= SETTINGS[platform]
    try:
        if platform == "tpu":
            return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
        described = {"target_config": H100, "topology": f"1x1x{CHIPS}"}
        return topologies.get_topology_desc(platform="cuda", **described).devices
    except Exception as error:  # whatever a plugin that is missing or of another version raises
        problem = str(error).partition("\n")[0]
        raise SystemExit(
            f'{platform}: its compiler is not installed (pip install "osiris-jax[{platform}]"); '
            f"it says: {problem}"
        ) from None


def placed(tree: Any, sharding: NamedSharding) -> Any:
    """The shapes and types of a tree, as arrays on devices that are not there."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def batch_of(trials: int, dtype: str) -> oj.TrajectoryBatch:
    """The shapes of data sets of Dilly-Dallying."""
    shape, real = (trials, TRAJECTORIES, STEPS), np.dtype(dtype)

    def of(kind: Any, *more: int) -> Any:
        return jax.ShapeDtypeStruct((*shape, *more), kind)

    return jax.eval_shape(
        lambda *fields: oj.TrajectoryBatch(*fields, num_states=STATES, num_actions=ACTIONS),
        *(of(real), of(bool), of(real), of(np.int32), of(np.int32)),
    ).replace(target_probs=of(real, ACTIONS), behavior_probs=of(real, ACTIONS))


def of_estimator(name: str, batch: oj.TrajectoryBatch) -> Any:
    return oj.ESTIMATORS[name](batch, batch.log_ratio, discount=1.0)


def of_test(name: str, batch: oj.TrajectoryBatch) -> Any:
    own = {"keep": np.arange(STATES) % 2 == 0} if name == "oracle" else {}
    return oj.RELEVANCE[name](batch, **own)


KERNELS = {name: partial(of_estimator, name) for name in oj.ESTIMATORS}
KERNELS |= {name: partial(of_test, name) for name in oj.RELEVANCE}
STUDIES = {"study": 1, "study-4": CHIPS}


def compiled_kernel(name: str, dtype: str, trials: int, devices: Any) -> Any:
    """An estimator or a test of so many data sets, for the first chip."""
    mesh = mesh_of(devices[:1])
    batch = placed(batch_of(trials, dtype), NamedSharding(mesh, P()))
    return jax.jit(jax.vmap(KERNELS[name])).lower(batch).compile()


def compiled_study(name: str, dtype: str, trials: int, devices: Any) -> Any:
    """The whole step of a study, as `Study.run` calls it, over all chips of the name."""
    study = oj.Study(
        world="dilly-dallying",
        trials=100_000,
        sizes=(TRAJECTORIES,),
        alphas=LEVELS,
        estimators=("is", "wis", "phwis", "incris", "mis", "osiris", "osirwis"),
        dtype=dtype,
    )
    mesh = mesh_of(devices[: STUDIES[name]])
    return program_of(study, mesh, trials // mesh.size).executable


def compiled_row(
    name: str, dtype: str, trials: int, platform: str, devices: Any, hlo: Path | None = None
) -> Row:
    """Compiles one program and reads what came out; keeps it as text in a folder, if asked for."""
    compiling = compiled_study if name in STUDIES else compiled_kernel
    start = time.process_time()
    try:
        with jax.enable_x64(dtype == "float64"):
            compiled = compiling(name, dtype, trials, devices)
    except Exception as error:  # whatever a compiler raises is what the row is about
        told = str(error).strip().partition("\n")[0][:300]
        return Row(name, dtype, trials, platform, False, told or type(error).__name__)
    seconds, text = time.process_time() - start, compiled.as_text()
    program = Hlo(text)
    if hlo is not None:
        write_text(hlo / f"{platform}-{name}-{dtype}-{trials}.txt", text)
    memory = compiled.memory_analysis()
    return Row(
        name,
        dtype,
        trials,
        platform,
        True,
        compile_seconds=round(seconds, 1),
        temp_bytes=None if memory is None else int(memory.temp_size_in_bytes),
        scatters=program.count("scatter"),
        sorts=program.count("sort"),
        loops=program.count("while"),
        kernels=program.kernels if platform == "cuda" else None,
        collectives=program.collectives,
        estimated_cycles=program.cycles if platform == "tpu" else None,
    )


def table_of(rows: list[Row], platform: str) -> str:
    """The rows as Markdown."""
    kind = {"tpu": "a TPU v5e", "cuda": "an NVIDIA H100"}[platform]
    header = [field.replace("_", " ") for field in Row._fields]
    lines = [["" if x is None else f"{x:,}" if isinstance(x, int) and not isinstance(x, bool)
              else str(x) for x in row] for row in rows]  # fmt: skip
    told = f"Compiled ahead of time for {kind} by jax {jax.__version__}; nothing was run on one."
    return f"# Programs for {kind}\n\n{told}\n\n{markdown(header, lines)}\n"


def wanted(only: str | None, dtype: str | None) -> Iterator[tuple[str, str]]:
    """(name, type) of the rows."""
    names = [*KERNELS, *STUDIES] if only is None else [x.strip() for x in only.split(",")]
    for name in names:
        if name not in KERNELS and name not in STUDIES:
            known = ", ".join([*KERNELS, *STUDIES])
            raise SystemExit(f"only: {name!r} is not one of {known}")
        of_name = ("float32",) if name in STUDIES else ("float32", "float64")
        for one in of_name if dtype is None else (dtype,):
            yield name, one


def main(
    platform: Annotated[str, typer.Option(help="tpu or cuda")],
    out: Annotated[Path, typer.Option(help="folder for accelerators.json and accelerators.md")],
    only: Annotated[str | None, typer.Option(help="names of rows, separated by commas")] = None,
    trials: Annotated[int | None, typer.Option(help="data sets in a call, of all rows")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float64; by default both")] = None,
    hlo: Annotated[Path | None, typer.Option(help="folder for the programs as text")] = None,
) -> None:
    """Compiles the kernels for an accelerator that is not there, and says what came out."""
    if platform not in SETTINGS:
        raise SystemExit(f"platform: {platform!r} is not one of {', '.join(SETTINGS)}")
    chosen = list(wanted(only, dtype))
    devices, rows = devices_of(platform), []
    for name, one in chosen:
        number = trials or (STUDY_TRIALS if name in STUDIES else FEW_TRIALS)
        rows.append(compiled_row(name, one, number, platform, devices, hlo))
        row = rows[-1]
        said = row.error or (
            f"{row.compile_seconds} s, {(row.temp_bytes or 0) / 1e6:.1f} MB, "
            f"scatters {row.scatters}, sorts {row.sorts}, loops {row.loops}, "
            f"kernels {row.kernels}, collectives {row.collectives}, cycles {row.estimated_cycles}"
        )
        print(f"{name} {one} {number}: {said}", flush=True)
        write_text(out / "accelerators.json", to_json([row._asdict() for row in rows]))
        write_text(out / "accelerators.md", table_of(rows, platform))


if __name__ == "__main__":
    typer.run(main)
