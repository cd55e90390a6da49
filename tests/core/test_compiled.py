"""Kernels that hurry: a small data set is compiled for faster, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from osiris_jax.core import compiled as module
from osiris_jax.core.compiled import HURRY, LEVEL, compiled


def total(x, *, power=1):
    return (x**power).sum()


@pytest.fixture
def kernel(monkeypatch, all_kept):
    """A kernel where XLA can hurry, whatever flags these tests run with."""
    monkeypatch.setattr(module, "_can_hurry", lambda: True)
    return compiled(total, static_argnames="power", quick=True)


def sizes(kernel):
    return kernel._hurried._cache_size(), kernel._jitted._cache_size()


def test_little_data_is_compiled_quickly_and_much_is_not(kernel):
    assert kernel(jnp.ones(3), power=2) == 3
    assert sizes(kernel) == (1, 0)
    assert kernel(jnp.ones(module.FEW_NUMBERS)) == module.FEW_NUMBERS
    assert sizes(kernel) == (1, 1)
    kernel.release()
    assert sizes(kernel) == (0, 0)


def test_inside_of_another_jit_it_is_a_part_of_it(kernel):
    x = jnp.arange(6.0).reshape(2, 3)
    for call in (jax.vmap(kernel), jax.jit(jax.vmap(kernel))):
        np.testing.assert_array_equal(call(x), x.sum(1))
    assert jax.grad(kernel)(x[0]).tolist() == [1, 1, 1]
    assert sizes(kernel)[0] == 0


def test_only_kernels_that_ask_for_it_hurry(monkeypatch):
    monkeypatch.setattr(module, "_can_hurry", lambda: True)
    plain = compiled(total)
    plain(jnp.ones(3))
    assert sizes(plain) == (0, 1)


@pytest.mark.parametrize(
    ("flags", "words", "can"),
    [("", HURRY, True), (f"--{LEVEL}=3", HURRY, False), ("", {"xla_no_such_word": 1}, False)],
)
def test_xla_hurries_unless_the_user_or_xla_itself_objects(flags, words, can, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(module, "HURRY", words)
    assert module._can_hurry.__wrapped__() == can
