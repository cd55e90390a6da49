"""The estimates of one data set and of its resamples, a piece that fits the memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jax.sharding import Mesh

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.platforms import everywhere, mesh_of, over_devices
from osiris_jax.core.random_streams import RESAMPLES_STREAM
from osiris_jax.inference.exact import terms_of
from osiris_jax.inference.forms import (
    prepare,
    terms_of_parts,
    values_of_counts,
    values_of_gathered,
    welch_by_counts,
)
from osiris_jax.inference.methods import Sample
from osiris_jax.inference.resampling import (
    counts_by_number,
    draw_rows,
    num_groups,
    pieces,
    rows_without_groups,
)
from osiris_jax.inference.welch import SLOTS, Sizes, plan_sizes, trajectories_by_group
from osiris_jax.pipeline.spec import Spec

MEMORY = 2**29
Progress = Callable[[str, int, int], None]


class Resampler:
    """The estimates of one data set and of its resamples, these on all devices of this process."""

    def __init__(self, batch: TrajectoryBatch, specs: dict[str, Spec], memory: int = MEMORY):
        devices = jax.local_devices()
        self.mesh = mesh_of(devices) if len(devices) > 1 else None
        self.num_devices = len(devices)
        self.batch, self.specs, self.memory = batch, specs, memory
        itemsize = batch.dtype.itemsize
        fits = 2 * len(batch.reward) * batch.num_states * itemsize <= memory
        self.sizes: Sizes | None = None
        if fits and any(map(welch_by_counts, specs.values())):
            by_group = trajectories_by_group(batch)[None]
            self.sizes = plan_sizes(by_group, len(batch.reward), itemsize, memory)
        self.prepared = _prepare(batch, specs, sizes=self.sizes)

    @property
    def bytes_of_one(self) -> int:
        """What one resample takes while it is computed, roughly."""
        rows, steps = self.batch.mask.shape
        blocks, columns, _ = self.sizes or Sizes(0, 0, 0)
        items = 16 * rows + 16 * steps + 4 * SLOTS * blocks + 40 * columns
        return self.batch.dtype.itemsize * (items + 20 * self.batch.num_states)

    def values(
        self, key: Array, resamples: int, leave_out: bool, progress: Progress | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Label -> [resample] estimates of data sets drawn, [group] of the data without each."""
        number = len(self.batch.reward)
        groups = num_groups(number) if leave_out else 0
        parts, trusted = [], True
        common = everywhere(self.mesh, (self.batch, self.prepared, self.specs))
        for numbers in self._pieces(resamples + groups):
            counts = _counts(
                key, numbers, np.uint32(resamples), number=number, dtype=self.batch.dtype
            )
            values, holds = _values_of_counts(common, counts, mesh=self.mesh)
            parts.append(values)
            trusted = trusted and bool(np.all(holds))
            if progress is not None and resamples:
                progress("resamples", min(int(numbers[-1]) + 1, resamples), resamples)
        values = _joined(parts, resamples + groups) if parts else {}
        gathered = {
            label: spec
            for label, spec in self.specs.items()
            if label not in values or (not trusted and welch_by_counts(spec))
        }
        resampled = {label: x[:resamples] for label, x in values.items()}
        left_out = {label: x[resamples:] for label, x in values.items()}
        if gathered:
            resampled |= self._gathered(gathered, self._drawn(key, resamples), resamples)
            left_out |= self._gathered(gathered, self._left_out(leave_out), groups)
        return resampled, left_out

    def _pieces(self, number: int) -> Iterator[np.ndarray]:
        room = self.bytes_of_one, self.memory, self.num_devices
        return pieces(number, *room) if number else iter(())

    def _drawn(self, key: Array, resamples: int) -> Iterator[Array]:
        for numbers in self._pieces(resamples):
            yield _rows(key, numbers, number=len(self.batch.reward))

    def _left_out(self, wanted: bool) -> Iterator[np.ndarray]:
        for rows in rows_without_groups(len(self.batch.reward)) if wanted else ():
            for numbers in self._pieces(len(rows)):
                yield rows[numbers[numbers < len(rows)]]

    def _gathered(
        self, specs: dict[str, Spec], chosen: Iterable[Any], number: int
    ) -> dict[str, np.ndarray]:
        common, parts = everywhere(self.mesh, (self.batch, specs)), []
        for some in chosen:
            short = -len(some) % self.num_devices
            rows = np.resize(some, (len(some) + short, *some.shape[1:])) if short else some
            values = _values_of_gathered(common, rows, mesh=self.mesh)
            parts.append({label: x[: len(some)] for label, x in values.items()})
        return _joined(parts, number) if parts else dict.fromkeys(specs, np.zeros(0))

    def samples(
        self, key: Array, resamples: int, needs: Set[str], progress: Progress | None, **bounds: Any
    ) -> dict[str, Sample]:
        """What methods that need this much may look at."""
        drawn = resamples if "resampled" in needs else 0
        resampled, left_out = self.values(key, drawn, "left_out" in needs, progress)
        return {
            label: Sample(
                estimator=spec.estimator.name,
                value=np.asarray(self.prepared.values[label], np.float64),
                resampled=resampled[label],
                left_out=left_out[label],
                rounding=float(jnp.finfo(self.batch.dtype).eps),
                **(self._terms(label) if "terms" in needs else {}),
                **bounds,
            )
            for label, spec in self.specs.items()
        }

    def _terms(self, label: str) -> dict[str, np.ndarray]:
        """The terms of a mean: exact where the data alone make them, else as computed."""
        spec, options = self.specs[label], self.specs[label].for_estimator.keywords
        if spec.estimator.mean_of_terms and spec.test is None and options.get("clip") is None:
            return terms_of(self.batch, spec.estimator, float(options["discount"]))
        terms = _terms(spec, self.prepared.parts.get(label))
        return {name: np.asarray(x, np.float64) for name, x in terms.items()}


def _joined(parts: list[dict[str, Array]], number: int) -> dict[str, np.ndarray]:
    return {
        label: np.concatenate([np.asarray(part[label], np.float64) for part in parts])[:number]
        for label in parts[0]
    }


_prepare = compiled(prepare, static_argnames="sizes", quick=True)
_terms = compiled(terms_of_parts, quick=True)


@compiled(static_argnames="mesh", quick=True)
def _values_of_counts(common: Any, counts: Array, *, mesh: Mesh | None) -> Any:
    """`values_of_counts`, and for each device whether it holds."""

    def of_device(*given: Any) -> Any:
        values, holds = values_of_counts(*given)
        return values, holds[None]

    return over_devices(of_device, mesh, common, counts)


@compiled(static_argnames="mesh", quick=True)
def _values_of_gathered(common: Any, rows: Array, *, mesh: Mesh | None) -> dict[str, Array]:
    return over_devices(values_of_gathered, mesh, common, rows)


@compiled(static_argnames="number")
def _rows(key: Array, numbers: Array, *, number: int) -> Array:
    return draw_rows(random.fold_in(key, RESAMPLES_STREAM), numbers, number)


@compiled(static_argnames=("number", "dtype"))
def _counts(key: Array, numbers: Array, resamples: Array, *, number: int, dtype: Any) -> Array:
    own = random.fold_in(key, RESAMPLES_STREAM)
    return counts_by_number(own, numbers, number, resamples, dtype)
