"""Sums, extremes and look-ups by segment, against loops; one data set, many, and many of many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.core import platforms, segments

NUMBER = 5


@pytest.fixture(params=[None, "tpu"], autouse=True)
def platform(request, monkeypatch):
    """Every test also in the form of a TPU; functions with rules for `vmap` are made anew."""
    monkeypatch.setattr(platforms, "ASSUMED", request.param)


FUNCTIONS = {
    "sum": (segments.segment_sum, np.sum, 0.0),
    "min": (segments.segment_min, np.min, np.inf),
    "max": (segments.segment_max, np.max, -np.inf),
}


def drawn(*shape, columns=()):
    """Values and segments, some of which are left out; segment 3 stays empty."""
    rng = np.random.default_rng(len(shape))
    segment = rng.choice([0, 1, 2, 4, NUMBER], size=shape)
    return rng.normal(size=(*shape, *columns)), segment


def by_loops(reduce, empty, value, segment):
    rows = [value[segment == s] for s in range(NUMBER)]
    blank = np.full(value.shape[1:], empty)
    return np.asarray([reduce(row, axis=0) if len(row) else blank for row in rows])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("sets", [(), (3,), (3, 2), (0,)])
def test_every_data_set_has_its_own_segments(name, columns, sets, double):
    function, reduce, empty = FUNCTIONS[name]
    value, segment = drawn(*sets, 40, columns=columns)

    def of_set(value, segment):
        return function(value, segment, NUMBER)

    for _ in sets:
        of_set = jax.vmap(of_set)
    found = jax.jit(of_set)(jnp.asarray(value), jnp.asarray(segment))
    assert found.shape == (*sets, NUMBER, *columns)
    for index in np.ndindex(*sets):
        expected = by_loops(reduce, empty, value[index], segment[index])
        np.testing.assert_allclose(found[index], expected, rtol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_data_sets_share_need_not_be_repeated(name, double):
    function, reduce, empty = FUNCTIONS[name]
    value, segment = drawn(40)
    other_segments, other_values = drawn(3, 40)[1], drawn(3, 40)[0]
    one_value = jax.vmap(lambda s: function(jnp.asarray(value), s, NUMBER))(other_segments)
    one_segment = jax.vmap(lambda v: function(v, jnp.asarray(segment), NUMBER))(other_values)
    for k in range(3):
        of_segments = by_loops(reduce, empty, value, other_segments[k])
        of_values = by_loops(reduce, empty, other_values[k], segment)
        np.testing.assert_allclose(one_value[k], of_segments, rtol=1e-13)
        np.testing.assert_allclose(one_segment[k], of_values, rtol=1e-13)


@pytest.mark.parametrize("sets", [(), (3,), (3, 2)])
def test_a_table_is_read_by_its_own_data_set(sets):
    table, segment = drawn(*sets, NUMBER)[0], drawn(*sets, 40)[1]
    look_up = segments.look_up
    for _ in sets:
        look_up = jax.vmap(look_up)
    found = np.asarray(look_up(jnp.asarray(table), jnp.asarray(segment)))
    for index in np.ndindex(*sets):
        inside = segment[index] < NUMBER
        expected = np.float32(table[index])[segment[index][inside]]
        np.testing.assert_array_equal(found[index][inside], expected)
        assert np.isfinite(found[index]).all()


@pytest.mark.parametrize("sets", [(), (3,)])
def test_gradients_reach_every_item_of_a_segment(sets, double):
    value, segment = drawn(*sets, 40)
    value, segment = jnp.asarray(value), jnp.asarray(segment)

    def loss(value):
        def of_set(value, segment):
            total = segments.segment_sum(value, segment, NUMBER)
            return jnp.sum(jnp.where(segment < NUMBER, segments.look_up(total, segment), 0) ** 2)

        return jnp.sum((jax.vmap(of_set) if sets else of_set)(value, segment))

    rows = zip(np.atleast_2d(value), np.atleast_2d(segment), strict=True)
    expected = []
    for row, places in rows:
        total = by_loops(np.sum, 0.0, row, places)
        size = np.asarray([(places == s).sum() for s in range(NUMBER)])
        padded = np.append(2 * size * total, 0)
        expected.append(padded[places])
    np.testing.assert_allclose(np.atleast_2d(jax.grad(loss)(value)), expected, rtol=1e-12)
