"""`estimate` and `relevance_pvalues` as a user meets them: names, options, errors."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data, random_map

import osiris_jax as oj
from osiris_jax.relevance import keep_steps, relevant

BATCH = oj.from_episodes(random_data(0, 12, coarse=True), num_states=NUM_STATES)
KEEP = jnp.asarray(random_map(0))
MODULE = import_module("osiris_jax.pipeline.estimate")  # the name in the package is the function
TINY = {"relevance": "nn-q", "steps": 3, "hidden": 4, "minibatch": 8}


@pytest.mark.parametrize(
    ("name", "long_name", "plain"),
    [("osiris", "osiris-is", "is"), ("osirwis", "osiris-wis", "wis")],
)
def test_short_names(name, long_name, plain):
    values = [
        oj.estimate(BATCH, name, alpha=0.5),
        oj.estimate(BATCH, long_name, alpha=0.5),
        oj.estimate(BATCH, plain, relevance="welch", alpha=0.5),
    ]
    assert values[0] == values[1] == values[2]
    assert values[0] != oj.estimate(BATCH, plain)


def test_omission_is_what_it_says():
    omitted = oj.omit(BATCH.log_ratio, keep_steps(KEEP, BATCH))
    expected = oj.ESTIMATORS["wis"](BATCH, omitted)
    assert oj.estimate(BATCH, "wis", relevance="oracle", keep=KEEP) == expected


def test_an_oracle_map_may_differ_by_trajectory():
    rows = jnp.asarray(random_map(1, (len(BATCH.reward), NUM_STATES)))
    expected = oj.ESTIMATORS["is"](BATCH, oj.omit(BATCH.log_ratio, keep_steps(rows, BATCH)))
    assert oj.estimate(BATCH, "is", relevance="oracle", keep=rows) == expected


def test_round_levels_are_hit_despite_rounding():
    p = np.array([0.1 * 3, 0.25, 0.05, 0.0, 1.0])
    with jax.enable_x64(True):
        assert relevant(jnp.asarray(p), 0.3).tolist() == [True, True, True, True, False]
    single = jnp.asarray(p, "float32") * (1 + 5e-7)
    assert relevant(single, 0.05).tolist() == [False, False, True, True, False]
    assert not relevant(single, 0.0).any()


def test_undecided_states_are_kept_when_asked():
    """With undecided = 0 a state without two groups counts as relevant."""
    default = oj.relevance_pvalues(BATCH, "welch", first_visit=True)
    eager = oj.relevance_pvalues(BATCH, "welch", first_visit=True, undecided=0.0)
    single = oj.from_episodes(random_data(3, 1), num_states=NUM_STATES)
    assert np.all((eager == default) | (eager == 0))
    assert np.any(oj.relevance_pvalues(single) == 1)
    assert np.any(oj.relevance_pvalues(single, undecided=0.0) == 0)


def test_mc_needs_no_ratios():
    plain = BATCH.replace(log_ratio=None)
    assert oj.estimate(plain, "mc") == oj.estimate(BATCH, "mc")


def test_works_under_jit_with_a_traced_level():
    value = jax.jit(lambda b, alpha: oj.estimate(b, "osirwis", alpha=alpha))(BATCH, 0.5)
    np.testing.assert_allclose(value, oj.estimate(BATCH, "osirwis", alpha=0.5), rtol=1e-6)


def test_works_under_vmap_with_a_key_for_each_data_set(double):
    batches = [
        oj.from_episodes(random_data(s, 6, max_steps=1), num_states=NUM_STATES) for s in (1, 2)
    ]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    keys = jax.random.split(jax.random.key(3))

    def values(batch, key):
        network = oj.estimate(batch, "wis", threshold=[0.1, 1.0], key=key, **TINY)
        chosen = oj.estimate(batch, "osirwis", alpha="auto", weighting="none")
        return network, chosen, oj.estimate(batch, "osiris-dr", alpha=0.5)

    together = jax.vmap(values)(stacked, keys)
    for number, batch in enumerate(batches):
        alone = values(batch, keys[number])
        jax.tree.map(
            lambda x, y, i=number: np.testing.assert_allclose(x[i], y, rtol=1e-9), together, alone
        )


def test_a_level_chosen_from_the_data():
    options = {"weighting": "none", "levels": [0.0, 0.3, 1.0]}
    choice = oj.choose_level(BATCH, "osirwis", **options)
    assert oj.estimate(BATCH, "osirwis", alpha="auto", **options) == choice.value
    assert oj.estimate(BATCH, "osirwis", alpha="model", **options) == choice.value
    assert choice.value == oj.estimate(BATCH, "osirwis", weighting="none", alpha=choice.level)
    by_effect = {"relevance": "effect", "weighting": "none"}
    choice = oj.choose_level(BATCH, "wis", **by_effect)
    assert oj.estimate(BATCH, "wis", threshold="auto", **by_effect) == choice.value


def test_thresholds_may_be_an_array_and_have_a_default():
    by_effect = {"relevance": "effect", "weighting": "none", "shrink": False}
    found = oj.relevance_pvalues(BATCH, "effect", weighting="none", shrink=False)
    levels = np.array([[0.0, oj.THRESHOLDS["effect"]], [np.median(found), np.inf]])
    values = oj.estimate(BATCH, "wis", threshold=levels, **by_effect)
    assert values.shape == levels.shape
    assert len(np.unique(values)) > 2
    assert values[0, 1] == oj.estimate(BATCH, "wis", **by_effect)
    np.testing.assert_allclose(values[1, 1], oj.estimate(BATCH, "mc"), rtol=1e-6)


def test_a_network_that_diverges_gives_no_number():
    value = oj.estimate(BATCH, "wis", learning_rate=1e38, **TINY)
    assert np.isnan(value)
    assert np.isfinite(oj.estimate(BATCH, "wis", **TINY))


def test_one_trace_for_all_numbers(all_kept):
    """Grids of one shape, limits, thresholds, clips, keys and rates are all traced."""
    calls = (
        ("osirwis", {"alpha": [0.1, 0.2], "max_kept": 1, "clip": 2.0}),
        ("wis", {**TINY, "threshold": 0.1, "learning_rate": 0.1, "key": jax.random.key(0)}),
    )
    others = (
        {"alpha": [0.3, 1.0], "max_kept": 3, "clip": 5.0, "undecided": 0.5, "discount": 0.3},
        {**TINY, "threshold": 0.7, "learning_rate": 0.2, "key": jax.random.key(1)},
    )
    for (name, first), second in zip(calls, others, strict=True):
        oj.estimate(BATCH, name, **first)
        traces = MODULE.values_of._cache_size()
        oj.estimate(BATCH, name, **second)
        assert MODULE.values_of._cache_size() == traces


STACKED = jax.tree.map(lambda x: x[None], BATCH)
BAD_CALLS = {
    "unknown estimator": (("osirris",), {}, "estimator: 'osirris' is unknown"),
    "unknown after prefix": (("osiris-foo",), {}, "estimator: 'osiris-foo' is unknown"),
    "unknown relevance": (("wis",), {"relevance": "t-test"}, "relevance: 't-test' is unknown"),
    "alpha above one": (("osirwis",), {"alpha": 1.5}, r"alpha: must be in \[0, 1\], got 1.5"),
    "alpha in a grid": (("osirwis",), {"alpha": [0.1, -0.2]}, "alpha: .* got -0.2"),
    "alpha NaN": (("osirwis",), {"alpha": np.nan}, "alpha: .* got nan"),
    "alpha text": (("osirwis",), {"alpha": "all"}, "alpha: expected a number or one of auto, "),
    "alpha of bytes": (("osirwis",), {"alpha": b"auto"}, "alpha: expected a number"),
    "threshold of a level": (("osirwis",), {"threshold": 0.1}, "threshold: only for .* effect"),
    "threshold below zero": (
        ("wis",),
        {"relevance": "effect", "threshold": [0.1, -0.1]},
        r"threshold: must be 0 or more, got -0\.1",
    ),
    "threshold text": (
        ("wis",),
        {"relevance": "effect", "threshold": "large"},
        "threshold: expected a number or one of auto",
    ),
    "levels without a choice": (("osirwis",), {"levels": [0.1, 1.0]}, "levels: only where"),
    "levels beyond one": (("osirwis",), {"alpha": "auto", "levels": [2.0]}, "alpha: must be in"),
    "alpha ragged": (("osirwis",), {"alpha": [[1], [1, 1]]}, "alpha: expected a number"),
    "discount": (("wis",), {"discount": 1.01}, "discount: must be in"),
    "ddof": (("osirwis",), {"ddof": 2}, "ddof: must be 0 or 1"),
    "weighting": (("osirwis",), {"weighting": "togo"}, "weighting: 'togo'"),
    "weighting type": (("osirwis",), {"weighting": 1}, "weighting: expected str"),
    "finished": (("cwpdis",), {"finished": "stay"}, "finished: 'stay'"),
    "variance": (("incris",), {"variance": "both"}, "variance: 'both'"),
    "option of another": (("wis",), {"finished": "keep"}, "finished: not an option of `wis`"),
    "option without test": (("wis",), {"first_visit": True}, "first_visit: not an option"),
    "switch": (("osirwis",), {"first_visit": 1}, "first_visit: expected bool"),
    "undecided": (("osirwis",), {"undecided": 2.0}, "undecided: must be in"),
    "oracle without map": (("wis",), {"relevance": "oracle"}, "keep: `oracle` needs"),
    "oracle of another size": (
        ("wis",),
        {"relevance": "oracle", "keep": [True]},
        "keep: .*5 states",
    ),
    "clip": (("wis",), {"clip": -1.0}, r"clip: must be above 0, got -1\.0"),
    "clip of nothing": (("cwpdis",), {"clip": 0}, "clip: must be above 0, got 0"),
    "clip of another": (("mis",), {"clip": 2.0}, "clip: not an option of `mis`"),
    "one fold": (("osirwis",), {"folds": 1}, "folds: expected 0, or 2 and more, got 1"),
    "half a fold": (("osirwis",), {"folds": 2.5}, r"folds: expected a whole number.* got 2\.5"),
    "folds below zero": (("osirwis",), {"folds": -2}, "folds: expected a whole number, .* got -2"),
    "folds that are a switch": (("osirwis",), {"folds": True}, "folds: expected a whole number"),
    "folds beside leave-one-out": (
        ("osirwis",),
        {"folds": 2, "leave_one_out": True},
        "folds: leave_one_out already",
    ),
    "classes": (("osirwis",), {"classes": "action"}, "classes: 'action' is not one of"),
    "max_kept": (("osirwis",), {"max_kept": -1}, "max_kept: must be 0 or more, got -1"),
    "max_kept of nothing": (
        ("wis",),
        {"max_kept": 2},
        "max_kept: has no effect, for `wis` omits nothing",
    ),
    "max_kept by lag": (("osiris-stepwise",), {"max_kept": 2}, "max_kept: `stepwise` omits by lag"),
    "theta twice": (("osiris-stepwise",), {"theta": KEEP[None]}, "theta: found by `welch`"),
    "a test without lags": (
        ("osiris-stepwise",),
        {"relevance": "smirnov"},
        "relevance: 'smirnov' has no form by lag, as `stepwise` needs: welch",
    ),
    "lags": (("osiris-stepwise",), {"exact_lags": 0}, "exact_lags: .* at least 1, got 0"),
    "a model by lag": (("osiris-stepwise",), {"alpha": "model"}, "alpha: the method `model` needs"),
    "osiris-dm": (("osiris-dm",), {}, "estimator: .* there is no `osiris-dm`"),
    "dm after a test": (("dm",), {"relevance": "welch"}, "relevance: `dm` uses no ratios"),
    "auto after a test": (("auto",), {"relevance": "welch"}, "`auto` chooses itself what to omit"),
    "fit": (("dr",), {"fit": "forest"}, "fit: 'forest' is unknown; there are tabular"),
    "smoothing": (("dr",), {"smoothing": -0.1}, "smoothing: must be 0 or more"),
    "q_folds": (("dr",), {"q_folds": 0.5}, "q_folds: expected a whole number"),
    "marginals": (("drl",), {"marginals": [[-1.0]]}, "marginals: must be 0 or more, got -1.0"),
    "no resamples": (("magic",), {"resamples": 0}, "resamples: expected 1 or more, got 0"),
    "key": (("wis",), {**TINY, "key": 0}, "key: expected jax.random.key"),
    "key of the old kind": (("wis",), {**TINY, "key": jax.random.PRNGKey(0)}, "key: expected jax"),
    "keys": (
        ("osirwis",),
        {"alpha": "bootstrap", "key": jax.random.split(jax.random.key(0))},
        "key: expected one key",
    ),
    "size of a network": (("wis",), {**TINY, "hidden": 4.0}, "hidden: expected a whole number"),
    "no steps of a network": (("wis",), {**TINY, "steps": 0}, "steps: expected .* at least 1"),
    "learning rate": (("wis",), {**TINY, "learning_rate": 0.0}, "learning_rate: must be above 0"),
    "length_probs": (("phwis",), {"length_probs": [0.5, -1.0]}, "length_probs: must be in"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name):
    args, options, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        oj.estimate(BATCH, *args, **options)


def test_bad_batches():
    with pytest.raises(ValueError, match="batch: expected a TrajectoryBatch, got list"):
        oj.estimate([], "wis")
    with pytest.raises(ValueError, match=r"batch: expected axes \[traj, time\]"):
        oj.estimate(STACKED, "wis")
    with pytest.raises(ValueError, match="`wis` needs `log_ratio`"):
        oj.estimate(BATCH.replace(log_ratio=None), "wis")
    with pytest.raises(ValueError, match="`mis` needs `state`"):
        oj.estimate(BATCH.replace(state=None), "mis")
    with pytest.raises(ValueError, match="relevance: 'x' is unknown; there are welch"):
        oj.relevance_pvalues(BATCH, "x")
    with pytest.raises(ValueError, match="alpha: not an option of `welch`"):
        oj.relevance_pvalues(BATCH, "welch", alpha=0.1)
