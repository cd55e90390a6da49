"""NN-Q: the fit against NumPy, what it learns, and that padding and other data do not matter."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import oracle_nnq
import pytest
from datasets import MAX_STEPS, NUM_STATES, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random
from test_contract import poisoned

import osiris_jax as oj
from osiris_jax.qhat.layers import initial_params
from osiris_jax.qhat.neural import draw, fit_q, neural, q_table, q_values
from osiris_jax.relevance.neural import nn_q, nn_q_fit, variation
from osiris_jax.relevance.omission import AtSteps, above

NUM_ACTIONS, DIM, STEPS = 3, 2, 7
STATIC = ("weighting", "hidden", "steps", "minibatch", "standardize", "inputs")
compiled_fit = jax.jit(fit_q, static_argnames=STATIC)
compiled_nn_q = jax.jit(nn_q, static_argnames=(*STATIC, "layers"))
compiled_neural = jax.jit(neural, static_argnames=(*STATIC, "layers", "folds"))
VARIANTS = {
    # fewer states than items of a minibatch, and more: the two ways to look states up
    "paper": {"weighting": "none", "hidden": (4,), "minibatch": 8, "inputs": "state"},
    "few": {"weighting": "to-go", "hidden": (4, 3), "minibatch": 3, "inputs": "state"},
    "linear": {"weighting": "future", "hidden": (), "minibatch": 3, "inputs": "state"},
    "scaled": {"weighting": "future", "minibatch": 8, "inputs": "state", "standardize": True},
    "seen": {"weighting": "future", "minibatch": 4, "inputs": "observation", "standardize": True},
    "clipped": {"weighting": "none", "minibatch": 4, "inputs": "auto", "gradient_clip": 0.01},
}
VARIANTS = {name: {"hidden": (4,)} | options for name, options in VARIANTS.items()}


def with_observations(data, seed):
    """The data with observations whose first dimension is constant."""
    rng = np.random.default_rng(seed)
    return [
        episode | {"observations": np.stack([np.full(steps, 0.3), rng.normal(5, 2, steps)], axis=1)}
        for episode in data
        for steps in [len(episode["rewards"])]
    ]


def load(data, steps=MAX_STEPS):
    batch = oj.from_episodes(data, num_states=NUM_STATES, num_actions=NUM_ACTIONS)
    return oj.pad_to(batch, steps)


def make(seed=0, size=6, steps=MAX_STEPS, **kind):
    return load(with_observations(random_data(seed, size, **kind), seed), steps)


def with_target_probs(batch, seed=0):
    probs = np.random.default_rng(seed).dirichlet(np.ones(NUM_ACTIONS), size=batch.mask.shape)
    return batch.replace(target_probs=jnp.asarray(probs, batch.dtype))


def first_weights(key, options, width):
    """The network before the first step, as the oracle writes it."""
    widths = (width, *options["hidden"], NUM_ACTIONS)
    layers = initial_params(random.split(key)[0], widths, jnp.float64)
    return [(np.array(layer.kernel).T, np.array(layer.bias)) for layer in layers]


def minibatches(key, options, num_steps):
    drawn = partial(draw, random.split(key)[1], size=options["minibatch"])
    return [np.asarray(drawn(t, count=jnp.asarray(num_steps))) for t in range(STEPS)]


def by_hand(key, data, options, *, discount, used=None):
    """The oracle's fit with the library's own randomness."""
    options = dict(options)
    inputs = "observation" if options["inputs"] == "auto" else options["inputs"]
    width = NUM_STATES if inputs == "state" else DIM
    seen = [t for i, t in enumerate(data) if used is None or used[i]]
    num_steps = sum(len(episode["rewards"]) for episode in seen)
    return oracle_nnq.fit(
        data,
        first_weights(key, options, width),
        minibatches(key, options, num_steps),
        num_states=NUM_STATES,
        inputs=inputs,
        weighting=options["weighting"],
        discount=discount,
        learning_rate=0.05,
        clip=options.get("gradient_clip"),
        standardize=options.get("standardize", False),
        used=used,
    )


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=12)
@given(ragged_data(), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 0.9]))
def test_the_fit_by_hand(name, data, seed, discount):
    options = VARIANTS[name]
    data = with_observations(data, seed)
    with jax.enable_x64(True):
        key, batch = random.key(seed), load(data)
        fit = compiled_fit(
            key, batch, discount=discount, steps=STEPS, learning_rate=0.05, **options
        )
        network, losses, at_steps, table = by_hand(key, data, options, discount=discount)
        assert_close(fit.loss, losses)
        for layer, (kernel, bias) in zip(fit.params, network, strict=True):
            assert_close(layer.kernel.T, kernel)
            assert_close(layer.bias, bias)
        q = np.asarray(q_values(fit, batch))
        assert_close(q[np.asarray(batch.mask)], np.concatenate(at_steps))
        assert not q[~np.asarray(batch.mask)].any()
        assert not fit.diverged
        if table is not None:
            assert_close(q_table(fit), table)


def assert_close(actual, expected):
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9 * size)


@pytest.mark.parametrize("name", ["paper", "seen"])
def test_the_statistic_by_hand(name, double):
    options = VARIANTS[name] | {"learning_rate": 0.05}
    data = with_observations(random_data(3, 6), 3)
    batch, key = load(data), random.key(5)
    size = {"hidden": 4, "layers": 1, "steps": STEPS}
    statistic = compiled_nn_q(batch, key=key, discount=0.9, **options | size)
    _, losses, at_steps, table = by_hand(key, data, VARIANTS[name], discount=0.9)
    if name == "paper":
        assert_close(statistic, oracle_nnq.variation(table))
        fit = nn_q_fit(batch, key=key, discount=0.9, **options | size)
        assert_close(fit.loss, losses)
    else:
        mask = np.asarray(batch.mask)
        expected = oracle_nnq.variation(np.concatenate(at_steps))
        assert_close(np.asarray(statistic.value)[mask], expected)
        assert not np.asarray(statistic.value)[~mask].any()


@pytest.mark.parametrize("name", ["scaled", "seen"])
def test_cross_fitting_by_hand(name, double):
    """Trajectory i is answered for by the network that saw those of other folds."""
    data = with_observations(random_data(4, 6), 4)
    batch, key = with_target_probs(load(data)), random.key(6)
    options = VARIANTS[name] | {"hidden": 4, "steps": STEPS, "learning_rate": 0.05}
    q, v = compiled_neural(batch, discount=0.9, folds=3, key=key, **options)
    for fold in range(3):
        used = [i % 3 != fold for i in range(6)]
        own = random.fold_in(key, fold)
        _, _, at_steps, _ = by_hand(own, data, VARIANTS[name], discount=0.9, used=used)
        for i in range(fold, 6, 3):
            steps = range(len(data[i]["rewards"]))
            probs = np.asarray(batch.target_probs)[i, : len(steps)]
            assert_close(q[i, : len(steps)], at_steps[i][steps, data[i]["actions"]])
            assert_close(v[i, : len(steps)], (probs * at_steps[i]).sum(1))
    assert not np.asarray(q)[~np.asarray(batch.mask)].any()
    assert not np.asarray(v)[~np.asarray(batch.mask)].any()


def test_without_folds_one_network_sees_all(double):
    batch = with_target_probs(make(5))
    options = {"hidden": 4, "steps": STEPS, "minibatch": 8, "inputs": "state"}
    q, _ = compiled_neural(batch, folds=1, key=random.key(1), **options)
    key = random.fold_in(random.key(1), 0)
    fit = compiled_fit(key, batch, weighting="future", **options | {"hidden": (4,)})
    action = jnp.where(batch.mask, batch.action, 0)
    expected = jnp.take_along_axis(q_values(fit, batch), action[..., None], axis=2)[..., 0]
    np.testing.assert_array_equal(q, expected)


def two_steps(size, *, seed=0, level=0.0, unit=1.0):
    """State 0, then state 1, then the end, with Q of the target policy: [state, action]."""
    rng = np.random.default_rng(seed)
    behavior, target = np.full(3, 1 / 3), np.array([0.4, 0.35, 0.25])
    reward = np.array([[-0.3, 0.0, 0.3], [0.2, 0.0, -0.2]])
    data = []
    for _ in range(size):
        actions = rng.integers(3, size=2)
        rewards = reward[[0, 1], actions] + rng.uniform(-0.05, 0.05, 2)
        data.append(
            {
                "states": np.array([0, 1]),
                "actions": actions,
                "rewards": np.array([0, level]) + unit * rewards,
                "log_ratio": np.log(target / behavior)[actions],
            }
        )
    q = np.array([reward[0] + target @ reward[1], reward[1]])
    return data, level + unit * q


def standard_errors(data, weighting):
    """Of the mean target in every [state, action]."""
    samples = [[[] for _ in range(3)] for _ in range(2)]
    for traj in data:
        for t, value in enumerate(oracle_nnq.targets(traj, weighting, 1.0)):
            samples[t][traj["actions"][t]].append(value)
    return np.array([[np.std(x, ddof=1) / np.sqrt(len(x)) for x in row] for row in samples])


@pytest.mark.parametrize("hidden", [(), (32,)])
def test_a_known_q_is_recovered(hidden, float_type):
    """No error exceeds 1, so Huber's minimum is each cell's mean, which errs by its std. error."""
    data, q = two_steps(300)
    options = {"hidden": hidden, "steps": 3000, "learning_rate": 3e-3, "inputs": "state"}
    fit = compiled_fit(random.key(0), oj.from_episodes(data), weighting="future", **options)
    bound = 5 * standard_errors(data, "future")
    assert np.ptp(q, axis=1).min() > 2 * bound.max()
    assert np.all(np.abs(q_table(fit) - q) < bound)
    assert fit.loss[-1] < fit.loss[0]


def test_large_returns_need_standardised_targets():
    """Adam moves a weight by 1e-3 a step at most, and cannot reach a Q of 600 in 500 steps."""
    data, q = two_steps(300, level=600.0, unit=100.0)
    options = {"steps": 500, "learning_rate": 1e-3, "weighting": "none"}
    batch = oj.from_episodes(data)
    raw, scaled = (
        q_table(compiled_fit(random.key(0), batch, standardize=standardize, **options))
        for standardize in (False, True)
    )
    of_behavior = q + np.array([[1.0], [0.0]]) * 100 * (
        0 - np.array([0.4, 0.35, 0.25]) @ [0.2, 0, -0.2]
    )
    assert np.all(np.abs(raw) < 60)
    spread = np.ptp(of_behavior, axis=1).min()
    assert np.all(np.abs(scaled - of_behavior) < spread / 4)


@pytest.mark.parametrize("inputs", ["state", "observation"])
@pytest.mark.parametrize("weighting", ["none", "to-go"])
def test_padding_changes_no_bit(inputs, weighting, float_type):
    options = {"minibatch": 8, "hidden": (4,), "standardize": True, "inputs": inputs}
    options |= {"weighting": weighting, "steps": STEPS}
    batch = make(1, zeros=0.1)
    fits = [
        compiled_fit(random.key(1), padded, **options)
        for padded in (batch, poisoned(batch), poisoned(make(1, zeros=0.1, steps=29)))
    ]
    for other in fits[1:]:
        jax.tree.map(np.testing.assert_array_equal, fits[0], other)
    assert fits[0].loss.dtype == float_type
    assert {x.dtype.name for x in jax.tree.leaves(fits[0].params)} == {float_type}


@pytest.mark.parametrize("inputs", ["state", "observation"])
def test_padding_does_not_change_the_statistic(inputs):
    options = {"minibatch": 8, "hidden": 4, "inputs": inputs, "steps": STEPS}
    batch = make(2)
    plain, bad = (compiled_nn_q(x, **options) for x in (batch, poisoned(batch)))
    jax.tree.map(np.testing.assert_array_equal, plain, bad)
    pair = [with_target_probs(batch), poisoned(with_target_probs(batch))]
    plain, bad = (compiled_neural(x, **options) for x in pair)
    jax.tree.map(np.testing.assert_array_equal, plain, bad)
    assert np.isfinite(plain[0]).all()


def test_other_folds_alone_decide(double):
    """Other rewards, observations and ratios in fold 0 change what is said of fold 1 only."""
    batch = with_target_probs(make(3))
    own = (jnp.arange(6) % 2 == 0)[:, None]
    changed = batch.replace(
        reward=jnp.where(own, 3.0 * batch.reward + 1.0, batch.reward),
        log_ratio=jnp.where(own, -batch.log_ratio, batch.log_ratio),
    )
    options = {"hidden": 4, "minibatch": 8, "steps": STEPS, "standardize": True}
    before, _ = compiled_neural(batch, **options)
    after, _ = compiled_neural(changed, **options)
    np.testing.assert_array_equal(before[::2], after[::2])
    assert np.all((before != after)[1::2] == np.asarray(batch.mask)[1::2])


def test_trials_together_are_trials_alone(double):
    batches = [make(seed) for seed in range(4)]
    together = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    keys = random.split(random.key(0), 4)
    options = {"hidden": 4, "minibatch": 8, "steps": 50, "inputs": "state"}
    run = jax.jit(jax.vmap(lambda batch, key: nn_q(batch, key=key, **options)))
    alone = [compiled_nn_q(b, key=k, **options) for b, k in zip(batches, keys, strict=True)]
    np.testing.assert_allclose(run(together, keys), np.stack(alone), rtol=1e-9)


def test_keys_tell_trials_apart():
    same = jax.tree.map(lambda x: jnp.stack([x, x]), make(0))
    options = {"hidden": 4, "minibatch": 8, "steps": STEPS, "inputs": "state"}
    run = jax.jit(jax.vmap(lambda batch, key: nn_q(batch, key=key, **options)))
    first, second = run(same, random.split(random.key(0), 2))
    assert np.all(first != second)
    np.testing.assert_array_equal(*run(same, random.split(random.key(0), 1)[jnp.array([0, 0])]))


def test_no_key_is_key_0():
    options = {"hidden": 4, "minibatch": 8, "steps": STEPS, "inputs": "state"}
    default = compiled_nn_q(make(0), **options)
    np.testing.assert_array_equal(default, compiled_nn_q(make(0), key=random.key(0), **options))


def test_both_float_types_train_alike():
    options = {"steps": 20, "minibatch": 8, "hidden": (4,), "inputs": "state"}
    single = compiled_fit(random.key(2), make(6), **options)
    with jax.enable_x64(True):
        exact = compiled_fit(random.key(2), make(6), **options)
    np.testing.assert_allclose(single.loss, exact.loss, rtol=1e-5)


def diverging(kind, float_type):
    batch = make(0)
    overflow = {"float32": 90.0, "float64": 720.0}[float_type]
    return {
        "healthy": (batch, {}),
        "rate": (batch, {"learning_rate": 1e200 if float_type == "float64" else 1e30}),
        "weights": (batch.replace(log_ratio=jnp.full_like(batch.reward, overflow)), {}),
        "weights, standardised": (
            batch.replace(log_ratio=jnp.full_like(batch.reward, overflow)),
            {"standardize": True},
        ),
        "no data": (batch, {"used": jnp.zeros_like(batch.mask)}),
    }[kind]


@pytest.mark.parametrize("kind", ["healthy", "rate", "weights", "weights, standardised", "no data"])
def test_a_diverging_fit_is_flagged(kind, float_type):
    batch, options = diverging(kind, float_type)
    sizes = {"minibatch": 8, "steps": 20, "inputs": "state", "weighting": "to-go"}
    fit = compiled_fit(random.key(0), batch, hidden=(4,), **sizes, **options)
    assert bool(fit.diverged) == (kind != "healthy")
    if kind != "no data":
        statistic = compiled_nn_q(batch, hidden=4, **sizes, **options)
        assert np.isnan(statistic).all() == (kind != "healthy")
        assert not np.isnan(statistic).any() or not above(statistic, 0.4).any()


def test_one_trajectory_cannot_be_cross_fitted():
    batch = with_target_probs(make(0, size=1))
    q, v = compiled_neural(batch, hidden=4, minibatch=8, steps=STEPS)
    np.testing.assert_array_equal(np.isnan(q), batch.mask)
    np.testing.assert_array_equal(np.isnan(v), batch.mask)


def test_draws_are_whole_numbers_below_the_count():
    """The upper word of bits * count, with Python's integers; the bits are JAX's own."""
    for count in (1, 3, 1000, 65536, 10**6 + 3, 2**31 - 1):
        bits = random.bits(random.fold_in(random.key(1), 4), (50,), jnp.uint32)
        expected = [(int(x) * count) >> 32 for x in bits]
        np.testing.assert_array_equal(draw(random.key(1), 4, 50, jnp.asarray(count)), expected)


def test_every_step_is_equally_likely():
    counts = np.bincount(draw(random.key(0), 0, 70_000, jnp.asarray(7)), minlength=7)
    assert np.all(np.abs(counts - 10_000) < 5 * np.sqrt(10_000 * 6 / 7))


def test_first_weights():
    """LeCun's rule: variance 1 / inputs. A truncated normal's kurtosis is below 3."""
    (layer,) = initial_params(random.key(0), (400, 300), jnp.float32)
    error = np.sqrt(2 / layer.kernel.size) / 400
    assert abs(float(jnp.var(layer.kernel)) - 1 / 400) < 5 * error
    assert not layer.bias.any()


def test_variation():
    q = jnp.array([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0], [-2.0, -2.0, -2.0], [-1.0, 0.0, 1.0]])
    np.testing.assert_allclose(variation(-q), [np.sqrt(14 / 3) / 3, 0, 0, np.inf], rtol=1e-6)
    assert not variation(jnp.array([[3.0], [0.0]])).any()


def test_above_is_strict():
    statistic = jnp.array([[0.4, 0.41, jnp.nan, jnp.inf]])
    expected = [[False, True, False, True]]
    np.testing.assert_array_equal(above(statistic, 0.4), expected)
    np.testing.assert_array_equal(above(AtSteps(statistic), 0.4).value, expected)


@pytest.mark.parametrize(
    ("option", "value"),
    [("weighting", "both"), ("inputs", "all"), ("steps", 0), ("minibatch", 0)]
    + [("hidden", 0), ("layers", -1)],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(ValueError, match=f"^{option}: "):
        nn_q(make(0), **{option: value})


def test_missing_fields_are_named():
    batch = make(0)
    with pytest.raises(ValueError, match="`log_ratio`"):
        nn_q(batch.replace(log_ratio=None))
    with pytest.raises(ValueError, match="`observation`"):
        nn_q(batch.replace(observation=None), inputs="observation")
    with pytest.raises(ValueError, match="`action`"):
        nn_q(batch.replace(action=None))
    with pytest.raises(ValueError, match="`target_probs`"):
        neural(batch)
    with pytest.raises(ValueError, match="folds: "):
        neural(batch, folds=-1)
    with pytest.raises(ValueError, match="observations; use q_values"):
        q_table(compiled_fit(random.key(0), batch, steps=1))


def test_a_linear_network_needs_no_hidden_layer():
    linear = compiled_nn_q(make(0), layers=0, steps=1, inputs="state")
    assert linear.shape == (NUM_STATES,)
