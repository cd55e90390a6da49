"""The small data on which everything is taken, and results of which several sections tell."""

import atexit
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from typer.testing import CliRunner

import osiris_jax as oj
from osiris_jax.cli import app, main

TRAJECTORIES, STEPS, STATES, ACTIONS = 6, 12, 5, 3
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def policy(seed):
    """[state, action] probabilities, none of them small."""
    rng = np.random.default_rng(seed)
    return (4 * rng.dirichlet(np.ones(ACTIONS), STATES) + 1) / (4 + ACTIONS)


BEHAVIOR, TARGET, OTHER = map(policy, range(3))


@cache
def table():
    """A log of six trajectories, the longest of twelve steps, in columns."""
    rng = np.random.default_rng(7)
    rows = []
    for episode, steps in enumerate((STEPS, 6, 9, 6, STEPS, 9)):
        state = rng.integers(STATES)
        for step in range(steps):
            action = rng.choice(ACTIONS, p=BEHAVIOR[state])
            reward = round(0.5 * rng.normal() + 2 * (action == state % ACTIONS), 3)
            heart, pressure = (round(x, 3) for x in rng.normal(state, 1, 2))
            rows.append((episode, step, state, action, reward, heart, pressure))
            state = (state + action + rng.integers(2)) % STATES
    names = ["episode", "step", "state", "action", "reward", "obs_0", "obs_1"]
    frame = pd.DataFrame(rows, columns=names)
    place = frame["state"].to_numpy(), frame["action"].to_numpy()
    return frame.assign(behavior_prob=BEHAVIOR[place], target_prob=TARGET[place])


def episodes():
    """The same log as a list, with the probabilities of all actions."""
    groups = [rows for _, rows in table().groupby("episode")]
    return [
        {
            "states": rows["state"].to_numpy(),
            "observations": rows[["obs_0", "obs_1"]].to_numpy(),
            "actions": rows["action"].to_numpy(),
            "rewards": rows["reward"].to_numpy(),
            "behavior_probs": BEHAVIOR[rows["state"].to_numpy()],
            "target_probs": TARGET[rows["state"].to_numpy()],
        }
        for rows in groups
    ]


@cache
def batch():
    """The same log as a batch."""
    return oj.from_episodes(episodes(), num_states=STATES, num_actions=ACTIONS)


@cache
def tiny():
    """A world of three states and two actions, of which the last ends a trajectory."""
    transition = [[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6], [0.7, 0.1, 0.2]]]
    transition.append([[0.0, 0.0, 1.0]] * 2)
    reward = [[1.0, 0.25], [-0.5, 2.0], [0.0, 0.0]]
    behavior, target = [[0.5, 0.5]] * 3, [[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]
    return oj.TabularWorld(transition, reward, 0, behavior, target, horizon=8)


@cache
def evaluation():
    """What `evaluate` says of the log, beside the behaviour's own value."""
    return oj.evaluate(
        batch(),
        ["osirwis", "wis", "mc"],
        methods=["percentile", "t"],
        resamples=20,
        compare_with="behavior",
        key=jax.random.key(3),
    )


@cache
def study():
    """The result of a small study."""
    return oj.Study(
        world="waiting-room",
        trials=4,
        sizes=(6,),
        alphas=(0.05, 1.0),
        estimators=("is", "wis", "osirwis"),
        seed=3,
    ).run()


@cache
def folder():
    """A folder for files that commands read and write, empty at first."""
    made = tempfile.mkdtemp(prefix="osiris-jax-surface-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def command(*words):
    """Exit code, lines on standard output and on standard error of `osiris-jax ...`."""
    code, out, err = 0, io.StringIO(), io.StringIO()
    before = sys.argv, dict(os.environ), Path.cwd()
    sys.argv = ["osiris-jax", *words]
    os.environ |= TERMINAL
    os.chdir(folder())
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before[0]
        os.environ.clear()
        os.environ.update(before[1])
        os.chdir(before[2])
    return code, *(_lines(text.getvalue()) for text in (out, err))


def help_of(*words):
    """Exit code and lines of `osiris-jax ... --help`."""
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="osiris-jax", env=TERMINAL)
    return [f"exit code {result.exit_code}", *_lines(result.output)]


def _lines(text):
    return [line.rstrip() for line in COLOURS.sub("", text).splitlines()]
