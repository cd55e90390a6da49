"""What accelerators would make of the kernels: products in full precision, no cast of bits."""

import jax
import jax.numpy as jnp
import pytest
from composed import TEST_OPTIONS, TESTS
from datasets import NUM_STATES, VARIANTS, random_data
from jax import lax

import osiris_jax as oj
from osiris_jax.models import behavior_models as models
from osiris_jax.models.networks import MLP

HIGHEST = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)


def batch_of(size=6):
    return oj.from_episodes(random_data(0, size), num_states=NUM_STATES)


def equations(jaxpr):
    """All equations, also of the functions inside."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(parameter):
                yield from equations(getattr(parameter, "jaxpr", parameter))


def _is_jaxpr(x):
    return hasattr(x, "eqns")


def products(function, *arguments):
    """The precisions of all products of matrices in a function."""
    found = jax.make_jaxpr(function)(*arguments).jaxpr
    return [e.params["precision"] for e in equations(found) if e.primitive.name == "dot_general"]


def estimator(label):
    name, options = VARIANTS[label]
    return lambda batch: oj.ESTIMATORS[name](batch, batch.log_ratio, **options)


def relevance(test):
    own = TEST_OPTIONS.get(test, {})
    return lambda batch: oj.RELEVANCE[test](batch, **own)


def with_network(name):
    size = {"fit": "nn-q"}
    return lambda batch: oj.ESTIMATORS[name](batch, batch.log_ratio, **size)


def logistic(batch):
    rows = jnp.ones((20, 3), batch.dtype)
    taken = models.Taken(jnp.arange(20) % 3, jnp.arange(20) % 2, folds=2, num_actions=3)
    return models.logistic(taken, rows, jnp.ones((), batch.dtype))


def network(batch):
    rows = jnp.ones((20, 3), batch.dtype)
    model = MLP((4, 2))
    return model.apply(model.init(jax.random.key(0), rows), rows)


KERNELS = {label: estimator(label) for label in VARIANTS}
KERNELS |= {f"test {test}": relevance(test) for test in TESTS}
KERNELS |= {f"{name} by a network": with_network(name) for name in ("dr", "dm")}
KERNELS |= {"logistic": logistic, "network": network}
WITH_PRODUCTS = ("incris", "incris-of-mean", "test nn-q", "logistic", "network", "dr by a network")


@pytest.mark.parametrize("label", KERNELS)
def test_products_are_in_full_precision(label):
    """TPUs would multiply in bfloat16, newer GPUs in tf32, with three and four digits."""
    found = products(KERNELS[label], batch_of())
    assert all(precision == HIGHEST for precision in found)
    assert found or label not in WITH_PRODUCTS


def test_products_of_a_bootstrap_are_in_full_precision():
    from osiris_jax.inference.resampler import Resampler
    from osiris_jax.pipeline.spec import make_specs

    batch = batch_of()
    settings = {"alpha": 0.5, "threshold": None, "discount": 0.9, "key": jax.random.key(0)}
    names = ["osirwis", "osiris", "wis", "is", "cwpdis", "pdis", "phwis", "mc"]
    resampler = Resampler(batch, make_specs(batch, names, None, settings))
    rows = jnp.zeros((3, 6), jnp.int32)
    from osiris_jax.inference.forms import values_of_rows

    def values(batch, rows):
        return values_of_rows(batch, resampler.prepared, resampler.specs, rows)

    found = products(values, batch, rows)
    assert found
    assert all(precision == HIGHEST for precision in found)


@pytest.mark.parametrize("label", KERNELS)
def test_no_bits_of_a_float64_are_cast(label, double):
    """TPUs have none to cast: `ldexp` and `frexp` do not compile there."""
    found = jax.make_jaxpr(KERNELS[label])(batch_of()).jaxpr
    cast = [e for e in equations(found) if e.primitive.name == "bitcast_convert_type"]
    assert not [e for e in cast if e.invars[0].aval.dtype == "float64"]


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("label", [*oj.ESTIMATORS, *(f"test {name}" for name in TESTS)])
def test_every_entry_is_exported_to_accelerators(label, platform, float_type):
    exported = jax.export.export(jax.jit(KERNELS[label]), platforms=[platform])(batch_of(2))
    assert exported.platforms == (platform,)


def test_a_tpu_compares_where_others_scatter():
    welch = jax.jit(jax.vmap(relevance("welch")))
    batch = jax.tree.map(lambda x: x[None], batch_of())
    scatters = {
        platform: jax.export.export(welch, platforms=[platform])(batch)
        .mlir_module()
        .count("stablehlo.scatter")
        for platform in ("cpu", "cuda", "tpu")
    }
    assert scatters["tpu"] == 0
    assert scatters["cpu"] == scatters["cuda"] > 0
