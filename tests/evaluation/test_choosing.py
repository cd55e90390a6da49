"""What `choose` shows of the automatic choice, and the verdict that an evaluation gives it."""

import jax
import numpy as np
import pytest
from datasets import load, random_data

import osiris_jax as oj
from osiris_jax.evaluation.choosing import COLUMNS, PLANE, PLANE_ALPHAS, PLANE_PASTS
from osiris_jax.evaluation.pictures import plane

SIZE = 12


@pytest.fixture(scope="module")
def batch():
    return load(random_data(3, SIZE))


@pytest.fixture(scope="module")
def choice(batch):
    return oj.choose(batch)


def test_it_is_what_estimate_says(batch, choice):
    assert choice.value == pytest.approx(float(oj.estimate(batch, "auto")), rel=1e-6)
    total = sum(row.weight * row.value for row in choice.rows if row.weight)
    assert total == pytest.approx(choice.value, rel=1e-5)
    assert sum(row.weight for row in choice.rows) == pytest.approx(1)


def test_the_table_holds_all_that_was_compared(batch, choice):
    table = choice.table()
    assert tuple(table.columns) == COLUMNS
    pool = {"mc", "dm", "drl", "osirwis", "wis", "osiris-cwpdis", "wdr", "magic", PLANE}
    assert set(table["name"]) == pool
    np.testing.assert_allclose(table["bias"], table["value"] - choice.value, atol=1e-6)
    for name in ("wis", "wdr", "magic", "mc"):
        found = table.loc[table["name"] == name, "value"].item()
        assert found == pytest.approx(float(oj.estimate(batch, name)), rel=1e-5)
    on_plane = table[table["name"] == PLANE]
    assert len(on_plane) == len(PLANE_ALPHAS) * len(PLANE_PASTS)
    one = on_plane[(on_plane["alpha"] == 0.2) & (on_plane["past"] == 4)]["value"].item()
    assert one == pytest.approx(float(oj.estimate(batch, PLANE, alpha=0.2, past=4)), rel=1e-5)


def test_errors_are_those_of_a_jackknife_by_groups(batch, choice):
    row = next(row for row in choice.rows if row.name == "wis")
    size = SIZE - -(-SIZE // 10)
    parts = []
    for group in range(10):
        kept = np.flatnonzero(np.arange(SIZE) % 10 != group)[:size]
        part = jax.tree.map(lambda x, kept=kept: x[kept], batch)
        parts.append(float(oj.estimate(part, "wis")))
    assert row.standard_error == pytest.approx(np.sqrt(9 * np.var(parts)), rel=1e-4)


def test_it_is_shown_in_words_and_drawn(choice):
    text = str(choice)
    assert repr(choice) == text
    assert choice.reason in text
    assert all(len(line) <= 80 for line in text.splitlines()[2:])
    assert choice.name in {row.name for row in choice.rows if row.weight}
    left, right = plane(choice).axes
    assert len(left.containers) == len(PLANE_ALPHAS)
    assert len(right.containers) == len(choice.rows) - len(PLANE_ALPHAS) * len(PLANE_PASTS)


def test_without_states_it_says_what_is_missing(batch):
    choice = oj.choose(batch.replace(state=None, num_states=0))
    assert {row.name for row in choice.rows} == {"mc", "wis", "cwpdis"}
    assert not choice.safe
    assert "without states" in choice.reason


def test_what_is_unknown_is_not_safe(batch):
    unknown = batch.replace(log_ratio=batch.log_ratio.at[0, 0].set(np.nan))
    choice = oj.choose(unknown.replace(state=None, num_states=0))
    assert np.isnan(choice.value)
    assert not choice.safe


def test_a_log_without_ratios_is_refused(batch):
    with pytest.raises(ValueError, match="log_ratio"):
        oj.choose(batch.replace(log_ratio=None))


def test_the_headline_is_the_choice_with_its_reasons(batch, choice):
    found = oj.evaluate(batch, ["wis", "auto"], methods="percentile", resamples=4)
    assert found.main.estimator == "auto"
    assert found.main.value == pytest.approx(choice.value, rel=1e-5)
    reasons = [doubt.reason for doubt in found.main.reasons]
    assert any(reason in choice.reason for reason in reasons)
    assert found.main.verdict != "fine" or choice.safe
