"""Ragged data sets for tests, as lists of episodes."""

import gzip
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.core.options import keywords

GOLDEN = Path(__file__).parent / "golden"
NUM_STATES = 5
NUM_ACTIONS = 3
MAX_STEPS = 12
SIZES = (2, 6)
CLIP = 1.5
VARIANTS = {name: (name, {}) for name in oj.ESTIMATORS}
VARIANTS |= {
    f"{name}-clip": (name, {"clip": CLIP})
    for name, function in oj.ESTIMATORS.items()
    if "clip" in keywords(function)
}
VARIANTS |= {
    "cwpdis-drop": ("cwpdis", {"finished": "drop"}),
    "cwpdis-share": ("cwpdis", {"finished": "share"}),
    "incris-of-mean": ("incris", {"variance": "of-mean"}),
    "stepwise-weighted": ("stepwise", {"weighted": True}),
}


def random_data(seed, size, *, max_steps=MAX_STEPS, coarse=False, zeros=0.0, spread=0.7, scale=1.0):
    """Random episodes. `coarse` makes ties and constant groups common; `zeros` is P(ratio = 0)."""
    rng, policy_rng = np.random.default_rng(seed), np.random.default_rng([seed, 1])
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
                "actions": rng.integers(NUM_ACTIONS, size=steps),
                "rewards": reward,
                "log_ratio": log_ratio,
                "target_probs": random_probs(policy_rng, steps),
            }
        )
    return data


def random_probs(rng, steps):
    """Probabilities of all actions at every step, none of them 0."""
    return (rng.dirichlet(np.ones(NUM_ACTIONS), steps) + 1 / NUM_ACTIONS) / 2


def ragged_data(sizes=SIZES, **fixed):
    """Hypothesis: random episodes of few sizes, so that compilations are shared."""
    return st.builds(
        random_data,
        st.integers(0, 2**32 - 1),
        st.sampled_from(sizes),
        coarse=st.booleans(),
        zeros=st.sampled_from([0.0, 0.0, 0.15]),
        scale=st.sampled_from([1.0, 1e3]),
        **fixed,
    )


def random_map(seed, shape=NUM_STATES):
    """A random map of kept states."""
    return np.random.default_rng(seed).random(shape) < 0.5


def poisoned(batch):
    """The batch with NaN, or an absurd id, in every padded cell."""

    def poison(x):
        bad = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else -7
        real = batch.mask.reshape(*batch.mask.shape, *[1] * (x.ndim - batch.mask.ndim))
        return x if x.dtype == bool else jnp.where(real, x, jnp.asarray(bad, x.dtype))

    return jax.tree.map(poison, batch)


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


def ragged(batch):
    """A simulated batch as a list of episodes."""
    fields = {"rewards": batch.reward, "log_ratio": batch.log_ratio}
    fields |= {"states": batch.state, "actions": batch.action}
    fields = {name: np.asarray(x) for name, x in fields.items()}
    return [
        {name: x[i, :n] for name, x in fields.items()}
        for i, n in enumerate(np.asarray(batch.lengths))
    ]
