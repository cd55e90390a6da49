"""Rollouts: each trajectory a function of its key alone, and in agreement with exact answers."""

import jax
import numpy as np
import pytest
from datasets import in_numpy
from jax import random

import osiris_jax as oj
from osiris_jax.worlds import rollout

KEY = random.key(0)
NUM_STATES, NUM_ACTIONS = 5, 3


@pytest.fixture(scope="module")
def world():
    """A small MDP with random moves, an end, and rewards that depend on the successor."""
    rng = np.random.default_rng(0)
    transition = rng.dirichlet(np.ones(NUM_STATES), (NUM_STATES, NUM_ACTIONS))
    transition[-1] = np.eye(NUM_STATES)[-1]
    reward = rng.normal(size=(NUM_STATES, NUM_ACTIONS, NUM_STATES))
    reward[-1] = 0
    start = np.array([0.5, 0.5, 0, 0, 0])
    behavior, target = rng.dirichlet(np.ones(NUM_ACTIONS), (2, NUM_STATES))
    return oj.TabularWorld(transition, reward, start, behavior, target, horizon=20)


def rows(batch):
    """Real steps of each trajectory, as plain lists."""
    fields = [np.asarray(x) for x in (batch.state, batch.action, batch.reward, batch.log_ratio)]
    return [
        [tuple(field[i, t] for field in fields) for t in range(length)]
        for i, length in enumerate(np.asarray(batch.lengths))
    ]


def test_a_smaller_data_set_is_the_beginning_of_a_larger_one(world):
    assert rows(world.rollout(KEY, 5)) == rows(world.rollout(KEY, 12))[:5]


def test_data_sets_do_not_depend_on_what_is_drawn_beside_them(world):
    keys = random.split(KEY, 3)
    together = in_numpy(world.rollout(keys, 12, probs=True))
    for number, key in enumerate(keys):
        alone = world.rollout(key, 12, probs=True)
        one = jax.tree.map(lambda field, number=number: field[number], together)
        assert rows(one) == rows(alone)
        for field in ("target_probs", "behavior_probs"):
            ours, theirs = (np.asarray(getattr(batch, field)) for batch in (one, alone))
            np.testing.assert_array_equal(ours[one.mask], theirs[np.asarray(alone.mask)])


@pytest.mark.parametrize("lanes", [1, 5])
def test_lanes_do_not_change_data(world, lanes):
    decider = world.decider("behavior")
    options = {"steps": 20, "observations": False}
    few = rollout.record(world.dynamics, decider, KEY[None], 12, lanes=lanes, **options)
    batch = jax.tree.map(lambda field: field[0], in_numpy(few))
    assert rows(batch) == rows(world.rollout(KEY, 12))


def test_returns_are_those_of_the_recorded_trajectories(world):
    batch = world.rollout(KEY, 12)
    found = world.returns(KEY, 12, policy="behavior", discount=0.9)
    np.testing.assert_array_equal(found.lengths, batch.lengths)
    paid = np.where(batch.mask, batch.reward, 0)
    expected = paid @ 0.9 ** np.arange(paid.shape[1])
    np.testing.assert_allclose(found.returns, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["random", "dilly-dallying", "waiting-room", "icu-sepsis"])
def test_every_step_is_possible_and_is_weighed_by_the_policies(world, name):
    world = world if name == "random" else oj.make(name)
    batch, dynamics = in_numpy(world.rollout(random.key(3), 60)), in_numpy(world.dynamics)
    state, action, mask = batch.state, batch.action, batch.mask
    possible = dynamics.probability[state, action] > 0
    paid = np.isclose(dynamics.reward[state, action], batch.reward[..., None], rtol=1e-5)
    assert (paid & possible).any(-1)[mask].all()
    leads = dynamics.successor[state, action][:, :-1] == state[:, 1:, None]
    now = mask[:, :-1] & mask[:, 1:]
    assert (leads & paid[:, :-1] & possible[:, :-1]).any(-1)[now].all()
    assert now.sum() > 100
    assert np.isin(state[:, 0], dynamics.start).all()
    assert not dynamics.terminal[state[mask]].any()
    with np.errstate(divide="ignore"):
        ratio = np.log(world.target_probs / world.behavior_probs)[state, action]
    np.testing.assert_allclose(batch.log_ratio[mask], ratio[mask], rtol=1e-5, atol=1e-6)


def test_data_of_the_target_has_ratios_of_one(world):
    batch = world.rollout(KEY, 12, policy="target")
    assert not np.asarray(batch.log_ratio).any()
    assert rows(batch) != rows(world.rollout(KEY, 12))


def test_any_policy_may_make_the_data(world):
    uniform = np.full((NUM_STATES, NUM_ACTIONS), 1 / NUM_ACTIONS)
    batch = world.rollout(KEY, 12, policy=uniform)
    for trajectory in rows(batch):
        for state, action, _, log_ratio in trajectory:
            expected = np.log(world.target_probs[state, action] * NUM_ACTIONS)
            assert log_ratio == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_steps_cut_trajectories_without_changing_what_is_left(world):
    cut = world.rollout(KEY, 12, steps=4)
    assert int(cut.lengths.max()) == 4
    assert rows(cut) == [trajectory[:4] for trajectory in rows(world.rollout(KEY, 12))]


def test_padding_is_zero_and_bounded_by_a_bucket(world):
    batch = world.rollout(KEY, 12)
    assert batch.mask.shape[1] <= oj.bucket_length(int(batch.lengths.max()))
    for field in (batch.reward, batch.log_ratio, batch.state, batch.action):
        assert not np.asarray(field)[~np.asarray(batch.mask)].any()


def test_under_jit_and_vmap_the_data_is_the_same(world):
    keys = random.split(KEY, 3)
    eager = in_numpy(world.rollout(keys, 12))
    traced = in_numpy(jax.jit(lambda keys: world.rollout(keys, 12))(keys))
    assert traced.mask.shape[-1] == world.horizon
    mapped = in_numpy(jax.vmap(lambda key: world.rollout(key, 12))(keys))
    for other in (traced, mapped):
        for number in range(3):
            one, two = (
                jax.tree.map(lambda field, number=number: field[number], batch)
                for batch in (eager, other)
            )
            assert rows(one) == rows(two)


def test_long_horizons_are_measured_before_memory_is_taken():
    stay = np.zeros((2, 1, 2))
    stay[0, 0] = 0.9, 0.1
    stay[1, 0, 1] = 1
    policy = np.ones((2, 1))
    world = oj.TabularWorld(stay, [[1.0], [0.0]], 0, policy, policy, horizon=10**9)
    batch = world.rollout(KEY, 50)
    assert batch.mask.shape[1] == oj.bucket_length(int(batch.lengths.max()))
    assert 20 < batch.mask.shape[1] < 200


def test_what_has_no_end_has_the_steps_and_the_rewards_of_its_horizon():
    once = np.ones((1, 1))
    found = oj.TabularWorld(once[None], once, 0, once, once, horizon=7).returns(KEY, 5)
    assert np.all(found.lengths == 7)
    assert np.all(found.returns == 7)


def with_forbidden_actions(world):
    """The same world whose target never takes the first action in even states."""
    target = world.target_probs.copy()
    target[::2, 0] = 0
    target /= target.sum(1, keepdims=True)
    made = oj.TabularWorld(
        np.zeros((NUM_STATES, NUM_ACTIONS), int) + np.arange(NUM_STATES)[:, None],
        np.zeros((NUM_STATES, NUM_ACTIONS)),
        np.full(NUM_STATES, 1 / NUM_STATES),
        world.behavior_probs,
        target,
        horizon=20,
        terminal=np.zeros(NUM_STATES, bool),
    )
    return made


def expect_probs(batch, behavior, target, plain):
    """Both [traj, time, action] at real steps, 0 elsewhere, ratios theirs, the data unchanged."""
    real = np.asarray(batch.mask)
    for found, expected in ((batch.behavior_probs, behavior), (batch.target_probs, target)):
        found = np.asarray(found)
        assert found.shape == (*real.shape, batch.num_actions)
        np.testing.assert_allclose(found[real], np.asarray(expected)[real], rtol=1e-6, atol=1e-7)
        assert not found[~real].any()
    action = np.asarray(batch.action)[..., None]
    taken = [
        np.take_along_axis(np.asarray(x, float), action, axis=-1)[..., 0][real]
        for x in (batch.target_probs, batch.behavior_probs)
    ]
    with np.errstate(divide="ignore"):
        ratio = np.log(taken[0]) - np.log(taken[1])
    np.testing.assert_allclose(np.asarray(batch.log_ratio)[real], ratio, rtol=1e-5, atol=1e-6)
    for field in ("reward", "action", "log_ratio", "mask"):
        np.testing.assert_array_equal(getattr(batch, field), getattr(plain, field), err_msg=field)
    assert plain.target_probs is None
    assert plain.behavior_probs is None


@pytest.mark.parametrize("forbids", [False, True])
def test_probabilities_are_those_of_the_tables(world, forbids):
    world = with_forbidden_actions(world) if forbids else world
    uniform = np.full((NUM_STATES, NUM_ACTIONS), 1 / NUM_ACTIONS)
    sampler = {"behavior": world.behavior_probs, "target": world.target_probs}
    for policy in ("behavior", "target", uniform):
        batch = world.rollout(KEY, 12, policy=policy, probs=True)
        table = sampler[policy] if isinstance(policy, str) else policy
        plain = world.rollout(KEY, 12, policy=policy)
        expect_probs(batch, table[batch.state], world.target_probs[batch.state], plain)
    assert np.isneginf(world.rollout(KEY, 12).log_ratio).any() == forbids


def test_probabilities_are_those_of_the_networks():
    from osiris_jax.data.policies import EpsilonGreedy, Softmax
    from osiris_jax.models.networks import QNetwork
    from osiris_jax.worlds.cartpole import OBSERVATION_SCALE, environment

    q = QNetwork.create(random.key(0), (4,), 2, OBSERVATION_SCALE)
    world = oj.GymnaxWorld(environment(), Softmax(q, 2.0), EpsilonGreedy(q, 0.2), horizon=30)
    batch = world.rollout(KEY, 4, probs=True)
    behavior, target = (
        np.exp(p.log_probs(batch.observation)) for p in (world.behavior, world.target)
    )
    assert np.ptp(behavior[np.asarray(batch.mask)], axis=0).min() > 0.01
    expect_probs(batch, behavior, target, world.rollout(KEY, 4))
    batch = world.rollout(KEY, 4, policy="target", probs=True)
    target = np.exp(world.target.log_probs(batch.observation))
    expect_probs(batch, target, target, world.rollout(KEY, 4, policy="target"))


@pytest.mark.parametrize("name", ["dilly-dallying", "express"])
def test_a_hundred_thousand_trajectories_agree_with_exact_values(name):
    """Within 4 standard errors: returns and lengths of both policies, IS mean and variance.

    The standard error of the variance needs the fourth moment, exact too: the kurtosis of a single
    estimate (E[x^4] over the squared variance) is 62 in Express, so a sample's own may be far too
    small. In Dilly-Dallying it is so large that 100,000 trajectories say nothing of the variance,
    and only the mean is compared.
    """
    world, size = oj.make(name), 100_000
    exact = world.exact()
    for policy in ("behavior", "target"):
        found = world.returns(random.key(7), size, policy=policy)
        returns, lengths = np.asarray(found.returns, float), np.asarray(found.lengths)
        probs = exact.length_probs(policy)
        steps = np.arange(len(probs))
        length_mean = probs @ steps
        length_sd = np.sqrt(probs @ (steps - length_mean) ** 2)
        assert abs(lengths.mean() - length_mean) < 4 * length_sd / np.sqrt(size)
        value = exact.policy_value(policy)
        return_sd = returns.std()
        assert abs(returns.mean() - value) < 4 * return_sd / np.sqrt(size)

    batch = world.rollout(random.key(8), size, observations=False)
    weights = np.exp(np.where(batch.mask, batch.log_ratio, 0).astype(float).sum(1))
    single = np.where(batch.mask, batch.reward, 0).sum(1) * weights
    first, second, third, fourth = exact.power_means("is", order=4)
    variance = second - first**2
    assert abs(single.mean() - first) < 4 * np.sqrt(variance / size)
    central = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
    if name == "express":
        assert fourth / variance**2 == pytest.approx(62, abs=0.5)
        variance_se = np.sqrt((central - variance**2) / size)
        assert abs(single.var() - variance) < 4 * variance_se


def test_osiris_in_simulation_has_its_exact_moments():
    """2,000 data sets of 25: mean and standard deviation of OSIRIS with the corridor's map."""
    world, trials = oj.make("express"), 2000
    batch = world.rollout(random.split(random.key(3), trials), 25)
    keep = world.oracle
    values = np.asarray(
        jax.vmap(lambda one: oj.estimate(one, "is", relevance="oracle", keep=keep, alpha=0.5))(
            batch
        )
    ).astype(float)
    exact = world.exact()
    found = exact.moments("osiris", keep=keep, n=25)
    assert abs(values.mean() - found.mean) < 4 * found.std / np.sqrt(trials)
    powers = exact.power_means("osiris", keep=keep, order=4)
    fourth = powers[3] - 4 * powers[0] * powers[2] + 6 * powers[0] ** 2 * powers[1]
    fourth -= 3 * powers[0] ** 4
    kurtosis = 3 + (fourth / (powers[1] - powers[0] ** 2) ** 2 - 3) / 25
    variance_se = found.std**2 * np.sqrt((kurtosis - 1) / trials)
    assert abs(values.var() - found.std**2) < 4 * variance_se


def test_wrong_arguments_are_named(world):
    for call, field in (
        (lambda: world.rollout(0, 3), "key"),
        (lambda: world.rollout(random.key(0), 0), "n:"),
        (lambda: world.rollout(random.key(0), 3, policy="evil"), "policy"),
        (lambda: world.rollout(random.key(0), 3, steps=-1), "steps"),
        (lambda: world.rollout(random.split(KEY, 4).reshape(2, 2), 3), "key"),
    ):
        with pytest.raises(ValueError, match=field):
            call()


def test_cartpole_s_data_does_not_depend_on_what_is_drawn_beside_it():
    """Bit for bit, although a rounding error would grow along the unstable pole."""
    world = oj.make("cartpole")
    keys = random.split(KEY, 3)
    together = world.rollout(keys, 5, steps=200)
    for number in range(3):
        alone = world.rollout(keys[number], 5 - number, steps=200)
        length = min(alone.mask.shape[1], together.mask.shape[2])
        assert int(alone.lengths.max()) > 50
        for field in ("observation", "action", "log_ratio", "mask"):
            one = np.asarray(getattr(alone, field))[:, :length]
            two = np.asarray(getattr(together, field))[number, : 5 - number, :length]
            np.testing.assert_array_equal(one, two)
