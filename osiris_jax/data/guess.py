"""Which column of a file holds what: as told, by its own name, or by a common one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from osiris_jax.core.labels import with_rest
from osiris_jax.data.columns import suggest

Say = Callable[[str], None]

ALIASES = {
    "episode": "episode_id episodeid trajectory trajectory_id traj traj_id id patient patient_id "
    "patientid subject subject_id user user_id userid session session_id student student_id "
    "stay_id icustay_id case case_id",
    "step": "t time timestep time_step step_id step_index stepid timestamp turn",
    "state": "s state_id stateid cluster",
    "action": "a action_id actionid treatment arm",
    "reward": "r rewards",
    "behavior_prob": "behaviour_prob propensity propensity_score pscore b_prob prob_b pi_b "
    "behavior_probability behaviour_probability behavior_propensity behaviour_propensity "
    "logging_prob action_prob prob",
    "target_prob": "target_probability target_propensity evaluation_prob eval_prob e_prob t_prob "
    "prob_e pi_e",
    "log_ratio": "logratio log_rho log_importance_ratio",
    "truncated": "truncation truncations is_truncated timeout timeouts time_out timed_out censored "
    "is_censored cut_off cutoff",
    "mask": "",
    "lengths": "",
}
WIDE_ALIASES = {
    "observation": "obs observation observations state s feature features x",
    "behavior_probs": "behavior_prob behavior_probs behaviour_prob behaviour_probs pi_b "
    "propensity pscore b_prob",
    "target_probs": "target_prob target_probs evaluation_prob eval_prob e_prob t_prob pi_e",
}
WIDE_PREFIX = {field: names.split()[0] for field, names in WIDE_ALIASES.items()}
COLUMN_FIELDS = (*ALIASES, *WIDE_ALIASES)
MOST_LISTED = 20


def choose_columns(
    names: Sequence[str], given: Mapping[str, Any] | None, say: Say, skip: Sequence[str] = ()
) -> dict[str, str | tuple[str, ...]]:
    """The column that holds each field, or the tuple of columns that together hold a vector.

    Args:
      names: the columns there are.
      given: what the user says: field to column; for a vector a list of columns, or what stands
        before their numbers; None for a field that is not to be read.
      say: told of every guess.
      skip: fields that are not wanted.

    Raises:
      ValueError: names the field and the columns that could be meant.
    """
    chosen: dict[str, str | tuple[str, ...]] = {}
    if not isinstance(given, Mapping | None):
        raise ValueError(f"columns: expected a dict of field and column, got {given!r:.80}")
    for field, columns in (given or {}).items():
        if field not in COLUMN_FIELDS:
            raise ValueError(f"columns: {field} is not a field; {suggest(field, COLUMN_FIELDS)}")
        if columns is not None:
            chosen[field] = _as_told(field, columns, names)
    taken = {name for columns in chosen.values() for name in as_tuple(columns)}
    free = [name for name in names if name not in taken]
    for field in COLUMN_FIELDS:
        if field not in skip and field not in (given or {}):
            columns = _guess(field, free, say)
            if columns is not None:
                chosen[field] = columns
    for name in {name for columns in chosen.values() for name in as_tuple(columns)}:
        if list(names).count(name) > 1:
            raise ValueError(f"{name}: this column appears twice")
    return chosen


def as_tuple(columns: str | tuple[str, ...]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns


def listed(names: Sequence[str]) -> str:
    """The names for a message, not all of very many."""
    return with_rest(names[:MOST_LISTED], names) or "none"


def _as_told(field: str, columns: Any, names: Sequence[str]) -> str | tuple[str, ...]:
    wide = field in WIDE_ALIASES
    told = [columns] if isinstance(columns, str) else columns
    if not isinstance(told, list | tuple) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"columns: {field} is to be a column's name, got {columns!r}")
    if not wide and (len(told) != 1 or not isinstance(columns, str)):
        raise ValueError(f"columns: {field} is one column, got {list(columns)}")
    if wide and isinstance(columns, str) and columns not in names:
        numbered = _numbered(columns, names)
        if numbered:
            return numbered
    for name in told:
        if name not in names:
            raise ValueError(
                f"columns: {field} is said to be {name}, which is no column; "
                f"there are {listed(names)}"
            )
    return columns if isinstance(columns, str) else tuple(told)


def _guess(field: str, names: Sequence[str], say: Say) -> str | tuple[str, ...] | None:
    """Numbered columns of a vector before a single one, own names before common ones."""
    prefixes = WIDE_ALIASES.get(field, "").split()
    families = {f"{prefix}_*": _numbered(prefix, names) for prefix in prefixes}
    candidates: list[Any] = [columns for columns in families.values() if columns]
    called = [family for family, columns in families.items() if columns]
    if called and called[0] == f"{WIDE_PREFIX[field]}_*":
        return candidates[0]
    if not candidates and field in names:
        return field
    if not candidates:
        aliases = (field, *ALIASES.get(field, "").split())
        candidates = called = [name for name in names if _plain(name) in aliases]
    if len(candidates) > 1:
        raise ValueError(
            f"{field}: it could be any of {listed(called)}; say which by columns, "
            f"as in {{{field!r}: {called[0]!r}}}"
        )
    if candidates:
        say(f"{field}: read from {called[0]} (a guess from its name)")
    return candidates[0] if candidates else None


def _numbered(prefix: str, names: Sequence[str]) -> tuple[str, ...]:
    pattern = re.compile(rf"{re.escape(prefix)}_?(\d{{1,6}})", re.IGNORECASE)
    matches = [
        (int(match[1]), name) for name in names if (match := pattern.fullmatch(name.strip()))
    ]
    numbers = sorted(number for number, _ in matches)
    for place, number in enumerate(numbers):
        if place != number:
            what = "appears twice" if number < place else f"lacks number {place}"
            raise ValueError(f"{prefix}_*: this row of columns {what}")
    return tuple(name for _, name in sorted(matches))


def _plain(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())
