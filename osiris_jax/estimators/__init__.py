"""Estimators: pure functions of a batch and of log-ratios, and the registry of their names.

Every function takes `(batch, log_ratio, *, discount, **options)` and returns a scalar. The
log-ratios are an argument of their own so that any estimator can be given some of them set to
zero: that is OSIRIS. To add one, write the function and add its entry here.
"""

from collections.abc import Sequence
from typing import Any

from osiris_jax.core.registry import Registry
from osiris_jax.estimators import counted
from osiris_jax.estimators.automatic import auto
from osiris_jax.estimators.blended import magic
from osiris_jax.estimators.doubly_robust import dm, dr, wdr
from osiris_jax.estimators.entry import RATIOS, Estimator
from osiris_jax.estimators.incremental import incris
from osiris_jax.estimators.lagged import stepwise, stepwise_dr
from osiris_jax.estimators.marginal import mis
from osiris_jax.estimators.marginal_dr import drl
from osiris_jax.estimators.per_decision import cwpdis, pdis
from osiris_jax.estimators.star import star
from osiris_jax.estimators.trajectory import importance_sampling, mc, phwis, rcis, wis

_FITTED = ("reward", "mask", "state", "action", "target_probs")
_CORRECTED = (*_FITTED, "log_ratio")
_WEIGHED = "support, known ratios"
_EITHER = f"{_WEIGHED}; Q-hat may be wrong"

ESTIMATORS: Registry[Estimator] = Registry(
    Estimator,
    {
        "mc": Estimator(
            mc,
            ("reward", "mask"),
            mean_of_terms=True,
            assumes="that the behaviour is as good as the target",
            of_counts=counted.MC,
        ),
        "is": Estimator(
            importance_sampling,
            normalised=False,
            per_decision=False,
            mean_of_terms=True,
            assumes=_WEIGHED,
            of_weights=importance_sampling,
            of_counts=counted.IS,
        ),
        "wis": Estimator(
            wis, per_decision=False, assumes=_WEIGHED, of_weights=wis, of_counts=counted.WIS
        ),
        "pdis": Estimator(
            pdis,
            normalised=False,
            per_decision=True,
            mean_of_terms=True,
            assumes=_WEIGHED,
            of_counts=counted.PDIS,
        ),
        "cwpdis": Estimator(cwpdis, per_decision=True, assumes=_WEIGHED, of_counts=counted.CWPDIS),
        "phwis": Estimator(
            phwis,
            per_decision=False,
            assumes=f"{_WEIGHED}; lengths that do not depend on the policy",
            of_weights=phwis,
            of_counts=counted.PHWIS,
        ),
        "incris": Estimator(
            incris, assumes=f"{_WEIGHED}; actions long before a reward hardly bear on it"
        ),
        "mis": Estimator(mis, (*RATIOS, "state"), assumes=f"few Markov states, {_WEIGHED}"),
        "rcis": Estimator(rcis, normalised=False, assumes=_WEIGHED),
        "dr": Estimator(dr, _CORRECTED, per_decision=True, assumes=_EITHER),
        "wdr": Estimator(wdr, _CORRECTED, per_decision=True, assumes=_EITHER),
        "dm": Estimator(
            dm,
            _FITTED,
            may_omit=False,
            assumes="a right Q-hat; few Markov states, if it is tabular",
        ),
        "star": Estimator(
            star,
            (*RATIOS, "state"),
            assumes=f"{_WEIGHED}; states that are Markov but for so long a past",
        ),
        "stepwise": Estimator(
            stepwise, normalised=False, assumes=f"{_WEIGHED}; what is omitted does not matter"
        ),
        "stepwise-dr": Estimator(
            stepwise_dr,
            _CORRECTED,
            assumes=f"{_WEIGHED}; what is omitted does not matter; Q-hat may be wrong",
        ),
        "magic": Estimator(magic, _CORRECTED, per_decision=True, assumes=_EITHER),
        "drl": Estimator(
            drl,
            _CORRECTED,
            assumes=f"few Markov states, {_WEIGHED}; Q-hat or the marginals may be wrong",
        ),
        "auto": Estimator(
            auto,
            reads_if_there=("state", "action", "target_probs"),
            may_omit=False,
            chooses=True,
            assumes="few states; asks the data whether they are Markov, and what was seen",
        ),
    },
)

OMISSION_PREFIX = "osiris-"
OMISSION_SHORT = {"osiris": "osiris-is", "osirwis": "osiris-wis"}


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
    if omits and not ESTIMATORS[plain].may_omit:
        why_not = ESTIMATORS[plain].why_no_omission
        raise ValueError(f"estimator: `{plain}` {why_not}, so there is no `{long}`")
    return plain, omits


__all__ = ["ESTIMATORS", "Estimator", "names_of", "parse_name"]
