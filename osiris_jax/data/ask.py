"""Policies asked for the steps of a log: by the log's own integers, or by name, never by place.

Ids are ours; what they mean is the log's. A table without labels is indexed by the integers that
the log writes; a log that writes names needs a table that has names.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import labels, memory
from osiris_jax.core.labels import Labels, listed
from osiris_jax.data.columns import as_array, even_array
from osiris_jax.data.policies import Mixture, Tabular, mixture_table

LARGEST_JAX_INTEGER = 2**31 - 1
CURE = (
    "give a DataFrame with the states as index and the actions as columns, or an .npz with "
    "`states` and `actions` beside `table`"
)


class Answer(NamedTuple):
    """Probabilities of actions at the real steps.

    Attributes:
      probs: [step, action].
      actions: what the columns are called; None where they are numbered as the log's actions are.
    """

    probs: np.ndarray
    actions: Labels | None


def ask(policy: Any, batch: TrajectoryBatch, fields: Mapping[str, np.ndarray], name: str) -> Answer:
    """What a function, a table, a DataFrame or a policy of `osiris_jax.data.policies` answers.

    The log's `fields` are those of its real steps, by id; errors call the policy by this name.
    """
    if isinstance(policy, Mixture):
        parts = [ask(part, batch, fields, name) for part in policy.policies]
        if any(part.actions != parts[0].actions for part in parts):
            raise ValueError(f"{name}: the policies of a mixture name different actions")
        probs = mixture_table([part.probs for part in parts], policy.weights)
        return Answer(probs, parts[0].actions)
    table = _as_table(policy, name)
    if table is None:
        answer = Answer(_called(policy, batch, fields, name), None)
    else:
        answer = Answer(_look_up(table, batch, fields, name), table.actions)
    steps = len(fields["reward"])
    if answer.probs.ndim != 2 or len(answer.probs) != steps:
        raise ValueError(
            f"{name}: expected probabilities of shape [{steps} steps, action], "
            f"got {answer.probs.shape}"
        )
    return answer


def _called(
    policy: Any, batch: TrajectoryBatch, fields: Mapping[str, np.ndarray], name: str
) -> np.ndarray:
    """A function's answer: it sees observations, or the log's own integers, or ids of names."""
    reads = getattr(policy, "reads", "observation" if "observation" in fields else "state")
    if reads not in fields:
        raise ValueError(f"{name}: the policy reads `{reads}`, which this log lacks")
    inputs: Any = fields[reads]
    if reads == "state":
        inputs = labels.own_integers(batch.state_labels, inputs)
    if inputs.dtype.kind == "f" or inputs.max() <= LARGEST_JAX_INTEGER:
        inputs = jnp.asarray(inputs)  # larger integers stay NumPy's: JAX would wrap them
    log_probs = getattr(policy, "log_probs", None)
    if log_probs is not None:
        return np.exp(np.asarray(log_probs(inputs), np.float64))
    return even_array(policy(inputs), name)


# ------------------------------------------------------------------------------------ tables


def _as_table(policy: Any, name: str) -> Tabular | None:
    """What is a table, with its labels; None for a function."""
    if isinstance(policy, Tabular):
        return policy
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(policy, pandas.DataFrame):
        axes = {"states": policy.index, "actions": policy.columns}
        named = {axis: read_labels(list(of), f"{name}: {axis}") for axis, of in axes.items()}
        return Tabular(as_array(policy.to_numpy()), **named)
    return None if callable(policy) else Tabular(even_array(policy, name))


def read_labels(given: Sequence[Any], name: str) -> Labels:
    """Labels of a table's rows or columns: text, or integers where every one is written as one.

    Raises:
      ValueError: one is neither, or stands twice.
    """
    plain = [entry.item() if isinstance(entry, np.generic) else entry for entry in given]
    for entry in plain:
        whole = isinstance(entry, int) and not isinstance(entry, bool)
        if not whole and not isinstance(entry, str):
            raise ValueError(f"{name}: expected text or whole numbers, got {entry!r:.80}")
    texts = tuple(map(str, plain))
    if len({*texts}) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(f"{name}: {twice!r:.80} appears twice")
    return tuple(map(int, texts)) if all(map(labels.plain_integer, texts)) else texts


def _look_up(
    table: Tabular, batch: TrajectoryBatch, fields: Mapping[str, np.ndarray], name: str
) -> np.ndarray:
    if "state" not in fields:
        raise ValueError(f"{name}: a table needs states, and the log has none")
    values, state = np.asarray(table.table), fields["state"]
    rows = labels.own_integers(batch.state_labels, state)
    has_names = labels.is_text(batch.state_labels)
    needed = int(rows.max()) + 1
    if has_names or batch.state_labels is None:
        needed = max(needed, batch.num_states)
    by_integer = table.states is None and not has_names
    if values.ndim != 2 or (by_integer and len(values) < needed):
        raise ValueError(
            f"{name}: expected a function or a table [state, action] with more than {needed - 1} "
            f"states, got shape {values.shape}"
        )
    if table.states is not None:
        seen, place = np.unique(state, return_inverse=True)
        rows = match(batch.state_labels, seen, table.states, f"{name}: the table", "states")[place]
    named = {"states": batch.state_labels, "actions": batch.action_labels}
    for (what, own), number in zip(named.items(), values.shape, strict=True):
        if getattr(table, what) is None and labels.is_text(own):
            raise ValueError(
                f"{name}: the log calls its {what} {listed(own)}, the table has no labels, only "
                f"{what} {listed(range(number))}; {CURE}"
            )
    what = f"{name}: probabilities of {values.shape[1]} actions at {len(state)} steps"
    memory.check_fits(8 * len(state) * values.shape[1], what, "pool rare actions, or split the log")
    return values[rows]


def match(
    own: Labels | None, seen: np.ndarray, theirs: Labels, whose: str, what: str
) -> np.ndarray:
    """Where among their labels stands that of each id that was seen.

    Raises:
      ValueError: shows both lists where one has no place.
    """
    names: Any = seen.tolist() if own is None else [own[number] for number in seen.tolist()]
    wanted = _comparable(names, own)
    place = {label: number for number, label in enumerate(_comparable(theirs, own))}
    lacking = [label for label in wanted if label not in place]
    if lacking:
        raise ValueError(
            f"{whose} lacks {listed(lacking)}: its {what} are {listed(theirs)}, "
            f"the log's {listed(names)}; {CURE}"
        )
    return np.array([place[label] for label in wanted], np.int64)


def _comparable(names: Sequence[Any], own: Labels | None) -> list[Any]:
    """As text beside a log's text; integers stay, so that 7 is not the name "7" of another list."""
    return list(map(str, names)) if labels.is_text(own) else list(names)


# ------------------------------------------------------------------------- one numbering


def align(
    batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer]
) -> tuple[np.ndarray, Labels | None, dict[str, np.ndarray]]:
    """Actions that policies alone know are added, unless the log's are known to be all.

    Returns:
      [step] ids, what they are called (None where they are the log's own integers), and for each
      policy its probabilities [step, action] in this numbering.

    Raises:
      ValueError: names the policy that lacks an action of the log, or has one too many.
    """
    all_labelled = all(answer.actions is not None for answer in answers.values())
    if all_labelled or labels.is_text(batch.action_labels):
        own, every = _own_and_all_labels(batch, action, answers)
    else:
        action = labels.own_integers(batch.action_labels, action)
        own = every = _all_integers(batch, action, answers)
    place = {label: number for number, label in enumerate(every)}
    probs = {}
    for name, answer in answers.items():
        columns = own if answer.actions is None else answer.actions
        places = [place[label] for label in _comparable(columns, batch.action_labels)]
        probs[name] = answer.probs
        if places != list(range(len(every))):  # what a policy does not know it never does
            probs[name] = np.zeros((len(answer.probs), len(every)), answer.probs.dtype)
            probs[name][:, places] = answer.probs
    names = None if every == list(range(len(every))) else tuple(every)
    return action, names, probs


def _all_integers(
    batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer]
) -> list[Any]:
    """The log's own integers number the columns, as they do those of a table without labels."""
    first = next(name for name, answer in answers.items() if answer.actions is None)
    width = answers[first].probs.shape[1]
    sparse = batch.action_labels is not None
    least = int(action.max()) + 1 if sparse else batch.num_actions
    if width < least or (width > least and not sparse and _all_known(batch)):
        raise ValueError(f"{first}: {width} actions where {least} are expected")
    every = list(range(width))
    for name, answer in answers.items():
        number = answer.probs.shape[1]
        fits = number == width
        if answer.actions is not None:
            match(None, np.unique(action), answer.actions, f"{name}: the policy", "actions")
            fits = {*answer.actions} <= {*every}
        if not fits:
            raise ValueError(f"{name}: {number} actions where {width} are expected")
    return every


def _own_and_all_labels(
    batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer]
) -> tuple[list[Any], list[Any]]:
    """The log's labels, which an answer without any has in this order, and those of all."""
    own: list[Any] = list(batch.action_labels or range(batch.num_actions))
    own += [f"action {number}" for number in range(len(own), batch.num_actions)]
    seen, every = np.unique(action), list(own)
    for name, answer in answers.items():
        if answer.actions is not None:
            match(batch.action_labels, seen, answer.actions, f"{name}: the policy", "actions")
            more = {*_comparable(answer.actions, batch.action_labels)} - {*every}
            more = sorted(more, key=str)
            if more and _all_known(batch):
                raise ValueError(
                    f"{name}: {len(own) + len(more)} actions where {len(own)} are expected; "
                    f"the log's are {listed(own)}, the policy adds {listed(more)}"
                )
            every += more
    for name, answer in answers.items():
        if answer.actions is None and answer.probs.shape[1] != len(own):
            raise ValueError(
                f"{name}: {answer.probs.shape[1]} actions where {len(own)} are expected: "
                f"{listed(own)}"
            )
    return own, every


def _all_known(batch: TrajectoryBatch) -> bool:
    """Whether the log's number of actions is more than what it happens to show."""
    if batch.action_labels is not None and not labels.is_text(batch.action_labels):
        return False  # sparse integers: those seen, whatever has been fitted to them
    return batch.all_actions or batch.behavior_probs is not None or batch.target_probs is not None
