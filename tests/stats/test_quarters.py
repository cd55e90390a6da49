"""The exact test by outer quarters: all choices counted, all labelings enumerated."""

import itertools
from functools import partial

import jax
import numpy as np
import pytest
from oracles import markov as oracle

from osiris_jax import stats

RELATIVE = {"float32": 2e-5, "float64": 1e-10}
_quarters = jax.jit(stats.quarters)


def samples(seed, items, sets, kind):
    """Values, labels and which are used, of sets of very different sizes and ties."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=(items, sets))
    if kind == "tied":
        value = np.round(value * rng.choice([0.4, 1, 3], size=sets))
    if kind == "two values":
        value = np.where(rng.random((items, sets)) < rng.random(sets), -0.0, 0.5)
    labels = rng.random((items, sets)) < rng.beta(0.7, 0.7, size=sets)
    used = rng.random((items, sets)) < rng.random(sets)
    return value - (0.3 if kind == "distinct" else 0), labels, used


@pytest.mark.parametrize("kind", ["distinct", "tied", "two values"])
@pytest.mark.parametrize("items", [7, 300])
def test_all_choices_are_counted(float_type, items, kind):
    value, labels, used = samples(1, items, 40, kind)
    found = _quarters(value.astype(float_type), labels, used)
    assert found.pvalue.dtype == float_type
    decided = 0
    for k in range(40):
        chosen = labels[used[:, k], k].tolist()
        scores = oracle.quarters(value[used[:, k], k].astype(float_type).tolist() or [0])
        if not any(chosen) or all(chosen):
            assert found.pvalue[k] == 1
            continue
        expected = np.add(oracle.exact(scores, chosen), 1e-13)
        assert found.statistic[k] == sum(
            s for s, label in zip(scores, chosen, strict=True) if label
        )
        np.testing.assert_allclose(
            (found.pvalue[k], found.least[k]), np.minimum(expected, 1), rtol=RELATIVE[float_type]
        )
        decided += expected[0] < 0.9
    assert decided > 3


@pytest.mark.parametrize("values", [range(9), (0, 0, 0, 1, 1, 2, 5, 5, 5), (0,) * 8 + (1,)])
@pytest.mark.parametrize("chosen", [1, 3, 4, 8])
def test_no_level_is_exceeded_over_all_labelings(values, chosen):
    places = list(itertools.combinations(range(9), chosen))
    labels = np.zeros((9, len(places)), bool)
    for k, place in enumerate(places):
        labels[list(place), k] = True
    value = np.repeat(np.asarray(values, np.float32)[:, None], len(places), 1)
    found = jax.tree.map(np.asarray, _quarters(value, labels, np.ones_like(labels)))
    pvalues, counts = np.unique(found.pvalue.round(5), return_counts=True)
    np.testing.assert_allclose(np.cumsum(counts) / len(places), pvalues, atol=2e-5)
    np.testing.assert_allclose(found.least, pvalues[0], atol=2e-5)


def test_thousands_of_items_need_no_more_than_a_window():
    """The chance that is left out stays below rounding, far out too."""
    rng = np.random.default_rng(0)
    labels = rng.random(1000) < 0.3
    with jax.enable_x64(True):
        for shift in (0, 0.1, 0.6):
            value = rng.normal(size=1000) + shift * labels
            found = _quarters(value[:, None], labels[:, None], np.ones((1000, 1), bool))
            expected, least = oracle.exact(oracle.quarters(value.tolist()), labels.tolist())
            assert found.pvalue[0] == pytest.approx(expected, rel=1e-9, abs=2e-13)
            assert found.least[0] == pytest.approx(least, abs=2e-13)


def test_sets_do_not_see_each_other():
    value, labels, used = samples(3, 30, 6, "tied")
    together = _quarters(value.astype(np.float32), labels, used)
    alone = jax.jit(jax.vmap(partial(stats.quarters)))(
        value.astype(np.float32).T[..., None], labels.T[..., None], used.T[..., None]
    )
    np.testing.assert_allclose(together.pvalue, alone.pvalue[:, 0], rtol=1e-6)


def test_values_that_hardly_differ_are_told_apart(double):
    """Also where single precision could not."""
    order = np.random.default_rng(0).permutation(40.0 * np.arange(40))[:, None]
    above, used = order < 700, np.ones((40, 1), bool)
    expected = _quarters(jax.numpy.asarray(order), above, used)
    for scale in (1.0, 1e200, -1e-200):
        found = _quarters(jax.numpy.asarray(scale * (1 + 1e-13 * order)), above, used)
        np.testing.assert_allclose(found.pvalue, expected.pvalue)
    assert expected.pvalue[0] < 1e-3
