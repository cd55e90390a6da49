"""Figures of the paper: numbers against slow loops, pictures that render and are labelled."""

import numpy as np
import oracles as oracle
import pytest
from datasets import NUM_STATES, load, poisoned, ragged_data, random_data, stacked
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from matplotlib.text import Text
from oracles import figures as oracle_figures
from oracles import published as oracle_published

import osiris_jax as oj
from osiris_jax import plots
from osiris_jax.paper import consistency, figure_parts, figures, relevance, weights
from osiris_jax.paper.draws import Draws
from osiris_jax.paper.protocol import INDEPENDENT, PROTOCOLS, PUBLISHED
from osiris_jax.paper.relevance_data import MeanRelevance, mean_relevance

ALPHAS = (0.05, 0.3, 1.0)
SIZE, DIMS = 6, 2
EDGES = np.array([[-1.5, -0.5, 0.0, 0.7, 2.0], [0.0, 0.25, 0.5, 0.75, 0.9]])
six_trials = st.lists(ragged_data(sizes=(SIZE,)), min_size=6, max_size=6)


def with_observations(trials):
    """The trials with random observations, some outside all edges, some on an edge."""
    rng = np.random.default_rng(0)
    for trial in trials:
        for traj in trial:
            normal, uniform = rng.normal(size=len(traj["states"])), rng.random(len(traj["states"]))
            traj["observations"] = np.stack([np.round(2 * normal) / 2, uniform], axis=1)
    return trials


def chunks(trials):
    """The trials as two chunks [trial, traj, time], with NaN and with zeros in the padding."""
    for part, padding in ((trials[:3], poisoned), (trials[3:], lambda batch: batch)):
        yield stacked([padding(load(trial)) for trial in part])


def slow_map(trial, protocol, alpha):
    """[state] what the protocol keeps."""
    if protocol == PUBLISHED:
        pvalues = oracle_published.pvalues_published(trial, NUM_STATES)
        return oracle_published.keep_map_published(pvalues, alpha)
    return oracle.keep_map(oracle.pvalues(trial, NUM_STATES, weighting="to-go"), alpha)


def slow_maps(trials, protocol):
    return {alpha: [slow_map(trial, protocol, alpha) for trial in trials] for alpha in ALPHAS}


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@settings(max_examples=8)
@given(trials=six_trials)
def test_weights_and_lengths_are_those_of_slow_loops(protocol, double, trials):
    found = weights.weights_and_lengths(chunks(trials), ALPHAS, protocol)
    for place, (_, maps) in enumerate(slow_maps(trials, protocol).items()):
        for number, (trial, kept) in enumerate(zip(trials, maps, strict=True)):
            slow = [oracle_figures.weight_and_length(traj, kept) for traj in trial]
            log_weights, lengths = map(np.array, zip(*slow, strict=True))
            np.testing.assert_allclose(found.log_weight[place, number], log_weights, atol=1e-9)
            np.testing.assert_array_equal(found.length[place, number], lengths)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
@settings(max_examples=8)
@given(trials=six_trials)
def test_mean_relevance_is_that_of_slow_loops(protocol, double, trials):
    trials = with_observations(trials)
    for alpha, maps in slow_maps(trials, protocol).items():
        by_state = mean_relevance(chunks(trials), alpha, protocol)
        by_bin = mean_relevance(chunks(trials), alpha, protocol, EDGES)
        pairs = list(zip(trials, maps, strict=True))
        counts = [oracle_figures.counts_by_state(*pair, NUM_STATES) for pair in pairs]
        assert_same(by_state, counts)
        for dim in range(DIMS):
            counts = [oracle_figures.counts_by_bin(*pair, EDGES[dim], dim) for pair in pairs]
            assert_same(by_bin[dim], counts)
            assert_same_groups(by_bin[dim], counts)


def assert_same(found, counts):
    """counts[trial][bin] = (kept, visits)."""
    for place, pairs in enumerate(zip(*counts, strict=True)):
        mean, error = oracle_figures.ratio(pairs)
        assert found.visits[place] == sum(visits for _, visits in pairs)
        np.testing.assert_allclose(found.mean[place], mean, rtol=1e-12)
        np.testing.assert_allclose(found.standard_error[place], error, rtol=1e-9, atol=1e-9)


def assert_same_groups(found, counts):
    """The first two bins pooled, the other two pooled, and their difference."""
    bins = np.array([True, True, False, False])
    pooled = [
        [tuple(np.sum([trial[b] for b in group], axis=0)) for trial in counts]
        for group in ((0, 1), (2, 3))
    ]
    slow = [oracle_figures.ratio(pairs) for pairs in pooled]
    np.testing.assert_allclose(found.pooled(bins), slow[0], rtol=1e-9, atol=1e-9)
    value, error = found.pooled(bins, less=~bins)
    assert value == pytest.approx(slow[0][0] - slow[1][0], abs=1e-12)
    slow_error = oracle_figures.difference_error(*pooled)
    assert error == pytest.approx(slow_error, rel=1e-9, abs=1e-9)


def test_a_mean_weighted_by_visits_known_by_hand():
    """State 0: kept at all 3 visits of one trial, not at the 1 visit of the other."""
    kept, visits = np.array([[3, 1, 0], [0, 0, 0]]), np.array([[3, 1, 0], [1, 0, 0]])
    found = MeanRelevance.of_counts([(kept, visits)])
    np.testing.assert_array_equal(found.visits, [4, 1, 0])
    np.testing.assert_allclose(found.mean, [0.75, 1, np.nan])
    np.testing.assert_allclose(found.standard_error, [0.375, np.nan, np.nan])


def test_no_data_is_refused():
    with pytest.raises(ValueError, match="batches: no data"):
        mean_relevance([], 0.05, PUBLISHED)


def test_the_usual_sizes_are_smaller_where_trajectories_are_long():
    assert consistency.consistency_study(oj.make("express"), 5).sizes == consistency.SIZES
    long = oj.make("cartpole")
    assert consistency.consistency_study(long, 5).sizes == consistency.SHORT_SIZES
    assert consistency.consistency_study(long, 5, sizes=(7,)).sizes == (7,)


def test_the_starred_cell_is_the_one_the_text_describes():
    for name in figures.GRIDWORLDS:
        states = np.flatnonzero(relevance.decisive(oj.make(name)))
        assert states.tolist() == [1 * 14 + 10]


def test_the_table_of_weights_is_that_of_slow_loops():
    rng = np.random.default_rng(1)
    length = rng.integers(0, 30, size=(1, 8, 5))
    log_weight = rng.normal(size=length.shape) - 0.3 * length
    log_weight[0, 2, 3] = -np.inf
    found = weights.WeightsAndLengths(log_weight, length)
    rows, _ = weights.weight_table("w", found, (1.0,))
    trials = list(zip(log_weight[0], length[0], strict=True))

    def columns(trials, drop_zero=True):
        weight, steps = (np.concatenate(x) for x in zip(*trials, strict=True))
        finite = np.isfinite(weight) | (not drop_zero)
        return weight[finite], steps[finite]

    slow = {
        "correlation": lambda trials: np.corrcoef(*columns(trials))[0, 1],
        "log_weight_variance": lambda trials: np.var(columns(trials)[0]),
        "length_mean": lambda trials: np.mean(columns(trials, False)[1]),
        "length_variance": lambda trials: np.var(columns(trials, False)[1]),
    }
    assert rows[0]["zero_weights"] == 1
    for name, statistic in slow.items():
        value, error = oracle_figures.jackknife(statistic, trials)
        assert rows[0][name] == pytest.approx(value, rel=1e-9), name
        assert rows[0][f"{name}_se"] == pytest.approx(error, rel=1e-9), name


def test_levels_that_keep_nothing_have_no_correlation():
    length = np.stack([np.zeros((3, 2), int), np.arange(6).reshape(3, 2)])
    found = weights.WeightsAndLengths(np.where(length, -1.0 * length, 0.0), length)
    rows, answers = weights.weight_table("w", found, (0.05, 1.0))
    assert np.isnan(rows[0]["correlation"])
    assert rows[1]["correlation"] == pytest.approx(-1)
    assert [claim["holds"] for claim in answers[-1:]] == [True]


def test_a_claim_holds_only_beyond_two_standard_errors():
    def holds(value, error):
        larger, smaller = figure_parts.Measured(value, error), figure_parts.Measured(0.0, 0.0)
        return figure_parts.claim("w", "text", ("a", larger), ("b", smaller))["holds"]

    assert holds(1.0, 0.49)
    assert not holds(1.0, 0.51)
    assert not holds(-1.0, 0.1)
    assert not holds(1.0, np.nan)


def test_claims_about_dimensions_compare_the_right_bins():
    edges = np.array([np.linspace(-4, 4, 41)] * 4)
    middle = (edges[0, 1:] + edges[0, :-1]) / 2
    visits = np.full((3, 4, 40), 10)
    kept = np.where(np.abs(middle) > 1, 8, np.where(np.abs(middle) > 0.5, 5, 1))
    counted = MeanRelevance.of_counts([(np.broadcast_to(kept, visits.shape), visits)])
    first, second, third = relevance.dimension_claims("cartpole", counted, edges)
    assert (first["larger_value"], first["smaller_value"]) == pytest.approx((0.5, 0.1))
    assert (second["larger_value"], second["smaller_value"]) == pytest.approx((0.8, 0.5))
    assert (third["larger_value"], third["smaller_value"]) == pytest.approx((0.8, 0.1))
    assert first["holds"]
    assert relevance.dimension_claims("another", counted, edges) == []


def test_dots_are_chosen_by_the_seed():
    chosen = weights.subsample(1000, 50, 7)
    np.testing.assert_array_equal(chosen, weights.subsample(1000, 50, 7))
    assert len(set(chosen.tolist())) == 50
    assert not np.array_equal(chosen, weights.subsample(1000, 50, 8))
    np.testing.assert_array_equal(weights.subsample(5, 50, 7), np.arange(5))


def small_data(self):
    """Two chunks of few steps for any world, states and observations at random."""
    rng, world, trials = np.random.default_rng(5), self.world, self.trials
    states = np.flatnonzero(world.maze.reachable) if hasattr(world, "maze") else np.arange(40)
    for _ in range(2):
        batches = []
        for _ in range(trials // 2):
            data = random_data(int(rng.integers(2**31)), SIZE)
            for traj in data:
                steps = len(traj["states"])
                traj["states"] = rng.choice(states, steps)
                traj["observations"] = rng.normal(size=(steps, 4)) * (1, 1, 0.08, 1)
            batches.append(load(data, num_states=world.num_states))
        yield stacked(batches)


def texts_of(figure):
    return {text.get_text() for text in figure.findobj(Text)}


def assert_saved(figure, folder, name, widest):
    png, pdf = plots.save(figure, folder, name)
    assert (png.name, pdf.name) == (f"{name}.png", f"{name}.pdf")
    assert pdf.read_bytes().startswith(b"%PDF")
    picture = imread(png)
    assert 200 * 0.8 * widest < picture.shape[1] <= 200 * (widest + 0.05)
    assert picture[..., :3].std() > 0.05


LABELS = {
    "fig1": {"dilly-dallying", "express", "+5", "-5", "corridor", "start"},
    "fig3": {"Dilly-Dallying Gridworld", "CartPole", "OSIRIS weight", "effective length (steps)"},
    "fig4": {"Dilly-Dallying Gridworld", "CartPole", "mean of estimated relevance", "visits"},
    "figS3": {"Express Gridworld", "OSIRIS weight", "0.25"},
    "figS4": {"Express Gridworld", "CartPole", "cart position (m)", "pole angle (rad)"},
}


@pytest.mark.parametrize("name", LABELS)
def test_figures_render_with_their_labels(name, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Draws, "in_chunks", small_data)
    drawn = figures.figure(name, trials=4, progress=lambda *stage: told.append(stage))
    assert LABELS[name] <= texts_of(drawn.figure)
    assert_saved(drawn.figure, tmp_path, name, 3.25 if name == "figS3" else 6.75)
    assert {row["world"] for row in drawn.rows} == set(figures.FIGURES[name].worlds)
    assert drawn.caption.endswith(".")
    if name != "fig1":
        assert told[-1][1:] == (4, 4)
        assert drawn.claims


@pytest.mark.parametrize(("name", "widest"), [("fig2", 6.75), ("figS2", 3.25)])
def test_figures_over_sizes_render_with_their_labels(name, widest, tmp_path):
    worlds = ["dilly-dallying", "express"] if name == "fig2" else None
    drawn = figures.figure(name, worlds, trials=4, sizes=(5, 9), protocol=PUBLISHED)
    assert {"Express Gridworld", "trajectories |D|", "0.05", "true value"} <= texts_of(drawn.figure)
    assert {row["protocol"] for row in drawn.rows} == {"published"}
    assert_saved(drawn.figure, tmp_path, name, widest)


def test_a_figure_over_sizes_from_a_study_is_that_from_its_data():
    drawn = figures.figure("figS2", trials=7, sizes=(5, 9), seed=3)
    assert "on-policy" in texts_of(drawn.figure)
    study = consistency.consistency_study(oj.make("express"), 7, 3, sizes=(5, 9))
    rows = consistency.consistency_rows(study, INDEPENDENT.replace("mine"))
    expected = [row for row in drawn.rows if row["estimator"] == "osirwis"]
    assert len(rows) == len(expected) == 10
    for row, other in zip(rows, expected, strict=True):
        assert (row["protocol"], other["protocol"]) == ("mine", "independent")
        for name in ("mean", "mean_se", "bias", "std", "std_se", "rmse", "rmse_se"):
            assert row[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5), name
        for name in ("world", "relevance", "alpha", "size", "trials", "truth"):
            assert row[name] == other[name], name


def test_claims_about_the_bias_compare_sizes_and_levels():
    biases = {(0.1, 5): -3.0, (0.1, 50): 1.0, (1.0, 5): 2.0, (1.0, 50): -0.9}
    common = {"world": "w", "relevance": "welch", "bias_se": 0.3}
    rows = [
        common | {"alpha": alpha, "size": size, "bias": bias}
        for (alpha, size), bias in biases.items()
    ]
    found = consistency.consistency_claims(rows)
    values = [(claim["larger_value"], claim["smaller_value"]) for claim in found]
    assert values == [(3.0, 1.0), (2.0, 0.9), (3.0, 2.0), (1.0, 0.9)]
    assert [claim["holds"] for claim in found] == [True, True, True, False]


def test_worlds_of_every_kind_share_a_figure_over_sizes():
    study = consistency.consistency_study(oj.make("express"), 4, sizes=(5, 9))
    rows = consistency.consistency_rows(study, PUBLISHED)
    named = {world: [row | {"world": world} for row in rows] for world in figure_parts.TITLES}
    assert set(figure_parts.TITLES.values()) <= texts_of(consistency.draw(named))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("fig9",), {}, "name: 'fig9' is unknown; there are fig1"),
        (("fig3",), {"trials": 1}, "trials: expected at least 2"),
        (("fig3", []), {}, "worlds: none given"),
        (("fig1", ["cartpole"]), {}, "worlds: fig1 draws gridworlds"),
        (("fig4", ["waiting-room"]), {}, "worlds: 'waiting-room' is neither"),
    ],
)
def test_mistakes_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        figures.figure(*arguments, **options)
