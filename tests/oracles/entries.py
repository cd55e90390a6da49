"""Which oracle answers for which entry of a registry: its slow form, and a line here.

An estimator's is called with (data, discount=..., **options) and gives a float; a relevance test's
with (data, num_states, **options) and gives evidence [state].
"""

from functools import partial

from oracles import (
    automatic,
    blended,
    doubly_robust,
    estimators,
    lagged,
    marginal,
    networks,
    relevance,
    star,
)

ESTIMATORS = estimators.ESTIMATORS | {
    "dr": partial(doubly_robust.after_fit, doubly_robust.dr),
    "wdr": partial(doubly_robust.after_fit, doubly_robust.wdr),
    "dm": partial(doubly_robust.after_fit, doubly_robust.dm),
    "star": star.star,
    "stepwise": lagged.stepwise_plain,
    "stepwise-dr": lagged.stepwise_dr_plain,
    "magic": partial(doubly_robust.after_fit, blended.magic),
    "drl": marginal.after_fit,
    "auto": automatic.value,
}
RELEVANCE = {
    "welch": partial(relevance.pvalues, test="welch"),
    "smirnov": partial(relevance.pvalues, test="smirnov"),
    "effect": relevance.effects,
    "nn-q": networks.nn_q,
    "oracle": relevance.given,
}


def of_estimator(name):
    """The oracle of this estimator.

    Raises:
      LookupError: there is none; says what to write, and where.
    """
    return _of(ESTIMATORS, "ESTIMATORS", "estimators", name, "(data, discount=1.0, **options)")


def of_test(name):
    """The oracle of this relevance test, raising like `of_estimator`."""
    return _of(RELEVANCE, "RELEVANCE", "relevance", name, "(data, num_states, **options)")


def _of(table, title, room, name, arguments):
    if name not in table:
        function = name.replace("-", "_")
        raise LookupError(
            f"`{name}` has no oracle: write `{function}{arguments}` in tests/oracles/{room}.py, in "
            f"plain NumPy and from the definition, and name it in {title} of "
            f"tests/oracles/entries.py"
        )
    return table[name]
