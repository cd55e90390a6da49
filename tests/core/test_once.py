"""What is computed twice is computed once, and nothing else is taken for the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from osiris_jax.core.once import once, without_repeats

X = np.arange(1.0, 6.0, dtype=np.float32)
LOOPS = ("scan", "while", "cond")


def running(x, combine=jnp.add, start=0.0, reverse=False):
    """A loop that is traced anew at every call."""

    def step(total, item):
        total = combine(total, item)
        return total, total

    return lax.scan(step, jnp.asarray(start, x.dtype), x, reverse=reverse)[1]


def halved(x):
    return lax.while_loop(lambda y: y.max() > 1, lambda y: y / 2, x)


def loops(function, *arguments):
    """How many loops there are before, and how many after."""
    program = jax.make_jaxpr(function)(*arguments)
    programs = program.jaxpr, without_repeats(program).jaxpr
    return tuple(sum(e.primitive.name in LOOPS for e in p.eqns) for p in programs)


def expect_same(function, *arguments):
    expected = jax.jit(function)(*arguments)
    found = jax.jit(once(function))(*arguments)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("loop", [running, halved])
def test_loops_alike_are_one(loop):
    def twice(x):
        return loop(2 * x) + 1, {"again": loop(2 * x) * 3}

    assert loops(twice, X) == (2, 1)
    expect_same(twice, X)


def test_what_follows_from_one_is_one():
    def chains(x):
        return running(running(x) + 1), running(running(x) + 1), running(running(x) + 2)

    assert loops(chains, X) == (6, 3)
    expect_same(chains, X)


def test_over_many_data_sets_too():
    def twice(x):
        return jax.vmap(running)(x) - jax.vmap(lambda row: 2 * running(row))(x)

    many = np.stack([X, 3 * X])
    assert loops(twice, many) == (2, 1)
    expect_same(twice, many)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: running(x + 1),
        lambda x: running(x, jnp.maximum),
        lambda x: running(x, lambda a, b: a + 2 * b),
        lambda x: running(x, lambda a, b: a + b * jnp.asarray(X[2])),
        lambda x: running(x, start=1.0),
        lambda x: running(x, reverse=True),
        lambda x: running(x.astype(jnp.float16)).astype(x.dtype),
        lambda x: running(jnp.flip(x)),
        lambda x: running(x[:-1]),
    ],
)
def test_loops_that_differ_stay(other):
    def both(x):
        return running(x), other(x)

    assert loops(both, X) == (2, 2)
    expect_same(both, X)


def test_constants_tell_loops_apart():
    """Arrays that a loop closes over, equal or not."""
    large, same, other = (np.full(200, value, np.float32) for value in (1, 1, 2))

    def with_constant(constant):
        return lambda x: running(x, lambda a, b: a + b * jnp.asarray(constant)[0])

    def differing(x):
        return with_constant(large)(x), with_constant(other)(x)

    assert loops(differing, X) == (2, 2)
    expect_same(differing, X)
    expect_same(lambda x: (with_constant(large)(x), with_constant(same)(x)), X)


def test_what_has_an_effect_happens_as_often():
    said = []

    def twice(x):
        for _ in range(2):
            jax.debug.callback(lambda y: said.append(float(y)), x[0])
        return x

    jax.block_until_ready(jax.jit(once(twice))(X))
    jax.effects_barrier()
    assert said == [1.0, 1.0]


def test_what_is_given_or_fixed_may_be_returned():
    expect_same(lambda x, n: (x, 2.0, jnp.float32(3), n, x + n), X, 2)


def test_keys_are_numbers_like_others():
    def draws(key):
        one, same = (jax.random.normal(jax.random.fold_in(key, 1)) for _ in range(2))
        return one, same, jax.random.normal(jax.random.fold_in(key, 2))

    one, same, other = jax.jit(once(draws))(jax.random.key(0))
    assert one == same != other
    expect_same(draws, jax.random.key(0))
