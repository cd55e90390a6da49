"""`estimate` and `relevance_pvalues` as a user meets them: names, options, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data, random_map

import osiris_jax as oj
from osiris_jax.relevance import keep_steps, relevant

BATCH = oj.from_episodes(random_data(0, 12, coarse=True), num_states=NUM_STATES)
KEEP = jnp.asarray(random_map(0))


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


STACKED = jax.tree.map(lambda x: x[None], BATCH)
BAD_CALLS = {
    "unknown estimator": (("osirris",), {}, "estimator: 'osirris' is unknown"),
    "unknown after prefix": (("osiris-foo",), {}, "estimator: 'osiris-foo' is unknown"),
    "unknown relevance": (("wis",), {"relevance": "t-test"}, "relevance: 't-test' is unknown"),
    "alpha above one": (("osirwis",), {"alpha": 1.5}, r"alpha: must be in \[0, 1\], got 1.5"),
    "alpha in a grid": (("osirwis",), {"alpha": [0.1, -0.2]}, "alpha: .* got -0.2"),
    "alpha NaN": (("osirwis",), {"alpha": np.nan}, "alpha: .* got nan"),
    "alpha text": (("osirwis",), {"alpha": "auto"}, "alpha: expected a number"),
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
