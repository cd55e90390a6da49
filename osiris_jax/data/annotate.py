"""What a log may lack: ratios from policies, states from observations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from osiris_jax.batch import TrajectoryBatch, to_cells
from osiris_jax.core.labels import is_text
from osiris_jax.data.ask import Answer, align, ask
from osiris_jax.data.build import to_batch
from osiris_jax.data.columns import LARGEST_ID, Columns, even_array, refuse_traced

Policy = Callable[[Array], Any]


def with_policies(
    batch: TrajectoryBatch, *, target: Policy | Any, behavior: Policy | Any = None
) -> TrajectoryBatch:
    """The batch with ratios (and the policies' probabilities) filled in.

    Args:
      batch: a log.
      target: the policy to evaluate: a function from the real steps' observations [step, dim],
        or states [step] where there are none, to probabilities [step, action]; or a table
        [state, action], which is looked up by state even where there are observations. The
        policies of `osiris_jax.data.policies` know what they read. Tables and functions are asked
        by the integers that the log writes, also where these are sparse (beyond 32 bits a function
        gets a NumPy array). For a log with text labels a table is a DataFrame, its index the
        states and its columns the actions, matched by name; a function gets ids, and
        `batch.state_labels` and `batch.action_labels` say which is which.
      behavior: the policy that made the log, likewise; None uses the log's own probabilities.

    Raises:
      ValueError: names the policy, the trajectory and the step.

    Example:
      >>> oj.with_policies(batch, target=lambda states: table[states])
      >>> oj.with_policies(batch, target=pd.DataFrame(table, ["cold", "hot"], ["give", "wait"]))
    """
    return annotated(batch, target=target, behavior=behavior, ratios=True)


def annotated(
    batch: TrajectoryBatch, *, target: Policy | Any, behavior: Policy | Any, ratios: bool
) -> TrajectoryBatch:
    """As `with_policies`; unless `ratios` must be known, the target's probabilities will do."""
    refuse_traced("with_policies", mask=batch.mask, reward=batch.reward)
    mask = np.asarray(batch.mask)
    fields = {
        name: np.asarray(value)[mask]
        for name in ("reward", "action", "state", "observation")
        if (value := getattr(batch, name)) is not None
    }
    answers = {"target": ask(target, batch, fields, "target")}
    if behavior is not None:
        answers["behavior"] = ask(behavior, batch, fields, "behavior")
    elif batch.behavior_probs is not None:
        logged = np.asarray(batch.behavior_probs)[mask]
        sparse = batch.action_labels if not is_text(batch.action_labels) else None
        answers["behavior"] = Answer(logged, sparse)
    elif ratios and batch.behavior_log_prob is None:
        raise ValueError(
            "behavior: the log has no behaviour probabilities; give the policy that made it, "
            "or fit it by fit_behavior"
        )
    fields["action"], action_labels, probs = align(batch, fields["action"], answers)
    fields |= {f"{name}_probs": of for name, of in probs.items()}
    if behavior is None and batch.behavior_log_prob is not None:
        fields["behavior_prob"] = np.exp(np.asarray(batch.behavior_log_prob, np.float64)[mask])
    names = {"target_probs": "target"}
    names |= {"behavior_probs": "behavior"} if behavior is not None else {}
    filled = to_batch(
        Columns(fields, mask.sum(1), name=lambda field: names.get(field, field)),
        num_states=batch.num_states or None,
        num_actions=probs["target"].shape[1],
        dtype=batch.dtype,
        num_steps=mask.shape[1],
    )
    return filled.replace(
        state_labels=batch.state_labels,
        action_labels=action_labels,
        groups=batch.groups,
        truncated=batch.truncated,
        fitted=batch.fitted if behavior is None else None,
    )


@dataclasses.dataclass(frozen=True)
class LinearBins:
    """A grid of cells over observations: for each dimension its inner edges.

    A value below the first edge is in bin 0, one at or above the last in the last bin (as NumPy's
    `digitize`). Works under jit.

    Attributes:
      edges: for each dimension a rising sequence of edges.
    """

    edges: tuple[tuple[float, ...], ...]

    def __post_init__(self):
        try:
            edges = tuple(tuple(map(float, dimension)) for dimension in self.edges)
        except (TypeError, ValueError):
            raise ValueError(
                f"edges: expected a sequence of numbers for each dimension, got {self.edges!r}"
            ) from None
        for number, dimension in enumerate(edges):
            if not np.all(np.diff(dimension) > 0) or np.isnan(dimension).any():
                raise ValueError(f"edges: dimension {number} does not rise: {dimension}")
        object.__setattr__(self, "edges", edges)
        if self.num_cells > LARGEST_ID:
            raise ValueError(f"edges: {self.num_cells} cells are more than 32-bit ids can number")

    @classmethod
    def uniform(cls, ranges: Sequence[tuple[float, float]], num_edges: int = 3) -> LinearBins:
        """Edges at equal distances over each (low, high), both ends being edges.

        Example:
          >>> LinearBins.uniform([(-1, 1), (-3, 3), (-1, 1), (-3, 3)])    # the paper's CartPole
        """
        return cls(tuple(tuple(np.linspace(low, high, num_edges)) for low, high in ranges))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of bins of each dimension."""
        return tuple(len(dimension) + 1 for dimension in self.edges)

    @property
    def num_cells(self) -> int:
        """Number of cells of the whole grid."""
        return math.prod(self.shape)

    def __call__(self, observation: Array) -> Array:
        """Cell ids [...] of observations [..., dim], the last dimension running fastest."""
        if observation.shape[-1] != len(self.edges):
            raise ValueError(
                f"observation: {observation.shape[-1]} dimensions where the bins have "
                f"{len(self.edges)}"
            )
        cell = jnp.zeros(observation.shape[:-1], jnp.int32)
        for number, dimension in enumerate(self.edges):
            edges = jnp.asarray(dimension, jnp.result_type(observation.dtype, float))
            bin_id = jnp.searchsorted(edges, observation[..., number], side="right")
            cell = cell * (len(dimension) + 1) + bin_id.astype(jnp.int32)
        return cell


def with_states(
    batch: TrajectoryBatch, discretiser: Callable[[Array], Any], *, relabel: bool = True
) -> TrajectoryBatch:
    """The batch with states made from its observations.

    Args:
      batch: a log with observations.
      discretiser: from observations [step, dim] to integer cells [step], such as `LinearBins`.
      relabel: number only the cells visited, in rising order of cell, so that relevance is not
        computed for empty ones; `state_labels` then says which cell each is, and policies that
        read states are asked by cell. Else the state is the cell.

    Example:
      >>> oj.with_states(batch, oj.LinearBins.uniform([(-1, 1), (-3, 3), (-1, 1), (-3, 3)]))
    """
    refuse_traced("with_states", mask=batch.mask, observation=batch.observation)
    mask = np.asarray(batch.mask)
    observation = np.asarray(batch.require("observation", "with_states"))[mask]
    cell = even_array(discretiser(jnp.asarray(observation)), "discretiser")
    if cell.shape != observation.shape[:1] or cell.dtype.kind not in "iu":
        raise ValueError(
            f"discretiser: expected {len(observation)} integers, got "
            f"{cell.dtype} of shape {cell.shape}"
        )
    columns = Columns({}, mask.sum(1))
    columns.fail_where("discretiser", cell < 0, lambda i: f"cell {cell[i]} is negative")
    visited, label = np.unique(cell, return_inverse=True)
    num_cells = getattr(discretiser, "num_cells", int(visited[-1]) + 1)
    if not relabel:
        columns.fail_where(
            "discretiser",
            cell >= min(num_cells, LARGEST_ID + 1),
            lambda i: f"cell {cell[i]} is beyond the {num_cells} there are, or beyond 32 bits,",
        )
    gapless = np.array_equal(visited, np.arange(len(visited)))
    return batch.replace(
        state=to_cells(label.reshape(-1) if relabel else cell, mask, np.int32),
        num_states=len(visited) if relabel else int(num_cells),
        state_labels=tuple(visited.tolist()) if relabel and not gapless else None,
    )
