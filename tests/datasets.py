"""Ragged data sets for tests, as lists of episodes."""

import gzip
import itertools
import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import osiris_jax as oj

GOLDEN = Path(__file__).parent / "golden"
NUM_STATES = 5
MAX_STEPS = 12
SIZES = (2, 6)
VARIANTS = {name: (name, {}) for name in oj.ESTIMATORS} | {
    "cwpdis-drop": ("cwpdis", {"finished": "drop"}),
    "cwpdis-share": ("cwpdis", {"finished": "share"}),
    "incris-of-mean": ("incris", {"variance": "of-mean"}),
}


def random_data(seed, size, *, max_steps=MAX_STEPS, coarse=False, zeros=0.0, spread=0.7, scale=1.0):
    """Random episodes. `coarse` makes ties and constant groups common; `zeros` is P(ratio = 0)."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(size):
        steps = rng.integers(1, max_steps + 1)
        reward = rng.normal(size=steps) * scale
        log_ratio = rng.normal(scale=spread, size=steps)
        if coarse:
            reward = np.round(reward / scale) * scale
            # no product of these is a ratio of small integers, or ties would hang on rounding
            log_ratio = rng.choice(np.log([0.23, 1.0, 1.47]), size=steps)
        log_ratio[rng.random(steps) < zeros] = -np.inf
        data.append(
            {
                "states": rng.integers(NUM_STATES, size=steps),
                "actions": rng.integers(3, size=steps),
                "rewards": reward,
                "log_ratio": log_ratio,
            }
        )
    return data


def ragged_data(**fixed):
    """Hypothesis: random episodes of few sizes, so that compilations are shared."""
    return st.builds(
        random_data,
        st.integers(0, 2**32 - 1),
        st.sampled_from(SIZES),
        coarse=st.booleans(),
        zeros=st.sampled_from([0.0, 0.0, 0.15]),
        scale=st.sampled_from([1.0, 1e3]),
        **fixed,
    )


def random_map(seed, shape=NUM_STATES):
    """A random map of kept states."""
    return np.random.default_rng(seed).random(shape) < 0.5


def golden():
    """Name -> (episodes, entry) of all golden data sets."""
    cases = {}
    for world, entries in _read("gridworlds").items():
        stream = next(e for e in entries if (e["trial"], e["n"]) == (0, 100))
        for entry in entries:
            first, size = entry["trial"], entry["n"]
            data = episodes(entry.get("batch", stream["batch"]))
            # trial k starts at trajectory k of one stream: the paper's trials overlap
            data = data if "batch" in entry else data[first : first + size]
            cases[f"{world}-{first}-{size}"] = (data, entry)
    for entry in _read("synthetic"):
        cases[f"synthetic-{entry['case']}"] = (episodes(entry["batch"]), entry)
    return cases


def _read(name):
    return json.loads(gzip.decompress((GOLDEN / f"{name}.json.gz").read_bytes()))


def episodes(flat):
    """Golden trajectories, one after another, as a list of episodes."""
    ends = np.cumsum([0, *flat["lengths"]])
    data = []
    for start, end in itertools.pairwise(ends):
        episode = {key: np.array(flat[key][start:end]) for key in ("states", "actions", "rewards")}
        data.append(episode | {"log_ratio": np.log(flat["rho"][start:end])})
    return data
