"""The level of relevance that is chosen from the data."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, load, random_data, stacked
from jax import random
from oracles import selection as oracle_selection

import osiris_jax as oj
from osiris_jax.pipeline import selection

MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
LEVELS = (1.0, 0.6, 0.3, 0.1, 0.0)
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


def kept(batch, test, level, evidence, max_kept):
    """([state] the map, [traj, time] the steps kept), straight from the evidence."""
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
    evidence = np.asarray(oj.relevance_pvalues(batch, test, **bare))
    maps, steps = [], []
    for level in levels:
        keep, by_step = kept(batch, test, level, evidence, options.get("max_kept"))
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
    keys = random.split(random.key(0), 3)
    options = {"levels": LEVELS, "weighting": "none"}
    options |= {} if method == "model" else {"resamples": 6}

    def choose(batch, key):
        choice = oj.choose_level(batch, method=method, key=key, **options)
        return *choice, oj.estimate(batch, "osirwis", alpha=method, key=key, **options)

    together = jax.jit(jax.vmap(choose))(stacked(batches), keys)
    for number, batch in enumerate(batches):
        for x, y in zip(together, choose(batch, keys[number]), strict=True):
            np.testing.assert_allclose(x[number], y, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(together[1], together[-1])


def test_one_trace_for_all_numbers(double, all_kept):
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


def test_a_method_registered_later_is_known(monkeypatch):
    monkeypatch.setitem(selection.SELECTION, "mine", selection.SELECTION[selection.DEFAULT_METHOD])
    batch = load(random_data(0, 6))
    usual = oj.estimate(batch, "osirwis", alpha="auto")
    assert oj.estimate(batch, "osirwis", alpha="mine") == usual
    assert oj.choose_level(batch, "osirwis", method="mine").value == usual
