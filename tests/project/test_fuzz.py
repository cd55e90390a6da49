"""A share of benchmarks/fuzz.py: no silent merge, no other answer, one clear refusal, no hang."""

import collections
import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from fuzzing import broken_files, calls, cases, commands, forms, judge, valid, ways
from fuzzing.truth import EPISODE_NAMES, INTEGER_IDS, TEXT_IDS, draw

import osiris_jax as oj

SEED = 0
LOGS = 400
CHUNKS = 5
ESTIMATED_SIZE = 3  # one size of log: each has compilations of its own
COMMANDS = 40


@pytest.fixture(autouse=True)
def _bounded_memory():
    with judge.bounded_memory():
        yield


def told(outcomes):
    """The failures among the outcomes, a line each."""
    return [f"{number}: {o.case.name}: {o.problem}" for number, o in outcomes if o.problem]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_logs_give_the_truth_or_one_clear_refusal(chunk, tmp_path):
    """To see one alone: python benchmarks/fuzz.py --only NUMBER."""
    outcomes = []
    for number in range(chunk, LOGS, CHUNKS):
        case = cases.draw_case(SEED, number, tmp_path)
        estimate = len(case.truth.rewards) == ESTIMATED_SIZE
        outcomes.append((number, judge.run(case, estimate=estimate, double=True)))
    assert not told(outcomes)
    compared = [o for _, o in outcomes if o.case.expected == forms.ANSWER]
    assert len(compared) > LOGS / CHUNKS / 3


FILES = [ways.by_csv, ways.by_parquet, ways.by_npz]


NAMED = [(way, style) for way in FILES for style in EPISODE_NAMES if style in valid.NAMES_OF[way]]


@pytest.mark.parametrize(("way", "style"), NAMED, ids=lambda x: getattr(x, "__name__", x))
def test_episodes_whose_names_are_alike_are_not_merged(way, style, tmp_path):
    rng = np.random.default_rng(1)
    for _ in range(3):  # with a step column and without
        case = valid.with_names(rng, tmp_path, way, style)
        assert not judge.run(case, estimate=False).problem


@pytest.mark.parametrize("style", [*TEXT_IDS, *INTEGER_IDS])
@pytest.mark.parametrize("way", FILES, ids=lambda way: way.__name__)
def test_states_keep_the_logs_own_names(style, way, tmp_path):
    case = valid.with_states_called(np.random.default_rng(2), tmp_path, way, style)
    assert not judge.run(case, estimate=False).problem


def test_functions_refuse_what_means_nothing():
    assert not told(enumerate(judge.run(case) for case in calls.all_calls()))


def test_what_would_not_fit_is_refused_before_anything_is_allocated(tmp_path):
    assert not told(enumerate(judge.run(case) for case in broken_files.huge_cases(tmp_path)))


def test_bad_command_lines_end_with_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = commands.draw_lines(SEED, COMMANDS, tmp_path, good=False)
    ended = [commands.run(line, tmp_path) for line in lines]
    assert not [(end.line.arguments, end.problem) for end in ended if end.problem]
    assert collections.Counter(end.code for end in ended)[2] > COMMANDS * 0.9


@pytest.mark.parametrize("number", [4, 7])
def test_bad_command_lines_in_a_process_of_their_own(number, tmp_path):
    line = commands.draw_lines(SEED, COMMANDS, tmp_path, good=False)[number]
    assert not commands.run_outside(line, tmp_path).problem


def test_a_strange_log_is_evaluated_and_leaves_no_escape_bytes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = commands.prepare(tmp_path)
    words = (
        "evaluate",
        paths["strange"],
        *["--estimators", "mc,wis", "--resamples", "20", "--out"],
    )
    assert not commands.run_here(commands.Line((*words, paths["out"]), (0,))).problem
    assert not commands.raw_escapes(tmp_path)
    rows = json.loads((Path(paths["out"]) / "summary.json").read_text())["rows"]
    assert [row["estimator"] for row in rows] == ["mc", "wis"]


# -------------------------------------------------------------- the fuzz itself can fail


def merged(rng, folder):
    """A log in which the last two episodes have become one."""
    truth = draw(rng, size=3)
    table = forms.table_of(truth).drop(columns="step")
    table["episode"] = table["episode"].clip(upper=1)
    path = folder / "log.csv"
    table.to_csv(path, index=False)
    return forms.Case("merged", lambda: forms.read(path), truth)


def with_another_policy(rng, folder):
    """A log evaluated for another target than it should be."""
    del folder
    truth = draw(rng, size=3)
    log = oj.from_episodes(forms.episodes_of(truth, "behavior"))
    return forms.Case(
        "another policy", lambda: oj.with_policies(log, target=truth.target[::-1]), truth
    )


def wrong_kind(rng, folder):
    """An exception that is no ValueError."""
    del folder
    return forms.Case("kind", lambda: {}["x"], draw(rng), forms.REFUSAL)


def endless(rng, folder):
    """A call that never ends, whatever it catches."""
    del folder

    def call():
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    return forms.Case("endless", call, draw(rng), forms.REFUSAL)


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [(merged, "silent merge"), (with_another_policy, "log_ratio"), (wrong_kind, "KeyError"),
     (endless, "hangs")],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_the_judge_notices(spoilt, said, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "SECONDS", 0.2 if spoilt is endless else judge.SECONDS)
    case = spoilt(np.random.default_rng(3), tmp_path)
    assert said in judge.run(case, estimate=False).problem


def test_the_judge_notices_a_wrong_estimate(monkeypatch):
    truth = draw(np.random.default_rng(4), size=3)
    batch = oj.from_episodes(forms.episodes_of(truth))
    monkeypatch.setitem(judge.oracle.ESTIMATORS, "wis", lambda data: 0.123)
    assert judge.wrong_estimates(truth, batch).startswith("wis")
