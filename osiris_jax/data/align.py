"""One numbering of actions for a log and its policies, which may know actions it never shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import labels
from osiris_jax.core.labels import Labels, listed
from osiris_jax.data.ask import Answer, match


class Aligned(NamedTuple):
    """The log's actions and the policies' probabilities in one numbering.

    Attributes:
      action: [step] ids.
      number: of actions.
      labels: what they are called; None where ids are the log's own integers.
      probs: name of policy -> [step, action].
    """

    action: np.ndarray
    number: int
    labels: Labels | None
    probs: dict[str, np.ndarray]


def align(batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer]) -> Aligned:
    """Actions that policies alone know are added, unless the log's are known to be all.

    Args:
      batch: the log.
      action: [step] its actions at real steps, by id.
      answers: name of policy -> its probabilities.

    Raises:
      ValueError: names the policy that lacks an action of the log, or has one too many.
    """
    own = batch.action_labels
    if labels.is_text(own) or all(answer.actions is not None for answer in answers.values()):
        return _by_label(batch, action, answers)
    for name, answer in answers.items():
        if answer.actions is None:
            return _by_integer(batch, action, answers, name)
    raise AssertionError("one of the answers has no labels")


def _by_integer(
    batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer], first: str
) -> Aligned:
    """Columns are numbered by the log's own integers, as those of a table without labels are."""
    whole = labels.own_integers(batch.action_labels, action)
    width = answers[first].probs.shape[1]
    sparse = batch.action_labels is not None
    least = int(whole.max()) + 1 if sparse else batch.num_actions
    if width < least or (width > least and not sparse and _all_known(batch)):
        raise ValueError(f"{first}: {width} actions where {least} are expected")
    probs = {}
    for name, answer in answers.items():
        columns = range(answer.probs.shape[1]) if answer.actions is None else answer.actions
        if answer.actions is not None:
            match(None, np.unique(whole), answer.actions, f"{name}: the policy", "actions")
        odd = [label for label in columns if isinstance(label, str) or not 0 <= label < width]
        if odd or (answer.actions is None and len(columns) != width):
            raise ValueError(f"{name}: {len(columns)} actions where {width} are expected")
        probs[name] = _placed(answer.probs, np.asarray(columns, np.int64), width)
    return Aligned(whole, width, None, probs)


def _by_label(batch: TrajectoryBatch, action: np.ndarray, answers: Mapping[str, Answer]) -> Aligned:
    """Columns are matched by label; one without labels is in the order of ids."""
    own: tuple[Any, ...] = batch.action_labels or tuple(range(batch.num_actions))
    own = (*own, *(f"action {number}" for number in range(len(own), batch.num_actions)))
    seen = np.unique(action)
    final = list(own)
    for name, answer in answers.items():
        if answer.actions is not None:
            match(batch.action_labels, seen, answer.actions, f"{name}: the policy", "actions")
            named = map(str, answer.actions) if labels.is_text(own) else answer.actions
            more = sorted({*named} - {*final}, key=str)
            if more and _all_known(batch):
                raise ValueError(
                    f"{name}: {len(own) + len(more)} actions where {len(own)} are expected; "
                    f"the log's are {listed(own)}, the policy adds {listed(more)}"
                )
            final += more
    place = {label: number for number, label in enumerate(final)}
    probs = {}
    for name, answer in answers.items():
        if answer.actions is None and answer.probs.shape[1] != len(own):
            raise ValueError(
                f"{name}: {answer.probs.shape[1]} actions where {len(own)} are expected: "
                f"{listed(own)}"
            )
        columns = own if answer.actions is None else answer.actions
        columns = map(str, columns) if labels.is_text(own) else columns
        probs[name] = _placed(answer.probs, np.array([place[c] for c in columns]), len(final))
    found = None if final == list(range(len(final))) else tuple(final)
    return Aligned(action, len(final), found, probs)


def _placed(probs: np.ndarray, columns: np.ndarray, width: int) -> np.ndarray:
    """The columns in their places; an action that the policy does not know is never taken."""
    if np.array_equal(columns, np.arange(width)):
        return probs
    placed = np.zeros((len(probs), width), probs.dtype)
    placed[:, columns] = probs
    return placed


def _all_known(batch: TrajectoryBatch) -> bool:
    """Whether the log's number of actions is more than what it happens to show."""
    if batch.action_labels is not None and not labels.is_text(batch.action_labels):
        return False  # sparse integers: those seen, whatever has been fitted to them
    return batch.all_actions or batch.behavior_probs is not None or batch.target_probs is not None
