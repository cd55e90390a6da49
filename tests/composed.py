"""All estimators at once, plain and after omission: a few compilations serve every law and oracle.

Which estimators and tests there are is read off the registries, never listed here.
"""

from functools import partial

import jax
import jax.numpy as jnp
from datasets import VARIANTS, random_map

import osiris_jax as oj
from osiris_jax.core.options import keywords
from osiris_jax.pipeline import compose

TESTS = sorted(oj.RELEVANCE)
TEST_OPTIONS = {
    "oracle": {"keep": jnp.asarray(random_map(1))},
    "nn-q": {"steps": 3, "hidden": 4, "minibatch": 8, "learning_rate": 0.05},
}


def composes(name, test):
    """Whether there is such an estimator after such a test; which are refused is a test."""
    try:
        compose.test_for(name, test)
    except ValueError:
        return False
    return True


def labels_for(test, *, by_lag=None):
    """The variants that compose with a test, all of them for None."""
    return [
        label
        for label, (name, _) in VARIANTS.items()
        if (test is None or composes(name, test)) and by_lag in (None, compose.is_by_lag(name))
    ]


def options_of(function, discount, test):
    """The options of a test in these tests."""
    options = {"discount": discount} | TEST_OPTIONS.get(test, {})
    return {name: value for name, value in options.items() if name in keywords(function)}


@jax.jit
def plain(batch, discount=0.9):
    """Every variant by its label."""
    return {
        label: oj.ESTIMATORS[name](batch, batch.log_ratio, discount=discount, **options)
        for label, (name, options) in VARIANTS.items()
    }


@partial(jax.jit, static_argnames=("test", "by_lag"))
def gather(batch, discount=0.9, *, test, by_lag=False):
    """The evidence of a test, by state or by lag and state."""
    name = VARIANTS[labels_for(test, by_lag=by_lag)[0]][0]
    options = options_of(compose.test_for(name, test), discount, test)
    return compose.gather(batch, name, test, **options).value


@partial(jax.jit, static_argnames=("labels", "by_threshold", "by_lag"))
def omitted(batch, evidence, level, discount=0.9, *, labels, by_threshold=False, by_lag=False):
    """The variants after omission at a level of this evidence."""
    found = compose.Evidence(evidence, by_threshold, by_lag)
    values = {}
    for label in labels:
        name, options = VARIANTS[label]
        options = {"discount": discount, **options}
        values[label] = compose.value_at(batch, name, found, level, **options)
    return values


def middle(test):
    """A level that keeps some of the steps of random data, and not all."""
    return oj.THRESHOLDS.get(test, 0.5)


def estimate_all(batch, level=None, discount=0.9, *, test=None):
    """Every variant that composes with the test, at this level; without a test the plain ones."""
    if test is None:
        return plain(batch, discount)
    level, values = middle(test) if level is None else level, {}
    for by_lag in (False, True):
        if labels := labels_for(test, by_lag=by_lag):
            found = gather(batch, discount, test=test, by_lag=by_lag)
            kind = {"by_threshold": test in oj.THRESHOLDS, "by_lag": by_lag}
            values |= omitted(batch, found, level, discount, labels=tuple(labels), **kind)
    return values
