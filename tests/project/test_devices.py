"""Four devices of one process, of which one or all are used: the same numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import IN_A_HURRY

TESTS = Path(__file__).parents[1]
SCRIPT = """
import dataclasses, hashlib, json
import jax
jax.config.update("jax_num_cpu_devices", 4)
import numpy as np
from datasets import load, random_data
from small_world import lean_study
import osiris_jax as oj
from osiris_jax.paper.numbers import TABLES
from osiris_jax.paper.protocol import PUBLISHED
from osiris_jax.paper.run import Reproduction
from osiris_jax.study import mesh, run

every = jax.local_devices()
assert len(every) == 4
found = {}

study = dataclasses.replace(lean_study(), trials=1000, estimators=("wis", "mis", "osirwis"))
run.are_accelerators = lambda devices: True
mesh.SHARES_OF_LENGTHS = (0.3, 1.0)
for chunk, number in ((8, 4), (200, 1), (200, 4), (1000, 1), (1000, 4)):
    values = study.run(chunk_size=chunk, devices=every[:number]).store.values()
    found[f"study {chunk} {number}"] = hashlib.sha256(values.tobytes()).hexdigest()

batch = load(random_data(9, 7))
columns = [column for column in TABLES["table1"].computed if column.relevance != "nn-q"]
for number in (1, 4):
    jax.local_devices = lambda number=number: every[:number]
    for name in ("wis", "osirwis", "incris"):
        one = oj.intervals(batch, name, resamples=21)[name]
        found[f"{name} {number}"] = [*one.resampled.tolist(), *one.intervals["bca"]]
    plan = Reproduction(oj.make("express"), (PUBLISHED,), tuple(columns), 6, 4)
    found[f"reproduced {number}"] = plan.begin(np.arange(6))().ravel().tolist()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | IN_A_HURRY | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_neither_chunks_nor_devices_change_a_bit_of_a_study_on_accelerators(found):
    """Its branch, forced on CPU devices."""
    digests = {name: digest for name, digest in found.items() if name.startswith("study")}
    assert len(digests) == 5
    assert len({*digests.values()}) == 1, digests


@pytest.mark.parametrize("name", ["wis", "osirwis", "incris", "reproduced"])
def test_resamples_and_reproductions_are_divided_over_all_devices(found, name):
    one, four = (np.array(found[f"{name} {number}"], float) for number in (1, 4))
    assert np.ptp(one[np.isfinite(one)]) > 0
    np.testing.assert_allclose(four, one, rtol=1e-5, atol=1e-6)
