"""STAR: its laws, its grid of pasts, and the solution of its equations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, load, poisoned, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import selection as oracle_selection
from oracles import star as oracle

import osiris_jax as oj
from osiris_jax.models.absorption import (
    BLOCK,
    MANY,
    SMALL_BLOCK,
    SMALLEST,
    links_between,
    mean_gain,
)

PASTS = np.array([1, 2, 4, 0])
DISCOUNTS = st.sampled_from([1.0, 0.9, 0.0])
SEEDS = st.integers(0, 2**32 - 1)


def estimate(data, discount=0.9, **options):
    return oj.estimate(load(data), "star", discount=discount, **options)


def rewards_at_the_end(data):
    for episode in data:
        episode["rewards"][:-1] = 0
    return data


@pytest.mark.parametrize("average", [False, True])
@settings(max_examples=30)
@given(ragged_data(), DISCOUNTS)
def test_a_grid_of_pasts_is_a_loop_over_pasts(average, data, discount):
    with jax.enable_x64(True):
        grid = estimate(data, discount, past=PASTS, average=average)
    expected = [oracle.star(data, discount, past=c, average=average) for c in PASTS]
    scale = max(np.abs(e["rewards"]).max() for e in data)
    np.testing.assert_allclose(grid, expected, rtol=1e-9, atol=1e-12 * scale)


def test_a_plane_has_levels_first(double):
    batch, alphas = load(random_data(3, 20, coarse=True)), np.array([0.0, 0.3, 1.0])
    plane = oj.estimate(batch, "osiris-star", alpha=alphas, past=PASTS)
    assert plane.shape == (3, 4)
    for row, alpha in zip(plane, alphas, strict=True):
        for value, past in zip(row, PASTS, strict=True):
            one = oj.estimate(batch, "osiris-star", alpha=alpha, past=past)
            np.testing.assert_allclose(value, one, rtol=1e-12)
    np.testing.assert_allclose(plane[0], oj.estimate(batch, "mc"), rtol=1e-12)
    assert len(set(np.asarray(plane[1]))) == 4


@pytest.mark.parametrize("past", [1.5, -1, "all"])
def test_a_past_is_a_whole_number(past):
    with pytest.raises(ValueError, match="past: "):
        estimate(random_data(0, 6), past=past)


def test_a_list_of_estimators_has_no_room_for_a_grid():
    batch = load(random_data(0, 6))
    for refused in (
        lambda: oj.intervals(batch, ["star"], past=PASTS),
        lambda: oj.estimate(batch, "osiris-star", alpha="auto", past=PASTS),
        lambda: oj.Study(world="express", estimators=("star:past=[1,2]",)),
    ):
        with pytest.raises(ValueError, match=r"past: .*one number"):
            refused()


def test_pasts_compile_nothing_anew():
    from importlib import import_module

    kernel = import_module("osiris_jax.pipeline.estimate").values_of
    estimate(random_data(0, 6), past=2)
    programs = kernel._cache_size()
    estimate(random_data(1, 6), past=5)
    assert kernel._cache_size() == programs


@settings(max_examples=30)
@given(SEEDS)
def test_of_one_state_the_last_or_all_ratios_count(seed):
    """With rewards at the end alone: WIS by each trajectory's last ratio, and WIS itself."""
    data = rewards_at_the_end(random_data(seed, 6))
    for episode in data:
        episode["states"][:] = 0
    last = [{**e, "log_ratio": np.where(e["rewards"] != 0, e["log_ratio"], 0)} for e in data]
    with jax.enable_x64(True):
        # what a state's visits weigh by a past of 1 is the same for all its rewards
        weights = [np.exp(e["log_ratio"]) for e in data]
        gained = sum(w[-1] * e["rewards"][-1] for w, e in zip(weights, data, strict=True))
        by_last = gained / sum(w[-1] for w in weights)
        np.testing.assert_allclose(estimate(data, 1.0), by_last, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(oj.estimate(load(last), "wis"), by_last, rtol=1e-9, atol=1e-12)
        wis = oj.estimate(load(data), "wis")
        np.testing.assert_allclose(estimate(data, 1.0, past=0), wis, rtol=1e-9, atol=1e-12)


@settings(max_examples=30)
@given(SEEDS, DISCOUNTS)
def test_it_holds_the_chain_of_the_data(seed, discount):
    """As the choice of levels has it, where every state is supported."""
    data, how = random_data(seed, 6), {"cut": "leave-out", "visits": "undiscounted"}
    sweeps = max(len(e["rewards"]) for e in data)
    everything = np.ones(NUM_STATES, bool)
    expected, *_ = oracle_selection.composite_moments(data, everything, discount)
    with jax.enable_x64(True):
        found = estimate(data, discount, sweeps=sweeps, **how)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def trapped():
    """Ratios of zero wherever state 1 is left: nothing that it weighs leads to the end."""
    states = [[0, 1, 1, 2], [0, 2], [0, 1, 0, 2]]
    data = []
    for row in states:
        log_ratio = [
            -np.inf if s == 1 and after != 1 else 0.0
            for s, after in zip(row, [*row[1:], None], strict=True)
        ]
        data.append(
            {
                "states": np.array(row),
                "actions": np.zeros(len(row), int),
                "rewards": np.ones(len(row)),
                "log_ratio": np.array(log_ratio),
            }
        )
    return data


def test_without_a_way_to_the_end_there_is_no_value(double):
    data = trapped()
    assert np.isnan(estimate(data, 1.0))
    for options in ({"discount": 0.9}, {"discount": 1.0, "sweeps": 7}):
        expected = oracle.star(data, **options)
        np.testing.assert_allclose(estimate(data, **options), expected, rtol=1e-12)


def test_a_trap_that_is_never_entered_does_no_harm(double):
    data = trapped()
    for episode in data:
        enters = [
            after == 1 and s == 0
            for s, after in zip(episode["states"], [*episode["states"][1:], -1], strict=True)
        ]
        episode["log_ratio"][np.array(enters)] = -np.inf
    np.testing.assert_allclose(estimate(data, 1.0), 2.0, rtol=1e-12)


@pytest.mark.parametrize("unsupported", ["behavior", "nan"])
def test_states_that_the_target_never_acts_in(unsupported, double):
    data = trapped()
    for episode in data:
        episode["log_ratio"][episode["states"] == 1] = -np.inf
    found = estimate(data, 1.0, unsupported=unsupported)
    assert np.isnan(found) == (unsupported == "nan")
    expected = oracle.star(data, 1.0, unsupported=unsupported)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_long_stays_are_exact_in_float32():
    """4,000 steps until the end: elimination without subtraction loses nothing."""
    steps = 4000
    rng = np.random.default_rng(0)
    data = [
        {
            "states": rng.integers(NUM_STATES, size=steps),
            "actions": np.zeros(steps, int),
            "rewards": np.ones(steps),
            "log_ratio": np.zeros(steps),
        }
        for _ in range(3)
    ]
    found = oj.estimate(load(data, steps), "star", past=np.array([1, 0]))
    np.testing.assert_allclose(found, steps, rtol=1e-6)


# The equations --------------------------------------------------------------------------------


def random_links(rng, num_states, visited, visits):
    """Links among some of the states, one of a hundred to the end: what `mean_gain` is given."""
    chosen = rng.choice(num_states, visited, replace=False)
    state = np.concatenate([chosen, rng.choice(chosen, visits - visited)])
    following = np.where(rng.random(visits) < 0.01, num_states, rng.choice(chosen, visits))
    following[:visited] = np.where(rng.random(visited) < 0.2, num_states, following[:visited])
    given = state, following, rng.choice(chosen, 7), rng.exponential(size=visits)
    return given, rng.normal(size=visits), np.zeros(num_states, bool)


@partial(jax.jit, static_argnames="num_states")
def gain(given, reward, barred, discount, num_states):
    state, following, first, weight = given
    links = links_between(state[None], following[None], first, num_states)
    return mean_gain(links, weight, reward, barred, discount)


def solution(given, reward, barred, discount):
    (state, following, first, weight), number = given, len(barred)
    share = weight / np.bincount(state, weight, number)[state]
    flow = np.zeros((number, number + 1))
    np.add.at(flow, (state, following), discount * share)
    right = np.bincount(state, share * reward, number)
    return np.linalg.solve(np.eye(number) - flow[:, :number], right)[first].mean()


@pytest.mark.parametrize("discount", [1.0, 0.95])
@pytest.mark.parametrize("visited", [3, SMALLEST, SMALLEST + 1, 4 * SMALL_BLOCK + 3, 150])
def test_solutions_of_any_size(visited, discount, double):
    """By the smallest matrices, by several blocks of either size, and by whole ones."""
    assert 150 > MANY > 2 * BLOCK > 4 * SMALL_BLOCK + 3
    given = random_links(np.random.default_rng(visited), 150, visited, 900)
    found = gain(*given, discount, num_states=150)
    np.testing.assert_allclose(found, solution(*given, discount), rtol=1e-9)


def test_sets_of_many_sizes_are_solved_together(double):
    rng = np.random.default_rng(1)
    sets = [random_links(rng, 40, visited, 200) for visited in (2, 30, 9)]
    together = jax.tree.map(lambda *fields: jnp.stack(fields), *sets)
    expected = [solution(*given, 0.9) for given in sets]
    every = jax.vmap(partial(gain, discount=0.9, num_states=40))
    np.testing.assert_allclose(every(*together), expected, rtol=1e-9)
    nested = jax.tree.map(lambda x: jnp.stack([x, x]), together)
    np.testing.assert_allclose(jax.vmap(every)(*nested), [expected] * 2, rtol=1e-9)


def test_derivatives_are_those_of_the_values(double):
    data = random_data(5, 6)
    batch = poisoned(load(data))

    def value(log_ratio):
        return oj.ESTIMATORS["star"](batch, log_ratio, discount=0.9, past=2)

    slope = np.asarray(jax.jit(jax.grad(value))(batch.log_ratio))
    for i, t in ((0, 0), (3, 1)):
        moved = batch.log_ratio.at[i, t].add(1e-6)
        back = batch.log_ratio.at[i, t].add(-1e-6)
        np.testing.assert_allclose(
            slope[i, t], (value(moved) - value(back)) / 2e-6, rtol=1e-5, atol=1e-8
        )
