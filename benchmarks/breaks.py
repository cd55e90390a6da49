"""Whether the tests see what they are for: one-line breaks, each with the test that must fail.

The list is tests/breaks.toml. Each break is made in a copy of the project, its test alone is run
there, and the break is undone. Every test is first run on the unbroken copy, where it must pass.

Run: python benchmarks/breaks.py             (about half an hour on two cores)
     python benchmarks/breaks.py stats core  (those whose room begins with one of these words)
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED, FAILED = 0, 1


def copy_project(folder: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_test(folder: Path, test: str) -> int:
    """The exit code of pytest on this test alone."""
    path, _, chosen = test.partition(" -k ")
    wanted = [f"{path}::{chosen}"] if "[" in chosen else [path, *(["-k", chosen] if chosen else [])]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *wanted], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
    )  # fmt: skip
    return done.returncode


def seen(folder: Path, one: dict[str, str]) -> bool:
    """Whether the break's test fails with the break in place."""
    path = folder / one["file"]
    text = path.read_text()
    path.write_text(text.replace(one["old"], one["new"]))
    try:
        return run_test(folder, one["test"]) == FAILED
    finally:
        path.write_text(text)


def main(rooms: list[str]) -> int:
    breaks = tomllib.loads((ROOT / "tests" / "breaks.toml").read_text())["breaks"]
    breaks = [one for one in breaks if not rooms or one["room"].startswith(tuple(rooms))]
    unseen = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        copy_project(folder)
        works: dict[str, bool] = {}
        for number, one in enumerate(breaks, 1):
            test = one["test"]
            if test not in works:
                works[test] = run_test(folder, test) == PASSED
            verdict = "the test fails unbroken" if not works[test] else "NOT SEEN"
            if works[test] and seen(folder, one):
                verdict = "seen"
            unseen += verdict != "seen"
            print(f"{number:2d} {verdict:24s} {one['room']}  ({test})", flush=True)
    print(f"{len(breaks) - unseen} of {len(breaks)} breaks are seen by their tests")
    return min(unseen, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
