"""Doubly robust estimators and their tabular Q-hat."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import (
    MAX_STEPS,
    NUM_ACTIONS,
    NUM_STATES,
    load,
    poisoned,
    ragged_data,
    random_data,
)
from exact_cases import agree
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import doubly_robust as oracle_dr

import osiris_jax as oj
from osiris_jax.estimators.doubly_robust import dm, dr, wdr
from osiris_jax.estimators.per_decision import cwpdis, pdis
from osiris_jax.models.qhat import supplied, tabular
from osiris_jax.models.tabular_rows import BLOCK

KERNELS = {"dr": dr, "wdr": wdr, "dm": dm}
TABULAR = sys.modules["osiris_jax.models.tabular"]
MODES = ("tables", "rows")
DISCOUNTS = st.sampled_from([1.0, 0.9, 0.0])


def with_probs(data, seed, *, by_state=False):
    """The data with random target probabilities; at most steps they differ between visits."""
    rng = np.random.default_rng([seed, 5])
    table = rng.dirichlet(np.ones(NUM_ACTIONS), NUM_STATES)
    for episode in data:
        noise = rng.dirichlet(np.ones(NUM_ACTIONS), len(episode["states"]))
        probs = table[episode["states"]]
        episode["target_probs"] = probs if by_state else (probs + noise) / 2
    return data


def both_ways(batch, folds, discount, smoothing):
    """The fit by tables of all pairs, and by the pairs that were seen."""
    found = {}
    for mode in MODES:
        with pytest.MonkeyPatch.context() as patch:
            only(mode, patch)
            found[mode] = tabular(batch, discount=discount, folds=folds, smoothing=smoothing)
    return found


def only(mode, patch):
    """That form alone, wherever the other would be used."""
    rows, tables = TABULAR.values_from_rows, TABULAR.values_from_tables
    if mode == "rows":
        patch.setattr(TABULAR, "values_from_tables", lambda *x, sizes: rows(sizes)(*x))
    else:
        patch.setattr(TABULAR, "values_from_rows", lambda sizes: partial(tables, sizes=sizes))


compiled_fit = jax.jit(both_ways, static_argnames="folds")


@partial(jax.jit, static_argnames="folds")
def compiled_estimates(batch, discount=1.0, smoothing=1.0, q=None, q_steps=None, *, folds=2):
    options = {"discount": discount, "smoothing": smoothing, "q_folds": folds}
    return {
        name: kernel(batch, batch.log_ratio, q=q, q_steps=q_steps, **options)
        for name, kernel in KERNELS.items()
    }


def estimates(*args, **options):
    return {name: np.asarray(x) for name, x in compiled_estimates(*args, **options).items()}


@jax.jit
def importance_sampling(batch, discount):
    return tuple(kernel(batch, batch.log_ratio, discount=discount) for kernel in (pdis, cwpdis))


def expect(found, data, qhat, discount, *, rtol=1e-9, atol=1e-11):
    for name, reference in oracle_dr.ESTIMATORS.items():
        expected = reference(data, qhat, discount)
        scale = max(np.abs(e["rewards"]).max() for e in data)
        np.testing.assert_allclose(
            found[name], expected, rtol=rtol, atol=atol * scale, err_msg=name
        )


# Against the oracle ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    ragged_data(),
    st.integers(0, 1000),
    DISCOUNTS,
    st.sampled_from([0, 2, 3]),
    st.sampled_from([0.0, 1.0, 0.3]),
)
def test_fitted_values_and_estimates(data, seed, discount, folds, smoothing):
    """Sizes 2 and 6: with 3 folds of 2 trajectories one fold is empty, with 2 each sees one."""
    data = with_probs(data, seed)
    qhat = oracle_dr.fitted(data, NUM_ACTIONS, discount=discount, folds=folds, smoothing=smoothing)
    with jax.enable_x64(True):
        batch = load(data)
        fits = compiled_fit(batch, folds, discount, smoothing)
        found = estimates(batch, discount, smoothing, folds=folds)
    scale = max(np.abs(e["rewards"]).max() for e in data)
    for mode in MODES:
        for i, (taken, value) in enumerate(oracle_dr.step_values(data, qhat)):
            for row, expected in ((fits[mode].q[i], taken), (fits[mode].v[i], value)):
                expected = np.pad(np.array(expected, float), (0, MAX_STEPS - len(expected)))
                np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-11 * scale)
    expect(found, data, qhat, discount)


@settings(max_examples=40)
@given(ragged_data(), st.integers(0, 1000), DISCOUNTS)
def test_supplied_values(data, seed, discount):
    data, rng = with_probs(data, seed), np.random.default_rng(seed)
    by_state = rng.normal(size=(NUM_STATES, NUM_ACTIONS))
    by_time = rng.normal(size=(MAX_STEPS + 3, NUM_STATES, NUM_ACTIONS))
    by_step = rng.normal(size=(len(data), MAX_STEPS, NUM_ACTIONS))
    rows = [row[: len(e["rewards"])] for row, e in zip(by_step, data, strict=True)]
    with jax.enable_x64(True):
        batch = load(data)
        for given_q, qhat in (
            ({"q": by_state}, oracle_dr.from_table(data, by_state)),
            ({"q": by_time}, oracle_dr.from_table(data, by_time)),
            ({"q_steps": by_step}, rows),
        ):
            expect(estimates(batch, discount, **given_q), data, qhat, discount)


@pytest.mark.parametrize("seed", range(4))
def test_float32_follows(seed):
    data = with_probs(random_data(seed, 6, spread=0.3), seed)
    batch = load(data)
    qhat = oracle_dr.fitted(data, NUM_ACTIONS, discount=0.9)
    found = estimates(batch, 0.9)
    assert {x.dtype for x in found.values()} == {jnp.dtype("float32")}
    expect(found, data, qhat, 0.9, rtol=1e-4, atol=1e-5)
    table = np.random.default_rng(seed).normal(size=(NUM_STATES, NUM_ACTIONS))
    found = estimates(batch, 0.9, q=table)
    assert {x.dtype for x in found.values()} == {jnp.dtype("float32")}
    expect(found, data, oracle_dr.from_table(data, table), 0.9, rtol=1e-4, atol=1e-5)


def test_huge_weights_and_ratios_of_zero(float_type):
    """Weights beyond the float type cancel against small ones; nothing is NaN."""
    data = with_probs(random_data(3, 6), 3)
    big = 80.0 if float_type == "float32" else 600.0
    for episode in data:
        episode["log_ratio"][:] = 0.0
        episode["log_ratio"][0] = big
        episode["log_ratio"][-1] -= big + 5
    data[0]["log_ratio"][-1] = -np.inf
    table = np.zeros((NUM_STATES, NUM_ACTIONS))
    for episode in data:
        episode["rewards"][:-1] = 0
    found = estimates(load(data), q=table)
    expect(found, data, oracle_dr.from_table(data, table), 1.0, rtol=1e-3, atol=1e-6)
    table = np.random.default_rng(0).normal(size=table.shape)
    for value in estimates(load(data), q=table).values():
        assert np.isfinite(value)


def test_one_step_has_rewards_and_no_successors(double):
    """Bandits: every visit is at the time when the longest trajectory ends."""
    data = with_probs(random_data(5, 6, max_steps=1), 5)
    qhat = oracle_dr.fitted(data, NUM_ACTIONS, discount=0.9, folds=2, smoothing=1.0)
    assert any(np.any(row) for row in qhat)
    expect(estimates(load(data), 0.9), data, qhat, 0.9)


def test_more_transitions_than_a_block_holds(double):
    """Distinct (s, a, s') fill several blocks and a part of one; from all data at once."""
    rng, num_states = np.random.default_rng(9), 40
    data = random_data(9, 190)
    for episode in data:
        episode["states"] = rng.integers(num_states, size=len(episode["states"]))
        episode["target_probs"] = rng.dirichlet(np.ones(NUM_ACTIONS), len(episode["states"]))
    distinct = {(s, a, after) for s, a, _, after in oracle_dr.transitions(data, MAX_STEPS)}
    assert 4 * BLOCK < len(distinct) < 6 * BLOCK
    assert num_states**2 * NUM_ACTIONS > 190 * MAX_STEPS  # by rows
    batch = load(data, num_states=num_states)
    found = jax.jit(partial(tabular, folds=0))(batch, discount=0.9, smoothing=0.3)
    tables = oracle_dr.fitted_tables(data, data, NUM_ACTIONS, 0.9, 0.3)
    for i, episode in enumerate(data):
        steps = zip(episode["states"], episode["actions"], strict=True)
        expected = [float(tables[t][int(s)][int(a)]) for t, (s, a) in enumerate(steps)]
        np.testing.assert_allclose(found.q[i, : len(expected)], expected, rtol=1e-9, atol=1e-11)


# Laws -----------------------------------------------------------------------------------------


def test_padding_never_matters(double):
    """Not to the fit's horizon either: it is the longest trajectory, not the arrays' length."""
    data = with_probs(random_data(1, 6, max_steps=MAX_STEPS - 2), 1)
    batch = load(data)
    assert not batch.mask.any(0).all()
    trimmed, padded = oj.trim(batch), poisoned(batch)
    expected = estimates(trimmed, 0.9)
    assert np.isfinite(list(expected.values())).all()
    agree(list(estimates(padded, 0.9).values()), list(expected.values()))
    fits = compiled_fit(padded, 2, 0.9, 1.0)
    for mode in MODES:
        assert all((np.asarray(x)[~batch.mask] == 0).all() for x in fits[mode])
    q_steps = np.where(batch.mask[..., None], np.arange(NUM_ACTIONS), np.nan)
    plain = estimates(trimmed, 0.9, q_steps=q_steps[:, : trimmed.mask.shape[1]])
    assert np.isfinite(list(plain.values())).all()
    agree(list(estimates(padded, 0.9, q_steps=q_steps).values()), list(plain.values()))


@settings(max_examples=30)
@given(ragged_data(), st.integers(0, 1000), DISCOUNTS)
def test_without_q_hat_these_are_importance_sampling(data, seed, discount):
    with jax.enable_x64(True):
        batch = load(with_probs(data, seed))
        found = estimates(batch, discount, q=np.zeros((NUM_STATES, NUM_ACTIONS)))
        expected = importance_sampling(batch, discount)
    agree((found["dr"], found["wdr"]), expected, tolerance=1e-12)
    assert found["dm"] == 0


def test_the_order_of_trajectories_matters_through_folds_alone(double):
    data = with_probs(random_data(2, 6), 2)
    for folds, order, same in (
        (0, [5, 3, 1, 0, 2, 4], True),
        (2, [4, 1, 2, 5, 0, 3], True),  # even with even
        (2, [1, 0, 3, 2, 5, 4], True),  # the folds change names
        (2, [1, 2, 3, 4, 0, 5], False),
    ):
        moved = estimates(load([data[i] for i in order]), 0.9, folds=folds)
        fixed = estimates(load(data), 0.9, folds=folds)
        for name, value in fixed.items():
            assert np.isclose(moved[name], value, rtol=1e-10) == same, (folds, order, name)


def test_all_weights_zero_is_undefined_only_where_weights_are_normalised(float_type):
    data = with_probs(random_data(8, 6), 8)
    for episode in data:
        episode["log_ratio"][:] = -np.inf
    found = estimates(load(data))
    assert np.isnan(found["wdr"])
    np.testing.assert_allclose(found["dr"], found["dm"], rtol=1e-5)
    data = [
        {"states": [0], "actions": [0], "rewards": [1.0], "log_ratio": [0.5]},
        {"states": [1, 2], "actions": [0, 1], "rewards": [1.0, 2.0], "log_ratio": [0.0, -np.inf]},
    ]
    data = with_probs([{k: np.array(v) for k, v in e.items()} for e in data], 0)
    for finished_early, ratio in ((True, 0.5), (False, -np.inf)):
        data[0]["log_ratio"][0] = ratio
        value = estimates(load(data))["wdr"]
        assert np.isfinite(value) == finished_early


def test_nothing_to_learn_from_is_importance_sampling(double):
    """One trajectory and two folds: its Q-hat comes from no data and is 0."""
    data = with_probs(random_data(4, 1), 4)
    agree(estimates(load(data))["dr"], oracle.pdis(data))


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["state", "action", "target_probs"])
def test_what_is_missing_is_named(field):
    batch = load(with_probs(random_data(0, 2), 0)).replace(**{field: None})
    table = jnp.zeros((NUM_STATES, NUM_ACTIONS))
    for options in ({}, {"q": table}):
        with pytest.raises(ValueError, match=f"Q-hat by state needs `{field}`"):
            dr(batch, batch.log_ratio, **options)
    by_step = jnp.zeros((*batch.mask.shape, NUM_ACTIONS))
    if field == "state":
        assert dm(batch, batch.log_ratio, q_steps=by_step) == 0


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("q", (NUM_STATES,)),
        ("q", (NUM_ACTIONS, NUM_STATES)),
        ("q", (MAX_STEPS - 1, NUM_STATES, NUM_ACTIONS)),
        ("q", (1, MAX_STEPS, NUM_STATES, NUM_ACTIONS)),
        ("q_steps", (2, MAX_STEPS)),
        ("q_steps", (2, MAX_STEPS, NUM_ACTIONS + 1)),
        ("q_steps", (2, MAX_STEPS + 1, NUM_ACTIONS)),
    ],
)
def test_values_of_the_wrong_shape_are_refused(name, shape):
    batch = load(with_probs(random_data(0, 2), 0))
    for kernel in KERNELS.values():
        with pytest.raises(ValueError, match=rf"^{name}: expected .*got shape"):
            kernel(batch, batch.log_ratio, **{name: np.zeros(shape)})


def test_contradictory_options_are_refused():
    batch = load(with_probs(random_data(0, 2), 0))
    table, by_step = np.zeros((NUM_STATES, NUM_ACTIONS)), np.zeros((2, MAX_STEPS, NUM_ACTIONS))
    with pytest.raises(ValueError, match=r"^q: give either"):
        dr(batch, batch.log_ratio, q=table, q_steps=by_step)
    with pytest.raises(ValueError, match=r"^q: give either"):
        supplied(batch)
    with pytest.raises(ValueError, match=r"^fit: 'other' is unknown; there are tabular"):
        dr(batch, batch.log_ratio, fit="other")
    with pytest.raises(ValueError, match=r"^folds: "):
        dr(batch, batch.log_ratio, q_folds=-1)


# Trajectories that were cut ----------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_trajectories_cut_by_the_horizon_have_not_ended(mode, double, monkeypatch):
    """`dm` where nothing ever ends: the truth, within 4 standard errors.

    The fit is a smooth function of means over N trajectories, so that its bias is b / N + O(1/N^2):
    twice the estimate from 2 N less that from the first N of them has none of order 1 / N. Already
    b / N is about one standard error here, and what remains far below it. Taking each cut for an
    end would make trajectories of the model end with probability 1 / T at every step.
    """
    rng = np.random.default_rng(4)
    states, actions, steps, size = 4, 2, 8, 50
    transition = rng.dirichlet(np.full(states, 3.0), (states, actions))
    reward = 1 + rng.normal(size=(states, actions))
    policies = rng.dirichlet(np.full(actions, 10.0), (2, states))
    endless = {"horizon": steps, "terminal": np.zeros(states, bool)}
    world = oj.TabularWorld(transition, reward, 0, *policies, **endless)
    only(mode, monkeypatch)
    batch = world.rollout(jax.random.split(jax.random.key(2), 1000), 2 * size, probs=True)
    assert (batch.lengths == steps).all()

    @jax.jit
    def value(batch):
        return jax.vmap(lambda one: dm(one, one.log_ratio))(batch)

    half = value(jax.tree.map(lambda x: x[:, :size], batch))
    whole = value(batch)
    found, exact = 2 * whole - half, world.exact().value
    error = np.std(found) / np.sqrt(len(found))
    assert abs(found.mean() - exact) < 4 * error
    assert abs(world.exact(1 - 1 / steps).value - exact) > 100 * error
