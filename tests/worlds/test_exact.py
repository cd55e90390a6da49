"""Exact answers against the enumeration of every trajectory, their laws and their errors."""

import dataclasses

import numpy as np
import pytest
from exact_cases import (
    COVERED,
    GRIDWORLDS,
    OMITTING,
    PLAIN,
    SEEDS,
    agree,
    case,
    gridworld,
    some_maps,
    waiting_world,
    world_of,
)
from oracles import enumeration

from osiris_jax.worlds.tabular import TabularWorld

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


# Errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [-0.1, 1.1, np.nan])
def test_a_discount_out_of_range_is_refused(discount):
    with pytest.raises(ValueError, match=r"^discount: "):
        waiting_world().exact(discount)


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


UNKNOWN = ("wis", "osirwis", "osiris-wis", "", "IS")

REFUSED = [
    *((lambda exact, name=name: exact.moments(name), "estimator: ") for name in UNKNOWN),
    *((lambda exact, name=name: exact.moments(name), "keep: .*needs") for name in OMITTING),
    *(
        (lambda exact, name=name: exact.power_means(name, keep=np.ones(4)), "keep: .*takes no")
        for name in PLAIN
    ),
    (lambda exact: exact.ratio_covariances(np.ones((2, 4))), "keep: expected one map"),
    (lambda exact: exact.policy_value("other"), "policy: 'other'"),
    (lambda exact: exact.occupancy(np.ones((3, 2))), "policy: expected 4 states x 2 actions"),
]


@pytest.mark.parametrize(("ask", "problem"), REFUSED)
def test_what_has_no_answer_is_refused(ask, problem):
    with pytest.raises(ValueError, match=f"^{problem}"):
        ask(waiting_world().exact())
