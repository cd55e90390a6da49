"""The data's own Markov chain, and the level of relevance that is chosen from the data."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import oracle_selection
import pytest
from datasets import MAX_STEPS, NUM_STATES, poisoned, ragged_data, random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import random

import osiris_jax as oj
from osiris_jax.models.empirical import BLOCK, composite_moments
from osiris_jax.pipeline import selection

MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
MAPS = np.array([[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 1, 1, 1]], bool)
LEVELS = (1.0, 0.6, 0.3, 0.1, 0.0)
compiled_moments = jax.jit(composite_moments)


def load(data, steps=MAX_STEPS, num_states=NUM_STATES):
    return oj.pad_to(oj.from_episodes(data, num_states=num_states), steps)


def cut(data, steps):
    """The first steps of each trajectory."""
    return [{name: field[:steps] for name, field in episode.items()} for episode in data]


def expect_moments(found, data, maps, discount):
    """Equal to the oracle's, `centred` relative to what cancels in it."""
    for number, keep in enumerate(maps):
        value, second, centred = oracle_selection.composite_moments(data, keep, discount)
        largest = max(np.abs(episode["rewards"]).max() for episode in data)
        np.testing.assert_allclose(found.value[number], value, rtol=1e-9, atol=1e-9 * largest)
        np.testing.assert_allclose(found.second[number], second, rtol=1e-9, atol=1e-300)
        scale = 1e-9 * (second + largest**2)
        np.testing.assert_allclose(found.centred[number], centred, rtol=1e-9, atol=scale)


# The chain against the oracle -----------------------------------------------------------------


@settings(max_examples=60)
@given(ragged_data(), st.sampled_from([1.0, 0.9, 0.0]), st.sampled_from([1, 3, MAX_STEPS]))
def test_moments_of_any_map(data, discount, steps):
    """Cut at 1 or 3 steps most trajectories end when the longest does, so may have been cut."""
    data = cut(data, steps)
    with jax.enable_x64(True):
        found = compiled_moments(load(data), MAPS, discount=discount)
    expect_moments(found, data, MAPS, discount)


@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_more_links_than_a_block_holds(zeros, double):
    rng = np.random.default_rng(7)
    data = random_data(7, 150, zeros=zeros, spread=0.4)
    for episode in data:
        episode["states"] = rng.integers(60, size=len(episode["states"]))
    pairs = {
        (s, after)
        for episode in data
        for s, after in zip(episode["states"], [*episode["states"][1:], None], strict=True)
    }
    assert BLOCK < len(pairs) < 2 * BLOCK
    maps = rng.random((4, 60)) < 0.5
    found = compiled_moments(load(data, num_states=60), maps, discount=0.9)
    expect_moments(found, data, maps, 0.9)


def test_float32_follows():
    data = random_data(5, 6, spread=0.3)
    found = compiled_moments(load(data), MAPS, discount=0.9)
    assert {x.dtype for x in found} == {jnp.dtype("float32")}
    expected = np.array([oracle_selection.composite_moments(data, keep, 0.9) for keep in MAPS])
    np.testing.assert_allclose(np.array(found[:3]).T, expected, rtol=1e-4, atol=1e-4)


def test_padding_never_matters(double):
    batch = load(random_data(1, 6, max_steps=MAX_STEPS - 3, zeros=0.1))
    expected = compiled_moments(oj.trim(batch), MAPS, discount=0.9)
    for other in (batch, poisoned(batch), poisoned(oj.pad_to(batch, 3 * MAX_STEPS))):
        found = compiled_moments(other, MAPS, discount=0.9)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)


def test_maps_matter_only_through_ratios(double):
    """With nothing kept the chain is the behaviour's; with ratios of one every map says so."""
    batch = load(random_data(2, 6))
    none = jnp.zeros((1, NUM_STATES), bool)
    behaviour = compiled_moments(batch, none, discount=0.9)
    ones = batch.replace(log_ratio=jnp.zeros_like(batch.log_ratio))
    for x, expected in zip(compiled_moments(ones, MAPS, discount=0.9), behaviour, strict=True):
        np.testing.assert_allclose(x, np.broadcast_to(expected, x.shape), rtol=1e-12)
    np.testing.assert_allclose(behaviour.centred, behaviour.second - behaviour.value**2, rtol=1e-9)
    assert len(set(np.asarray(compiled_moments(batch, MAPS, discount=0.9).value))) == len(MAPS)


def test_a_bandit_is_a_weighted_mean_by_hand(double):
    """Two states of two visits each; in the first the ratios 1 and 3 become 1/2 and 3/2."""
    data = [
        {"states": [s], "actions": [0], "rewards": [r], "log_ratio": [np.log(rho)]}
        for s, r, rho in ((0, 1.0, 1.0), (0, 5.0, 3.0), (1, 2.0, 0.5), (1, 4.0, 0.5))
    ]
    batch = oj.from_episodes(data, num_states=2)
    found = compiled_moments(batch, np.array([[True, True], [False, True]]), discount=1.0)
    np.testing.assert_allclose(found.value, [(4 + 3) / 2, (3 + 3) / 2])
    square = (0.5**2 + 7.5**2) / 2
    np.testing.assert_allclose(found.second, [(square + 10) / 2, (13 + 10) / 2])
    about = (0.25 * (1 - 3.5) ** 2 + 2.25 * (5 - 3.5) ** 2 + (2 - 3.5) ** 2 + (4 - 3.5) ** 2) / 4
    np.testing.assert_allclose(found.centred, [about, (4 + 4 + 1 + 1) / 4])


# The chain against the truth ------------------------------------------------------------------


def random_world(*, ends):
    """Five states, two actions; in the last a trajectory ends, or nothing ever does."""
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.full(NUM_STATES, 2.0), (NUM_STATES, 2))
    reward = np.array([1.0, 0.0]) + 0.3 * rng.normal(size=(NUM_STATES, 2))
    terminal = np.arange(NUM_STATES) == NUM_STATES - 1 if ends else np.zeros(NUM_STATES, bool)
    policies = {
        "behavior": rng.dirichlet((8, 8), NUM_STATES),
        "target": rng.dirichlet((12, 6), NUM_STATES),
    }
    return oj.TabularWorld(transition, reward, 0, **policies, horizon=6, terminal=terminal)


@pytest.mark.parametrize("ends", [True, False])
def test_the_chain_approaches_the_truth(ends, double):
    """Value and second moment from 400 independent data sets, within 4 standard errors.

    Both are smooth functions of means over N trajectories, biased by b / N + O(1 / N^2). Twice
    what 2 N say less what the first N of these say has no part of order 1 / N; its spread over the
    data sets gives the standard error.
    """
    world, size = random_world(ends=ends), 100
    exact = world.exact(0.95)
    batch = world.rollout(random.split(random.key(4), 400), 2 * size)
    assert (batch.lengths.max(1) == world.horizon).all()

    @jax.jit
    def moments(batch):
        find = partial(composite_moments, keep=jnp.asarray(MAPS), discount=0.95)
        return jnp.stack(jax.vmap(find)(batch)[:2])

    half = moments(jax.tree.map(lambda x: x[:, :size], batch))
    found = 2 * moments(batch) - half
    error = np.std(found, 1) / np.sqrt(found.shape[1])
    values = [exact.policy_value(exact.composite(keep)) for keep in MAPS]
    expected = np.array([values, exact.power_means("osiris", keep=MAPS, order=2)[1]])
    assert (np.abs(np.asarray(found).mean(1) - expected) < 4 * error).all()
    assert (error < 0.05 * np.abs(expected)).all()
    assert np.ptp(values) > 20 * error[0].max()


# Methods on given candidates ------------------------------------------------------------------

NUM_TRAJECTORIES, RESAMPLES = 8, 20


def given_candidates(seed):
    """Estimates with gaps, and columns of numbers whose means over a resample are its estimates."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(NUM_TRAJECTORIES, len(LEVELS)))
    columns = columns * rng.choice([0.0, 0.3, 3.0], len(LEVELS))
    value = columns.mean(0) + rng.choice([0.0, 0.5], len(LEVELS)) * rng.normal(size=len(LEVELS))
    if seed % 3 == 1:
        value[rng.integers(len(LEVELS))] = np.nan
    if seed % 3 == 2:
        value[0] = rng.choice([np.nan, np.inf])
    undefined_below = -0.4 if seed % 2 else -np.inf
    return columns, value, undefined_below


@partial(jax.jit, static_argnames="method")
def choose_given(columns, value, undefined_below, key, option, *, method):
    def resample(batch):
        mean = batch.reward.mean(0)
        return jnp.where(mean < undefined_below, jnp.nan, mean)

    candidates = selection.Candidates(
        batch=oj.TrajectoryBatch(reward=columns, mask=columns == columns),
        normalised=True,
        value=value,
        maps=None,
        log_weights=None,
        resample=resample,
        discount=1.0,
    )
    name = "width" if method == "lepski" else "confidence"
    options = {"key": key, "resamples": RESAMPLES, name: option}
    return selection.choose(candidates, jnp.array(LEVELS), method, **options)


def replicates_of(columns, undefined_below, key):
    rows = np.asarray(random.randint(key, (RESAMPLES, len(columns)), 0, len(columns)))
    means = columns[rows].mean(1)
    return np.where(means < undefined_below, np.nan, means)


@pytest.mark.parametrize("seed", range(40))
def test_lepski_walks_down_while_intervals_meet(seed, double):
    columns, value, undefined_below = given_candidates(seed)
    key, width = random.key(seed), 0.3 + seed % 4
    found = choose_given(columns, value, undefined_below, key, width, method="lepski")
    replicates = replicates_of(columns, undefined_below, key)
    expected = oracle_selection.lepski_choice(value, replicates, width)
    assert found.level == LEVELS[expected]
    assert found.value == value[expected]


def test_the_lepski_cases_stop_everywhere():
    stops = set()
    for seed in range(40):
        columns, value, undefined_below = given_candidates(seed)
        replicates = replicates_of(columns, undefined_below, random.key(seed))
        stops.add(oracle_selection.lepski_choice(value, replicates, 0.3 + seed % 4))
    assert stops == set(range(len(LEVELS)))


@pytest.mark.parametrize("seed", range(40))
def test_bootstrap_adds_variance_and_squared_distance(seed, double):
    columns, value, undefined_below = given_candidates(seed)
    key, confidence = random.key(seed), (0.5, 0.9, 0.0)[seed % 3]
    found = choose_given(columns, value, undefined_below, key, confidence, method="bootstrap")
    replicates = replicates_of(columns, undefined_below, key)
    expected = oracle_selection.bootstrap_scores(value, replicates, confidence)
    known = np.isfinite(value)
    np.testing.assert_allclose(found.scores[known], expected[known], rtol=1e-9, atol=1e-12)
    assert found.level == LEVELS[oracle_selection.choice(expected, value)]
    assert np.isfinite(found.value)


NAN, INF = np.nan, np.inf
CHOICES = {
    "smallest": ([3, 2, 1, 2, 3], [1, 2, 3, 4, 5], 2),
    "ties keep more": ([3, 1, 1, 1, 3], [1, 2, 3, 4, 5], 1),
    "all equal": ([0, 0, 0, 0, 0], [1, 2, 3, 4, 5], 0),
    "score undefined": ([NAN, 5, NAN, 4, 6], [1, 2, 3, 4, 5], 3),
    "estimate undefined": ([0, 1, 2, 3, 4], [NAN, NAN, 3, 4, 5], 2),
    "both in turn": ([0, NAN, 2, 3, 4], [NAN, 2, NAN, 4, 5], 3),
    "no score but estimates": ([NAN, NAN, INF, NAN, NAN], [NAN, 2, 3, 4, 5], 1),
    "infinite scores": ([INF, INF, INF, INF, 7], [1, 2, 3, 4, 5], 4),
    "nothing at all": ([NAN, NAN, NAN, NAN, NAN], [NAN, NAN, NAN, NAN, NAN], 0),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_smallest_score_wins(case, monkeypatch):
    scores, value, expected = (np.asarray(x) for x in CHOICES[case])
    monkeypatch.setitem(selection.SELECTION, "given", lambda _: jnp.asarray(scores, float))
    nothing = dict.fromkeys(selection.Candidates._fields)
    candidates = selection.Candidates(**{**nothing, "value": jnp.asarray(value, float)})
    found = selection.choose(candidates, jnp.array(LEVELS), "given")
    assert found.level == np.float32(LEVELS[expected])
    np.testing.assert_array_equal(found.value, np.float32(value[expected]))
    assert expected == oracle_selection.choice(scores, value)


# From data to a choice ------------------------------------------------------------------------

DATA = random_data(6, 12, spread=0.5)
CASES = {
    "wis": ("osirwis", "welch", {}),
    "is": ("osiris", "welch", {"discount": 0.9, "weighting": "none"}),
    "leave-one-out": ("osirwis", "welch", {"leave_one_out": True, "weighting": "none"}),
    "folds": ("osiris-pdis", "welch", {"folds": 3, "ddof": 0}),
    "max_kept": ("osiris", "welch", {"max_kept": 1, "weighting": "none"}),
    "effect": ("osirwis", "effect", {"weighting": "none", "shrink": False}),
}


def kept(batch, test, level, options):
    """([state] the map, [traj, time] the steps kept), straight from the evidence."""
    options = dict(options)
    max_kept = options.pop("max_kept", None)
    evidence = np.asarray(oj.relevance_pvalues(batch, test, **options))
    keep = evidence > level if test in oj.THRESHOLDS else (evidence <= level) & (level > 0)
    rows = np.broadcast_to(keep, (len(batch.reward), NUM_STATES))
    steps = [row[states] for row, states in zip(rows, np.asarray(batch.state), strict=True)]
    if max_kept is not None:
        for row, states in zip(steps, np.asarray(batch.state), strict=True):
            order = sorted(np.flatnonzero(row), key=lambda t: (evidence[states[t]], t))
            row[order[max_kept:]] = False
    return rows.mean(0) > 0.5, steps


@pytest.mark.parametrize("case", CASES)
def test_model_s_scores_and_choice(case, double):
    estimator, test, options = CASES[case]
    by_threshold, batch = test in oj.THRESHOLDS, load(DATA)
    levels = (0.0, 0.1, 0.3, 0.6, 2.0) if by_threshold else LEVELS
    found = oj.choose_level(batch, estimator, relevance=test, levels=levels[::-1], **options)
    np.testing.assert_array_equal(found.levels, levels)

    name = "threshold" if by_threshold else "alpha"
    whole = {"relevance": test, **options}
    values = oj.estimate(batch, estimator, **whole, **{name: np.array(levels)})
    np.testing.assert_allclose(found.values, values, rtol=1e-12)
    bare = {k: v for k, v in options.items() if k != "max_kept"}
    maps, steps = [], []
    for level in levels:
        keep, by_step = kept(batch, test, level, {**bare, "max_kept": options.get("max_kept")})
        maps.append(keep)
        steps.append([row[: len(e["rewards"])] for row, e in zip(by_step, DATA, strict=True)])
    scores = oracle_selection.model_scores(
        DATA,
        np.asarray(values),
        maps,
        steps,
        options.get("discount", 1.0),
        normalised=estimator not in ("osiris", "osiris-pdis"),
    )
    assert len({tuple(keep) for keep in maps}) > 2
    np.testing.assert_allclose(found.scores, scores, rtol=1e-9)
    best = oracle_selection.choice(scores, np.asarray(values))
    assert found.level == levels[best]
    assert found.value == found.values[best]
    auto = oj.estimate(batch, estimator, levels=levels, **whole, **{name: "auto"})
    assert auto == found.value


def test_the_usual_levels_are_those_that_are_compared(double):
    batch = load(DATA)
    found = oj.choose_level(batch)
    np.testing.assert_array_equal(found.levels, selection.ALPHAS)
    assert found.value == oj.estimate(batch, "osirwis", alpha="auto")
    np.testing.assert_allclose(
        found.value, oj.estimate(batch, "osirwis", alpha=found.level), rtol=1e-12
    )
    found = oj.choose_level(batch, "osiris", relevance="effect")
    np.testing.assert_array_equal(found.levels, selection.THRESHOLDS)
    assert found.value == oj.estimate(batch, "osiris", relevance="effect", threshold="auto")


RANDOM = {"lepski": {"width": 0.7}, "bootstrap": {"confidence": 0.8}}


@pytest.mark.parametrize("method", RANDOM)
def test_random_methods_draw_data_sets_with_relevance_found_anew(method, double):
    batch, key, number = load(DATA), random.key(3), 6
    options = {"weighting": "none", "discount": 0.9}
    found = oj.choose_level(
        batch, method=method, levels=LEVELS, key=key, resamples=number, **RANDOM[method], **options
    )
    replicates = []
    for rows in random.randint(key, (number, len(DATA)), 0, len(DATA)):
        drawn = jax.tree.map(lambda x, rows=rows: x[rows], batch)
        replicates.append(oj.estimate(drawn, "osirwis", alpha=np.array(LEVELS), **options))
    replicates, values = np.array(replicates), np.asarray(found.values)
    if method == "lepski":
        best = oracle_selection.lepski_choice(values, replicates, 0.7)
    else:
        scores = oracle_selection.bootstrap_scores(values, replicates, 0.8)
        np.testing.assert_allclose(found.scores, scores, rtol=1e-9)
        best = oracle_selection.choice(scores, values)
    assert found.level == LEVELS[best]
    again = oj.choose_level(
        batch,
        method=method,
        levels=LEVELS[::-1],
        key=key,
        resamples=number,
        **RANDOM[method],
        **options,
    )
    np.testing.assert_array_equal(again.scores, found.scores)


def test_only_random_methods_follow_the_key(double):
    batch, options = load(DATA), {"levels": LEVELS, "weighting": "none", "discount": 0.9}
    found = {
        method: [
            oj.choose_level(batch, method=method, key=random.key(seed), **options, **more)
            for seed in range(6)
        ]
        for method, more in (
            ("model", {}),
            ("lepski", {"resamples": 6, "width": 0.7}),
            ("bootstrap", {"resamples": 6, "confidence": 0.8}),
        )
    }
    differ = {name: len({tuple(c.scores.tolist()) for c in row}) for name, row in found.items()}
    assert differ["model"] == 1
    assert differ["lepski"] > 1
    assert differ["bootstrap"] == 6
    silent = oj.choose_level(batch, method="bootstrap", resamples=6, confidence=0.8, **options)
    np.testing.assert_array_equal(silent.scores, found["bootstrap"][0].scores)


@pytest.mark.parametrize("method", selection.SELECTION)
def test_jit_and_vmap_are_a_loop(method, double):
    batches = [load(random_data(seed, len(DATA), zeros=0.1 * seed)) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    keys = random.split(random.key(0), 3)
    options = {"levels": LEVELS, "weighting": "none"}
    options |= {} if method == "model" else {"resamples": 6}

    def choose(batch, key):
        choice = oj.choose_level(batch, method=method, key=key, **options)
        return *choice, oj.estimate(batch, "osirwis", alpha=method, key=key, **options)

    together = jax.jit(jax.vmap(choose))(stacked, keys)
    for number, batch in enumerate(batches):
        for x, y in zip(together, choose(batch, keys[number]), strict=True):
            np.testing.assert_allclose(x[number], y, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(together[1], together[-1])


def test_one_trace_for_all_numbers(double):
    batch = load(DATA)
    common = {"levels": LEVELS, "weighting": "none", "resamples": 6}
    traces = set()
    for number in range(3):
        changing = {"discount": 0.9 - 0.1 * number, "ddof": number % 2, "key": random.key(number)}
        levels = np.array(LEVELS) * (1 - 0.1 * number)
        for method, option in (("lepski", "width"), ("bootstrap", "confidence")):
            settings = {**common, **changing, "levels": levels, option: 0.5 + 0.1 * number}
            oj.choose_level(batch, method=method, **settings)
        del changing["key"]
        oj.choose_level(batch, levels=levels, max_kept=3 + number, **changing)
        traces.add(MODULE.choice_of._cache_size())
    assert len(traces) == 1


def test_without_any_weight_the_levels_that_have_an_estimate_are_compared(double):
    """All of a state's ratios are zero: WIS is undefined for every map that keeps the state."""
    data = random_data(8, 12, spread=0.4)
    for episode in data:
        episode["states"][0] = 0
        episode["log_ratio"][np.asarray(episode["states"]) == 0] = -np.inf
    batch = load(data)
    for method in selection.SELECTION:
        more = {} if method == "model" else {"resamples": 6}
        found = oj.choose_level(batch, method=method, levels=LEVELS, weighting="none", **more)
        assert np.isnan(found.values[0])
        assert np.isfinite(found.values[-1])
        assert np.isfinite(found.value)


BAD = {
    "by lag": (("osiris-stepwise",), {}, "alpha: the method `model` needs relevance by state"),
    "method": ((), {"method": "best"}, "method: expected one of auto, model, lepski, bootstrap"),
    "number": ((), {"method": 0.5}, "method: expected one of auto"),
    "no levels": ((), {"levels": []}, "levels: none given"),
    "level": ((), {"levels": [0.5, 1.5]}, r"alpha: must be in \[0, 1\], got 1.5"),
    "threshold": ((), {"relevance": "effect", "levels": [-1.0]}, "threshold: must be 0 or more"),
    "other's option": ((), {"method": "bootstrap", "width": 1.0}, "width: not an option of"),
    "width": ((), {"method": "lepski", "width": 0.0}, "width: must be above 0"),
    "confidence": ((), {"method": "bootstrap", "confidence": 2}, r"confidence: must be in \[0, 1"),
    "resamples": ((), {"method": "lepski", "resamples": 2.5}, "resamples: expected a whole number"),
    "key": ((), {"method": "lepski", "key": 3}, "key: expected jax.random.key"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_chosen_is_refused(case):
    names, options, message = BAD[case]
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.choose_level(load(DATA), *names, **options)


def test_words_that_are_no_level_are_refused():
    batch = load(DATA)
    with pytest.raises(ValueError, match=r"^alpha: expected a number or one of auto, model"):
        oj.estimate(batch, "osirwis", alpha="best")
    with pytest.raises(ValueError, match=r"^threshold: expected a number or one of auto, model"):
        oj.estimate(batch, "osirwis", relevance="effect", threshold="best")


def test_evidence_by_step_has_no_map_for_the_model():
    batch = load(DATA)
    batch = batch.replace(observation=jnp.zeros((*batch.mask.shape, 2)))
    with pytest.raises(ValueError, match=r"^alpha: the method `model` needs relevance by state"):
        oj.choose_level(batch, relevance="nn-q", steps=1)


# Worth having ---------------------------------------------------------------------------------


def test_the_chosen_level_beats_fixed_ones():
    """Dilly-Dallying, 200 data sets of 25: the squared error falls by over 4 standard errors."""
    world, levels = oj.make("dilly-dallying"), (0.05, 1.0, "auto")
    batch = world.rollout(random.split(random.key(5), 200), 25)

    @jax.jit
    @jax.vmap
    def estimates(one):
        return [oj.estimate(one, "osirwis", weighting="none", alpha=alpha) for alpha in levels]

    errors = np.square(np.array(estimates(batch), float) - world.exact().value)
    *fixed, auto = errors
    assert np.isfinite(errors).all()
    for other in fixed:
        gain = other - auto
        assert gain.mean() > 4 * gain.std() / np.sqrt(len(gain))
