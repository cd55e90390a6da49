"""Calibration of the tests: its rows by slow recomputation, sizes within their errors."""

import itertools

import jax
import numpy as np
import oracles as oracle
import pytest
from datasets import ragged
from oracles import entries

import osiris_jax as oj
from osiris_jax.study.calibration import VARIANTS, Calibration

SEED, TRIALS, SIZE = 3, 3, 12
LEAST_VISITS = SIZE  # every trajectory comes to the choice once: without one, it does not count
ALPHAS, THRESHOLDS, EDGES = (0.05, 0.4), (0.05, 0.5), (1e-9, 0.5, float("inf"))
TESTS = ("welch", "smirnov", "effect")


def levels_of(test):
    return THRESHOLDS if test == "effect" else ALPHAS


@pytest.fixture(scope="module")
def waiting():
    return oj.make("waiting-room")


def data_sets(world):
    """The data set of every trial, made alone from its own key."""
    keys = [jax.random.fold_in(jax.random.key(SEED), k) for k in range(TRIALS)]
    return [ragged(world.rollout(key, SIZE)) for key in keys]


def counted(data, state, first_visit, least_visits):
    """Whether the state counts: enough visits, two and more with either kind of action."""
    plus, minus = oracle.samples(data, "none", first_visit=first_visit).get(state, ((), ()))
    return min(len(plus), len(minus)) >= 2 and len(plus) + len(minus) >= least_visits


def slow_rows(world, data, test, weighting, variant, *, least_visits):
    """(level, edge) -> (tests, rate, its standard error), by loops."""
    gap = [np.ptp(q) for q in world.exact().q]
    first_visit = variant == "first visit"
    if variant == "leave one out":
        data = [trajectories[1:] for trajectories in data]
    places = list(itertools.product(levels_of(test), EDGES))
    hits, chances = ({place: np.zeros(len(data)) for place in places} for _ in range(2))
    for k, trajectories in enumerate(data):
        options = {"weighting": weighting, "first_visit": first_visit}
        found = entries.of_test(test)(trajectories, world.num_states, **options)
        for state, level in itertools.product(range(world.num_states), levels_of(test)):
            if counted(trajectories, state, first_visit, least_visits):
                edge = next(edge for edge in EDGES if gap[state] <= edge)
                chances[level, edge][k] += 1
                called = found > level if test == "effect" else oracle.keep_map(found, level)
                hits[level, edge][k] += called[state]
    rows = {}
    for place, number in chances.items():
        if number.sum():
            rate = hits[place].sum() / number.sum()
            error = np.sqrt(sum((hits[place] - rate * number) ** 2)) / number.sum()
            rows[place] = (number.sum(), rate, error)
    return rows


@pytest.fixture(scope="module")
def found(waiting):
    """All rows of a small calibration in float64, and the data sets that it should have used."""
    with jax.enable_x64(True):
        calibration = Calibration(
            world=waiting,
            trials=TRIALS,
            sizes=(SIZE,),
            alphas=ALPHAS,
            thresholds=THRESHOLDS,
            weightings=("to-go",),
            edges=EDGES,
            least_visits=LEAST_VISITS,
            seed=SEED,
        )
        return calibration.run(), data_sets(waiting)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("test", TESTS)
def test_rows_are_what_loops_over_the_same_data_sets_say(found, waiting, test, variant):
    rows, data = found
    mine = [row for row in rows if (row["test"], row["variant"]) == (test, variant)]
    slow = slow_rows(waiting, data, test, "to-go", variant, least_visits=LEAST_VISITS)
    level, other = ("threshold", "alpha") if test == "effect" else ("alpha", "threshold")
    assert {(r[level], r["gap_up_to"]) for r in mine} == set(slow)
    for row in mine:
        assert row[other] is None
        assert (row["tests"], row["rate"], row["rate_se"]) == pytest.approx(
            slow[row[level], row["gap_up_to"]], abs=1e-12
        )
        assert row["states"] == {1e-9: 5, float("inf"): 1}[row["gap_up_to"]]
        assert (row["world"], row["size"]) == ("waiting-room", SIZE)


def test_the_recomputation_can_tell_the_variants_apart(found, waiting):
    """Else the test above would show nothing: counts and rates differ between variants."""
    _, data = found

    def slow(variant, least_visits=LEAST_VISITS):
        return slow_rows(waiting, data, "welch", "to-go", variant, least_visits=least_visits)

    assert len({tuple(slow(variant).items()) for variant in VARIANTS}) == 3
    assert slow("first visit") != slow("first visit", least_visits=0)


def test_welch_keeps_its_level_without_weights_and_not_with_them(waiting):
    """First visits at N = 100: 4.6 % without weights, 35 % with weights to go, at 5 %."""
    calibration = Calibration(
        world=waiting,
        trials=300,
        sizes=(100,),
        tests=("welch",),
        weightings=("none", "to-go"),
        variants=("first visit",),
    )
    rows = {(row["weighting"], row["gap_up_to"]): row for row in calibration.run()}
    null, weighted = rows["none", 1e-9], rows["to-go", 1e-9]
    assert null["tests"] == 5 * 300
    assert null["rate_se"] < 0.008
    assert abs(null["rate"] - 0.05) < 4 * null["rate_se"]
    assert weighted["rate"] > 0.2
    assert rows["none", 1.0]["rate"] > 0.9


def test_states_of_one_data_set_are_not_taken_for_independent(waiting):
    """Where all five states are called relevant together, there are as many draws as data sets."""
    trials, share = 400, 0.25
    calibration = Calibration(world=waiting, trials=trials, alphas=(0.05,), edges=(1.0, np.inf))
    together = np.arange(trials) < share * trials
    rejected = np.zeros((trials, 1, 2), np.int64)
    rejected[:, 0, 0] = 5 * together
    counted = np.tile([5, 0], (trials, 1))
    (row,) = calibration._rows({"test": "welch"}, np.zeros(8, int), np.zeros(8), rejected, counted)
    assert row["rate"] == share
    assert row["rate_se"] == pytest.approx(np.sqrt(share * (1 - share) / trials))


def test_every_data_set_has_a_fit_of_its_own(waiting):
    calibration = Calibration(
        world=waiting, trials=3, sizes=(40,), tests=("nn-q",), weightings=("none",), seed=SEED
    )
    rows = calibration.run()
    assert {row["variant"] for row in rows} == {""}
    for row in rows:
        keys = [jax.random.fold_in(jax.random.key(SEED), k) for k in range(3)]
        found = []
        for key in keys:
            batch, fit = waiting.rollout(key, 40), jax.random.fold_in(key, 2**32 - 7)
            statistic = oj.RELEVANCE["nn-q"](batch, key=fit, weighting="none")
            gap = np.ptp(waiting.exact().q, axis=1)
            inside = (gap > row["gap_above"]) & (gap <= row["gap_up_to"])
            if row["gap_above"] == 0:
                inside |= gap == 0
            inside &= [counted(ragged(batch), s, False, 4) for s in range(waiting.num_states)]
            found += list(np.asarray(statistic)[inside] > row["threshold"])
        assert (row["tests"], row["rate"]) == (len(found), pytest.approx(np.mean(found)))


def test_a_variant_that_no_test_knows_is_refused(waiting):
    with pytest.raises(ValueError, match=r"^variants: nn-q know none"):
        Calibration(world=waiting, tests=("nn-q",), variants=("first visit",))


def test_a_chunk_changes_nothing(waiting, monkeypatch):
    options = {"trials": 4, "sizes": (8,), "tests": ("welch",), "weightings": ("none",)}
    calibration = Calibration(world=waiting, variants=("",), **options)
    whole = calibration.run()
    monkeypatch.setattr("osiris_jax.study.calibration.CHUNK_CELLS", 2 * 8 * waiting.horizon)
    seen = []
    assert calibration.run(lambda *step: seen.append(step)) == whole
    assert seen == [("data sets", done, 4) for done in (2, 4)]


BAD = {
    "world": ["mars", "cartpole", 3],
    "trials": [1, 0, 2.5],
    "sizes": [(), (0,), (2.5,), (10, -1)],
    "alphas": [(), (1.5,), (-0.1,), (float("nan"),)],
    "thresholds": [(), (-0.1,), (float("nan"),), (float("inf"),)],
    "tests": [(), ("welsh",), ("oracle",)],
    "weightings": [(), ("all",)],
    "variants": [(), ("second visit",)],
    "edges": [(), (1.0,), (1.0, 0.5, float("inf"))],
    "least_visits": [-1, 1.5],
    "discount": [2.0, -0.1],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, many in BAD.items() for v in many])
def test_what_is_wrong_is_named(waiting, field, value):
    with pytest.raises(ValueError, match=f"^{field}: "):
        Calibration(**{"world": waiting, field: value})


def test_data_in_which_no_test_can_decide_are_refused(waiting):
    calibration = Calibration(
        world=waiting,
        trials=2,
        sizes=(1,),
        tests=("welch",),
        weightings=("none",),
        variants=("first visit",),
    )
    with pytest.raises(ValueError, match=r"^sizes: "):
        calibration.run()


def test_waiting_room_has_exact_nulls_and_one_choice(waiting):
    exact = waiting.exact()
    gap = np.ptp(exact.q, axis=1)
    assert gap[:5] == pytest.approx(0, abs=1e-12)
    assert gap[5] > 0.5
    assert waiting.oracle.tolist() == (np.arange(8) == 5).tolist()
    assert exact.relevance(1e-9).tolist() == waiting.oracle.tolist()
    assert exact.bias_covariance(waiting.oracle) == pytest.approx(0, abs=1e-9)
    for estimator in ("is", "pdis", "mc"):
        assert np.isfinite(exact.moments(estimator, n=25)).all()
    after = exact.moments("osiris", keep=waiting.oracle, n=25)
    assert np.isfinite(after).all()
    assert after.bias == pytest.approx(0, abs=1e-12)
    assert after.std < exact.moments("is", n=25).std / 50


def test_null_states_stay_null_by_time_but_for_the_horizon(waiting):
    """Actions in a room matter at no time: transitions and rewards do not depend on them."""
    by_time = waiting.exact().action_values_by_time("target")
    assert np.ptp(by_time[:, :5], axis=2) == pytest.approx(0, abs=1e-12)
