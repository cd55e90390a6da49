"""Laws that all estimators and relevance tests keep; a new line in a registry is tested at once."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import MAX_STEPS, NUM_STATES, VARIANTS, random_data, random_map
from hypothesis import given, settings
from hypothesis import strategies as st

import osiris_jax as oj
from osiris_jax.relevance import keep_steps, omit, relevant

SIZE = 6
MODULE = sys.modules["osiris_jax.estimate"]
ROUNDING = {"float32": 1e-5, "float64": 1e-12}
ALL_STATES = jnp.ones(NUM_STATES, bool)
TEST_OPTIONS = {"oracle": {"keep": ALL_STATES}}
NOT_MC_AT_RATIOS_OF_ONE = {"cwpdis-drop"}
every_test = pytest.mark.parametrize("test", sorted(oj.RELEVANCE))
with_and_without_omission = pytest.mark.parametrize("test", [None, *sorted(oj.RELEVANCE)])


def estimate_all(batch, alpha=0.5, discount=0.9, *, test=None):
    """All estimators by name; one compilation serves every law."""
    log_ratio = batch.log_ratio
    if test is not None:
        p = pvalues(batch, discount, test=test)
        log_ratio = omit(log_ratio, keep_steps(relevant(p, alpha), batch))
    return {
        label: oj.ESTIMATORS[name](batch, log_ratio, discount=discount, **options)
        for label, (name, options) in VARIANTS.items()
    }


def pvalues(batch, discount=0.9, *, test):
    options = TEST_OPTIONS.get(test) or {"discount": discount}
    return oj.RELEVANCE[test](batch, **options)


compiled = jax.jit(estimate_all, static_argnames="test")
compiled_pvalues = jax.jit(pvalues, static_argnames="test")


def load(data):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES), MAX_STEPS)


def make(seed=0, **kind):
    return load(random_data(seed, SIZE, **kind))


def assert_same(actual, expected, rounding, only=None):
    for label in only or expected:
        np.testing.assert_allclose(
            actual[label], expected[label], rtol=rounding, atol=rounding, err_msg=label
        )


def poisoned(batch):
    """The batch with NaN, or an absurd id, in every padded cell."""

    def poison(x):
        bad = jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else -7
        return x if x.dtype == bool else jnp.where(batch.mask, x, jnp.asarray(bad, x.dtype))

    return jax.tree.map(poison, batch)


@with_and_without_omission
def test_compiled_is_eager(test, double):
    batch = make()
    with jax.disable_jit():
        eager = estimate_all(batch, test=test)
    assert_same(compiled(batch, test=test), eager, 1e-12)


@pytest.mark.parametrize("test", [None, "welch"])
def test_vmap_is_a_loop(test, float_type):
    """Trials with ratios of zero and without are mixed: both paths of a kernel in one call."""
    batches = [make(seed, zeros=0.1 * (seed % 2)) for seed in range(4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    together = jax.jit(jax.vmap(partial(estimate_all, test=test)))(stacked)
    loop = [compiled(batch, test=test) for batch in batches]
    assert_same(together, {k: jnp.stack([v[k] for v in loop]) for k in VARIANTS}, 1e-5)


@pytest.mark.parametrize("label", VARIANTS)
def test_one_trace_per_shape_and_the_float_type_is_kept(label):
    name, options = VARIANTS[label]
    assert oj.estimate(make(0), name, **options).dtype == "float32"
    traces = MODULE._estimate._cache_size()
    oj.estimate(make(1), name, discount=0.3, **options)
    assert MODULE._estimate._cache_size() == traces


@every_test
def test_one_trace_for_all_levels(test):
    options = TEST_OPTIONS.get(test, {})
    oj.estimate(make(0), "is", relevance=test, alpha=0.1, **options)
    oj.relevance_pvalues(make(0), test, **options)
    traces = MODULE._estimate._cache_size(), MODULE._pvalues._cache_size()
    oj.estimate(make(1), "is", relevance=test, alpha=0.7, discount=0.9, ddof=0, **options)
    oj.relevance_pvalues(make(1), test, discount=0.9, ddof=0, **options)
    assert (MODULE._estimate._cache_size(), MODULE._pvalues._cache_size()) == traces


@with_and_without_omission
def test_the_float_type_is_kept(test, float_type):
    values = compiled(make(), test=test)
    assert {value.dtype for value in values.values()} == {jnp.dtype(float_type)}


@every_test
def test_pvalues_are_probabilities(test, float_type):
    p = compiled_pvalues(make(coarse=True), test=test)
    assert p.dtype == float_type
    assert p.shape == (NUM_STATES,)
    assert np.all((p >= 0) & (p <= 1))


@with_and_without_omission
def test_padding_never_matters(test, double):
    batch = make(1)
    assert not batch.mask.all()
    expected = compiled(oj.trim(batch), test=test)
    assert all(np.isfinite(value) for value in expected.values())
    assert_same(compiled(poisoned(batch), test=test), expected, 1e-12)
    longer = poisoned(oj.pad_to(batch, MAX_STEPS + 5))
    assert_same(compiled(longer, test=test), expected, 1e-12)


@every_test
def test_padding_never_matters_to_first_visits(test, double):
    batch = make(1)
    options = TEST_OPTIONS.get(test) or {"first_visit": True}
    expected = oj.relevance_pvalues(oj.trim(batch), test, **options)
    actual = oj.relevance_pvalues(poisoned(batch), test, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_padding_never_matters_when_all_weights_vanish_at_the_end(double):
    """The last step forbids every action taken: nothing may be normalised after it."""
    data = [
        {"states": [0, 1], "actions": [0, 0], "rewards": [1.0, 2.0], "log_ratio": [0.3, -np.inf]},
        {"states": [0, 2], "actions": [0, 0], "rewards": [3.0, 5.0], "log_ratio": [-0.2, -np.inf]},
    ]
    batch = oj.from_episodes(data, num_states=NUM_STATES)
    padded = poisoned(oj.pad_to(batch, 5))
    assert_same(compiled(padded), compiled(batch), 1e-12)
    assert np.isfinite(compiled(padded)["mis"])


@with_and_without_omission
def test_the_order_of_trajectories_does_not_matter(test, double):
    data = random_data(2, SIZE)
    expected = compiled(load(data), test=test)
    assert_same(compiled(load(data[::-1]), test=test), expected, 1e-11)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9, 0.0]))
def test_ratios_of_one_give_mc(seed, discount):
    with jax.enable_x64(True):
        values = compiled(make(seed, spread=0.0), discount=discount)
    expected = {label: values["mc"] for label in VARIANTS if label not in NOT_MC_AT_RATIOS_OF_ONE}
    assert_same(values, expected, 1e-12)


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-6, -2.0, 1e6]),
    st.sampled_from([None, "welch", "smirnov"]),
)
def test_scaling_rewards_scales_the_estimate(seed, factor, test):
    with jax.enable_x64(True):
        batch = make(seed)
        scaled = compiled(batch.replace(reward=batch.reward * factor), test=test)
        plain = compiled(batch, test=test)
        assert_same({label: scaled[label] / factor for label in VARIANTS}, plain, 1e-9)


@every_test
@pytest.mark.parametrize("seed", range(5))
def test_alpha_one_is_the_plain_estimator(test, seed, float_type):
    batch = make(seed, coarse=bool(seed % 2))
    actual = compiled(batch, alpha=1.0, test=test)
    assert_same(actual, compiled(batch), ROUNDING[float_type])


@every_test
@pytest.mark.parametrize("seed", range(5))
def test_alpha_zero_is_mc(test, seed, float_type):
    """Even where a p-value is 0, as with two constant groups that differ."""
    values = compiled(make(seed, coarse=True), alpha=0.0, test=test)
    expected = {label: values["mc"] for label in VARIANTS if label not in NOT_MC_AT_RATIOS_OF_ONE}
    assert_same(values, expected, ROUNDING[float_type])


@pytest.mark.parametrize("name", ["wis", "incris", "mis"])
def test_a_grid_of_levels_is_a_loop_over_levels(name, double):
    batch = make(6, coarse=True)
    alphas = np.array([[0.0, 0.1], [0.5, 1.0]])
    grid = oj.estimate(batch, f"osiris-{name}", alpha=alphas, discount=0.9)
    assert grid.shape == alphas.shape
    loop = [compiled(batch, alpha=a, test="welch")[name] for a in alphas.ravel()]
    np.testing.assert_allclose(grid.ravel(), np.array(loop), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in oj.ESTIMATORS if name != "incris"])
def test_gradients_are_finite(name, double):
    batch = poisoned(make(7))
    gradient = jax.grad(lambda x: oj.ESTIMATORS[name](batch, x, discount=0.9))(batch.log_ratio)
    assert np.all(np.isfinite(gradient))
    assert np.all(gradient[~batch.mask] == 0)
    assert np.any(gradient != 0) == (name != "mc")


def test_all_weights_zero(float_type):
    """An empty normaliser is NaN; an average of zeros is zero."""
    data = random_data(8, SIZE)
    for episode in data:
        episode["log_ratio"][:] = -np.inf
    values = compiled(load(data))
    undefined = {label for label, value in values.items() if np.isnan(value)}
    assert undefined == {"wis", "cwpdis", "cwpdis-drop", "cwpdis-share", "phwis", "mis"}
    assert values["is"] == values["pdis"] == 0
    assert values["mc"] != 0


@every_test
def test_pvalues_need_states_and_ratios(test):
    batch = make()
    for field in ("state", "log_ratio"):
        lacking = batch.replace(**{field: None})
        with pytest.raises(ValueError, match=field):
            oj.estimate(lacking, "wis", relevance=test, **TEST_OPTIONS.get(test, {}))


def test_a_random_map_is_between_nothing_and_everything(double):
    batch = make(9)
    keep = random_map(1)
    assert 0 < keep.sum() < NUM_STATES
    value = oj.estimate(batch, "is", relevance="oracle", keep=keep)
    assert value not in (oj.estimate(batch, "is"), oj.estimate(batch, "mc"))
