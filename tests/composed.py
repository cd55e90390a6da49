"""Each estimator and test by itself, as a user calls it: laws and oracles share its compilations.

Which estimators and tests there are is read off the registries, never listed here.
"""

import numpy as np
from datasets import NUM_STATES, VARIANTS, random_map

import osiris_jax as oj
from osiris_jax.core.options import keywords
from osiris_jax.pipeline import compose

TESTS = sorted(oj.RELEVANCE)
SOME = random_map(1)
TEST_OPTIONS = {
    "oracle": {"keep": SOME},
    "nn-q": {"steps": 3, "hidden": 4, "minibatch": 8, "learning_rate": 0.05},
}
# what an omission keeps: a level for estimators that omit by lag, a map of states for the others
KEPT = {
    "nothing": (0.0, np.zeros(NUM_STATES, bool)),
    "some": (0.5, SOME),
    "everything": (1.0, np.ones(NUM_STATES, bool)),
}


def composes(name, test):
    """Whether there is such an estimator after such a test; which are refused is a test."""
    try:
        compose.test_for(name, test)
    except ValueError:
        return False
    return True


OMITTING = [label for label, (name, _) in VARIANTS.items() if composes(name, "welch")]


def plain(label, batch, discount=0.9):
    """The variant without omission."""
    name, options = VARIANTS[label]
    return oj.estimate(batch, name, discount=discount, **options)


def omitted(label, batch, kept="some", discount=0.9):
    """The variant after omission, by a map of states or, for those by lag, by Welch's test."""
    name, options = VARIANTS[label]
    level, keep = KEPT[kept] if isinstance(kept, str) else (None, kept)
    how = {"relevance": "oracle", "keep": keep}
    if compose.is_by_lag(name):
        how = {"relevance": "welch", "alpha": level}
    return oj.estimate(batch, name, discount=discount, **how, **options)


def value(label, batch, kept="some", discount=0.9):
    """The variant after omission where it has one, else the plain one."""
    if label in OMITTING:
        return omitted(label, batch, kept, discount)
    return plain(label, batch, discount)


def evidence(test, batch, discount=0.9, **options):
    """What a test finds with its options in these tests."""
    options = {"discount": discount} | TEST_OPTIONS.get(test, {}) | options
    own = keywords(oj.RELEVANCE[test])
    return oj.relevance_pvalues(batch, test, **{k: x for k, x in options.items() if k in own})


def level_name(test):
    """By what a test's level is given."""
    return "threshold" if test in oj.THRESHOLDS else "alpha"


def middle(test):
    """A level that keeps some of the steps of random data, and not all."""
    return oj.THRESHOLDS.get(test, 0.5)
