"""Worlds of the arena: their exact answers by other means, and what is said of them."""

import itertools

import numpy as np
import pytest
from jax import random
from oracles import enumeration

import osiris_jax as oj
from osiris_jax.study.arena import worlds_of
from osiris_jax.worlds import WITHOUT_EXACT_TRUTH, WORLDS
from osiris_jax.worlds.cards import half_of
from osiris_jax.worlds.classics import CAR_STEPS, CAR_TARGET
from osiris_jax.worlds.random_mdps import ACTION_ROOM, STATE_ROOM, kind_of

LIFTS = (7, 9, 11, 13, 15, 17)
TRUTHS = (-1.0497, -2.0289, -2.3849, -2.6892, -2.9905, -3.2916)
MEMBERS = [name for name in WORLDS if name.startswith("random-")]
EXACT = [name for name in WORLDS if name not in (*WITHOUT_EXACT_TRUTH, "icu-sepsis")]


@pytest.mark.parametrize("size", LIFTS)
def test_the_lift_has_the_published_errors(size):
    """IS errs by (2^b - 1) / n, and by 0.003 where the lift's states are omitted (n = 1000)."""
    world, bound = oj.make(f"lift-{size}"), size // 2
    exact = world.exact()
    assert exact.value == 1
    assert exact.moments("is", n=1000).rmse ** 2 == pytest.approx((2**bound - 1) / 1000, rel=1e-12)
    of_choices = exact.moments("osiris", keep=world.oracle, n=1000)
    assert of_choices.rmse**2 == pytest.approx(0.003, rel=1e-12)
    assert world.oracle.sum() == 3  # in the middle and beside the ends


@pytest.mark.parametrize(("size", "truth"), [*zip(LIFTS, TRUTHS, strict=True)])
def test_the_stochastic_lift_has_the_known_values(size, truth):
    assert oj.make(f"lift-stochastic-{size}").exact().value == pytest.approx(truth, abs=5e-5)


def test_values_of_small_worlds_by_hand():
    odds = np.e / (1 + np.e)
    assert oj.make("model-win").exact().value == pytest.approx(10 * 0.2 * (2 * odds - 1))
    assert oj.make("model-fail").exact().value == pytest.approx(1 - 2 * np.e**2 / (1 + np.e**2))
    reaches_good = 0.8 * 0.75 + 0.2 * 0.25
    assert oj.make("graph").exact().value == pytest.approx(16 * (2 * reaches_good - 1))
    assert oj.make("graph-partial").exact().value == pytest.approx(2 * reaches_good - 1)
    assert oj.make("first-look").exact().value == pytest.approx(0.8)
    assert oj.make("first-look").exact().behavior_value == pytest.approx(0.5)


def test_the_toy_mountain_car_by_its_own_recursion():
    value = dict.fromkeys(range(-11, 12), 0.0)
    for _ in range(CAR_STEPS):
        value |= {
            x: -1
            + CAR_TARGET[1] * (value[x + 1] if x < 10 else 0)
            + CAR_TARGET[0] * value[max(x - 1, -10)]
            for x in range(-10, 11)
        }
    assert oj.make("toy-mountain-car").exact().value == pytest.approx(value[0], rel=1e-12)


def test_the_first_look_waits_as_long_as_the_readme_s():
    length = oj.make("first-look").exact().length_probs()
    np.testing.assert_allclose(length[2:], np.full(13, 1 / 13))
    batch = oj.make("first-look").rollout(random.key(0), 50)
    state = np.asarray(batch.state)
    assert (state[:, 0] == 0).all()
    assert (state[:, 1:][np.asarray(batch.mask)[:, 1:]] == 1).all()


@pytest.mark.parametrize("name", MEMBERS)
def test_simulated_means_of_random_members_are_the_exact_ones(name):
    """Of both policies, within four standard errors; shapes are few, so programs are shared."""
    world = oj.make(name)
    for policy, seed in (("behavior", 1), ("target", 2)):
        returns = np.asarray(world.returns(random.key(seed), 4000, policy=policy).returns, float)
        error = returns.std() / np.sqrt(len(returns))
        assert abs(returns.mean() - world.exact().policy_value(policy)) < 4 * error + 1e-6
    assert (world.num_states, world.num_actions) in itertools.product(STATE_ROOM, ACTION_ROOM)


@pytest.mark.parametrize("name", MEMBERS)
def test_random_members_are_as_their_kind_says(name):
    world, kind = oj.make(name), kind_of(int(name.removeprefix("random-")))
    real, actions = slice(kind.states), slice(kind.actions)
    steps = world.dynamics
    parts = (x[real, actions] for x in (steps.successor, steps.probability, steps.reward))
    differ = np.any([np.any(x != x[:, :1], axis=(1, 2)) for x in parts], axis=0)
    error = np.sqrt(kind.matter * (1 - kind.matter) / kind.states)
    assert abs(differ.mean() - kind.matter) <= 4 * error
    for table in (world.behavior_probs, world.target_probs):
        assert (table[:, kind.actions :] == 0).all()
        assert table[real, actions].min() > 0
        by_id = {int(i): table[state] for state, i in enumerate(world.shown)}
        np.testing.assert_array_equal(table, [by_id[int(i)] for i in world.shown])
    batch = world.rollout(random.key(3), 20)
    mask = np.asarray(batch.mask)
    assert np.asarray(batch.state)[mask].max() < (kind.aliased or kind.states)
    assert np.asarray(batch.action)[mask].max() < kind.actions
    assert world.is_markov == (kind.aliased == 0)


def test_members_differ_in_all_that_a_kind_says():
    for half in (range(16), range(16, 32)):
        kinds = [kind_of(number) for number in half]
        for field in zip(*kinds, strict=True):
            assert len(set(field)) > 1
    assert oj.make("random-03") is oj.make("random-03")


def small_mdp():
    """Five states, two actions, four steps; the last state ends a trajectory."""
    rng = np.random.default_rng(4)
    transition = rng.dirichlet(np.ones(5), (5, 2))
    transition[-1] = np.eye(5)[-1]
    reward = rng.normal(size=(5, 2, 5))
    reward[-1] = 0
    behavior, target = rng.dirichlet((3, 3), (2, 5))
    ends = np.arange(5) == 4
    return enumeration.Mdp(transition, reward, np.eye(5)[0], ends, behavior, target, 4)


def aliased(observe, **changes):
    """It as a world, its states shown by these ids."""
    fields = vars(small_mdp()) | changes | {"observe": observe}
    return oj.TabularWorld(**{k: x for k, x in fields.items() if k != "discount"})


def weighed_paths():
    """Probability, states, ratios and return of every trajectory of the behaviour."""
    mdp = small_mdp()
    ratio = mdp.target / mdp.behavior
    for chance, states, actions, rewards in enumeration.trajectories(mdp, mdp.behavior):
        yield chance, states, ratio[list(states), list(actions)], sum(rewards)


def test_truth_of_an_aliased_world_is_that_of_the_full_mdp_by_enumeration():
    """Values, and moments of IS and of OSIRIS by a map of ids, over all trajectories there are."""
    ids = np.array([0, 1, 0, 1, 2])
    world, keep = aliased(ids), np.array([True, False, True])
    exact = world.exact()
    assert exact.value == aliased(None).exact().value
    first = second = mean = 0.0
    for chance, states, ratios, gain in weighed_paths():
        kept = np.prod(ratios[keep[ids[list(states)]]])
        mean += chance * np.prod(ratios) * gain
        first += chance * kept * gain
        second += chance * (kept * gain) ** 2
    assert exact.value == pytest.approx(mean, rel=1e-12)
    found = exact.moments("osiris", keep=keep, n=1)
    assert found.mean == pytest.approx(first, rel=1e-12)
    assert found.std**2 == pytest.approx(second - first**2, rel=1e-10)
    gaps = np.ptp(exact.q, axis=1)
    assert exact.gaps.tolist() == [max(gaps[ids == i]) for i in range(3)]
    assert exact.visited.tolist() == [True, True, False]


def test_aliasing_changes_what_is_shown_and_nothing_else():
    ids = np.array([0, 1, 0, 1, 2])
    plain, seen = (
        aliased(observe).rollout(random.key(0), 30, probs=True) for observe in (None, ids)
    )
    assert (plain.num_states, seen.num_states) == (5, 3)
    np.testing.assert_array_equal(seen.state, np.where(plain.mask, ids[plain.state], 0))
    for field in ("reward", "log_ratio", "action", "mask", "target_probs", "behavior_probs"):
        np.testing.assert_array_equal(getattr(seen, field), getattr(plain, field))
    assert aliased(None).is_markov
    assert not aliased(ids).is_markov
    assert aliased(np.array([3, 1, 2, 0, 0])).is_markov  # the end is never seen
    assert aliased(ids).identity() != aliased(None).identity()


def test_a_policy_reads_the_ids():
    world = aliased([0, 1, 0, 1, 2])
    table = np.array([[1.0, 0], [0, 1], [0.5, 0.5]])
    batch = world.rollout(random.key(1), 20, policy=lambda ids: table[ids])
    mask = np.asarray(batch.mask)
    np.testing.assert_array_equal(np.asarray(batch.action)[mask], np.asarray(batch.state)[mask])


def test_an_aliased_environment_shows_ids():
    env = aliased([7, 1, 7, 1, 2]).environment
    observation, _ = env.reset(random.key(0))
    assert observation == 7
    assert env.observation_space().n == 8


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        ([0, 1], "observe: expected the integer id of each of 5 states"),
        ([0.0, 1, 0, 1, 2], "observe: expected the integer id"),
        ([0, 1, -2, 1, 2], "observe: -2 is no id at state 2"),
    ],
)
def test_what_is_no_id_is_refused(observe, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        aliased(observe)


def test_a_map_of_another_length_is_refused():
    with pytest.raises(ValueError, match="oracle: expected 3 states"):
        aliased([0, 1, 0, 1, 2], oracle=[True] * 5)


@pytest.mark.parametrize("name", ["waiting-room", "model-win", "random-04", "express"])
def test_the_spectral_radius_is_how_fast_squared_weights_grow(name):
    """E[rho^2] of those that still run, by steps: the ratio of one to the one before."""
    world = oj.make(name)
    exact = world.exact()
    frequency = world.behavior_probs * exact.ratio**2
    step = np.zeros((len(world.dynamics.terminal),) * 2)
    for s, a, k in np.ndindex(world.dynamics.successor.shape):
        step[s, world.dynamics.successor[s, a, k]] += (
            frequency[s, a] * world.dynamics.probability[s, a, k]
        )
    running = np.zeros(len(step))
    np.add.at(running, world.dynamics.start, world.dynamics.start_probability)
    sums = []
    for _ in range(400):
        running = (running @ step) * ~world.dynamics.terminal
        sums.append(running.sum())
        running = running / running.sum()
    assert np.sqrt(sums[-1] * sums[-2]) == pytest.approx(exact.spectral_radius, rel=1e-6)
    assert exact.is_heavy == (exact.spectral_radius > 1)


def test_what_weights_will_do_is_said():
    said = {
        "dilly-dallying": "the variance of IS stays bounded as the horizon grows",
        "waiting-room": "the variance of IS grows 1.16 times a step",
        "lift-9": "the variance of IS stays bounded as the horizon grows",
    }
    for name, words in said.items():
        assert oj.make(name).exact().weights_in_words() == words
    endless = oj.TabularWorld(
        [[[1.0], [1.0]]], [[1.0, 1.0]], 0, [[0.5, 0.5]], [[1.0, 0.0]], 1100, terminal=[False]
    )
    assert endless.exact().weights_in_words() == "the variance of IS lies beyond float64"
    assert endless.exact().spectral_radius == pytest.approx(2)
    assert endless.card == (None, True, True, "yours")


def test_an_expected_square_of_weights_by_enumeration():
    world = aliased([0, 1, 0, 1, 2])
    expected = sum(chance * np.prod(ratios) ** 2 for chance, _, ratios, _ in weighed_paths())
    assert world.exact().squared_weight == pytest.approx(expected, rel=1e-12)


DESIGN = {"dilly-dallying", "express", "icu-sepsis", "waiting-room", "first-look", "cartpole"}


def test_halves_follow_their_rule():
    """Known worlds are for design; relatives stay together; the rest take turns by name."""
    others = {"graph": [], "lift": [], "lunar-lander": [], "model-fail": [], "model-win": []}
    others |= {"toy-mountain-car": []}
    for name in WORLDS:
        family = next((f for f in sorted(others, key=len)[::-1] if name.startswith(f)), None)
        if name in DESIGN:
            assert half_of(name) == "design"
        elif name.startswith("random-"):
            assert half_of(name) == ("design" if int(name[-2:]) < 16 else "report")
        else:
            others[family].append(half_of(name))
    halves = [set(others[family]) for family in sorted(others)]
    assert halves == [{"design"}, {"report"}] * 3
    assert half_of("mine") is None


def test_the_halves_are_all_that_have_exact_truth():
    design, report = set(worlds_of("design")), set(worlds_of("report"))
    assert not design & report
    assert design | report == set(worlds_of("all")) == {*WORLDS} - {*WITHOUT_EXACT_TRUTH}


@pytest.mark.parametrize("name", EXACT)
def test_every_world_has_a_card(name):
    card = oj.make(name).card
    assert card.half in ("design", "report")
    assert card.source
    assert isinstance(card.markov, bool)
    assert isinstance(card.heavy, bool)


def test_worlds_of_the_paper_are_told_apart_from_aliased_ones():
    markov = {name: oj.make(name).card.markov for name in ("express", "first-look", "model-fail")}
    assert markov == {"express": True, "first-look": False, "model-fail": False}
