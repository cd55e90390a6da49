"""The automatic choice: every way it can go, against its oracle, and what must not change it."""

import jax
import numpy as np
import pytest
from datasets import load
from oracles import automatic as oracle

import osiris_jax as oj
from osiris_jax.estimators.automatic import decide, members_of

STEPS = 6


def fork(seed, size=40, kinds=2):
    """The first action decides the reward, and later states hide it: they are not Markov."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(size):
        actions = rng.integers(2, size=STEPS)
        reward = np.zeros(STEPS)
        reward[-1] = actions[0] + rng.normal(scale=0.3)
        states = np.minimum(np.arange(STEPS), kinds - 1)
        data.append(episode(states, actions, reward, np.full((STEPS, 2), [0.3, 0.7])))
    return data


def chain(seed, size=40):
    """A walk whose rewards depend on state and action alone: a model is right."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(size):
        states, actions, rewards = [0], [], []
        for _ in range(rng.integers(2, STEPS + 1)):
            actions.append(rng.integers(2))
            rewards.append(actions[-1] * (1 + states[-1]) + rng.normal(scale=0.1))
            states.append((states[-1] + 1 + actions[-1]) % 3)
        probs = np.full((len(actions), 2), [0.4, 0.6])
        data.append(episode(states[:-1], actions, rewards, probs))
    return data


def sparse(seed, size=8, num_actions=9):
    """Nine actions, each rarely seen."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(size):
        actions = rng.integers(num_actions, size=2)
        target = np.full((2, num_actions), 1 / num_actions)
        data.append(episode(rng.integers(3, size=2), actions, rng.normal(size=2), target))
    return data


def episode(states, actions, rewards, target):
    logged = target[np.arange(len(actions)), actions]
    behavior = np.full(len(actions), 1 / target.shape[1])
    return {
        "states": np.asarray(states),
        "actions": np.asarray(actions),
        "rewards": np.asarray(rewards, float),
        "log_ratio": np.log(logged / behavior),
        "target_probs": target,
        "target_prob": logged,
        "behavior_prob": behavior,
    }


def logged_alone(data):
    """The data with probabilities of the logged actions alone."""
    return [{k: x for k, x in one.items() if k != "target_probs"} for one in data]


def loaded(data):
    """As a log with the probabilities of logged actions."""
    fields = ("states", "actions", "rewards", "behavior_prob", "target_prob")
    return oj.from_episodes([{k: one[k] for k in fields} for one in logged_alone(data)])


def without_states(batch):
    return batch.replace(state=None, num_states=0)


def assert_as_the_oracle(batch, data):
    found = decide(batch, batch.log_ratio)
    expected = oracle.decide(data)
    np.testing.assert_allclose(found.values, [float(x) for x in expected["values"]], rtol=1e-9)
    weights = [float(x) for x in expected["weights"]]
    np.testing.assert_allclose(found.weights, weights, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(found.value, expected["value"], rtol=1e-9)
    if "evidence" in expected:
        np.testing.assert_allclose(found.evidence, expected["evidence"], rtol=1e-6, atol=1e-8)
    assert len(members_of(batch)) == len(weights)
    return found


@pytest.mark.parametrize("probs", [True, False])
def test_a_model_that_the_whole_past_contradicts_is_dropped(probs, double):
    data = fork(0)
    batch = load(data) if probs else loaded(data)
    found = assert_as_the_oracle(batch, data if probs else logged_alone(data))
    assert np.asarray(found.weights)[-2:].sum() == 1
    assert found.evidence > 6.9


@pytest.mark.parametrize("probs", [True, False])
def test_a_model_that_nothing_contradicts_is_kept(probs, double):
    data = chain(0)
    batch = load(data) if probs else loaded(data)
    found = assert_as_the_oracle(batch, data if probs else logged_alone(data))
    assert np.asarray(found.weights)[-2:].sum() == 0


def test_a_cap_on_steps_is_not_held_against_a_model():
    """A walk to the right that costs 1 a step and is mostly cut off: what comes depends on time."""
    size = 8
    transition, reward = np.zeros((size, 2, size)), np.full((size, 2), -1.0)
    for state in range(size - 1):
        transition[state, 0, max(state - 1, 0)] = transition[state, 1, state + 1] = 1
    transition[-1, :, -1], reward[-1] = 1, 0
    even, right = np.full((size, 2), 0.5), np.full((size, 2), [0.1, 0.9])
    end = np.arange(size) == size - 1
    world = oj.TabularWorld(transition, reward, 0, even, right, 30, terminal=end)
    batches = world.rollout(jax.random.split(jax.random.key(0), 60), 100, probs=True)
    found = jax.jit(lambda x: jax.lax.map(lambda one: decide(one, one.log_ratio), x))(batches)
    assert (np.asarray(batches.mask.sum(2)) == 30).mean() > 0.3
    assert not np.asarray(found.weights)[:, -2:].any()
    np.testing.assert_allclose(found.value, world.exact().value, atol=0.2)


def test_what_was_never_seen_draws_the_answer_to_the_mean(double):
    shares = []
    for seed in range(6):
        data = sparse(seed)
        found = assert_as_the_oracle(load(data), data)
        shares.append(float(found.weights[0]))
        assert found.unseen > 0.1
    assert max(shares) > 0.5
    data = sparse(0)
    assert_as_the_oracle(loaded(data), logged_alone(data))


def test_a_correction_counts_as_far_as_it_exceeds_its_error(double):
    shares = []
    for seed in range(8):
        data = chain(seed)
        shares.append(float(assert_as_the_oracle(load(data), data).weights[2]))
    assert min(shares) == 0
    assert 0 < max(shares) < 1


def test_without_states_only_whole_pasts_are_weighed(double):
    data = chain(1)
    batch = without_states(load(data))
    stateless = [{k: x for k, x in one.items() if k != "states"} for one in data]
    found = assert_as_the_oracle(batch, stateless)
    assert 0 < found.weights[2] < 1
    assert np.isnan(found.evidence)


def test_units_orders_and_names_do_not_matter(double):
    for make in (fork, chain, sparse):
        data = make(3)
        expected = oj.estimate(load(data), "auto")
        paid = [{**one, "rewards": 1000 * one["rewards"]} for one in data]
        np.testing.assert_allclose(oj.estimate(load(paid), "auto"), 1000 * expected, rtol=1e-9)
        order = np.random.default_rng(0).permutation(len(data))
        mixed = [data[i] for i in order]
        np.testing.assert_allclose(oj.estimate(load(mixed), "auto"), expected, rtol=1e-9)
        names = np.array([3, 0, 2, 1])
        renamed = [{**one, "states": names[one["states"]]} for one in data]
        np.testing.assert_allclose(oj.estimate(load(renamed), "auto"), expected, rtol=1e-9)


def test_many_data_sets_are_chosen_for_one_by_one(double):
    batches = [load(chain(seed, size=12)) for seed in range(3)]
    together = jax.vmap(lambda batch: oj.estimate(batch, "auto"))(
        jax.tree.map(lambda *x: np.stack(x), *batches)
    )
    alone = [oj.estimate(batch, "auto") for batch in batches]
    np.testing.assert_allclose(together, alone, rtol=1e-9)


def test_float32_decides_alike():
    for make in (fork, chain):
        with jax.enable_x64(True):
            exact = float(oj.estimate(load(make(5)), "auto"))
        assert float(oj.estimate(load(make(5)), "auto")) == pytest.approx(exact, rel=1e-3)


def test_an_unknown_ratio_is_no_answer():
    batch = load(chain(0))
    unknown = batch.replace(log_ratio=batch.log_ratio.at[0, 0].set(np.nan))
    assert np.isnan(oj.estimate(unknown, "auto"))
