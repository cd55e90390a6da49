"""Fuzz: logs whose truth is known, good and spoilt, and command lines; what breaks is printed.

    python benchmarks/fuzz.py --logs 10000 --commands 500

A good log must give the oracle's estimates, with every step in its own episode and every id under
its own name; a spoilt one must give one ValueError that names the field. Warnings, exceptions of
another kind, calls that do not end and calls that take much memory are failures. A log is made
again by its number: `--seed 0 --only 1234` runs it alone. Exit code 1 if anything failed.
"""

import collections
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / "osiris-jax-test-cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import typer  # noqa: E402
from workbench import of_tests  # noqa: E402

NAMES = ("broken_files", "calls", "cases", "commands", "judge")
broken_files, calls, cases, commands, judge = of_tests(*(f"fuzzing.{name}" for name in NAMES))
GIGABYTES = 8
SHOWN = 3
OUTSIDE_EVERY = 25


def run_logs(seed, numbers, folder):
    """The outcome of every log, in both float types by turns."""
    for number in numbers:
        case = cases.draw_case(seed, number, folder)
        yield number, judge.run(case, double=number % 2 == 0)
        for path in folder.iterdir():
            path.unlink()


def report_logs(outcomes):
    """Prints the tables and says how many failed."""
    kinds, failed = collections.Counter(), collections.defaultdict(list)
    slowest = (0.0, "", 0)
    for number, outcome in outcomes:
        ending = "answered" if outcome.answered else "refused"
        kinds[outcome.case.expected, ending, bool(outcome.problem)] += 1
        slowest = max(slowest, (outcome.seconds, outcome.case.name, number))
        if outcome.problem:
            failed[outcome.case.name].append((number, outcome.problem))
    print("| expected | ended | logs | failed |\n|---|---|---|---|")
    for (expected, ending), group in itertools.groupby(sorted(kinds), key=lambda key: key[:2]):
        bad = kinds[expected, ending, True]
        print(f"| {expected} | {ending} | {sum(kinds[key] for key in group)} | {bad} |")
    print(f"slowest: {slowest[0]:.2f} s, {slowest[1]} (number {slowest[2]})")
    for name in sorted(failed, key=lambda name: -len(failed[name])):
        print(f"FAILED {len(failed[name])} x {name}")
        for number, problem in failed[name][:SHOWN]:
            print(f"    number {number}: {problem}")
    return sum(map(len, failed.values()))


def run_many_logs(seed, count, only):
    """10,000 logs, the one log that must not be padded, and bad arguments of functions."""
    numbers = range(count) if only is None else [only]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, judge.bounded_memory(GIGABYTES):
        failures = report_logs(run_logs(seed, numbers, Path(name)))
        seconds = time.perf_counter() - started
        print(f"{len(numbers)} logs in {seconds:.0f} s, {len(numbers) / seconds:.0f} a second, "
              f"peak {judge.peak_megabytes():.0f} MB\n")  # fmt: skip
        if only is None:
            special = [*calls.all_calls(), *broken_files.huge_cases(Path(name))]
            print("calls of functions with bad arguments, and logs that would not fit:")
            failures += report_logs((i, judge.run(case)) for i, case in enumerate(special))
            print()
    return failures


def run_commands(seed, count):
    """Command lines, all in this process and some of them again in one of their own."""
    started, home, failures = time.perf_counter(), Path.cwd(), 0
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            lines = commands.draw_lines(seed, count, Path(name))
            outside = lines[3::OUTSIDE_EVERY]
            ended = []
            for line in (*lines, *outside):
                run = commands.run if len(ended) < len(lines) else commands.run_outside
                ended.append(run(line, Path(name)))
                if ended[-1].problem:
                    failures += 1
                    words = [word[:80] for word in line.arguments]
                    print("FAILED", words, ended[-1].problem, sep="\n    ", flush=True)
            raw = commands.raw_escapes(Path(name))
        finally:
            os.chdir(home)
    codes = collections.Counter(end.code for end in ended)
    for file in raw:
        failures += 1
        print(f"FAILED raw escape bytes in {file}")
    slowest = max(ended, key=lambda end: end.seconds)
    print(f"{len(lines)} command lines, {len(outside)} of them also in a process of their own, in "
          f"{time.perf_counter() - started:.0f} s; exit codes {dict(codes)}; slowest "
          f"{slowest.seconds:.1f} s: {' '.join(slowest.line.arguments)[:100]!r}")  # fmt: skip
    return failures


def main(logs: int = 10_000, commands: int = 500, seed: int = 0, only: int | None = None):
    """Runs everything and prints the tables."""
    failures = run_many_logs(seed, logs, only) if logs else 0
    if commands and only is None:
        failures += run_commands(seed, commands)
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    typer.run(main)
