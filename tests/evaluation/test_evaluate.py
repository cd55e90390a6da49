"""`evaluate`: values are those of estimate, intervals of intervals, weights and pairs of loops."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import oracles as oracle
import pytest
from datasets import MAX_STEPS, NUM_STATES, poisoned, random_data
from jax import random
from oracles import intervals as slow

import osiris_jax as oj
from osiris_jax.core.faces import aligned, number, plain, span
from osiris_jax.evaluation.judge import decimal, graver
from osiris_jax.evaluation.pictures import draw
from osiris_jax.evaluation.result import HEADER, NOT_JUDGED
from osiris_jax.inference.resampling import draw_rows
from osiris_jax.inference.weights import CAREFUL, FINE, NO_TRUST, Verdict
from osiris_jax.pipeline import selection

SIZE, RESAMPLES, DISCOUNT, ALPHA = 24, 60, 0.9, 0.4
NAMES = ("wis", "pdis", "osiris", "osirwis", "mc")
ASKED = {"alpha": ALPHA, "discount": DISCOUNT, "resamples": RESAMPLES}
OF_ORACLE = {"osiris": "osiris-is", "osirwis": "osiris-wis"}


def load(data):
    return oj.pad_to(oj.from_episodes(data, num_states=NUM_STATES), MAX_STEPS)


def other_target(data, seed=5):
    """The same log with other ratios."""
    rng = np.random.default_rng(seed)
    return [
        traj | {"log_ratio": traj["log_ratio"] + rng.normal(scale=0.3, size=len(traj["rewards"]))}
        for traj in data
    ]


@pytest.fixture(scope="module")
def case():
    """A data set, its evaluation against another target, and the key of the resamples."""
    with jax.enable_x64(True):
        data = random_data(1, SIZE, spread=0.4)
        other, key = other_target(data), random.key(3)
        found = oj.evaluate(load(data), NAMES, compare_with=load(other), key=key, **ASKED)
        yield data, other, found, key


def test_values_are_those_of_estimate(case, double):
    data, _, found, _ = case
    batch = load(data)
    assert [row.estimator for row in found.rows] == list(NAMES)
    for row in found.rows:
        level = {} if row.relevance is None else {"alpha": ALPHA}
        alone = float(oj.estimate(batch, row.estimator, discount=DISCOUNT, **level))
        assert row.value == pytest.approx(alone, rel=1e-14)  # sums are fused in another order
        expected = slow.estimate(
            data, OF_ORACLE.get(row.estimator, row.estimator), NUM_STATES, alpha=ALPHA,
            discount=DISCOUNT,
        )  # fmt: skip
        assert row.value == pytest.approx(expected, rel=1e-9)


def test_intervals_are_those_of_intervals(case, double):
    data, _, found, key = case
    expected = oj.intervals(load(data), NAMES, key=key, **ASKED)
    for row in found.rows:
        assert row.intervals == expected[row.estimator].intervals
        assert row.standard_error == expected[row.estimator].standard_error
        assert row.interval == ("percentile", row.intervals["percentile"])


def test_differences_are_paired_by_loops(case):
    data, other, found, key = case
    draws = random.fold_in(key, 2**32 - 11)
    rows = np.asarray(draw_rows(draws, jnp.arange(RESAMPLES), SIZE))
    assert len(found.differences) == len(NAMES)
    for difference in found.differences:
        name = OF_ORACLE.get(difference.estimator, difference.estimator)
        options = {"alpha": ALPHA, "discount": DISCOUNT}
        here, there = (
            np.array(slow.resampled(one, rows, name, NUM_STATES, **options))
            for one in (data, other)
        )
        low, high = slow.percentile(here - there, 0.95)
        assert (difference.low, difference.high) == pytest.approx((low, high), rel=1e-8, abs=1e-12)
        error = np.std(here - there, ddof=1)
        assert difference.standard_error == pytest.approx(error, rel=1e-8, abs=1e-12)
        values = [slow.estimate(one, name, NUM_STATES, **options) for one in (data, other)]
        assert (difference.value, difference.compared) == pytest.approx(values, rel=1e-9)
        assert difference.difference == difference.value - difference.compared


def test_the_weights_are_those_the_estimator_uses(case):
    data, _, found, _ = case
    p = oracle.pvalues(data, NUM_STATES, "welch", discount=DISCOUNT)
    kept = oracle.omit(data, oracle.keep_map(p, ALPHA))
    sizes = {}
    for name, used in (("wis", data), ("osirwis", kept)):
        weights = [float(np.prod(np.exp(traj["log_ratio"]))) for traj in used]
        sizes[name] = sum(weights) ** 2 / sum(w * w for w in weights)
        assert found[name].weights.effective_size == pytest.approx(sizes[name])
        assert found[name].weights.largest_share == pytest.approx(max(weights) / sum(weights))
    assert sizes["wis"] != pytest.approx(sizes["osirwis"])
    assert found["mc"].weights is None
    assert found["mc"].verdict == NOT_JUDGED


def test_the_curve_holds_the_estimates_at_every_level(case, double):
    data, _, found, _ = case
    batch, curve = load(data), found.curve
    assert curve.estimator == "osirwis"
    assert list(curve.levels) == sorted({*selection.ALPHAS, ALPHA})
    expected = oj.estimate(batch, "osirwis", alpha=curve.levels, discount=DISCOUNT)
    np.testing.assert_allclose(curve.values, expected, rtol=1e-12)
    p = oracle.pvalues(data, NUM_STATES, "welch", discount=DISCOUNT)
    for level, share in zip(curve.levels, curve.share_kept, strict=True):
        kept = [oracle.keep_map(p, level)[s] for traj in data for s in traj["states"]]
        assert share == pytest.approx(np.mean(kept))
    choice = oj.choose_level(batch, "osirwis", discount=DISCOUNT)
    assert curve.automatic == decimal(choice.level)
    visits = np.bincount(np.concatenate([traj["states"] for traj in data]), minlength=NUM_STATES)
    np.testing.assert_array_equal(found.states.visits, visits)
    np.testing.assert_allclose(found.states.evidence, p, rtol=1e-9)
    np.testing.assert_array_equal(found.states.kept, oracle.keep_map(p, ALPHA))


def test_padding_never_matters(case, double):
    data, other, found, key = case
    batch, its = poisoned(load(data)), poisoned(load(other))
    again = oj.evaluate(batch, NAMES, compare_with=its, key=key, **ASKED)
    np.testing.assert_equal(again.summary(), found.summary())


def test_auto_is_the_level_chosen_for_each_estimator(double):
    batch = load(random_data(2, SIZE, spread=0.4))
    options = {"alpha": "auto", "methods": "percentile", "resamples": 2}
    found = oj.evaluate(batch, ["osirwis", "osiris"], **options)
    for row in found.rows:
        choice = oj.choose_level(batch, row.estimator)
        assert row.alpha == decimal(choice.level)
        assert row.value == pytest.approx(float(choice.value), rel=1e-12)
        assert row.level_chosen
        assert "auto" in row.label
    assert found.curve.used == found.curve.automatic == found["osirwis"].alpha
    assert found.settings["alpha"] == "auto"


def test_comparison_with_the_behaviour(double):
    """Under ratios of one every estimator is the mean return, on any resample."""
    batch = load(random_data(3, SIZE))
    found = oj.evaluate(batch, ["wis", "mc"], compare_with="behavior", resamples=30)
    mean = float(oj.estimate(batch, "mc"))
    assert [row.value for row in found.compared] == pytest.approx([mean, mean])
    wis, mc = found.differences
    assert wis.difference == pytest.approx(found["wis"].value - mean)
    assert (mc.low, mc.high, mc.difference) == (0, 0, 0)
    assert wis.verdict == found["wis"].verdict
    assert mc.verdict == NOT_JUDGED


def flat(size, log_ratio):
    """Trajectories of one step with these ratios, all in one state."""
    ratios = np.broadcast_to(log_ratio, size)
    return [
        {"states": [0], "actions": [0], "rewards": [float(i % 2)], "log_ratio": [r]}
        for i, r in enumerate(ratios)
    ]


@pytest.mark.parametrize(
    ("log_ratio", "verdict", "reason"),
    [
        (0.0, FINE, "the weights are worth 200 of 200 trajectories"),
        (np.r_[4.0, np.zeros(199)], CAREFUL, "the weights are worth 20.2 of 200 trajectories"),
        (np.r_[9.0, np.zeros(199)], NO_TRUST, "the largest weight is 97.6 % of all"),
        (-np.inf, NO_TRUST, "every weight is 0"),
    ],
)
def test_verdicts_in_words(double, log_ratio, verdict, reason):
    batch = load(flat(200, log_ratio))
    found = oj.evaluate(batch, "wis", methods="percentile", resamples=5)
    assert found.main.verdict == verdict
    assert any(reason in one.reason for one in found.verdicts["wis"])
    assert f"  {verdict}" in str(found).splitlines()[1]
    assert (f"wis: {verdict}: " in str(found)) == (verdict != FINE)


def test_undefined_resamples_are_counted_against_it(double):
    """One weight of 200 is above 0: a resample lacks it with probability 0.37."""
    batch = load(flat(200, np.r_[0.0, np.full(199, -np.inf)]))
    row = oj.evaluate(batch, "wis", methods="percentile", resamples=100).main
    assert 10 < row.undefined < 70
    reason = f"{row.undefined} of 100 resamples have no estimate"
    assert Verdict(NO_TRUST, reason) in row.reasons
    # a resample without any of 20 weights above 0 has probability 1e-9
    batch = load(flat(200, np.r_[np.zeros(20), np.full(180, -np.inf)]))
    assert oj.evaluate(batch, "wis", methods="percentile", resamples=100).main.undefined == 0


def test_clipped_weights_are_judged_as_clipped(double):
    batch = load(flat(200, np.r_[9.0, np.zeros(199)]))
    found = oj.evaluate(batch, ["wis", "mc"], clip=1.0, methods="percentile", resamples=5)
    assert found["wis"].weights.effective_size == pytest.approx(200)


def test_a_method_that_is_not_for_an_estimator_is_left_out(double):
    batch = load(random_data(4, SIZE))
    found = oj.evaluate(batch, ["wis", "osirwis"], methods=("percentile", "t"), resamples=8)
    assert set(found["wis"].intervals) == {"percentile", "t"}
    assert set(found["osirwis"].intervals) == {"percentile"}
    assert any(note.startswith("osirwis has no interval by t:") for note in found.notes)
    row = found.table().set_index("estimator").loc["osirwis"]
    assert math.isnan(row["t_low"])
    with pytest.raises(ValueError, match="methods: none is available for `osirwis`"):
        oj.evaluate(batch, ["osirwis"], methods="t")


def test_a_log_without_states_has_no_omission(double):
    batch = load(random_data(4, SIZE)).replace(state=None, num_states=0)
    found = oj.evaluate(batch, methods="percentile", resamples=4)
    assert [row.estimator for row in found.rows] == ["auto", "wis", "pdis", "cwpdis", "is", "mc"]
    assert found.curve is None
    assert found.states is None
    assert "no states" in found.notes[0]


def test_relevance_by_a_threshold(double):
    batch = load(random_data(4, SIZE))
    options = {"relevance": "effect", "methods": "percentile", "resamples": 4}
    found = oj.evaluate(batch, ["osirwis"], **options)
    row = found["osirwis"]
    assert (row.alpha, row.threshold) == (None, oj.THRESHOLDS["effect"])
    assert found.curve.parameter == "threshold"
    assert list(found.curve.levels) == sorted(found.curve.levels, reverse=True)
    assert np.all(np.diff(found.curve.share_kept) >= 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"estimators": ()}, "estimators: none given"),
        ({"estimators": "wiz"}, "estimator: 'wiz' is unknown"),
        ({"methods": "magic"}, "methods: 'magic' is unknown"),
        ({"alpha": "magic"}, "alpha: expected a number or one of"),
        ({"alpha": [0.1, 0.2]}, "alpha: expected one number"),
        ({"resamples": 1}, "resamples: expected a whole number"),
        ({"confidence": 1.0}, "confidence: must be in"),
        ({"compare_with": "him"}, "compare_with: expected a TrajectoryBatch"),
        ({"colour": 1}, "colour: not an option"),
        ({"relevance": "magic"}, "relevance: 'magic' is unknown"),
    ],
)
def test_bad_arguments_are_named(arguments, problem):
    batch = load(random_data(4, SIZE))
    with pytest.raises(ValueError, match=problem):
        oj.evaluate(batch, **({"estimators": ["wis", "osirwis"], "resamples": 4} | arguments))


def test_another_log_cannot_be_compared():
    batch = load(random_data(4, SIZE))
    for other in (load(random_data(4, SIZE - 1)), load(random_data(5, SIZE))):
        with pytest.raises(ValueError, match="compare_with: not the same trajectories"):
            oj.evaluate(batch, "wis", compare_with=other)
    changed = batch.replace(reward=batch.reward + 1)
    with pytest.raises(ValueError, match="compare_with: not the same trajectories"):
        oj.evaluate(batch, "wis", compare_with=changed)
    with pytest.raises(ValueError, match="compare_with: needs resamples"):
        oj.evaluate(batch, "wis", compare_with="behavior", methods="t")


def test_texts(case):
    _, _, found, _ = case
    lines = str(found).splitlines()
    assert lines[0].split()[:3] == ["estimator", "value", "interval"]
    assert any(line.startswith("osirwis (welch, 0.4)") for line in lines)
    assert found.main.estimator == "osirwis"
    assert {"percentile_low", "bca_high", "effective_size"} <= {*found.table().columns}
    assert len(found.lines()[0]) == len(HEADER)
    assert found.settings["resamples"] == RESAMPLES
    assert found.settings["key"] == [0, 3]
    with pytest.raises(KeyError, match="is: not evaluated; there are wis"):
        found["is"]


def test_small_parts():
    assert [number(x) for x in (None, math.nan, 1234567.0)] == ["-", "-", "1.2346e+06"]
    assert span(1.0, math.nan) == "-"
    assert span(-0.5, math.inf) == "-0.5 to inf"
    assert [span(1.0, 1.0), span(1.0, 1.0 + 1e-9), span(0.0, 1e-9)] == ["-", "-", "0 to 1e-09"]
    assert aligned(["a", "b"], [["xyz", "1"]]) == "a    b\nxyz  1"
    assert plain({"a": (np.float32(np.inf), np.arange(2))}) == {"a": [None, [0, 1]]}
    assert graver(FINE, NO_TRUST) == NO_TRUST
    assert graver(NOT_JUDGED, CAREFUL) == CAREFUL
    assert graver(NOT_JUDGED, NOT_JUDGED) == NOT_JUDGED
    assert decimal(jnp.float32(0.05)) == 0.05


def test_bounds_that_hold_always_need_no_resamples(double):
    batch = load(flat(200, np.r_[1.0, np.zeros(199)]))
    bounds = {"weight_bound": 4.0, "return_bounds": (0.0, 1.0)}
    found = oj.evaluate(batch, ["is", "mc"], methods=["hoeffding", "hcope"], **bounds)
    expected = oj.intervals(batch, ["is", "mc"], methods=["hoeffding", "hcope"], **bounds)
    for row in found.rows:
        assert row.intervals == expected[row.estimator].intervals
        assert row.interval[0] == "hoeffding"
        assert row.intervals["hcope"].high == math.inf
        assert math.isnan(row.standard_error)
    assert found["is"].verdict == FINE
    assert found.settings["weight_bound"] == 4
    assert found.summary()["rows"][0]["hcope_high"] is None
    assert list(draw(found)) == ["intervals", "weights"]
    assert draw(found)["intervals"].axes


@pytest.mark.parametrize(("omitted", "level"), [(False, CAREFUL), (True, NOT_JUDGED)])
def test_states_in_which_the_target_never_acts_are_told(omitted, level):
    """Their share of all steps, by hand; an omitted state asks nothing of the target."""
    data = random_data(2, SIZE)
    for episode in data:
        episode["log_ratio"][episode["states"] == 3] = -np.inf
    states = np.concatenate([episode["states"] for episode in data])
    keep = np.arange(NUM_STATES) != 3
    asked = {"relevance": "oracle", "keep": keep} if omitted else {}
    name = "osiris-star" if omitted else "star"
    row = oj.evaluate(load(data), [name], resamples=10, methods="percentile", **asked).main
    assert row.verdict == level
    told = f"{100 * np.mean(states == 3):.3g} % of the steps are in states"
    assert row.reasons[0].reason.startswith(told) == (not omitted)
