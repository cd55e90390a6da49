"""Shares of least squares, against SciPy and the oracle, which tries every set of members."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import blended as oracle
from scipy import optimize

from osiris_jax.models.simplex import least_on_simplex

NO_ROUNDING = 0.0


@jax.jit
def shares_of(errors, exists, rounding=NO_ROUNDING):
    one = jax.vmap(least_on_simplex, (0, None, None))
    return one(errors, exists, jnp.asarray(rounding, errors.dtype))


def shares(errors, exists=None, rounding=NO_ROUNDING):
    """Of one matrix of errors, or of several."""
    errors = jnp.asarray(np.asarray(errors, float))
    many = errors if errors.ndim == 3 else errors[None]
    exists = np.ones(errors.shape[-1], bool) if exists is None else exists
    found = np.asarray(shares_of(many, exists, rounding), float)
    return found if errors.ndim == 3 else found[0]


def kinds(members, rows, number=20):
    """Errors of their own, of neighbours that are alike, of many sizes, of nearly the same."""
    rng = np.random.default_rng(members)
    own = rng.normal(size=(4, number, rows, members))
    sizes = 10.0 ** rng.uniform(-4, 3, size=(number, 1, members))
    alike = rng.normal(size=(number, rows, 1)) + 0.03 * own[3]
    return {
        "own": own[0],
        "neighbours": own[1].cumsum(-1),
        "sizes": (sizes * own[2]).cumsum(-1),
        "alike": alike,
    }


def by_scipy(errors):
    """The least |errors x|^2 on the simplex: z >= 0 that is nearest, over its sum, for x = z.

    |errors z|^2 - 2 sum z is |L' z - L^-1 1|^2 but for a constant, L L' = errors' errors.
    """
    length = np.sqrt((errors**2).sum(0))
    unit = errors / length
    lower = np.linalg.cholesky(unit.T @ unit)
    wanted = length.min() / length
    z = optimize.nnls(lower.T, np.linalg.solve(lower, wanted))[0] * wanted
    return np.sum((errors @ (z / z.sum())) ** 2)


@pytest.mark.parametrize("members", [2, 6, 9, 12])
@pytest.mark.parametrize("kind", ["own", "neighbours", "sizes", "alike"])
def test_no_other_shares_do_better(kind, members, float_type):
    """By the objective without errors of their own, within a millionth."""
    some = kinds(members, rows=26)[kind]
    for errors, found in zip(some, shares(some), strict=True):
        rounding = {"float32": 1e-6, "float64": 1e-12}[float_type]
        np.testing.assert_allclose(found.sum(), 1, rtol=rounding)
        assert (found >= 0).all()
        reached, least = np.sum((errors @ found) ** 2), by_scipy(errors)
        np.testing.assert_allclose(reached, least, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 26])
@pytest.mark.parametrize("kind", ["own", "neighbours", "sizes", "alike"])
def test_they_are_the_best_of_every_set(kind, rows, double):
    """With fewer rows than members too, where only errors of their own tell shares apart."""
    some = kinds(6, rows)[kind]
    for errors, found in zip(some, shares(some), strict=True):
        matrix = errors.T.astype(oracle.LD) @ errors
        matrix = matrix + np.diag(oracle.OWN_ERROR * np.diag(matrix))
        np.testing.assert_allclose(found, oracle.least_shares(matrix).astype(float), atol=1e-8)


def test_those_that_do_not_exist_have_no_share(double):
    errors = kinds(6, 26)["own"]
    exists = np.array([True, False, True, True, False, True])
    found = shares(errors, exists)
    assert (found[:, ~exists] == 0).all()
    np.testing.assert_allclose(found[:, exists], shares(errors[:, :, exists]), atol=1e-9)
    huge = np.where(exists, errors, np.inf)
    np.testing.assert_array_equal(shares(huge, exists), found)


def test_scale_does_not_matter(float_type):
    """Squares of these numbers are 0 or infinite in float32."""
    errors = kinds(6, 26)["own"]
    for scale in (2.0**-90, 2.0**90):
        np.testing.assert_array_equal(shares(scale * errors), shares(errors))


def test_ties_are_even(float_type):
    np.testing.assert_allclose(shares(np.zeros((3, 4))), np.full(4, 1 / 4), rtol=1e-6)
    np.testing.assert_allclose(shares(np.ones((3, 4))), np.full(4, 1 / 4), rtol=1e-5)
    # two without any error, beside others: these two, up to what rounding may have hidden
    eps = np.finfo(float_type).eps
    errors = np.array([[1.0, eps, 2.0, 0.0], [1.0, -eps, -3.0, 2 * eps]])
    np.testing.assert_allclose(shares(errors, rounding=eps), [0, 1 / 2, 0, 1 / 2], atol=1e-3)


def test_what_is_unknown_ends(float_type):
    errors = kinds(6, 26)["own"][0]
    errors[3, 2] = np.nan
    assert np.isnan(shares(errors)).any()


def test_derivatives_are_those_of_differences(double):
    errors = kinds(6, 26)["sizes"][0]
    change = np.random.default_rng(0).normal(size=errors.shape)
    wanted = np.arange(6.0)

    def value(step):
        return jnp.sum(wanted * shares_of((errors + step * change)[None], np.ones(6, bool))[0])

    step = 1e-6
    difference = (value(step) - value(-step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(0.0), difference, rtol=1e-5)
