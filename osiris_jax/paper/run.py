"""Runs a table's columns under a protocol, chunk by chunk, and summarises them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from osiris_jax.core.platforms import mesh_of
from osiris_jax.estimators.incremental import ROW_BLOCK
from osiris_jax.paper.draws import Draws
from osiris_jax.paper.kernel import values_of
from osiris_jax.paper.numbers import TABLES, Column
from osiris_jax.paper.protocol import INDEPENDENT, Form, Protocol
from osiris_jax.study.chunks import Progress, most_trials
from osiris_jax.study.engine import ARRAYS_PER_LEVEL
from osiris_jax.study.kernel import ARRAYS
from osiris_jax.study.plan import Cell, Study, to_toml
from osiris_jax.study.run import compute
from osiris_jax.study.summary import Truth, cell_moments, rows_of, truth_of
from osiris_jax.worlds.gridworld import GridWorld

WITHOUT_ERRORS = ("truth_se", "mean_se", "bias_se", "std_se", "rmse_se")


@dataclasses.dataclass(frozen=True, eq=False)
class Reproduction:
    """Columns under protocols that share their data: each distinct form is computed once.

    Attributes:
      world: a world.
      protocols: of equal seeds; with only one, its cells keep their plain names.
      columns: of a table, the on-policy one last: it may be the truth.
      trials, size, seed: see `Draws`.
    """

    world: Any
    protocols: tuple[Protocol, ...]
    columns: tuple[Column, ...]
    trials: int
    size: int
    seed: int = 0

    @property
    def forms(self) -> tuple[Form, ...]:
        """What is computed."""
        every = (protocol.form(c) for c in self.columns for protocol in self.protocols)
        return tuple(dict.fromkeys(every))

    @property
    def overlapping(self) -> bool:
        return self.protocols[0].seeds == "overlapping"

    @property
    def dtype(self) -> str:
        """Digits are compared in the gridworlds alone."""
        return "float64" if isinstance(self.world, GridWorld) else "float32"

    def cells(self) -> list[Cell]:
        """The rows of the summary, one for each form."""
        cells = []
        for form in self.forms:
            cell = form.column.cell(self.size)
            if len(self.protocols) > 1:
                name = "estimator" if cell.relevance is None else "relevance"
                cell = cell._replace(**{name: getattr(cell, name) + form.label})
            cells.append(cell)
        return cells

    def settings(self) -> dict[str, Any]:
        """Everything that decides the values, as plain data."""
        return {
            "world": self.world.name,
            "protocols": [protocol.name for protocol in self.protocols],
            "forms": [f"{form.column.estimator} {form.label}" for form in self.forms],
            "cells": [list(cell) for cell in self.cells()],
            "overlapping": self.overlapping,
            "trials": self.trials,
            "size": self.size,
            "seed": self.seed,
            "dtype": self.dtype,
        }

    def to_toml(self) -> str:
        """The settings, to be read."""
        return to_toml({k: v for k, v in self.settings().items() if k != "cells"})

    @cached_property
    def draws(self) -> Draws:
        """The data sets of all trials."""
        return Draws(
            self.world,
            self.size,
            self.trials,
            overlapping=self.overlapping,
            seed=self.seed,
            observations=any(form.column.relevance == "nn-q" for form in self.forms),
        )

    def most_trials(self, memory: int | None) -> int:
        """In a chunk, by a rough upper guess of what one trial takes while it is computed."""
        arrays = ARRAYS + ARRAYS_PER_LEVEL * len(self.forms)
        rows = self.size * arrays + ROW_BLOCK * ARRAYS_PER_LEVEL
        return most_trials(rows * self.draws.steps * np.dtype(self.dtype).itemsize, memory)

    def keeps_values(self, trials: int) -> bool:
        """Never: the data of all trials are padded to one length, and may share a pool."""
        return False

    def begin(self, trials: np.ndarray) -> Callable[[], np.ndarray]:
        """Begins to compute, on all devices; what it returns waits for [trial, form] in float64."""
        devices = jax.local_devices()
        mesh = mesh_of(devices) if len(devices) > 1 else None
        oracle, number = getattr(self.world, "oracle", None), len(trials)
        padded = np.pad(trials, (0, -number % len(devices)), mode="edge")
        values = values_of(self.draws.of(padded), oracle, self.forms, mesh)
        return lambda: np.asarray(values, np.float64)[:number]


class Result(NamedTuple):
    """The rows of a table under a protocol, and the trials behind them.

    Attributes:
      rows: in the form of `summary.json`, one for each column, the on-policy one last.
      values: [trial, row].
      truth: what errors are measured from.
      notes: what a reader of the rows should know, see `StudyResult`.
    """

    rows: list[dict[str, Any]]
    values: np.ndarray
    truth: Truth
    notes: tuple[str, ...] = ()


def rows_together(
    world: Any,
    protocols: Sequence[Protocol],
    table: str,
    *,
    trials: int,
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Result]:
    """A table's columns in one world under protocols with equal seeds, by the protocol's name.

    What protocols share is computed once.

    Args:
      world: a world.
      protocols: the independent one, alone, is run as a `Study`.
      table: a name in `TABLES`.
      trials: data sets, each of the world's usual size.
      seed: see `Draws`.
      out: folder for the trials; run again, it resumes.
      progress: called with ("trials", done, total).
    """
    if len({protocol.seeds for protocol in protocols}) != 1:
        raise ValueError("protocols: expected some, all with the same `seeds`")
    columns = TABLES[table].computed
    plan = Reproduction(world, tuple(protocols), columns, trials, int(world.size), seed)
    if plan.protocols == (INDEPENDENT,):
        return {INDEPENDENT.name: _result_of_study(plan, out, progress)}
    return results_of(plan, out, progress)


def results_of(
    plan: Reproduction, out: str | Path | None = None, progress: Progress | None = None
) -> dict[str, Result]:
    """The result of each protocol of a plan, by name."""
    with jax.enable_x64(plan.dtype == "float64"):
        everything = compute(plan, plan, out=out, progress=progress).values()
    results = {}
    for protocol in plan.protocols:
        alone = dataclasses.replace(plan, protocols=(protocol,))
        values = everything[:, [plan.forms.index(form) for form in alone.forms]]
        if protocol.truth == "exact":
            truth = truth_of(Study(world=plan.world, seed=plan.seed, estimators=("is",)))
        else:
            error = values[:, -1].std() / math.sqrt(plan.trials)
            truth = Truth(float(values[:, -1].mean()), float(error), plan.trials * plan.size)
        moments = cell_moments(lambda values=values: [values], truth.value)
        cells, world = alone.cells(), plan.world.name
        rows = rows_of(world, plan.trials, cells, moments, truth, protocol.name)
        if plan.overlapping:
            for row in rows:  # the formulas are for independent trials
                row.update(dict.fromkeys(WITHOUT_ERRORS, math.nan))
        results[protocol.name] = Result(rows, values, truth)
    return results


def _result_of_study(
    plan: Reproduction, out: str | Path | None, progress: Progress | None
) -> Result:
    """The plan's columns as a study defines them."""
    columns, omission = plan.columns, {}
    if alphas := dict.fromkeys(c.alpha for c in columns if c.alpha is not None):
        omission["alphas"] = tuple(alphas)
    if tests := dict.fromkeys(c.relevance for c in columns if c.relevance is not None):
        omission |= {"relevance": tuple(tests), "weighting": INDEPENDENT.weighting}
    study = Study(
        world=plan.world,
        trials=plan.trials,
        sizes=(plan.size,),
        estimators=tuple(dict.fromkeys(column.estimator for column in columns)),
        seed=plan.seed,
        **omission,
    )
    result, cells = study.run(out=out, progress=progress), study.cells()
    places = [cells.index(column.cell(plan.size)) for column in columns]
    rows = [result.rows[place] for place in places]
    return Result(rows, result.store.values()[:, places], result.truth, tuple(result.notes))
