"""Estimators: pure functions of a batch and of log-ratios, and the registry of their names.

Every function takes `(batch, log_ratio, *, discount, **options)` and returns a scalar. The
log-ratios are an argument of their own so that any estimator can be given some of them set to
zero: that is OSIRIS. To add one, write the function and add its line here.
"""

from collections.abc import Callable, Sequence
from typing import Any

from osiris_jax.core.compiled import watched
from osiris_jax.estimators.conditional import rcis
from osiris_jax.estimators.doubly_robust import dm, dr, wdr
from osiris_jax.estimators.incremental import incris
from osiris_jax.estimators.lagged import stepwise, stepwise_dr
from osiris_jax.estimators.marginal import mis
from osiris_jax.estimators.per_decision import cwpdis, pdis
from osiris_jax.estimators.trajectory import importance_sampling, mc, phwis, wis

ESTIMATORS: dict[str, Callable[..., Any]] = watched(
    {
        "mc": mc,
        "is": importance_sampling,
        "wis": wis,
        "pdis": pdis,
        "cwpdis": cwpdis,
        "phwis": phwis,
        "incris": incris,
        "mis": mis,
        "rcis": rcis,
        "dr": dr,
        "wdr": wdr,
        "dm": dm,
        "stepwise": stepwise,
        "stepwise-dr": stepwise_dr,
    }
)
_AS_DEFINED = dict(ESTIMATORS)

WITHOUT_RATIOS = ("mc", "dm")

OMISSION_PREFIX = "osiris-"
OMISSION_SHORT = {"osiris": "osiris-is", "osirwis": "osiris-wis"}


def function_of(estimator: str | Callable[..., Any]) -> Callable[..., Any]:
    """The estimator of this name, or the function given in place of one."""
    return ESTIMATORS[estimator] if isinstance(estimator, str) else estimator


def name_of(estimator: str | Callable[..., Any]) -> str:
    """What to call it in a message."""
    return estimator if isinstance(estimator, str) else getattr(estimator, "__name__", "function")


def as_defined(estimator: str | Callable[..., Any]) -> bool:
    """Whether the name stands for what this package defines, and not for what a user put there."""
    return isinstance(estimator, str) and ESTIMATORS[estimator] is _AS_DEFINED.get(estimator)


def names_of(estimators: Any) -> tuple[str, ...]:
    """One name or several as a tuple, each once."""
    names = (estimators,) if isinstance(estimators, str) else estimators
    if not isinstance(names, Sequence):
        raise ValueError(f"estimators: expected a name or several, got {estimators!r}")
    if not names:
        raise ValueError("estimators: none given")
    for name in names:
        parse_name(name)
    return tuple(dict.fromkeys(names))


def parse_name(name: Any) -> tuple[str, bool]:
    """The registry name behind what a user types, and whether it asks for omission.

    "wis" -> ("wis", False); "osiris-wis" and its short form "osirwis" -> ("wis", True).
    """
    if not isinstance(name, str):
        raise ValueError(
            f"estimator: expected one name, got {name!r}; for several see evaluate and intervals"
        )
    long = OMISSION_SHORT.get(name, name)
    plain = long.removeprefix(OMISSION_PREFIX)
    if plain not in ESTIMATORS:
        raise ValueError(
            f"estimator: {name!r} is unknown; there are {', '.join(ESTIMATORS)}, each also as "
            f"{OMISSION_PREFIX}<name>, and {' and '.join(OMISSION_SHORT)}"
        )
    omits = long != plain
    if omits and plain == "dm":
        raise ValueError("estimator: `dm` uses no ratios, so there is no `osiris-dm`")
    return plain, omits


__all__ = ["ESTIMATORS", "as_defined", "function_of", "name_of", "names_of", "parse_name"]
