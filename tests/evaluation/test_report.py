"""The report: self-contained, escaped, whole, and looked at by a real browser."""

import base64
import re
from html.parser import HTMLParser

import matplotlib.image
import numpy as np
import pytest
from browser import need_chromium, screenshot, visit
from datasets import NUM_ACTIONS, NUM_STATES, random_data

import osiris_jax as oj
from osiris_jax.core.faces import number
from osiris_jax.data import Log
from osiris_jax.evaluation.pictures import draw
from osiris_jax.evaluation.report import About, render, states_table, write_report
from osiris_jax.evaluation.result import States

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
LABELS = (HOSTILE, "{{ 7 * 7 }}", "a & b", "</table>", "'quoted'")


@pytest.fixture(scope="module")
def found():
    batch = oj.from_episodes(random_data(1, 24, spread=0.4), num_states=NUM_STATES)
    estimators = ["wis", "osirwis", "mc"]
    return oj.evaluate(
        batch, estimators, alpha=0.4, methods="percentile", resamples=20, compare_with="behavior"
    )


@pytest.fixture(scope="module")
def about():
    data = random_data(1, 24, spread=0.4)
    batch = oj.from_episodes(data, num_states=NUM_STATES, num_actions=NUM_ACTIONS)
    columns = {"episode": HOSTILE, "observation": ("x<1", "x>2")}
    log = Log(batch, columns, {"state": LABELS}, (), (f"episode: read from {HOSTILE}",))
    fit = oj.fit_behavior(batch, folds=2)
    command = f"osiris-jax evaluate '{HOSTILE}'"
    named = {"target": HOSTILE, "compared": HOSTILE, "command": command}
    return About(title=f"Evaluation of {HOSTILE}", log=log, fit=fit, **named)


@pytest.fixture(scope="module")
def page(found, about):
    return render(found, about)


class Tags(HTMLParser):
    """Every tag with its attributes, the text, and a check that tags are closed in order."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_nothing_is_fetched_and_nothing_runs(page):
    found = Tags(page)
    assert found.open == []
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form", "a"}
    sources = [attrs["src"] for _, attrs in found.tags if "src" in attrs]
    assert len(sources) == 3
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not [a for _, attrs in found.tags for a in attrs if a.startswith("on") or a == "href"]
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert "@media print" in style
    assert "http://" not in page
    assert "https://" not in page
    policy = next(a["content"] for _, a in found.tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_names_from_the_log_are_text(page):
    """Column names, labels, notes, the title and the command: shown as they are, never as tags."""
    text = "\n".join(Tags(page).text)
    assert HOSTILE not in page
    assert text.count(HOSTILE) >= 7
    for label in LABELS:
        assert label in text
    assert "x<1, x>2" in text


def test_the_numbers_are_there(found, about, page):
    text = "\n".join(Tags(page).text)
    for row in found.rows:
        low, high = row.intervals["percentile"]
        for part in (row.label, number(row.value), f"{number(low)} to {number(high)}"):
            assert part in text
        for verdict in row.reasons:
            assert verdict.reason in text
    for difference in found.differences:
        assert number(difference.difference) in text
    for line in (*about.fit.words, *found.notes):
        assert line in text
    for words in (f"Verdict: {found.main.verdict}", "0.35", "chosen from the data", "Calibration"):
        assert words in text
    assert number(float(found.states.evidence.min()), 3) in text


def test_pictures_are_pictures(page, found, tmp_path):
    sources = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    for place, source in enumerate(sources):
        (tmp_path / f"{place}.png").write_bytes(base64.b64decode(source))
        picture = matplotlib.image.imread(tmp_path / f"{place}.png")
        assert min(picture.shape[:2]) > 300
        assert picture[..., :3].std() > 0.05
    assert list(draw(found)) == ["intervals", "levels", "weights"]


def test_a_report_of_a_batch_alone(found, tmp_path):
    path = write_report(found, tmp_path / "folder" / "report.html")
    text = path.read_text("utf-8")
    assert "Nothing was guessed" in text
    assert "are those of the log" in text
    assert "Calibration" not in text


def test_a_plain_evaluation_has_no_parts_of_omission(tmp_path):
    batch = oj.from_episodes(random_data(1, 12), num_states=NUM_STATES)
    plain = oj.evaluate(batch, ["wis"], methods=["percentile", "t"], resamples=4)
    text = render(plain)
    for absent in ("Relevance of states", "Level of relevance", "Comparison of two policies"):
        assert f"<h2>{absent}</h2>" not in text
    assert "Intervals by the other methods" in text
    assert list(draw(plain)) == ["intervals", "weights"]


def test_states_are_the_most_relevant_that_were_visited():
    evidence = np.linspace(1, 0, 80)
    visits = np.arange(80)
    states = States("alpha", evidence, visits, evidence <= 0.5)
    table = states_table(states)
    assert len(table.lines) == 50
    assert [line[0] for line in table.lines[:2]] == ["79", "78"]
    assert table.lines[0] == ["79", "0", "79", "kept"]
    assert "79 states were visited, the ratios of 40 are kept, the first 50" in table.caption
    shown = states_table(states._replace(parameter="threshold"), ["zero", "one"])
    assert shown.lines[0] == ["1", "one", "0.987", "1", "omitted"]
    assert shown.lines[1][:2] == ["2", "-"]


@pytest.mark.parametrize("width", [375, 1280])
def test_a_browser_shows_it(found, about, tmp_path, width):
    need_chromium()
    page = write_report(found, tmp_path / "report.html", about)
    picture = tmp_path / "page.png"
    assert screenshot(page, picture, width, 1200) == []
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (1200, width)
    assert pixels.std() > 0.05


def test_nothing_is_wider_than_a_phone(found, about, tmp_path):
    """A copy with a script that measures: the page may not scroll sideways, only its tables."""
    need_chromium()
    script = """<script>document.title = [document.documentElement.scrollWidth,
    [...document.images].filter(i => i.naturalWidth > 0).length].join()</script></body>"""
    text = render(found, about).replace("</body>", script)
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    frame = tmp_path / "frame.html"
    (tmp_path / "page.html").write_text(text, "utf-8")
    frame.write_text(
        '<iframe src="page.html" width="375" height="900" style="border:0"></iframe>'
        "<script>onload = () => { document.title = frames[0].document.title }</script>"
    )
    dom, console = visit(frame, "--dump-dom", "--allow-file-access-from-files")
    assert console == []
    assert re.search(r"<title>(.*?)</title>", dom)[1] == "375,3"
