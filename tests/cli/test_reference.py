"""The reference page: generated from the registries, committed, complete, and true."""

from pathlib import Path

import jax.numpy as jnp
import pytest

import osiris_jax as oj
from osiris_jax.cli.listing import registries
from osiris_jax.cli.reference import REFRESH, fields_needed, options_explained, reference
from osiris_jax.core.options import keywords
from osiris_jax.models.qhat import QHAT

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
REGISTRIES = {"estimators": oj.ESTIMATORS, "tests": oj.RELEVANCE, "choices": oj.SELECTION}


@pytest.fixture(scope="module")
def page():
    return reference()


def rows(page, title):
    """name -> the other cells, of the first table below a heading."""
    parts = page.split(f"## {title}\n")[1].split("\n\n")
    table = next(part for part in parts if part.startswith("| "))
    cells = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in table.splitlines()]
    return {row[0].strip("`"): row[1:] for row in cells[2:]}


def test_the_committed_page_is_the_generated_one(page):
    assert PAGE.read_text() == page, f"the page is out of date; refresh it with: {REFRESH}"


def test_the_page_names_every_entry_of_every_registry(page):
    assert list(rows(page, "Estimators")) == list(oj.ESTIMATORS)
    assert list(rows(page, "Relevance tests")) == [*oj.RELEVANCE, "true"]
    assert list(rows(page, "Choices of the level")) == list(oj.SELECTION)
    assert list(rows(page, "Fits of Q")) == list(QHAT)
    assert list(rows(page, "Worlds")) == list(oj.WORLDS)


def test_every_row_has_as_many_cells_as_its_header(page):
    tables = [part.splitlines() for part in page.split("\n\n") if part.startswith("| ")]
    assert len(tables) == 8
    for header, *lines in tables:
        for line in lines:
            assert line.replace(r"\|", "").count("|") == header.count("|"), line


@pytest.mark.parametrize("registry", REGISTRIES)
def test_every_option_is_explained(registry):
    explained = options_explained(REGISTRIES[registry])
    for name, function in REGISTRIES[registry].items():
        for option in keywords(function):
            assert len(explained.get(option, "")) > 5, f"{option} of {name}: no docstring says"


def test_the_page_says_what_an_estimator_needs_and_takes(page):
    estimators = rows(page, "Estimators")
    assert estimators["mc"][2:] == ["", "`discount=1.0`"]
    assert estimators["mis"][1] == "few Markov states, support, known ratios"
    assert estimators["mis"][2] == "`log_ratio`, `state`"
    assert estimators["dm"][2] == "`state`, `action`, `target_probs`"
    assert '`finished="keep"`' in estimators["cwpdis"][3]
    assert "Unbiased for any Q-hat" in estimators["dr"][0]
    tests = rows(page, "Relevance tests")
    assert tests["welch"][1:3] == ["p <= `alpha`", "`log_ratio`, `state`"]
    assert tests["nn-q"][2] == "`log_ratio`, `action`, `state` or `observation`"
    assert tests["oracle"][3] == "`keep` (required)"
    assert rows(page, "Fits of Q")["tabular"][1] == "`q_folds`, `smoothing`"


@pytest.mark.parametrize("name", oj.ESTIMATORS)
def test_every_estimator_says_what_it_assumes(name, page):
    """In half a line, in the list and on the page."""
    said = oj.ESTIMATORS[name].assumes
    assert 8 < len(said) < 80
    assert said[0].islower() or said.startswith("Q-hat")
    assert not said.endswith(".")
    assert rows(page, "Estimators")[name][1] == said
    assert registries()["estimators"][name].endswith(f"). Assumes {said}.")


def test_an_estimator_that_says_nothing_of_assumptions_shows_nothing(monkeypatch):
    def mine(batch, log_ratio, *, discount=1.0):
        """One of a user's own."""
        return jnp.zeros(())

    monkeypatch.setitem(oj.ESTIMATORS, "mine", mine)
    assert registries()["estimators"]["mine"] == "One of a user's own."
    assert rows(reference(), "Estimators")["mine"][1] == ""


@pytest.mark.parametrize("estimator", oj.ESTIMATORS)
def test_what_is_said_to_be_needed_is_enough_and_necessary(page, estimator):
    """On real data: with those fields alone there is an estimate, without any one an error."""
    fields = {
        "log_ratio": jnp.zeros((4, 3)),
        "state": jnp.zeros((4, 3), jnp.int32),
        "action": jnp.zeros((4, 3), jnp.int32),
        "target_probs": jnp.full((4, 3, 2), 0.5),
    }
    needed = rows(page, "Estimators")[estimator][2].replace("`", "").split(", ")
    given = {name: fields[name] for name in needed if name}
    sizes = {"num_states": 1, "num_actions": 2}
    batch = oj.TrajectoryBatch(
        reward=jnp.ones((4, 3)), mask=jnp.ones((4, 3), bool), **given, **sizes
    )
    assert jnp.isfinite(oj.estimate(batch, estimator))
    for name in given:
        with pytest.raises(ValueError, match=name):
            oj.estimate(batch.replace(**{name: None}), estimator)


def test_either_of_two_fields_is_told_apart_from_both():
    def either(batch):
        return batch.state if batch.observation is None else batch.observation

    def kernel(batch):
        if either(batch) is None:
            raise ValueError("neither")
        return batch.require("action", "this test")

    assert fields_needed(kernel) == ["action", "state or observation"]
