"""Exact answers against the enumeration of every trajectory, and the paper's theory by them."""

import dataclasses
import itertools
from functools import cache

import enumeration
import jax
import numpy as np
import pytest

import osiris_jax as oj
from osiris_jax.envs import make
from osiris_jax.envs.tabular import TabularWorld

SEEDS = range(30)
COVERED = [seed for seed in SEEDS if enumeration.random_mdp(seed).covered]
GRIDWORLDS = ("dilly-dallying", "express")
TOLERANCES = (1e-9, 1e-3, 0.1, 1.0)
PLAIN = ("mc", "is", "pdis")
OMITTING = ("osiris", "osiris-is", "osiris-pdis")
TERMS = ("importance_sampling", "centers", "omitted_variance", "covariance", "variance")


def world_of(mdp, **changes):
    fields = {
        "transition": mdp.transition,
        "reward": mdp.reward,
        "start": mdp.start,
        "behavior": mdp.behavior,
        "target": mdp.target,
        "horizon": mdp.horizon,
        "terminal": mdp.terminal,
    }
    return TabularWorld(**{**fields, **changes})


@cache
def case(seed):
    """A random MDP, its exact answers, and all trajectories of the behaviour policy."""
    mdp = enumeration.random_mdp(seed)
    exact = world_of(mdp).exact(mdp.discount)
    return mdp, exact, enumeration.Paths(mdp, mdp.behavior)


@cache
def gridworld(name):
    world = make(name)
    exact = world.exact()
    maps = [world.oracle, *(exact.relevance(tolerance) for tolerance in TOLERANCES)]
    return world, exact, np.array(maps)


def maps_of(mdp):
    """[map, state] every map of the states."""
    return np.array(list(itertools.product([False, True], repeat=len(mdp.start))))


def some_maps(mdp):
    """[map, state] no state, all states, and a few random maps."""
    rng = np.random.default_rng(len(mdp.start))
    return np.concatenate([maps_of(mdp)[[0, -1]], rng.random((4, len(mdp.start))) < 0.5])


def agree(found, expected, *, scale=None, tolerance=1e-9, what=""):
    """Equal relative to each entry, or to `scale` where terms of that size cancel."""
    floor = 1e-12 if scale is None else tolerance * np.max(np.abs(scale))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=floor, err_msg=what)


def subset_pairs(length):
    """Every pair of sets of times of which the first lies strictly inside the second."""
    sets = [
        frozenset(times)
        for size in range(length + 1)
        for times in itertools.combinations(range(length), size)
    ]
    return [(small, large) for small in sets for large in sets if small < large]


# The specification's facts --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "behavior_value", "std"),
    [
        ("dilly-dallying", -0.4341719091549708, 16.5719507636417),
        ("express", -0.2674551134029344, 3.8924923880959077),
    ],
)
def test_facts_of_the_gridworlds(name, behavior_value, std):
    _, exact, _ = gridworld(name)
    found = exact.moments("is", n=25)
    agree(exact.value, 4.190041541850957)
    agree(exact.behavior_value, behavior_value)
    agree(found.std, std)
    agree(found.mean, exact.value)
    agree(found.rmse, std)
    assert abs(found.bias) < 1e-9


# Every answer against the enumeration ---------------------------------------------------------


def test_the_random_worlds_are_of_every_kind():
    """Guards the tests below against worlds in which they could not fail."""
    mdps = [case(seed)[0] for seed in SEEDS]
    assert {mdp.discount for mdp in mdps} == {0.9, 1.0}
    assert {mdp.horizon for mdp in mdps} == {3, 4, 5}
    assert {mdp.behavior.shape[0] for mdp in mdps} == {3, 4, 5}
    assert {mdp.behavior.shape[1] for mdp in mdps} == {2, 3}
    for kind in (
        lambda mdp: mdp.terminal.any(),
        lambda mdp: mdp.covered and (mdp.target == 0).any(),
        lambda mdp: mdp.covered and (mdp.behavior == 0).any(),
        lambda mdp: not mdp.covered,
        lambda mdp: (mdp.start > 0).sum() > 1,
    ):
        assert 3 <= sum(kind(mdp) for mdp in mdps) < len(mdps)
    assert all((mdp.transition == 0).any() for mdp in mdps[:5])
    assert len(COVERED) > 20


@pytest.mark.parametrize("seed", SEEDS)
def test_enumeration_is_complete(seed):
    mdp, _, paths = case(seed)
    agree(paths.probability.sum(), 1.0)
    assert paths.probability.min() > 0
    steps = np.stack([paths.states, paths.actions], -1).reshape(len(paths.lengths), -1)
    last = np.c_[steps, paths.rewards]
    assert len(np.unique(last, axis=0)) == len(last)
    assert not mdp.terminal[paths.states[paths.mask]].any()


@pytest.mark.parametrize("seed", SEEDS)
def test_values(seed):
    mdp, exact, paths = case(seed)
    agree(exact.value, enumeration.value(mdp, mdp.target))
    agree(exact.behavior_value, paths.mean(paths.returns))
    other = enumeration.random_policy(np.random.default_rng(seed), *mdp.behavior.shape)
    agree(exact.policy_value(other), enumeration.value(mdp, other))
    by_state = [enumeration.value(mdp.starting(s), other) for s in range(len(mdp.start))]
    agree(exact.state_values(other), by_state)


@pytest.mark.parametrize("seed", SEEDS)
def test_action_values_and_relevance(seed):
    mdp, exact, _ = case(seed)
    expected = enumeration.action_values(mdp, mdp.target)
    agree(exact.q, expected)
    agree(exact.action_values("behavior"), enumeration.action_values(mdp, mdp.behavior))
    assert (exact.q[mdp.terminal] == 0).all()
    spread = np.ptp(expected, axis=1)
    for tolerance in (1e-9, 0.3, 1.0):
        np.testing.assert_array_equal(exact.relevance(tolerance), spread > tolerance)


@pytest.mark.parametrize("seed", SEEDS)
def test_occupancy_and_lengths(seed):
    mdp, exact, paths = case(seed)
    agree(exact.occupancy(), paths.visits())
    agree(exact.length_probs(), paths.length_probs())
    of_target = enumeration.Paths(mdp, mdp.target)
    agree(exact.occupancy("target"), of_target.visits())
    agree(exact.length_probs("target"), of_target.length_probs())


@pytest.mark.parametrize("seed", SEEDS)
def test_power_means(seed):
    """Means of the first four powers, plain and for several maps at once."""
    mdp, exact, paths = case(seed)
    for name in PLAIN:
        estimates = paths.estimate(name)
        expected = [paths.mean(estimates**k) for k in (1, 2, 3, 4)]
        scale = [paths.mean(np.abs(estimates) ** k) for k in (1, 2, 3, 4)]
        for pair in zip(exact.power_means(name), expected, scale, strict=True):
            agree(*pair[:2], scale=pair[2], what=name)
    maps = some_maps(mdp)
    for name in OMITTING:
        estimates = [paths.estimate(name, theta) for theta in maps]
        found = exact.power_means(name, keep=maps, order=4)
        assert len(found) == 4
        for k, row in enumerate(found, start=1):
            scale = [paths.mean(np.abs(x) ** k) for x in estimates]
            agree(row, [paths.mean(x**k) for x in estimates], scale=scale, what=name)


@pytest.mark.parametrize("seed", SEEDS)
def test_moments(seed):
    """Mean, bias, standard deviation and RMSE from one and from several trajectories."""
    mdp, exact, paths = case(seed)
    true = enumeration.value(mdp, mdp.target)
    theta = np.random.default_rng(seed).random(len(mdp.start)) < 0.5
    sizes = np.array([1, 2, 25])
    for name in (*PLAIN, *OMITTING):
        keep = theta if name in OMITTING else None
        estimates = paths.estimate(name, keep)
        mean, variance = paths.mean(estimates), paths.variance(estimates)
        found = exact.moments(name, keep=keep, n=sizes)
        expected = (
            np.full(3, mean),
            np.full(3, mean - true),
            np.sqrt(variance / sizes),
            np.sqrt(variance / sizes + (mean - true) ** 2),
        )
        for field, one, other in zip(found._fields, found, expected, strict=True):
            assert one.shape == (3,)
            agree(one, other, what=f"{name} {field}")
        for size, row in zip(sizes, np.array(found).T, strict=True):
            alone = exact.moments(name, keep=keep, n=int(size))
            assert all(np.ndim(field) == 0 for field in alone)
            agree(np.array(alone), row)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_many_maps_at_once(seed):
    mdp, exact, _ = case(seed)
    maps = some_maps(mdp)
    for answer in (
        lambda keep: exact.moments("osiris", keep=keep).rmse,
        lambda keep: exact.moments("osiris-pdis", keep=keep, n=3).std,
        lambda keep: np.stack(exact.power_means("osiris", keep=keep), -1),
        lambda keep: exact.variance_terms(keep).total,
        lambda keep: exact.variance_terms(keep).covariance,
        exact.omitted_mean,
        exact.bias_covariance,
        exact.composite,
    ):
        together = answer(maps)
        assert len(together) == len(maps)
        agree(together, [answer(keep) for keep in maps], scale=together, tolerance=1e-12)


def test_other_forms_of_the_same_world():
    """Successors by id, rewards without the successor, the start by id, default terminal states."""
    mdp = enumeration.random_mdp(0)
    rng = np.random.default_rng(0)
    successor = rng.integers(5, size=(5, 3))
    successor[4] = 4
    reward = rng.normal(size=(5, 3))
    reward[4] = 0
    mdp = dataclasses.replace(
        mdp,
        transition=np.eye(5)[successor],
        reward=np.broadcast_to(reward[..., None], (5, 3, 5)),
        start=np.eye(5)[1],
        terminal=np.arange(5) == 4,
        horizon=5,
        discount=0.9,
    )
    keep = np.array([1, 0, 1, 0, 1])
    paths = enumeration.Paths(mdp, mdp.behavior)
    assert (paths.lengths < 5).any()
    expected = paths.estimate("osiris", keep)
    for changes in (
        {},
        {"transition": successor},
        {"reward": reward, "start": 1},
        {"transition": successor, "reward": reward, "terminal": None},
    ):
        found = world_of(mdp, **changes).exact(0.9).moments("osiris", keep=keep, n=1)
        agree(found.mean, paths.mean(expected))
        agree(found.std, np.sqrt(paths.variance(expected)))


@pytest.mark.parametrize("discount", [0.0, 1.0])
@pytest.mark.parametrize("horizon", [1, 2])
def test_short_horizons_and_extreme_discounts(horizon, discount):
    mdp = dataclasses.replace(enumeration.random_mdp(0), horizon=horizon, discount=discount)
    exact, paths = world_of(mdp).exact(discount), enumeration.Paths(mdp, mdp.behavior)
    agree(exact.value, enumeration.value(mdp, mdp.target))
    agree(exact.q, enumeration.action_values(mdp, mdp.target))
    keep = np.arange(5) % 2
    for name in OMITTING:
        estimates = paths.estimate(name, keep)
        agree(exact.moments(name, keep=keep, n=1).std, np.sqrt(paths.variance(estimates)))
    agree(exact.ratio_covariances(keep), paths.ratio_covariances(keep))


def test_variances_beyond_float64_are_infinite():
    """Here E[rho^2] is about 9.8^400; the means stay exact and nothing warns."""
    world = TabularWorld(
        np.zeros((1, 2), int),
        np.ones((1, 2)),
        0,
        np.array([[0.1, 0.9]]),
        np.array([[0.99, 0.01]]),
        horizon=400,
        terminal=[False],
    )
    found = world.exact().moments("is")
    agree(found.mean, 400.0)
    assert found.std == found.rmse == np.inf
    assert world.exact().moments("mc").std < 1e-3
    assert world.exact(0.0).moments("is").std == np.inf


def test_returns_of_both_signs_beyond_float64_are_infinite_too():
    """An even moment is never inf - inf."""
    world = TabularWorld(
        np.zeros((1, 2), int),
        np.array([[1.0, -1.0]]),
        0,
        np.array([[0.5, 0.5]]),
        np.array([[0.99, 0.01]]),
        horizon=1200,
        terminal=[False],
    )
    assert world.exact().moments("is").std == np.inf


# Laws of the answers --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_ends_of_omission(seed):
    """All ratios kept is IS, none kept is MC, and the mean of MC is the behaviour's value."""
    mdp, exact, _ = case(seed)
    everything, nothing = np.ones(len(mdp.start), bool), np.zeros(len(mdp.start), bool)
    agree(exact.moments("osiris", keep=everything), exact.moments("is"))
    agree(exact.moments("osiris-pdis", keep=everything), exact.moments("pdis"))
    for name in OMITTING:
        agree(exact.moments(name, keep=nothing), exact.moments("mc"))
    agree(exact.moments("mc").mean, exact.behavior_value)
    agree(exact.composite(everything), mdp.target, tolerance=1e-15)
    agree(exact.composite(nothing), mdp.behavior, tolerance=1e-15)
    assert exact.expected_log_weight(nothing) == 0


@pytest.mark.parametrize("name", GRIDWORLDS)
@pytest.mark.parametrize("policy", ["behavior", "target"])
def test_sums_of_occupancy_and_lengths(name, policy):
    """Both are distributions, and the expected length is the expected number of visits."""
    world, exact, _ = gridworld(name)
    occupancy, lengths = exact.occupancy(policy), exact.length_probs(policy)
    assert occupancy.shape == (world.horizon, world.num_states)
    assert lengths.shape == (world.horizon + 1,)
    assert occupancy.min() >= 0
    assert lengths.min() >= 0
    agree(lengths.sum(), 1.0)
    agree(occupancy[0].sum(), 1.0)
    assert (np.diff(occupancy.sum(1)) <= 1e-15).all()
    agree(np.arange(world.horizon + 1) @ lengths, occupancy.sum())
    assert occupancy[:, world.maze.terminal].sum() == 0


@pytest.mark.parametrize("seed", COVERED)
def test_unbiased_where_all_ratios_are_kept(seed):
    _, exact, _ = case(seed)
    for name in ("is", "pdis"):
        agree(exact.moments(name).mean, exact.value)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed not in COVERED])
def test_importance_sampling_is_biased_without_support(seed):
    _, exact, _ = case(seed)
    assert abs(exact.moments("is").bias) > 1e-3


def pdis_variance(mdp, steps):
    """Means and variances of PDIS from each state by the law of total variance, over one step."""
    ratio = mdp.target / mdp.behavior
    mean, variance = np.zeros(len(mdp.start)), np.zeros(len(mdp.start))
    for _ in range(steps):
        chance = mdp.behavior[..., None] * mdp.transition
        given = ratio[..., None] * (mdp.reward + mdp.discount * mean)
        later = ratio[..., None] ** 2 * mdp.discount**2 * variance
        centre = (chance * given).sum((1, 2))
        spread = (given - centre[:, None, None]) ** 2
        mean = np.where(mdp.terminal, 0, centre)
        variance = np.where(mdp.terminal, 0, (chance * (spread + later)).sum((1, 2)))
    overall = mdp.start @ mean
    return mdp.start @ variance + mdp.start @ (mean - overall) ** 2


@pytest.mark.parametrize("seed", [0, 1, 7, 10])
def test_variance_of_pdis_with_rewards_on_the_way(seed):
    """The law of total variance step by step, at a horizon far beyond enumeration."""
    mdp, short, paths = case(seed)
    agree(short.moments("pdis", n=1).std ** 2, pdis_variance(mdp, mdp.horizon))
    agree(paths.variance(paths.estimate("pdis")), pdis_variance(mdp, mdp.horizon))
    long = world_of(mdp, horizon=25).exact(mdp.discount)
    agree(long.moments("pdis", n=1).std ** 2, pdis_variance(mdp, 25))
    assert abs(long.moments("is").std / long.moments("pdis").std - 1) > 0.01


@pytest.mark.parametrize("name", GRIDWORLDS)
def test_pdis_is_is_where_only_the_last_step_pays(name):
    _, exact, maps = gridworld(name)
    agree(exact.moments("pdis"), exact.moments("is"), tolerance=1e-8)
    agree(exact.moments("osiris-pdis", keep=maps), exact.moments("osiris", keep=maps))


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


def waiting_world():
    """Two actions: how long state 0 lasts does not matter, what is done in state 1 does."""
    transition, reward = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    transition[0, :, :2] = [[0.35, 0.65], [0.15, 0.85]]
    transition[1, :, 2:] = [[0.8, 0.2], [0.3, 0.7]]
    transition[2, :, 2] = transition[3, :, 3] = 1
    reward[1, :, 2:] = [1, -1]
    behavior, target = np.full((4, 2), 0.5), np.broadcast_to([0.8, 0.2], (4, 2))
    return TabularWorld(transition, reward, 0, behavior, target, horizon=24)


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


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [-0.1, 1.1, np.nan])
def test_a_discount_out_of_range_is_refused(discount):
    with pytest.raises(ValueError, match=r"^discount: "):
        waiting_world().exact(discount)


@pytest.mark.parametrize("estimator", ["wis", "osirwis", "osiris-wis", "", "IS"])
def test_an_unknown_estimator_is_refused(estimator):
    with pytest.raises(ValueError, match=r"^estimator: "):
        waiting_world().exact().moments(estimator)


@pytest.mark.parametrize("estimator", OMITTING)
def test_a_missing_map_is_refused(estimator):
    with pytest.raises(ValueError, match=r"^keep: .*needs"):
        waiting_world().exact().moments(estimator)


@pytest.mark.parametrize("estimator", PLAIN)
def test_a_map_without_omission_is_refused(estimator):
    with pytest.raises(ValueError, match=r"^keep: .*takes no"):
        waiting_world().exact().power_means(estimator, keep=np.ones(4))


@pytest.mark.parametrize("shape", [(), (3,), (5,), (4, 3), (1, 1, 4)])
def test_a_map_of_the_wrong_shape_is_refused(shape):
    exact, keep = waiting_world().exact(), np.ones(shape, bool)
    for ask in (
        lambda: exact.moments("osiris", keep=keep),
        lambda: exact.variance_terms(keep),
        lambda: exact.omitted_mean(keep),
        lambda: exact.bias_covariance(keep),
        lambda: exact.ratio_covariances(keep),
        lambda: exact.expected_log_weight(keep),
        lambda: exact.composite(keep),
    ):
        with pytest.raises(ValueError, match=r"^keep: .*shape"):
            ask()


def test_single_ratios_are_for_one_map():
    with pytest.raises(ValueError, match=r"^keep: expected one map"):
        waiting_world().exact().ratio_covariances(np.ones((2, 4)))


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match=r"^policy: 'other'"):
        waiting_world().exact().policy_value("other")
    with pytest.raises(ValueError, match=r"^policy: expected 4 states x 2 actions"):
        waiting_world().exact().occupancy(np.ones((3, 2)))
