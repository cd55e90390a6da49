"""NN-Q: the fit against NumPy, what it learns, and that padding and other data do not matter."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    in_numpy,
    load,
    poisoned,
    random_data,
    stacked,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from oracles import networks as oracle_nnq

from osiris_jax.core.random_streams import integers_below
from osiris_jax.models.layers import initial_params
from osiris_jax.models.neural import fit_q, neural, q_table, q_values
from osiris_jax.relevance.neural import nn_q, nn_q_fit, variation
from osiris_jax.relevance.omission import AtSteps, above

DIM, STEPS, SIZE, RATE = 2, 7, 6, 0.05

STATIC = ("weighting", "hidden", "layers", "steps", "minibatch", "standardize", "inputs")

compiled_fit = jax.jit(fit_q, static_argnames=STATIC)

compiled_neural = jax.jit(neural, static_argnames=(*STATIC, "folds"))

compiled_values = jax.jit(q_values)

first_layers = jax.jit(initial_params, static_argnums=(1, 2))

draw = jax.jit(integers_below, static_argnums=2)

VARIANTS = {
    # fewer states than items of a minibatch, and more: two ways to look states up
    "table": {"weighting": "none", "minibatch": 8, "inputs": "state"},
    "columns": {"minibatch": 3, "layers": 2, "gradient_clip": 0.01, "inputs": "state"},
    "scaled": {"weighting": "future", "minibatch": 8, "standardize": True, "inputs": "state"},
    "seen": {"weighting": "future", "minibatch": 4, "standardize": True, "inputs": "auto"},
}

DEFAULTS = {"weighting": "to-go", "layers": 1, "hidden": 4, "steps": STEPS, "learning_rate": RATE}

VARIANTS = {name: DEFAULTS | options for name, options in VARIANTS.items()}

TABLE = VARIANTS["table"]

DATA = st.builds(
    random_data,
    st.integers(0, 2**32 - 1),
    st.just(SIZE),
    coarse=st.booleans(),
    zeros=st.sampled_from([0.0, 0.15]),
    scale=st.sampled_from([1.0, 1e3]),
)


def with_observations(data, seed):
    """The data with observations whose first dimension is constant."""
    rng = np.random.default_rng(seed)
    return [
        episode | {"observations": np.stack([np.full(steps, 0.3), rng.normal(5, 2, steps)], axis=1)}
        for episode in data
        for steps in [len(episode["rewards"])]
    ]


def make(seed=0, size=SIZE, steps=MAX_STEPS, **kind):
    return load(with_observations(random_data(seed, size, **kind), seed), steps)


def with_target_probs(batch, seed=0):
    probs = np.random.default_rng(seed).dirichlet(np.ones(NUM_ACTIONS), size=batch.mask.shape)
    return batch.replace(target_probs=jnp.asarray(probs, batch.dtype))


def by_hand(key, data, options, *, discount, used=None):
    """The oracle's fit with the library's own first weights and minibatches."""
    inputs = "observation" if options["inputs"] == "auto" else options["inputs"]
    hidden = (options["hidden"],) * options["layers"]
    widths = (NUM_STATES if inputs == "state" else DIM, *hidden, NUM_ACTIONS)
    weights_key, draw_key = random.split(key)
    layers = in_numpy(first_layers(weights_key, widths, jnp.float64))
    seen = [traj for i, traj in enumerate(data) if used is None or used[i]]
    num_steps = sum(len(traj["rewards"]) for traj in seen)
    drawn = [draw(draw_key, t, options["minibatch"], num_steps) for t in range(STEPS)]
    return oracle_nnq.fit(
        data,
        [(layer.kernel.T, layer.bias) for layer in layers],
        [np.asarray(index) for index in drawn],
        num_states=NUM_STATES,
        inputs=inputs,
        weighting=options["weighting"],
        discount=discount,
        learning_rate=RATE,
        clip=options.get("gradient_clip"),
        standardize=options.get("standardize", False),
        used=used,
    )


def assert_close(actual, expected):
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9 * size)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=15)
@given(DATA, st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9]))
def test_the_fit_by_hand(name, data, seed, discount):
    options = VARIANTS[name]
    data = with_observations(data, seed)
    with jax.enable_x64(True):
        key, batch = random.key(seed), load(data)
        fit = compiled_fit(key, batch, discount=discount, **options)
        network, losses, at_steps, table = by_hand(key, data, options, discount=discount)
        assert_close(fit.loss, losses)
        for layer, (kernel, bias) in zip(in_numpy(fit.params), network, strict=True):
            assert_close(layer.kernel.T, kernel)
            assert_close(layer.bias, bias)
        q = np.asarray(compiled_values(fit, batch))
        assert_close(q[np.asarray(batch.mask)], np.concatenate(at_steps))
        assert not q[~np.asarray(batch.mask)].any()
        assert not fit.diverged
        if table is not None:
            assert_close(jax.jit(q_table)(fit), table)


@pytest.mark.parametrize("name", ["table", "seen"])
def test_the_statistic_by_hand(name, double):
    data, key = with_observations(random_data(3, SIZE), 3), random.key(5)
    batch = load(data)
    _, losses, at_steps, table = by_hand(key, data, VARIANTS[name], discount=0.9)
    assert_close(nn_q_fit(batch, key=key, discount=0.9, **VARIANTS[name]).loss, losses)
    statistic = nn_q(batch, key=key, discount=0.9, **VARIANTS[name])
    if name == "table":
        assert_close(statistic, oracle_nnq.variation(table))
    else:
        mask = np.asarray(batch.mask)
        expected = oracle_nnq.variation(np.concatenate(at_steps))
        assert_close(np.asarray(statistic.value)[mask], expected)
        assert not np.asarray(statistic.value)[~mask].any()


@pytest.mark.parametrize("name", ["table", "seen"])
def test_cross_fitting_by_hand(name, double):
    """Trajectory i is answered for by the network that saw those of other folds."""
    data, key = with_observations(random_data(4, SIZE), 4), random.key(6)
    batch = with_target_probs(load(data))
    q, v = in_numpy(compiled_neural(batch, discount=0.9, folds=3, key=key, **VARIANTS[name]))
    for fold in range(3):
        used = [i % 3 != fold for i in range(SIZE)]
        own = random.fold_in(key, fold)
        _, _, at_steps, _ = by_hand(own, data, VARIANTS[name], discount=0.9, used=used)
        for i in range(fold, SIZE, 3):
            steps = range(len(data[i]["rewards"]))
            probs = np.asarray(batch.target_probs)[i, : len(steps)]
            assert_close(q[i, : len(steps)], at_steps[i][steps, data[i]["actions"]])
            assert_close(v[i, : len(steps)], (probs * at_steps[i]).sum(1))
    assert not q[~np.asarray(batch.mask)].any()
    assert not v[~np.asarray(batch.mask)].any()


def test_without_folds_one_network_sees_all(double):
    batch = with_target_probs(make(5))
    q, _ = compiled_neural(batch, folds=1, key=random.key(1), **TABLE)
    fit = compiled_fit(random.fold_in(random.key(1), 0), batch, discount=1.0, **TABLE)
    action = np.where(batch.mask, batch.action, 0)
    values = np.asarray(compiled_values(fit, batch))
    expected = np.take_along_axis(values, action[..., None], axis=2)[..., 0]
    assert_close(q, expected)


@pytest.mark.parametrize(("name", "dtype"), [("scaled", "float64"), ("seen", "float32")])
def test_padding_changes_no_bit(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        batch, longer = make(1, zeros=0.1), make(1, zeros=0.1, steps=29)
        fits = [
            compiled_fit(random.key(1), padded, discount=0.9, **VARIANTS[name])
            for padded in (batch, poisoned(batch), poisoned(longer))
        ]
    chex.assert_trees_all_equal(*fits)
    assert not fits[0].diverged
    floats = (fits[0].params, fits[0].loss, fits[0].input, fits[0].target)
    assert {x.dtype for x in jax.tree.leaves(floats)} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("name", ["table", "seen"])
def test_padding_does_not_change_what_is_said(name, double):
    batch, options = with_target_probs(make(2)), VARIANTS[name] | {"discount": 0.9}
    key = random.key(0)
    said, of_spoiled = (
        (nn_q(x, key=key, **options), compiled_neural(x, folds=3, key=key, **options))
        for x in (batch, poisoned(batch))
    )
    chex.assert_trees_all_equal(said, of_spoiled)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(said))


def test_other_folds_alone_decide(double):
    """Other rewards in fold 0 leave what is said of fold 0, and only that."""
    batch, key = with_target_probs(make(3)), random.key(2)
    own, reward = (np.arange(SIZE) % 3 == 0)[:, None], np.asarray(batch.reward)
    changed = batch.replace(reward=jnp.asarray(np.where(own, 3.0 * reward + 1.0, reward)))
    options = VARIANTS["seen"] | {"discount": 0.9, "folds": 3}
    before, after = (in_numpy(compiled_neural(x, key=key, **options)[0]) for x in (batch, changed))
    np.testing.assert_array_equal(before[::3], after[::3])
    others = ~own & np.asarray(batch.mask)
    assert np.all((before != after) == others)


TRIALS = 4

on_trials = jax.jit(jax.vmap(lambda batch, key: nn_q(batch, key=key, discount=0.9, **TABLE)))


def test_trials_together_are_trials_alone(double):
    batches = [make(seed) for seed in range(TRIALS)]
    keys = random.split(random.key(0), TRIALS)
    together = on_trials(stacked(batches), keys)
    alone = [
        nn_q(batch, key=key, discount=0.9, **TABLE)
        for batch, key in zip(batches, keys, strict=True)
    ]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-9)


def test_keys_tell_trials_apart(double):
    same = stacked([make(0)] * TRIALS)
    one, other = random.split(random.key(0), 2)
    first, second, third, _ = in_numpy(on_trials(same, jnp.stack([one, other, one, other])))
    assert np.all(first != second)
    np.testing.assert_array_equal(first, third)


def test_no_key_is_key_0(double):
    default = nn_q(make(0), discount=0.9, **TABLE)
    named = nn_q(make(0), key=random.key(0), discount=0.9, **TABLE)
    np.testing.assert_array_equal(default, named)


def test_both_float_types_train_alike():
    """Weights and minibatches are the same; only rounding differs."""
    losses = {}
    for x64 in (False, True):
        with jax.enable_x64(x64):
            fit = compiled_fit(random.key(2), make(6), discount=0.9, **TABLE)
            losses[x64] = fit.loss
    assert (losses[False].dtype, losses[True].dtype) == ("float32", "float64")
    np.testing.assert_allclose(losses[False], losses[True], rtol=1e-5)


@pytest.mark.parametrize("kind", ["healthy", "rate", "weights", "weights, standardised"])
def test_a_diverging_fit_is_flagged(kind):
    batch, options = make(0), TABLE | {"weighting": "to-go"}
    if kind == "rate":
        options["learning_rate"] = 1e30
    if kind.startswith("weights"):
        batch = batch.replace(log_ratio=jnp.asarray(np.full_like(batch.reward, 90.0)))
    if kind.endswith("standardised"):
        options["standardize"] = True
    key, ill = random.key(0), kind != "healthy"
    assert bool(nn_q_fit(batch, key=key, **options).diverged) == ill
    statistic = nn_q(batch, key=key, **options)
    assert np.all(np.isnan(statistic) == ill)
    assert not (above(statistic, 0.0).any() and ill)


def test_a_fit_without_data_is_flagged():
    fit = compiled_fit(random.key(0), make(0), used=jnp.zeros((SIZE, MAX_STEPS), bool), steps=1)
    assert fit.diverged


def test_one_trajectory_cannot_be_cross_fitted():
    batch = with_target_probs(make(0, size=1))
    for said in compiled_neural(batch, **TABLE):
        np.testing.assert_array_equal(np.isnan(said), batch.mask)


def test_draws_are_whole_numbers_below_the_count():
    """The upper word of bits * count, with Python's integers; the bits are JAX's own."""
    for count in (1, 3, 1000, 65536, 10**6 + 3, 2**31 - 1):
        bits = random.bits(random.fold_in(random.key(1), 4), (50,), jnp.uint32)
        expected = [(int(x) * count) >> 32 for x in np.asarray(bits)]
        np.testing.assert_array_equal(draw(random.key(1), 4, 50, count), expected)


def test_every_step_is_equally_likely():
    counts = np.bincount(draw(random.key(0), 0, 70_000, 7), minlength=7)
    assert np.all(np.abs(counts - 10_000) < 5 * np.sqrt(10_000 * 6 / 7))


def test_first_weights():
    """LeCun's rule: variance 1 / inputs. A truncated normal's kurtosis is below 3."""
    (layer,) = in_numpy(first_layers(random.key(0), (400, 300), jnp.float32))
    error = np.sqrt(2 / layer.kernel.size) / 400
    assert abs(layer.kernel.astype(float).var() - 1 / 400) < 5 * error
    assert not layer.bias.any()


def test_variation():
    q = np.float32([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0], [-2.0, -2.0, -2.0], [-1.0, 0.0, 1.0]])
    compiled = jax.jit(variation)
    np.testing.assert_allclose(compiled(-q), [np.sqrt(14 / 3) / 3, 0, 0, np.inf], rtol=1e-6)
    assert not np.asarray(compiled(np.float32([[3.0], [0.0]]))).any()


def test_above_is_strict():
    statistic = jnp.array([[0.4, 0.41, jnp.nan, jnp.inf]])
    expected = [[False, True, False, True]]
    np.testing.assert_array_equal(above(statistic, 0.4), expected)
    np.testing.assert_array_equal(above(AtSteps(statistic), 0.4).value, expected)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("weighting", "both"), ("inputs", "all"), ("steps", 0), ("minibatch", 0)),
        *(("hidden", 0), ("layers", -1)),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"^{option}: "):
        nn_q(make(0), **{option: value})


def test_missing_fields_are_named():
    batch = make(0)
    with pytest.raises(ValueError, match="`log_ratio`"):
        nn_q(batch.replace(log_ratio=None), weighting="to-go")
    with pytest.raises(ValueError, match="`observation`"):
        nn_q(batch.replace(observation=None), inputs="observation")
    with pytest.raises(ValueError, match="`action`"):
        nn_q(batch.replace(action=None))
    with pytest.raises(ValueError, match="`target_probs`"):
        neural(batch.replace(target_probs=None))
    with pytest.raises(ValueError, match="folds: "):
        neural(batch, folds=-1)
    with pytest.raises(ValueError, match="observations; use q_values"):
        q_table(compiled_fit(random.key(0), batch, discount=0.9, **VARIANTS["seen"]))


def test_no_hidden_layers_are_allowed():
    statistic = jax.eval_shape(partial(nn_q, layers=0, inputs="state"), make(0))
    assert statistic.shape == (NUM_STATES,)
