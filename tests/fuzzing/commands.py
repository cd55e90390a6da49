"""Command lines, most of them bad: each ends with a documented exit code and at most one line."""

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fuzzing import broken_files, forms
from fuzzing.judge import LONGEST_MESSAGE, TooSlow, limits
from fuzzing.truth import TEXT_IDS, Truth, draw

SECONDS = {0: 240.0, 2: 30.0}
ANY = (0, 2)
HUGE = "99999999999999999999999"
TEXT = ["\x1b[2J\x1b[31mred", "[bold]x[/bold]", "| * `x` |", "", " ", "\u202eabc", "x" * 5000, "é"]
WHOLE = ["x", "1.5", "nan", "", "1e3", "0x10", HUGE, f"-{HUGE}", "--", "1,2", "٣x", "None"]
COUNT = [*WHOLE, "0", "-1"]
REAL = ["x", "nan", "inf", "-1", "", "1,5", "50%", "--", "None", "1j", "2e999"]
LEVELS = ["nan", "2", "-0.1", "x", "0.05,x", ",", "", "inf", "0.05;0.1"]
NAMES = ["nope", "", ",", "wis,nope", "wis,,nope", "wis:", "wis:colour=3", "wis:clip", *TEXT[:3]]
SIZES = ["x", "0", "-5", "1.5", "", ",", "25,x", HUGE, "nan"]

# option -> values that are bad wherever the option is taken
BAD = {
    "--seed": [*WHOLE],
    "--trials": COUNT,
    "--resamples": COUNT,
    "--episodes": COUNT,
    "--runs": COUNT,
    "--updates": COUNT,
    "--ddof": ["2", "-1", "x", "1.5", HUGE],
    "--truth-episodes": ["0", "-1", "x", HUGE],
    "--chunk-size": ["0", "-1", "x"],
    "--cpu-devices": ["0", "-1", "x"],
    "--num-processes": ["0", "-1", "x"],
    "--process-id": ["-1", "x", "7"],
    "--coordinator": ["nowhere", ""],
    "--memory": ["x", "-1G", "0", "nan", "1Q", "", "infG"],
    "--sizes": SIZES,
    "--lags": SIZES,
    "--alphas": LEVELS,
    "--thresholds": ["nan", "-1", "x", "0.1,x", "inf;"],
    "--estimators": NAMES,
    "--relevance": ["nope", "welch:colour=3", "welch:", *TEXT[:3]],
    "--tests": ["nope", "", ",", "welch,nope", TEXT[0]],
    "--variants": ["nope", ",", "plain,nope", TEXT[0]],
    "--weighting": ["bogus", "TO-GO", "", *TEXT[:2]],
    "--weightings": ["bogus", "", ",", "none,bogus"],
    "--discount": [*REAL, "1.5"],
    "--confidence": [*REAL, "1.5"],
    "--alpha": [*LEVELS, "0.05,0.9"],
    "--threshold": ["nan", "-1", "x"],
    "--epsilon": ["5", "nan", "-1", "x"],
    "--behavior-epsilon": ["5", "nan", "-1", "x"],
    "--weight-bound": ["0", "-1", "nan", "x"],
    "--return-bounds": ["1", "1,0", "nan,1", "x", "0,1,2", ""],
    "--methods": ["nope", ",", "percentile,nope", TEXT[0]],
    "--world": ["mars", "", *TEXT[:3]],
    "--worlds": ["mars", ",", TEXT[0]],
    "--protocol": ["nope", "", TEXT[0]],
    "--dtype": ["int32", "x", "", "float16"],
    "--only": ["nope", ",", TEXT[0]],
    "--columns": ["x", "=", "episode", "colour=x", "episode=nope", "a=b,a=b", TEXT[0], ","],
    "--target": ["missing.npz", "", ".", TEXT[0]],
    "--behavior": ["missing.npz", "", ".", "nope"],
    "--compare": ["missing.npz", "", "nope"],
    "--out": ["/dev/null", "/dev/null/x", "\0"],
    "--colour": ["red"],
}
OPTIONS = {
    "evaluate": "--columns --target --epsilon --behavior --behavior-epsilon --compare --estimators "
    "--relevance --alpha --threshold --weighting --discount --confidence --methods --resamples "
    "--weight-bound --return-bounds --seed --out --colour",
    "study": "--world --trials --sizes --alphas --thresholds --estimators --relevance --weighting "
    "--ddof --discount --dtype --seed --truth-episodes --memory --chunk-size --cpu-devices "
    "--num-processes --process-id --coordinator --out --colour",
    "coverage": "--world --trials --sizes --estimators --methods --relevance --alpha --threshold "
    "--weighting --discount --confidence --resamples --seed --out --colour",
    "calibrate": "--world --trials --sizes --alphas --thresholds --tests --weightings --variants "
    "--seed --out --colour",
    "calibrate-markov": "--worlds --trials --sizes --alphas --lags --discount --seed --out "
    "--colour",
    "reproduce": "--protocol --worlds --trials --seed --colour",
    "show": "--episodes --seed --colour",
    "train-policy": "--seed --runs --updates --colour",
    "bench": "--only --trials --dtype --colour",
    "list": "--colour",
}
TINY = {
    "study": "--world waiting-room --trials 4 --sizes 6 --estimators is,osirwis --relevance welch "
    "--alphas 0.05",
    "coverage": "--world waiting-room --trials 3 --sizes 6 --estimators wis --methods percentile "
    "--resamples 20",
    "calibrate": "--trials 3 --sizes 8 --tests welch --weightings none --alphas 0.05 "
    "--variants plain",
    "calibrate-markov": "--worlds waiting-room --trials 3 --sizes 8 --lags 1,2",
    "reproduce": "table1 --worlds express --trials 3 --protocol published",
    "show": "express --episodes 50",
    "train-policy": "cartpole --runs 1 --updates 1",
    "bench": "--quick --only pipeline",
    "list": "",
}
WRONG_CALLS = [
    *([], ["--nope"], ["fly"], ["evaluate"], ["show"], ["show", "mars"], ["show", TEXT[0]]),
    *(["reproduce"], ["reproduce", "table9"], ["reproduce", "fig1", "--worlds", "mars"]),
    *(["study"], ["study", "missing.toml"], ["study", "."], ["list", "extra"]),
    *(["train-policy"], ["train-policy", "express"], ["train-policy", TEXT[0]], ["\x1b[2J"], [""]),
    *(["evaluate", "missing.csv"], ["evaluate", "."], ["evaluate", "\x1b[2J.csv"]),
    *(["evaluate", ""], ["show", "express", "2"], ["evaluate", "\0"]),
    *(["evaluate", "a.csv", "b.csv"], ["evaluate", "http://example.org/log.csv"]),
    *(["bench", "--only", "nope"], ["coverage", "extra"], ["calibrate", "--world", "cartpole"]),
    *(["coverage", "--world", "lunar-lander"], ["--seed", "1"], ["evaluate", "log.xlsx"]),
]  # fmt: skip
TOMLS = {
    "brackets": "x = " + "[" * 20_000,
    "empty": "",
    "nonsense": "\x1b[2J",
    "an unknown field": 'world = "express"\ncolour = 3\n',
    "no world": "trials = 5\n",
    "a world of a number": "world = 3\n",
    "trials of text": 'world = "express"\ntrials = "many"\n',
    "trials of NaN": 'world = "express"\ntrials = nan\n',
    "sizes of a table": 'world = "express"\n[sizes]\na = 1\n',
    "estimators of numbers": 'world = "express"\nestimators = [1, 2]\n',
    "a date": 'world = "express"\nseed = 2024-02-29\n',
    "a huge seed": f'world = "express"\nseed = {HUGE}\n',
    "latin-1": "world = 'exprés'\n",
}
QUICK = ("--resamples", "20", "--out", "{out}")
GOOD = (
    ("list",),
    ("list", "--markdown"),
    ("--help",),
    ("evaluate", "--help"),
    ("show", "express", "--episodes", "50", "--out", "{out}"),
    ("evaluate", "{log}", "--estimators", "wis,mc", *QUICK),
    ("evaluate", "{strange}", "--estimators", "wis,osirwis", *QUICK),
    ("evaluate", "{bare}", "--estimators", "mc", *QUICK),
    ("evaluate", "{bare}", "--target", "{policy}", "--estimators", "wis,mc", *QUICK),
    ("evaluate", "{unfitted}", "--estimators", "wis,mc", *QUICK),
    ("study", *TINY["study"].split(), "--out", "{out}"),
    ("coverage", *TINY["coverage"].split(), "--out", "{out}"),
    ("calibrate", *TINY["calibrate"].split(), "--out", "{out}"),
    ("calibrate-markov", *TINY["calibrate-markov"].split(), "--out", "{out}"),
)


class Line(NamedTuple):
    """A command line and the exit codes that it may end with."""

    arguments: tuple[str, ...]
    codes: tuple[int, ...]


class Ended(NamedTuple):
    """How a command line ended; `problem` is empty if that is well."""

    line: Line
    code: int | None
    problem: str
    seconds: float


def prepare(folder: Path) -> dict[str, str]:
    """Logs, policies, studies and broken files that command lines name."""
    rng = np.random.default_rng(3)
    truth = draw(rng, size=8)
    labelled = Truth(**{**vars(truth), "state_ids": TEXT_IDS["escape characters"]})
    bare = forms.table_of(truth, "none")
    names = {"log": "log.csv", "strange": "[red]\x1b[31m|*`<b>.csv", "bare": "bare.csv"}
    names |= {"policy": "policy.npz", "unfitted": "unfitted.csv", "out": "out"}
    paths = {key: str(folder / name) for key, name in names.items()}
    forms.table_of(truth).to_csv(paths["log"], index=False)
    forms.table_of(labelled).to_csv(paths["strange"], index=False)
    bare.to_csv(paths["bare"], index=False)
    forms.table_of(truth).drop(columns="behavior_prob").to_csv(paths["unfitted"], index=False)
    np.savez(paths["policy"], table=truth.target)
    for what, text in TOMLS.items():
        encoding = "latin-1" if what == "latin-1" else "utf-8"
        (folder / f"{what}.toml").write_bytes(text.encode(encoding))
    for number, (what, (text, _, _)) in enumerate(broken_files.CSV.items()):
        (folder / f"broken{number}.csv").write_text(text)
        paths[f"csv: {what}"] = str(folder / f"broken{number}.csv")
    for number, (what, (build, _)) in enumerate(broken_files.NPZ.items()):
        (folder / f"broken{number}.npz").write_bytes(build(truth))
        paths[f"npz: {what}"] = str(folder / f"broken{number}.npz")
    for number, (what, build) in enumerate(broken_files.POLICY_FILES.items()):
        (folder / f"policy{number}.npz").write_bytes(build(truth))
        paths[f"policy: {what}"] = str(folder / f"policy{number}.npz")
    return paths


def bad_lines(folder: Path, paths: dict[str, str]) -> list[Line]:
    """Every bad value of every option of every command, and every broken file."""
    lines = [Line(tuple(call), (2,) if call else (0,)) for call in WRONG_CALLS]
    lines += [Line(("study", str(folder / f"{what}.toml")), (2,)) for what in TOMLS]
    tiny = TINY | {
        "evaluate": f"{paths['log']} --estimators wis --methods percentile --resamples 20"
    }
    for command, options in OPTIONS.items():
        for option in options.split():
            for value in BAD[option]:
                base = words_without(tiny[command].split(), option)
                lines.append(Line((command, *base, option, value), (2,)))
    for what, path in paths.items():
        if what.startswith(("csv: ", "npz: ")):
            kind, name = what.split(": ", 1)
            known = broken_files.CSV[name][2] if kind == "csv" else broken_files.REFUSAL
            codes = (2,) if known == broken_files.REFUSAL else ANY
            lines.append(Line(("evaluate", path, "--estimators", "mc"), codes))
        if what.startswith("policy: "):
            codes = ANY if what == "policy: text beside" else (2,)
            quick = ("--estimators", "wis", "--methods", "percentile", "--resamples", "20")
            lines.append(Line(("evaluate", paths["bare"], "--target", path, *quick), codes))
    return lines


def words_without(words, option):
    """The words but for an option and its value, so that it is not given twice."""
    if option not in words:
        return words
    place = words.index(option)
    return words[:place] + words[place + 2 :]


def draw_lines(seed: int, number: int, folder: Path, *, good=True) -> list[Line]:
    """So many command lines, the good ones first if they are wanted, then bad ones at random."""
    paths = prepare(folder)
    lines = [Line(line, (0,)) for line in GOOD] if good else []
    bad = bad_lines(folder, paths)
    order = np.random.default_rng(seed).permutation(len(bad))
    lines += [bad[k] for k in order[: max(0, number - len(lines))]]
    return [
        Line(filled(line.arguments, paths, f"out{place}"), line.codes)
        for place, line in enumerate(lines)
    ]


def filled(arguments, paths, out):
    """The words with their paths, and with a folder of their own for what they write."""
    out = str(Path(paths["out"]) / out)
    known = {f"{{{name}}}": path for name, path in paths.items()} | {"{out}": out}
    words = tuple(known.get(word, word) for word in arguments)
    writes = bool(words) and words[0] in OPTIONS and words[0] != "list"
    return words if not writes or "--out" in words or "--help" in words else (*words, "--out", out)


def run(line: Line, cwd: Path) -> Ended:
    """Runs a command line here; in its own process if it might end this one.

    Sizes that no array can have once made compiled code abort.
    """
    return run_outside(line, cwd) if HUGE in " ".join(line.arguments) else run_here(line)


def run_here(line: Line) -> Ended:
    """Runs a command line in this process, through the function that the script calls."""
    from osiris_jax import cli

    out, err, started = io.StringIO(), io.StringIO(), time.perf_counter()
    before, sys.argv = sys.argv, ["osiris-jax", *line.arguments]
    code, problem = None, ""
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            limits(SECONDS[max(line.codes)]),
        ):
            cli.main()
    except SystemExit as stop:
        code = 0 if stop.code is None else stop.code
    except TooSlow as error:
        problem = f"hangs: {error}"
    except BaseException as error:  # whatever it is, it is a finding
        problem = f"traceback: {type(error).__name__}: {str(error)[:300]!r}"
    finally:
        sys.argv = before
    problem = problem or wrong_end(line, code, out.getvalue(), err.getvalue())
    return Ended(line, code, problem, time.perf_counter() - started)


def run_outside(line: Line, cwd: Path) -> Ended:
    """Runs a command line in a process of its own."""
    started = time.perf_counter()
    words = [sys.executable, "-m", "osiris_jax.cli", *line.arguments]
    if any("\0" in word for word in words):
        return Ended(line, 2, "", 0.0)  # no shell can pass it
    seconds = SECONDS[max(line.codes)]
    try:
        done = subprocess.run(
            words, capture_output=True, cwd=cwd, timeout=seconds, env=os.environ | {"COLUMNS": "80"}
        )
    except subprocess.TimeoutExpired:
        return Ended(line, None, f"hangs: no end after {seconds:g} s", seconds)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    problem = wrong_end(line, done.returncode, out, err)
    return Ended(line, done.returncode, problem, time.perf_counter() - started)


def wrong_end(line, code, out, err):
    """What is wrong with an exit code and what was printed."""
    if "Traceback" in err or "Traceback" in out:
        return f"traceback: {err[-300:]!r}"
    if code not in line.codes:
        return f"exit code {code}, expected {line.codes}: {err[-300:]!r}"
    if code == 2:
        complaint = err.removesuffix("\n")
        if not complaint.isprintable() or not complaint.startswith("osiris-jax: "):
            return f"not one line of plain text: {err[-400:]!r}"
        if len(complaint) > LONGEST_MESSAGE:
            return f"a message of {len(complaint)} characters"
    if "\x1b" in out:
        return (
            f"raw escape bytes on standard output: {out[max(0, out.index(chr(27)) - 80) :][:200]!r}"
        )
    return ""


def raw_escapes(folder: Path) -> list[str]:
    """Files of text below the folder that hold raw escape bytes."""
    texts = [path for path in folder.rglob("*") if path.suffix in (".md", ".json", ".html")]
    return [path.name for path in texts if b"\x1b" in path.read_bytes()]
