"""Policies kept in files: a saved Q-network, or a table of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.files import read_arrays
from osiris_jax.core.labels import is_text, shown
from osiris_jax.core.options import given
from osiris_jax.core.text import one_line, printable
from osiris_jax.data.annotate import annotated
from osiris_jax.data.ask import read_labels
from osiris_jax.data.guess import Say
from osiris_jax.data.policies import EpsilonGreedy, Tabular


def load_policy(path: str | Path, *, epsilon: float = 0.0) -> EpsilonGreedy | Tabular:
    """The policy in an .npz: what `save_network` wrote, or a table of probabilities.

    Args:
      path: of a Q-network, read as epsilon-greedy; or of a table [state, action], called `table`
        or the only array there is. Beside it `states` and `actions` say what rows and columns are
        called: needed for a log that calls its own by text, allowed for one with integers.
      epsilon: of a network: the probability of a uniformly random action.

    Raises:
      ValueError: names the file and what is wrong with it.
    """
    if not (isinstance(epsilon, int | float) and 0 <= epsilon <= 1):
        raise ValueError(f"epsilon: must be in [0, 1], got {epsilon!r}")
    arrays = read_arrays(path)
    if "scale" in arrays:
        from osiris_jax.models.networks import load_network

        return EpsilonGreedy(load_network(path), epsilon)
    named = {name: arrays.pop(name) for name in ("states", "actions") if name in arrays}
    table = arrays.get("table", next(iter(arrays.values())) if len(arrays) == 1 else None)
    if table is None or table.ndim != 2 or table.dtype.kind not in "fiu":
        contents = ", ".join(
            f"{name} {array.shape} of {array.dtype}" for name, array in arrays.items()
        )
        problem = f"{path}: expected a saved network, or a table of probabilities [state, action] "
        raise ValueError(one_line(f"{problem}called `table`; there is {contents or 'nothing'}"))
    labels = {}
    for name, array in named.items():
        number = table.shape[("states", "actions").index(name)]
        if array.shape != (number,):
            problem = f"shape {array.shape}, where the table has {number}"
            raise ValueError(f"{printable(path)}: {name}: {problem}")
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8", "backslashreplace")
        labels[name] = read_labels(array.tolist(), f"{printable(path)}: {name}")
    return Tabular(table, **labels)


def is_network(policy: Any) -> bool:
    """Whether this is the path of a saved Q-network."""
    return isinstance(policy, str | Path) and "scale" in read_arrays(policy)


def refuse_idle_epsilons(target: Any, behavior: Any, epsilons: tuple[float, float]) -> None:
    """Raises a ValueError for an epsilon that was given beside no network."""
    for name, policy, epsilon in zip(
        ("epsilon", "behavior_epsilon"), (target, behavior), epsilons, strict=True
    ):
        if given(epsilon) and not is_network(policy):
            raise ValueError(f"{name}: has no effect, for this policy is not a saved Q-network")


def with_given_policies(
    batch: TrajectoryBatch, target: Any, behavior: Any, epsilons: tuple[float, float], say: Say
) -> TrajectoryBatch:
    """The batch with the policies that were given, as functions, tables or files; None for none.

    Without a behaviour policy and without logged probabilities the ratios stay unknown, and
    `say` is told.
    """
    if target is None and behavior is not None:
        raise ValueError("behavior: a ratio needs a target policy too; give target")
    if target is not None:
        policy = _opened(batch, target, epsilons[0], "target", say)
        maker = _opened(batch, behavior, epsilons[1], "behavior", say)
        batch = annotated(batch, target=policy, behavior=maker, ratios=False)
    if batch.log_ratio is None:
        if target is None and batch.target_probs is None and batch.target_log_prob is None:
            say("target: the log says nothing of the policy to evaluate; give it by with_policies")
        else:
            say("behavior: the log has no probabilities of its own actions; fit_behavior fits them")
    return batch


def _opened(batch: TrajectoryBatch, policy: Any, epsilon: float, name: str, say: Say) -> Any:
    if not isinstance(policy, str | Path):
        return policy
    opened = load_policy(policy, epsilon=epsilon)
    if isinstance(opened, Tabular):
        states, actions = opened.table.shape
        how = "looked up by id" if opened.states is None else "matched by name"
        say(f"{name}: {policy}, a table of {states} states and {actions} actions, {how}")
        return opened
    network: Any = opened.q
    width = len(network.scale)
    if batch.observation is None:
        raise ValueError(
            f"{name}: the network in {printable(policy)} reads observations, the log has none"
        )
    if batch.observation.shape[-1] != width:
        raise ValueError(
            f"{name}: the network in {printable(policy)} reads {width} numbers, "
            f"an observation has {batch.observation.shape[-1]}"
        )
    order = ""
    if is_text(batch.action_labels):
        order = f", its outputs taken to be in the order of ids: {shown(batch.action_labels)}"
    say(f"{name}: {policy}, a Q-network, epsilon-greedy with epsilon {epsilon:g}{order}")
    return opened
