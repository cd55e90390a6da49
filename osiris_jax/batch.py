"""The one data type: a padded, masked batch of trajectories, and how its shape is changed."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from osiris_jax.core.labels import Labels, shown

STATIC = ("num_states", "num_actions")
OUTSIDE = ("state_labels", "action_labels", "groups", "truncated", "fitted", "all_actions")


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TrajectoryBatch:
    """A data set of logged trajectories, padded to one length.

    Axes are [traj, time] first; under `vmap` a leading [trial] axis may be present. What
    stands in padded cells never matters, not even NaN. Build one with `from_episodes`,
    `from_dataframe` or `from_arrays`, which check every value; the constructor checks shapes and
    types alone, and so may be called under `jit`, `vmap` and `grad`, see docs/jax.md.
    `batch[rows]` is a part of it.

    The last six fields say what the log calls things and where it comes from. They are no part
    of the pytree: inside jit and vmap, and after `jax.tree.map`, they are None, and batches that
    differ in them alone share one compilation.

    Attributes:
      reward: [traj, time] reward received at the step.
      log_ratio: [traj, time] log pi_e(a|s) - log pi_b(a|s) of the logged action; -inf where the
        target policy forbids it; None for a log whose ratios are not known yet.
      action: [traj, time] integer id of the logged action.
      state: [traj, time] integer state id; None where there are only observations.
      mask: [traj, time] True for a real step; True cells are a prefix of each row.
      observation: [traj, time, dim] features of the state, or None.
      target_probs: [traj, time, action] pi_e(.|s), or None.
      behavior_probs: [traj, time, action] pi_b(.|s), or None.
      behavior_log_prob: [traj, time] log pi_b(a|s) of the logged action, or None.
      target_log_prob: [traj, time] log pi_e(a|s) of the logged action, kept where nothing else
        tells the target and the ratio is not known yet; else None.
      num_states: number of state ids (static); 0 without states.
      num_actions: number of action ids (static).
      state_labels: what the log calls the states of id 0, 1, ...: text, or integers where these
        were sparse; None where ids are the log's own integers.
      action_labels: likewise of actions.
      groups: name -> [traj] labels of what trajectories belong to, or None.
      truncated: [traj] NumPy booleans: the log ends though the episode had not; None if unknown.
      fitted: a sentence saying that the propensities were fitted, and by what; else None.
      all_actions: whether `num_actions` was given, and is not just what the log shows.
    """

    reward: Array
    mask: Array
    log_ratio: Array | None = None
    action: Array | None = None
    state: Array | None = None
    observation: Array | None = None
    target_probs: Array | None = None
    behavior_probs: Array | None = None
    behavior_log_prob: Array | None = None
    target_log_prob: Array | None = None
    num_states: int = 0
    num_actions: int = 0
    state_labels: Labels | None = None
    action_labels: Labels | None = None
    groups: Mapping[str, Any] | None = None
    truncated: np.ndarray | None = None
    fitted: str | None = None
    all_actions: bool = False

    def __post_init__(self) -> None:
        """Raises a ValueError that names the field whose shape or type cannot be right."""
        _check_fields(self)

    @property
    def lengths(self) -> Array:
        """[traj] number of real steps."""
        return self.mask.sum(-1)

    @property
    def dtype(self) -> np.dtype:
        """The float type of every kernel run on this batch."""
        return self.reward.dtype

    def replace(self, **changes) -> TrajectoryBatch:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def require(self, field: str, purpose: str) -> Array:
        """The field's array, or a ValueError that says what needs it and how to supply it."""
        value = getattr(self, field)
        if value is None:
            remedy = _REMEDY.get(field, _PROBS_REMEDY.format(field=field))
            raise ValueError(f"{purpose} needs `{field}`, which this batch lacks: {remedy}")
        return value

    def __getitem__(self, rows: Any) -> TrajectoryBatch:
        """The trajectories of these numbers, of a slice, or where a mask is True.

        Always [traj, time], of one trajectory too; the padding stays, see `trim`.

        Raises:
          ValueError: names the row that there is not.

        Example:
          >>> batch[:100], batch[[3, 1, 3]], batch[np.asarray(batch.lengths) > 5]
        """
        if self.mask.ndim != 2:
            raise ValueError(f"batch: rows of one data set [traj, time], not of {self.mask.shape}")
        if isinstance(rows, Tracer):
            return _map_time_fields(self, lambda field: field[jnp.atleast_1d(rows)])
        places = _places(rows, len(self.mask))
        taken = _map_time_fields(self, lambda field: field[places])
        groups, truncated = self.groups, self.truncated
        if groups is not None:
            groups = {name: np.asarray(labels)[places] for name, labels in groups.items()}
        if truncated is not None:
            truncated = np.asarray(truncated)[places]
        return taken.replace(groups=groups, truncated=truncated)

    __iter__ = None  # without it Python would iterate by numbers until one is refused

    def __repr__(self) -> str:
        if not hasattr(self.reward, "dtype"):  # a tree of something else, as vmap's axes
            return f"TrajectoryBatch({vars(self)})"
        shape = "x".join(map(str, jnp.shape(self.reward)))
        absent = [name for name in _REMEDY if getattr(self, name) is None]
        without = f", without {', '.join(absent)}" if absent else ""
        labels = {"states": self.state_labels, "actions": self.action_labels}
        named = [f"; {name} {shown(of, 3)}" for name, of in labels.items() if of]
        return (
            f"TrajectoryBatch({shape} steps, num_states={self.num_states}, "
            f"num_actions={self.num_actions}, {self.reward.dtype}{without}{''.join(named)})"
        )


_ARRAYS = (Array, np.ndarray, jax.ShapeDtypeStruct)
_BY_ACTION = ("target_probs", "behavior_probs")
_WITH_AXIS = {"observation": "dim", **dict.fromkeys(_BY_ACTION, "action")}
_KINDS = {
    "mask": ("b", "booleans, True for a real step"),
    "action": ("iu", "integer ids"),
    "state": ("iu", "integer ids"),
    **dict.fromkeys(_BY_ACTION, ("f", "probabilities")),
}


def _check_fields(batch: TrajectoryBatch) -> None:
    """By static shapes and types only, for values may be traced.

    Not of the trees that JAX makes of a data set, which have axes of `vmap`, placeholders, or
    whatever a function mapped over the fields returns.
    """
    reward = batch.reward
    if not isinstance(reward, _ARRAYS) or len(reward.shape) < 2:
        return
    whole = reward.dtype.kind in "iu" and getattr(batch.mask, "dtype", None) == np.bool_
    if not whole and not jnp.issubdtype(reward.dtype, jnp.floating):
        return
    steps = reward.shape[-2:]
    for name in _TIME_FIELDS:
        value, (kind, meaning) = getattr(batch, name), _KINDS.get(name, ("f", "real numbers"))
        # the derivative by what is no real number has a type of its own
        if not isinstance(value, _ARRAYS) or value.dtype == jax.dtypes.float0:
            continue
        actual = "f" if jnp.issubdtype(value.dtype, jnp.floating) else value.dtype.kind
        if actual not in kind:
            raise ValueError(f"{name}: expected {meaning}, got {value.dtype}")
        axes, last = value.shape, _WITH_AXIS.get(name)
        # axes in front are of data sets, and under `vmap` some fields may be the same in all
        if (axes[-3:-1] if last else axes[-2:]) != steps:
            expected = "x".join(map(str, steps)) + (f"x[{last}]" if last else "")
            raise ValueError(
                f"{name}: expected shape {expected}, as `reward` has it, got {tuple(axes)}"
            )
        if name in _BY_ACTION and batch.num_actions and axes[-1] != batch.num_actions:
            raise ValueError(f"{name}: {axes[-1]} columns, but num_actions={batch.num_actions}")
    for name, number in (("state", batch.num_states), ("action", batch.num_actions)):
        if isinstance(getattr(batch, name), _ARRAYS) and number < 1:
            raise ValueError(f"num_{name}s: expected the number of {name} ids, got {number}")


_REMEDY = {
    "log_ratio": "load it with behavior_prob and target_prob, or with log_ratio, "
    "or give the policies to with_policies, or fit the log's own by fit_behavior",
    "state": "load it with states, or make states from observations by with_states",
    "action": "load it with actions",
    "observation": "load it with observations",
}
_PROBS_REMEDY = "load it with {field}, give policies to with_policies, or simulate with probs=True"

_TIME_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(TrajectoryBatch)
    if field.name not in (*STATIC, *OUTSIDE)
)
jax.tree_util.register_dataclass(
    TrajectoryBatch, data_fields=_TIME_FIELDS, meta_fields=STATIC, drop_fields=OUTSIDE
)


def time_fields(batch: TrajectoryBatch) -> dict[str, Array]:
    """The fields [traj, time, ...] that the batch has."""
    fields = {name: getattr(batch, name) for name in _TIME_FIELDS}
    return {name: field for name, field in fields.items() if field is not None}


def _map_time_fields(batch: TrajectoryBatch, change: Callable[[Array], Array]) -> TrajectoryBatch:
    return batch.replace(**{name: change(field) for name, field in time_fields(batch).items()})


def _places(rows: Any, number: int) -> np.ndarray:
    """What `batch[rows]` names, as numbers [row] from 0 on."""
    if isinstance(rows, slice):
        try:
            places = np.arange(number)[rows]
        except (TypeError, ValueError) as error:
            raise ValueError(f"rows: {rows} is no slice of trajectories: {error}") from None
    else:
        try:
            places = np.atleast_1d(np.asarray(rows))
        except ValueError:
            places = np.empty((0, 0))
        if isinstance(rows, tuple) or places.ndim != 1 or places.dtype.kind not in "iub":
            raise ValueError(
                "rows: expected a number, numbers, a slice or a mask of trajectories, "
                f"got {reprlib.repr(rows)}"
            )
        if places.dtype.kind == "b" and len(places) != number:
            raise ValueError(f"rows: a mask of {len(places)} for {number} trajectories")
        places = np.flatnonzero(places) if places.dtype.kind == "b" else places
    for row in places[(places < -number) | (places >= number)]:
        raise ValueError(f"rows: {row} is not a trajectory; there are {number}, from 0 on")
    if not len(places):
        raise ValueError(f"rows: none of the {number} trajectories")
    return places.astype(np.int64) % number


def _longest(batch: TrajectoryBatch) -> int:
    return int(np.asarray(batch.mask).sum(-1).max())


def trim(
    batch: TrajectoryBatch, round_up: Callable[[int], int] = lambda steps: steps
) -> TrajectoryBatch:
    """Drops the padding beyond the longest trajectory, its length rounded up. Not under jit."""
    kept = round_up(_longest(batch))
    return batch if kept >= batch.mask.shape[-1] else pad_or_cut(batch, kept)


def pad_to(batch: TrajectoryBatch, steps: int) -> TrajectoryBatch:
    """Pads the time axis with zeros (mask False) to `steps`."""
    there = batch.mask.shape[-1]
    if steps < there:
        raise ValueError(f"steps: {steps} is below the batch's {there} steps")
    return pad_or_cut(batch, steps)


def pad_or_cut(batch: TrajectoryBatch, steps: int) -> TrajectoryBatch:
    """The time axis made `steps` long; no trajectory may be longer."""
    extra, axis = steps - batch.mask.shape[-1], batch.mask.ndim - 1

    def change(field: Array) -> Array:
        widths = [(0, extra if number == axis else 0, 0) for number in range(field.ndim)]
        cells = jnp.asarray(field)
        return lax.pad(cells, jnp.zeros((), cells.dtype), widths)  # a negative width cuts

    return _map_time_fields(batch, change) if extra else batch


def bucket_length(steps: int) -> int:
    """The smallest of 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... that holds `steps` (waste < 25 %)."""
    scale = 1
    while 7 * scale < steps:
        scale *= 2
    return next(m * scale for m in (4, 5, 6, 7) if m * scale >= steps)


def pad_to_bucket(batch: TrajectoryBatch) -> TrajectoryBatch:
    """Trims, then pads to a bucket length, so that nearby lengths share one compilation."""
    steps, axis = bucket_length(_longest(batch)), batch.mask.ndim - 1
    extra = steps - batch.mask.shape[-1]
    if not extra:
        return batch

    def change(field: Array) -> Array:
        # by NumPy, for in JAX every shape would be a compilation
        kept = np.asarray(field)[(slice(None),) * axis + (slice(steps),)]
        widths = [(0, max(extra, 0) if number == axis else 0) for number in range(field.ndim)]
        return jax.device_put(np.pad(kept, widths))

    return _map_time_fields(batch, change)


def to_cells(column: np.ndarray, mask: np.ndarray, dtype: np.dtype | type) -> Array:
    """What is known of the real steps, one after another, in its cells; 0 in the padding."""
    cells = np.zeros(mask.shape + column.shape[1:], dtype)
    cells[mask] = column
    return jnp.asarray(cells)


def pad_states(batch: TrajectoryBatch) -> TrajectoryBatch:
    """States that no trajectory visits added, to a bucket: nearby numbers share a compilation."""
    return batch.replace(num_states=bucket_length(batch.num_states)) if batch.num_states else batch


def log_ratio_of(target: np.ndarray, behavior: np.ndarray, float_type: np.dtype) -> np.ndarray:
    """log pi_e - log pi_b, exactly 0 where rounding alone keeps the two apart.

    Relevance tests split on the sign, and a log's probabilities may have been rounded differently.
    """
    difference = target - behavior
    rounding = np.finfo(float_type).eps * (1 + np.abs(behavior))
    return np.where(np.abs(difference) <= rounding, 0.0, difference)
