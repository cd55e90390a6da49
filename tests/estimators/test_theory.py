"""The paper's theorems, lemma, propositions and consistency, by exact answers on small MDPs."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from exact_cases import (
    COVERED,
    GRIDWORLDS,
    SEEDS,
    TERMS,
    agree,
    case,
    gridworld,
    maps_of,
    some_maps,
    subset_pairs,
    waiting_world,
    world_of,
)
from oracles import enumeration

import osiris_jax as oj

# Theorems 1 and 2, the lemma of their proofs, and the sum of covariances ------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_terms_of_the_variance(seed):
    """Every term of Theorem 1 as the theorem writes it, for data sets of 4 trajectories."""
    mdp, exact, paths = case(seed)
    for theta in some_maps(mdp):
        expected = paths.variance_terms(theta)
        found = exact.variance_terms(theta, n=4)
        for term in TERMS:
            scale = max(abs(x) for x in expected.values())
            agree(4 * getattr(found, term), expected[term], scale=scale, what=term)
        assert found.omitted_variance <= 1e-9


@pytest.mark.parametrize("seed", COVERED)
def test_the_terms_sum_to_the_variance(seed):
    """Theorem 1, where the behaviour policy covers the target policy."""
    mdp, exact, paths = case(seed)
    maps = maps_of(mdp)
    terms, found = exact.variance_terms(maps, n=7), exact.moments("osiris", keep=maps, n=7)
    expected = [paths.variance(paths.estimate("osiris", theta)) / 7 for theta in maps]
    scale = np.max([np.abs(getattr(terms, term)) + np.zeros(len(maps)) for term in TERMS], axis=0)
    assert terms.total.shape == terms.variance.shape == (len(maps),)
    agree(terms.total / scale, terms.variance / scale, scale=1.0)
    agree(terms.total / scale, expected / scale, scale=1.0)
    agree(found.std**2 / scale, expected / scale, scale=1.0)


def test_the_terms_for_several_sizes():
    mdp, exact, _ = case(0)
    sizes = np.array([1, 5, 25])
    theta = np.arange(len(mdp.start)) % 2
    together = exact.variance_terms(theta, n=sizes)
    for place, size in enumerate(sizes):
        alone = exact.variance_terms(theta, n=int(size))
        for term in (*TERMS, "total"):
            agree(getattr(together, term)[place], getattr(alone, term))


@pytest.mark.parametrize("name", GRIDWORLDS)
def test_theorems_in_the_gridworlds(name):
    """Theorems 1 and 2 and the sum of covariances, at true relevance by several tolerances."""
    _, exact, maps = gridworld(name)
    assert len(np.unique(maps, axis=0)) == len(maps)
    for theta in maps:
        terms, found = exact.variance_terms(theta, n=25), exact.moments("osiris", keep=theta)
        agree(terms.total, terms.variance)
        agree(terms.variance, found.std**2)
        agree(terms.importance_sampling, exact.moments("is").std ** 2)
        assert terms.omitted_variance < 0
        assert terms.variance < terms.importance_sampling
        agree(found.mean, exact.value - exact.bias_covariance(theta))
        agree(exact.omitted_mean(theta), 1.0)
        agree(exact.ratio_covariances(theta).sum(), exact.bias_covariance(theta), scale=1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_covariance_of_the_bias(seed):
    """Theorem 2 term by term; its sum needs a mean of 1 for the omitted product."""
    mdp, exact, paths = case(seed)
    maps = maps_of(mdp)
    expected = np.array([paths.bias_covariance(theta) for theta in maps])
    agree(exact.bias_covariance(maps), expected, scale=1.0)
    agree(exact.omitted_mean(maps), [paths.mean(paths.omitted(theta)) for theta in maps])
    missed = exact.value - expected - exact.moments("osiris", keep=maps).mean
    if mdp.covered:
        agree(missed, np.zeros(len(maps)), scale=1.0)
    else:
        assert np.abs(missed).max() > 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mean_of_the_omitted_product(seed):
    """1 where the behaviour policy covers the target policy, less where it does not."""
    mdp, exact, _ = case(seed)
    found = exact.omitted_mean(maps_of(mdp))
    if mdp.covered:
        agree(found, np.ones(len(found)))
    else:
        assert found.max() <= 1 + 1e-12
        assert found.min() < 0.999


@pytest.mark.parametrize("seed", COVERED)
def test_covariances_with_single_ratios(seed):
    mdp, exact, paths = case(seed)
    for theta in some_maps(mdp):
        found = exact.ratio_covariances(theta)
        agree(found, paths.ratio_covariances(theta), scale=1.0)
        agree(found.sum(), paths.bias_covariance(theta), scale=1.0)


# The composite policy, and omission by true relevance -------------------------------------------

LAYERED_RELEVANT = np.isin(np.arange(9), [5, 6])


def layered(seed, discount):
    """Nine states, each visited at one time only; all but 5 and 6 are irrelevant.

    State 0 leads to 1 whatever is done, 1 to 2 or 3, which meet in 4 after equal rewards. The
    actions in 4 pay differently and lead to 5 or 6 with chances of their own, whose values make up
    for it. In 5 and 6 the actions pay differently; 7 and 8 are ends.
    """
    rng = np.random.default_rng([7, seed])
    behavior, target = (enumeration.random_policy(rng, 9, 3) for _ in range(2))
    transition, reward = np.zeros((9, 3, 9)), np.zeros((9, 3, 9))
    transition[0, :, 1], reward[0, :, 1] = 1, 0.5
    transition[1, :, 2:4] = [[1, 0], [0, 1], [0.3, 0.7]]
    transition[2:4, :, 4], reward[2:4, :, 4] = 1, -0.25
    transition[4, :, 5:7] = [[1, 0], [0, 1], [0.6, 0.4]]
    transition[5:7, :, 7:] = rng.dirichlet([1, 1], (2, 3))
    reward[5:7, :, 7:] = rng.normal(scale=2, size=(2, 3, 2))
    decided = {
        name: (policy[5:7, :, None] * transition[5:7, :, 7:] * reward[5:7, :, 7:]).sum((1, 2))
        for name, policy in (("target", target), ("behavior", behavior))
    }
    expected_value = transition[4, :, 5:7] @ decided["target"]
    reward[4, :, 5:7] = (0.75 - discount * expected_value)[:, None]
    mdp = enumeration.Mdp(
        transition=transition,
        reward=reward,
        start=np.eye(9)[0],
        terminal=np.arange(9) >= 7,
        behavior=behavior,
        target=target,
        horizon=5,
        discount=discount,
    )
    return mdp, decided


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_the_composite_policy_has_the_same_value(seed, discount):
    """The lemma of the composite policy, and OSIRIS unbiased by true relevance."""
    mdp, _ = layered(seed, discount)
    exact = world_of(mdp).exact(discount)
    np.testing.assert_array_equal(exact.relevance(1e-9)[:7], LAYERED_RELEVANT[:7])
    assert np.ptp(exact.q, axis=1)[5:7].min() > 0.05
    assert np.ptp(exact.q[:5], axis=1).max() < 1e-14
    assert np.ptp(mdp.reward[4].max(-1)) > 0.05
    composite = exact.composite(exact.relevance())
    agree(composite[5:7], mdp.target[5:7], tolerance=1e-15)
    agree(composite[:5], mdp.behavior[:5], tolerance=1e-15)
    assert abs(exact.policy_value(composite) - exact.value) < 1e-12
    by_hand = 0.5 - 0.25 * discount**2 + 0.75 * discount**3
    agree(exact.value, by_hand, tolerance=1e-12)
    for name in ("osiris", "osiris-is"):
        assert abs(exact.moments(name, keep=exact.relevance()).bias) < 1e-12


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_bias_follows_from_the_relevant_states_omitted(seed, discount):
    """None while all relevant states are kept, else what the behaviour's actions there cost."""
    mdp, decided = layered(seed, discount)
    exact = world_of(mdp).exact(discount)
    free = np.array(list(itertools.product([False, True], repeat=7)))
    maps = np.c_[free, np.zeros((len(free), 2), bool)]
    bias = exact.moments("osiris", keep=maps).bias
    keeps_all = maps[:, 5] & maps[:, 6]
    assert 0 < keeps_all.sum() < len(maps)
    assert np.abs(bias[keeps_all]).max() < 1e-12
    assert np.abs(bias[~keeps_all]).min() > 1e-3
    loss = decided["behavior"] - decided["target"]
    for theta, found in zip(maps, bias, strict=True):
        acting = exact.composite(theta)
        arrival = acting[4] @ mdp.transition[4, :, 5:7]
        agree(found, discount**4 * (arrival * ~theta[5:7]) @ loss, tolerance=1e-11)
        agree(exact.policy_value(acting) - exact.value, found, scale=1.0, tolerance=1e-12)


# Propositions 1 and 2 -------------------------------------------------------------------------


def heedless(seed):
    """Two states whose successors do not depend on the action, three actions, four steps."""
    rng = np.random.default_rng([11, seed])
    transition = np.broadcast_to(rng.dirichlet([2, 2], (2, 1)), (2, 3, 2))
    return enumeration.Mdp(
        transition=transition,
        reward=np.zeros((2, 3, 2)),
        start=np.array([0.4, 0.6]),
        terminal=np.zeros(2, bool),
        behavior=enumeration.random_policy(rng, 2, 3),
        target=enumeration.random_policy(rng, 2, 3),
        horizon=4,
    )


def given_states(paths):
    """Yields (states, conditional probability, ratios) for every sequence of states."""
    for states in np.unique(paths.states, axis=0):
        rows = (paths.states == states).all(1)
        yield states, paths.probability[rows] / paths.probability[rows].sum(), paths.ratios[rows]


def product_variance(probability, ratios, times):
    product = ratios[:, list(times)].prod(1)
    return probability @ product**2 - (probability @ product) ** 2


@pytest.mark.parametrize("seed", range(3))
def test_variance_given_the_states_grows_with_every_ratio(seed):
    """Proposition 1, for every pair of sets of times and every sequence of states."""
    mdp = heedless(seed)
    of_one = (mdp.target**2 / mdp.behavior).sum(1) - 1
    assert of_one.min() > 1e-3
    pairs = subset_pairs(4)
    assert len(pairs) == 65
    sequences = list(given_states(enumeration.Paths(mdp, mdp.behavior)))
    assert len(sequences) == 16
    for states, probability, ratios in sequences:
        agree(probability @ ratios, np.ones(4))
        variance = {
            times: product_variance(probability, ratios, times) for times in set().union(*pairs)
        }
        for small, large in pairs:
            assert variance[small] < variance[large] - 1e-6
        for times, found in variance.items():
            agree(found, np.prod(1 + of_one[states[list(times)]]) - 1)


def test_ratios_given_the_states_where_the_states_reveal_the_actions():
    """Proposition 1 needs its assumption: here more ratios do not add variance.

    In state 0 the action decides the successor, so given the states its ratio is known: its mean is
    not 1, and neither its variance nor that of products of such ratios is above 0.
    """
    mdp = dataclasses.replace(heedless(0), transition=np.eye(2)[[[0, 1, 1], [1, 1, 1]]], horizon=2)
    means, variances = {}, {}
    for states, probability, ratios in given_states(enumeration.Paths(mdp, mdp.behavior)):
        means[tuple(states)] = probability @ ratios[:, 0]
        variances[tuple(states)] = product_variance(probability, ratios, [0])
    stays = mdp.target[0, 0] / mdp.behavior[0, 0]
    agree(means[0, 0], stays)
    assert abs(means[0, 0] - 1) > 0.1
    assert abs(means[0, 1] - 1) > 0.01
    assert abs(variances[0, 0]) < 1e-15
    agree(means[1, 1], 1.0)
    assert variances[1, 1] > 0.01


@pytest.mark.parametrize("seed", [0, 6, 15, 21])
def test_the_expected_log_falls_with_every_ratio(seed):
    """Proposition 2, for every pair of sets of times; successors here depend on the actions."""
    mdp, _, paths = case(seed)
    assert not mdp.terminal.any()
    assert np.abs(mdp.target - mdp.behavior).max(1).min() > 1e-3
    pairs = subset_pairs(mdp.horizon)
    expected = {
        times: paths.expected_log(paths.ratios[:, list(times)]) for times in set().union(*pairs)
    }
    for small, large in pairs:
        assert expected[large] < expected[small] - 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_expected_log_of_kept_ratios(seed):
    """By enumeration; minus infinity where the target forbids what the behaviour does."""
    mdp, exact, paths = case(seed)
    for theta in maps_of(mdp):
        agree(exact.expected_log_weight(theta), paths.expected_log(paths.kept_ratios(theta)))
    agree(exact.expected_log_weight(), paths.expected_log(paths.ratios))
    forbidden = (mdp.target == 0) & (mdp.behavior > 0)
    met = exact.occupancy().sum(0) @ forbidden.any(1)
    assert np.isinf(exact.expected_log_weight()) == (met > 0)


@pytest.mark.parametrize("name", GRIDWORLDS)
def test_the_expected_log_falls_with_every_state_that_counts(name):
    """Proposition 2 for maps: less with each state that is visited, and otherwise the same."""
    world, exact, _ = gridworld(name)
    visited = exact.occupancy().sum(0) > 0
    keep, last = np.zeros(world.num_states, bool), 0.0
    assert 0 < visited.sum() < world.num_states
    for state in np.random.default_rng(0).permutation(world.num_states):
        keep[state] = True
        found = exact.expected_log_weight(keep)
        assert found < last if visited[state] else abs(found - last) < 1e-12
        last = found
    agree(last, exact.expected_log_weight())


def test_the_expected_log_ignores_states_where_the_policies_agree():
    mdp, _, _ = case(0)
    target = np.where(np.arange(5)[:, None] == 2, mdp.behavior, mdp.target)
    exact = world_of(mdp, target=target).exact()
    assert exact.occupancy().sum(0).min() > 0
    agree(exact.expected_log_weight(np.arange(5) != 2), exact.expected_log_weight())
    assert abs(exact.expected_log_weight(np.arange(5) == 2)) < 1e-15


def test_the_expected_log_ignores_what_is_forbidden_where_nobody_comes():
    mdp, exact, _ = case(0)
    nowhere = np.pad(mdp.transition, ((0, 1), (0, 0), (0, 1)))
    nowhere[5, :, 0] = 1
    larger = world_of(
        mdp,
        transition=nowhere,
        reward=np.zeros((6, 3)),
        start=np.append(mdp.start, 0),
        behavior=np.vstack([mdp.behavior, np.full(3, 1 / 3)]),
        target=np.vstack([mdp.target, [0, 0, 1]]),
        terminal=np.zeros(6, bool),
    ).exact()
    assert larger.occupancy()[:, 5].sum() == 0
    agree(larger.expected_log_weight(), exact.expected_log_weight())


# Consistency ----------------------------------------------------------------------------------


def test_osiris_is_consistent():
    """The consistency theorem: biased towards the behaviour at 10 trajectories, not at 1000."""
    world = waiting_world()
    exact = world.exact()
    np.testing.assert_array_equal(exact.relevance(), [False, True, False, False])
    assert exact.length_probs()[2:6].min() > 0.01

    def value(batch):
        return oj.estimate(batch, "osiris", weighting="future", alpha=0.05)

    def value_and_pvalues(batch):
        return value(batch), oj.relevance_pvalues(batch, weighting="future")

    many = world.rollout(jax.random.split(jax.random.key(0), 200), 1000)
    few = jax.tree.map(lambda field: field[:, :10], many)
    large, pvalues = jax.jit(jax.vmap(value_and_pvalues))(many)
    small = jax.vmap(value)(few)
    errors = []
    for estimates in (large, small):
        estimates = np.asarray(estimates, np.float64)
        standard_error = estimates.std(ddof=1) / np.sqrt(len(estimates))
        errors.append((estimates.mean() - exact.value) / standard_error)
    assert abs(errors[0]) < 4
    assert errors[1] < -4
    assert exact.behavior_value < np.mean(small) < exact.value
    assert (pvalues[:, 1] <= 0.05).all()
    assert 0 < (pvalues[:, 0] <= 0.05).mean() < 0.2
    known = exact.moments("osiris", keep=exact.relevance(), n=1000)
    assert abs(np.std(np.asarray(large)) / known.std - 1) < 0.3
