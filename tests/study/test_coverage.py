"""Coverage of intervals: rows by slow recomputation, bounds by enumeration, the command."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import ragged
from oracles import intervals as slow
from running import run

import osiris_jax as oj
from osiris_jax.inference.resampling import draw_rows
from osiris_jax.study.coverage import Coverage, bounds_of

SEED, TRIALS, SIZE, RESAMPLES, CONFIDENCE = 3, 4, 8, 25, 0.8
ESTIMATORS, METHODS = ("mc", "is", "osirwis"), ("percentile", "bca", "t", "hcope")
OPTIONS = {"weighting": "none", "alpha": 0.3}


@pytest.fixture(scope="module")
def waiting():
    return oj.make("waiting-room")


@pytest.fixture(scope="module")
def study(waiting):
    return Coverage(
        world=waiting,
        trials=TRIALS,
        sizes=(SIZE,),
        estimators=ESTIMATORS,
        methods=METHODS,
        resamples=RESAMPLES,
        confidence=CONFIDENCE,
        seed=SEED,
        **OPTIONS,
    )


@pytest.fixture(scope="module")
def rows(study):
    with jax.enable_x64(True):
        return study.run()


def slow_interval(data, draws, name, method, num_states):
    """One interval by loops."""
    if method == "t":
        return slow.student(slow.terms(data, name), CONFIDENCE)
    if method == "hcope":
        return max(slow.hcope(slow.terms(data, name), CONFIDENCE), 0.0), np.inf
    long = {"osirwis": "osiris-wis"}.get(name, name)
    options = {"alpha": OPTIONS["alpha"], "test": {"weighting": OPTIONS["weighting"]}}
    values = slow.resampled(data, draws, long, num_states, **options)
    if method == "percentile":
        return slow.percentile(values, CONFIDENCE)
    left_out = slow.resampled(data, slow.without_groups(SIZE), long, num_states, **options)
    value = slow.estimate(data, long, num_states, **options)
    return slow.bca(value, values, left_out, CONFIDENCE)


def test_rows_by_loops(double, waiting, rows):
    exact = waiting.exact()
    found = {(row["estimator"], row["method"]): row for row in rows}
    pairs = set(itertools.product(ESTIMATORS, METHODS))
    assert set(found) == pairs - {("osirwis", "t"), ("osirwis", "hcope")}
    sets = []
    for trial in range(TRIALS):
        key = jax.random.fold_in(jax.random.key(SEED), trial)
        data = ragged(waiting.rollout(key, SIZE))
        numbers = jnp.arange(RESAMPLES, dtype=jnp.uint32)
        sets.append(
            (data, np.asarray(draw_rows(jax.random.fold_in(key, 2**32 - 11), numbers, SIZE)))
        )
    for (name, method), row in found.items():
        truth = exact.behavior_value if name == "mc" else exact.value
        ends = [slow_interval(*one, name, method, waiting.num_states) for one in sets]
        low, high = np.array(ends, float).T
        below, above = (high < truth).sum(), (low > truth).sum()
        assert row["truth"] == pytest.approx(truth)
        assert (row["missed_below"], row["missed_above"]) == (below, above), (name, method)
        assert row["covered"] == TRIALS - below - above
        assert row["coverage"] == row["covered"] / TRIALS
        assert row["mean_low"] == pytest.approx(low.mean(), rel=1e-6), (name, method)
        assert row["mean_width"] == pytest.approx((high - low).mean(), rel=1e-6), (name, method)
        assert row["undefined"] == 0
        rate = row["coverage"]
        assert row["coverage_se"] == pytest.approx(np.sqrt(rate * (1 - rate) / TRIALS))
        omits = name == "osirwis"
        assert (row["relevance"], row["alpha"]) == (("welch", 0.3) if omits else (None, None))


def test_a_chunk_changes_nothing(double, waiting, monkeypatch):
    options = {"estimators": ("wis",), "methods": ("bca",), "resamples": RESAMPLES}
    study = Coverage(world=waiting, trials=TRIALS, sizes=(SIZE,), **options)
    rows = study.run()
    monkeypatch.setattr("osiris_jax.study.coverage.CHUNK_CELLS", 2 * SIZE * waiting.horizon)
    monkeypatch.setattr("osiris_jax.study.coverage.PIECE_CELLS", 10 * 16 * SIZE)
    seen = []
    for again, row in zip(study.run(lambda *step: seen.append(step)), rows, strict=True):
        assert again.keys() == row.keys()
        assert all(
            again[name] == (pytest.approx(x, rel=1e-9) if isinstance(x, float) else x)
            for name, x in row.items()
        )
    assert seen == [("data sets", done, TRIALS) for done in (2, 4)]


def test_guarantees_hold_and_t_is_nearly_exact(waiting):
    trials = 400
    found = Coverage(
        world=waiting,
        trials=trials,
        sizes=(40,),
        estimators=("mc", "is"),
        methods=("t", "hoeffding", "bernstein", "hcope"),
    ).run()
    error = np.sqrt(0.95 * 0.05 / trials)
    for row in found:
        if row["method"] != "t":
            assert row["coverage"] >= 0.95 - 3 * error, row
        elif row["estimator"] == "mc":
            assert abs(row["coverage"] - 0.95) < 3 * error + 0.01


@pytest.fixture(scope="module")
def small():
    """Two states and an end; rewards of both signs; weights rise and then fall."""
    transition = np.zeros((3, 2, 3))
    transition[0, 0], transition[0, 1] = (0, 1, 0), (0, 0.2, 0.8)
    transition[1, 0], transition[1, 1] = (0, 0.3, 0.7), (1, 0, 0)
    transition[2, :, 2] = 1
    reward = np.array([[1.0, -2.0], [0.5, 3.0], [0.0, 0.0]])
    behavior, target = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]]), np.full((3, 2), 0.5)
    target[0] = (0.9, 0.1)
    return oj.TabularWorld(transition, reward, 0, behavior, target, 3)


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_bounds_by_enumeration(small, discount):
    transition = np.zeros((3, 2, 3))
    dynamics = small.dynamics
    for s, a, k in itertools.product(*map(range, dynamics.successor.shape)):
        transition[s, a, dynamics.successor[s, a, k]] += dynamics.probability[s, a, k]
    reward = {(0, 0): 1.0, (0, 1): -2.0, (1, 0): 0.5}
    weights, returns, gains, losses = [1.0], [], [], []

    def walk(state, steps, weight, rewards):
        weights.append(weight)
        if state == 2 or steps == 3:
            discounted = [discount**t * r for t, r in enumerate(rewards)]
            returns.append(sum(discounted))
            gains.append(sum(max(r, 0) for r in discounted))
            losses.append(sum(min(r, 0) for r in discounted))
            return
        for action, following in itertools.product(range(2), range(3)):
            if small.behavior_probs[state, action] * transition[state, action, following] > 0:
                ratio = small.target_probs[state, action] / small.behavior_probs[state, action]
                paid = [*rewards, reward[state, action]]
                walk(following, steps + 1, weight * ratio, paid)

    walk(0, 0, 1.0, [])
    found = bounds_of(small, discount)
    assert found.weight == pytest.approx(max(weights))
    assert found.returns == pytest.approx((min(returns), max(returns)))
    assert found.parts == pytest.approx((min(losses), max(gains)))


BAD = {
    "world": ["mars", "cartpole", 3],
    "trials": [1, 0, 2.5],
    "sizes": [(), (1,), (2.5,)],
    "estimators": [()],
    "methods": [(), ("z",)],
    "alpha": [1.5, "best"],
    "discount": [2.0],
    "weighting": ["all"],
    "confidence": [1.0, 95],
    "resamples": [1, 2.5],
    "options": [{"colour": "red"}],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, many in BAD.items() for v in many])
def test_what_is_wrong_is_named(waiting, field, value):
    name = "colour" if field == "options" else field
    with pytest.raises(ValueError, match=f"^{name}: "):
        Coverage(**{"world": waiting, field: value})


def test_methods_that_are_for_none_are_refused(waiting):
    with pytest.raises(ValueError, match=r"^methods: none of these is for any"):
        Coverage(world=waiting, estimators=("osirwis",), methods=("t",))


COMMAND = ("coverage", "--world", "waiting-room", "--trials", 3, "--sizes", "6,9")
COMMAND += ("--estimators", "is,wis", "--methods", "t,hcope", "--out")


def test_the_command_writes_a_table_and_a_picture(monkeypatch, capsys, tmp_path):
    assert run(monkeypatch, *COMMAND, tmp_path) == 0
    printed = capsys.readouterr().out
    assert "waiting-room: coverage of 95 % intervals" in printed
    summary = json.loads((tmp_path / "summary.json").read_text())
    shown = [(row["estimator"], row["method"], row["size"]) for row in summary]
    pairs = [("is", "t"), ("is", "hcope"), ("wis", "t")]
    assert shown == [(*pair, size) for size in (6, 9) for pair in pairs]
    assert [row["mean_width"] is None for row in summary] == [m == "hcope" for _, m, _ in shown]
    table = (tmp_path / "coverage.md").read_text()
    assert table.count("| hcope |") == 3
    rates = [f"{100 * row['coverage']:.1f}±{100 * row['coverage_se']:.1f} %" for row in summary]
    assert "| estimator | method | N = 6 | N = 9 |" in table
    assert f"| wis | t | {rates[2]} | {rates[5]} |\n" in table
    assert (tmp_path / "coverage.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "coverage.pdf").read_bytes().startswith(b"%PDF")


def test_intervals_of_the_automatic_choice_are_given_probabilities(waiting):
    options = {"world": waiting, "trials": 2, "sizes": (6,), "methods": ("percentile",)}
    for name, wanted in (("auto", True), ("wis", False)):
        plan = Coverage(**options, estimators=(name,), resamples=2)
        specs = plan._two_trajectories
        assert list(specs) == [name]
        assert plan._takes_probs is wanted
    assert np.isfinite(
        Coverage(**options, estimators=("auto",), resamples=2).run()[0]["mean_width"]
    )
