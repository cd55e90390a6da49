"""What a benchmark found, as text: tables, what it shows in sentences, and files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from osiris_jax.bench import scope_rl
from osiris_jax.bench.kernels import GRIDWORLD
from osiris_jax.bench.scaling import CONSTANT_WITHIN, Curve, curves
from osiris_jax.bench.suite import HAD_A_CORE, Results, Timing
from osiris_jax.core.faces import Table, bullets, markdown_sections, to_json
from osiris_jax.core.files import write_text

BRIEF = ("case", "shape", "compile", "least", "us/trial", "its time", "ratio", "memory", "of roof")
LETTERS = {"trials": "K", "trajectories": "n", "steps": "T", "states": "S", "alphas": "A"}
LETTERS |= {"resamples": "B"}
QUICK = "Tiny shapes, to see that everything runs: these figures say nothing about speed."


def tables(results: Results, columns: Sequence[str] | None = None) -> list[Table]:
    """A table for each group with these columns or all, the exponents, and the bandwidth."""
    listed = []
    for group, rows in by_group(results).items():
        filled = [cells(row) for row in rows]
        used = [name for name in columns or filled[0] if any(row[name] for row in filled)]
        lines = [[row[name] for name in used] for row in filled]
        listed.append(Table(group, used, lines, words=2))
    lines = []
    for curve in curves(results.rows):
        expected = "" if curve.expected is None else f"{curve.expected:g}"
        ends = [str(curve.sizes[0]), str(curve.sizes[-1])]
        exponents = [f"{curve.exponent:.2f}", f"{curve.tail:.2f}", expected]
        lines.append([curve.name, curve.axis, *ends, *exponents])
    if lines:
        header = ["case", "axis", "from", "to", "exponent", "of the last two", "expected"]
        caption = "exponents of the cost, least squares in logarithms"
        listed.append(Table(caption, header, lines, words=2))
    speeds = results.bandwidth
    loops = {
        "JAX, x <- a x + b": speeds.scale,
        "JAX, x <- a x + y": speeds.triad,
        "NumPy, y <- x, one core": speeds.copy,
    }
    lines = [[name, f"{speed / 1e9:.3g} GB/s"] for name, speed in loops.items()]
    caption = f"bandwidth, arrays of {size(speeds.array_bytes)}"
    return [*listed, Table(caption, ["loop", "moved"], lines)]


def by_group(results: Results) -> dict[str, list[Timing]]:
    groups: dict[str, list[Timing]] = {}
    for row in results.rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def cells(row: Timing) -> dict[str, str]:
    """A row as text, by column; empty where there is nothing to say."""
    return {
        "case": row.name,
        "shape": " ".join(f"{LETTERS[name]}={size}" for name, size in row.shape.items()),
        "compile": seconds(row.compile_seconds),
        "least": seconds(row.least),
        "median": seconds(row.median),
        "us/trial": number(row.us_per_trial),
        "rival": row.rival or "",
        "its time": seconds(row.rival_seconds),
        "ratio": "WRONG" if row.agrees is False else number(row.ratio),
        "memory": size(row.peak_memory),
        "moved": size(row.moved),
        "of roof": "" if row.share is None else f"{100 * row.share:.2g} %",
    }


def in_unit(value: float | None, units: Mapping[str, float]) -> str:
    """A quantity in the largest unit that it reaches, or in the smallest."""
    if value is None:
        return ""
    unit = next((unit for unit, least in units.items() if abs(value) >= least), [*units][-1])
    return f"{value / units[unit]:.3g} {unit}"


seconds = partial(in_unit, units={"s": 1.0, "ms": 1e-3, "us": 1e-6})
size = partial(in_unit, units={"GB": 1e9, "MB": 1e6, "KB": 1e3, "B": 1.0})


def number(value: float | None) -> str:
    """Three digits, and no powers of ten."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def findings(results: Results) -> list[str]:
    """What the rows show, a sentence each; first what must be known to read them."""
    groups = by_group(results)
    said = [QUICK] if results.quick else []
    said += [machine_line(results), *starved_lines(results), agreement_line(results)]
    said += [
        f"{row.name}: {number(row.us_per_trial)} us per trial over {row.shape['trials']}."
        for row in groups.get("pipeline", [])
    ]
    said += [
        f"{row.name}: {row.rival} takes {number(row.ratio)} times as long."
        for row in results.rows
        if row.ratio is not None and row.group in ("pipeline", "estimators", "scope-rl")
    ]
    said += [
        f"{row.name}, {row.shape['trials']} trials of {row.shape['trajectories']}: "
        f"{row.least:.3g} s, at most {size(row.peak_memory)}."
        for row in groups.get("cartpole", [])
    ]
    said += [trials_line(curve) for curve in curves(results.rows) if curve.axis == "trials"]
    said += [
        f"{GRIDWORLD} on {row.name}: {one_core.least / row.least:.2f} times the speed of one core."
        for one_core in groups.get("cores", [])[:1]
        for row in groups["cores"][1:]
    ]
    if not scope_rl.installed():
        said.append(f"SCOPE-RL is not installed ({scope_rl.INSTALL}), and not compared.")
    return said


def machine_line(results: Results) -> str:
    facts = results.machine
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    loads = " and ".join(
        "unknown" if value is None else f"{value:.2f}"
        for value in (facts["load before"], facts.get("load after"))
    )
    cached = "may come from a cache" if facts["compilation cache"] else "is not cached"
    return (
        f"{facts['device']}, {facts['cores']} cores, {facts['dtype']}, load {loads} before and "
        f"after; compilation {cached}; the peak of memory is {facts['peak of memory']}; "
        f"Python {facts['python']}, {versions}."
    )


def starved_lines(results: Results) -> list[str]:
    """Names the cases that had to wait for a processor; an accelerator leaves it idle anyway."""
    waited = [row for row in results.rows if row.starved]
    if not waited or not results.machine["device"].startswith("cpu"):
        return []
    names = ", ".join(dict.fromkeys(f"{row.group}: {row.name}" for row in waited))
    return [
        f"{len(waited)} of {len(results.rows)} cases had a core less than {100 * HAD_A_CORE:g} % "
        f"of their time, so their figures are too high: {names}."
    ]


def agreement_line(results: Results) -> str:
    compared = [row for row in results.rows if row.agrees is not None]
    if not compared:
        return "No rival was compared."
    if bad := results.disagreements:
        names = ", ".join(f"{row.name} ({row.note})" for row in bad)
        return f"WRONG: {len(bad)} of {len(compared)} rivals give other numbers: {names}."
    worst = max(compared, key=lambda row: (row.difference or 0.0) / row.allowed)
    return (
        f"All {len(compared)} rivals give the same numbers in float64; nearest to its limit is "
        f"{worst.name}, {worst.difference:.1e} of the largest number (allowed: {worst.allowed:g})."
    )


def trials_line(curve: Curve) -> str:
    """Whether the cost of a trial is the same at every number of trials."""
    each = ", ".join(
        f"{number(1e6 * spent / count)} us at {count}"
        for count, spent in zip(curve.sizes, curve.seconds, strict=True)
    )
    verdict = "constant" if curve.spread <= CONSTANT_WITHIN else "NOT constant"
    return (
        f"Cost of a trial: {each}; {verdict} within {100 * CONSTANT_WITHIN:g} % "
        f"(spread {100 * curve.spread:.0f} %)."
    )


def write(results: Results, out: Path) -> list[Path]:
    """`bench.md`, and `bench.json`: everything as plain data, what is not finite as null."""
    legend = ", ".join(f"{letter} {name}" for name, letter in LETTERS.items())
    page = f"# Benchmark\n\n{bullets(findings(results))}{markdown_sections(tables(results))}"
    page += f"\n{legend}. Ratio: the rival's least time over ours.\n"
    fitted = ("exponent", "tail", "expected", "spread")
    data = {
        "machine": results.machine,
        "quick": results.quick,
        "bandwidth": results.bandwidth._asdict() | {"best": results.bandwidth.best},
        "rows": [dataclasses.asdict(row) | {"agrees": row.agrees} for row in results.rows],
        "curves": [
            curve._asdict() | {name: getattr(curve, name) for name in fitted}
            for curve in curves(results.rows)
        ],
        "findings": findings(results),
    }
    texts = {"bench.md": page, "bench.json": to_json(data)}
    return [write_text(out / name, text) for name, text in texts.items()]
