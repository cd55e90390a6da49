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


def another(default):
    """Another value of a switch, or of a number."""
    return not default if isinstance(default, bool) else 0.75 * default


TRIED_ELSEWHERE = ("discount", "smoothing")
VARIANTS |= {
    f"{name}-{option}": (name, {option: another(default)})
    for name, entry in oj.ESTIMATORS.items()
    for option, default in ((k, p.default) for k, p in keywords(entry).items())
    if isinstance(default, bool | float) and option not in TRIED_ELSEWHERE
}
VARIANTS |= {
    "cwpdis-drop": ("cwpdis", {"finished": "drop"}),
    "cwpdis-share": ("cwpdis", {"finished": "share"}),
    "incris-of-mean": ("incris", {"variance": "of-mean"}),
    "star-2": ("star", {"past": 2}),
    "star-whole": ("star", {"past": 0}),
    "star-whole-average": ("star", {"past": 0, "average": True}),
    "star-leave-out": ("star", {"past": 3, "cut": "leave-out"}),
    "star-undiscounted": ("star", {"visits": "undiscounted"}),
    "star-nan": ("star", {"unsupported": "nan"}),
    "star-sweeps": ("star", {"past": 2, "sweeps": 4}),
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


def ragged_data(sizes=SIZES, zeros=(0.0, 0.0, 0.15), **fixed):
    """Hypothesis: random episodes of few sizes, so that compilations are shared."""
    return st.builds(
        random_data,
        st.integers(0, 2**32 - 1),
        st.sampled_from(sizes),
        coarse=st.booleans(),
        zeros=st.sampled_from(zeros),
        scale=st.sampled_from([1.0, 1e3]),
        **fixed,
    )


def visits_most_groups(data):
    """Whether 9 or 10 groups of a state and a class of actions: forms of one static size."""
    visits = [zip(e["states"], e["log_ratio"], strict=True) for e in data]
    return len({(int(s), x > 0) for traj in visits for s, x in traj}) >= 2 * NUM_STATES - 1


def load(data, steps=MAX_STEPS, num_states=NUM_STATES):
    """What `from_episodes` and `pad_to` make of episodes; by NumPy, for they compile each shape."""
    lengths = np.array([len(episode["rewards"]) for episode in data])
    mask = np.arange(steps)[None] < lengths[:, None]
    real = jnp.zeros(()).dtype

    def field(name, kind=real):
        if name not in data[0]:
            return None
        rows = np.concatenate([np.asarray(episode[name], kind) for episode in data])
        cells = np.zeros(mask.shape + rows.shape[1:], kind)
        cells[mask] = rows
        return jax.device_put(cells)

    probs = field("target_probs")
    actions = 1 + max(int(np.max(episode["actions"])) for episode in data)
    return oj.TrajectoryBatch(
        reward=field("rewards"),
        mask=jax.device_put(mask),
        log_ratio=field("log_ratio"),
        action=field("actions", np.int32),
        state=field("states", np.int32),
        observation=field("observations"),
        target_probs=probs,
        num_states=num_states,
        num_actions=actions if probs is None else probs.shape[-1],
    )


def in_numpy(tree):
    """The same in NumPy arrays: whatever is read of them one by one compiles nothing."""
    return jax.tree.map(np.asarray, tree)


def stacked(batches):
    """The batches as one, [trial, traj, time]."""
    return jax.tree.map(lambda *fields: jax.device_put(np.stack(fields)), *batches)


def random_map(seed, shape=NUM_STATES):
    """A random map of kept states."""
    return np.random.default_rng(seed).random(shape) < 0.5


def poisoned(batch):
    """The batch with NaN, or an absurd id, in every padded cell."""

    mask = np.asarray(batch.mask)

    def poison(x):
        bad = np.nan if jnp.issubdtype(x.dtype, jnp.floating) else -7
        real = mask.reshape(*mask.shape, *[1] * (x.ndim - mask.ndim))
        return x if x.dtype == bool else jax.device_put(np.where(real, x, bad).astype(x.dtype))

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
