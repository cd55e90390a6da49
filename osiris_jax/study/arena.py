"""The arena: estimators compared over many worlds of known truth.

A world is a study, or several of the same data sets where estimators were added later: what is
there already is not computed again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from osiris_jax.core.options import ALPHA, default
from osiris_jax.estimators import ESTIMATORS, parse_name
from osiris_jax.study import checks
from osiris_jax.study.chunks import Progress, silent
from osiris_jax.study.plan import Cell, Study
from osiris_jax.study.regret import Field, Standing, rows_of_world, standings
from osiris_jax.study.summary import COLUMNS, truth_of
from osiris_jax.worlds import WITHOUT_EXACT_TRUTH, WORLDS, make
from osiris_jax.worlds.cards import HALVES, half_of
from osiris_jax.worlds.tabular import TabularWorld

if TYPE_CHECKING:
    import pandas

COMPARED = (
    *("mc", "is", "wis", "pdis", "cwpdis", "phwis", "incris", "mis", "rcis", "dr", "wdr", "dm"),
    *("star", "stepwise", "stepwise-dr", "magic", "drl"),
    *("osiris", "osirwis", "osiris-pdis", "osiris-cwpdis", "osiris-phwis", "osiris-incris"),
    *("osiris-mis", "osiris-rcis", "osiris-dr", "osiris-wdr"),
    *("osiris-star", "osiris-stepwise", "osiris-stepwise-dr", "osiris-magic", "osiris-drl"),
)
ALL, BASELINE = "all", "mc"
ARENA_COLUMNS = (
    *COLUMNS,
    *("half", "kind", "abs_error_median", "abs_error_q90", "undefined", "signal"),
    *("regret", "regret_se"),
)


def worlds_of(wanted: Any) -> tuple[Any, ...]:
    """The worlds of a half, of both ("all"), or those named; "design", "report" hold exact truths.

    Raises:
      ValueError: names what is not a world.
    """
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    found: list[Any] = []
    for name in names:
        if name in (*HALVES, ALL):
            exact = (one for one in WORLDS if one not in WITHOUT_EXACT_TRUTH)
            found += [one for one in exact if name in (ALL, half_of(one))]
        else:
            found.append(name)
    if not found:
        raise ValueError("worlds: none given")
    for name in found:
        if isinstance(name, str) and name not in WORLDS:
            raise ValueError(
                f"worlds: {name!r} is unknown; there are design, report, all, and those of "
                "`osiris-jax list`"
            )
    checks.no_repeats("worlds", tuple(found))
    return tuple(found)


def estimators_of(wanted: Any) -> tuple[str, ...]:
    """Names, "all" for the comparison set; "-name" takes one away. `mc` is always among them."""
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    found: list[str] = []
    for name in names:
        if name == ALL:
            found += [one for one in COMPARED if one not in found]
        elif name.startswith("-"):
            if name[1:] not in found:
                raise ValueError(f"estimators: {name[1:]!r} cannot be left out, it is not there")
            found.remove(name[1:])
        elif name not in found:
            found.append(name)
    if not found:
        raise ValueError("estimators: none given")
    return (BASELINE, *(name for name in found if name != BASELINE))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arena:
    """Estimators compared over many worlds by their regret.

    The regret of an estimator in a cell, a world and a size, is its RMSE over the least of the
    comparison set (`COMPARED`). A data set in which it is undefined counts with the value of `mc`,
    and one that is undefined in more than 1 % of them cannot be the least. What chooses levels from
    the data, and other levels than 0.05, are compared with the set and no part of it.

    Attributes:
      worlds: "design", "report", "all", names, or worlds.
      sizes: numbers of trajectories.
      trials: data sets of each cell.
      estimators: names as in a `Study`; "all" is the comparison set, "-name" takes one away.
      alphas: levels for the estimators after omission, see `Study`.
      seed: of all data.

    Example:
      >>> arena = oj.Arena(worlds="design", sizes=(25, 100), estimators=("wis", "osirwis", "dm"))
      >>> arena.run(seed=0).standings
    """

    worlds: Any = "design"
    sizes: tuple[int, ...] = (25, 100)
    trials: int = 1000
    estimators: tuple[str, ...] = (ALL,)
    alphas: tuple[float | str, ...] = default((float(ALPHA),))
    seed: int = 0

    def __post_init__(self):
        object.__setattr__(self, "worlds", worlds_of(self.worlds))
        object.__setattr__(self, "estimators", estimators_of(self.estimators))
        sizes = checks.sizes(checks.sequence("sizes", self.sizes), 1)
        checks.no_repeats("sizes", sizes)
        object.__setattr__(self, "sizes", sizes)
        checks.some_of(self, "sizes")
        checks.integer("trials", self.trials, 2, checks.MOST_TRIALS)
        checks.integer("seed", self.seed, 0, checks.LARGEST_SEED)
        for name in self.estimators:
            parse_name(name.partition(":")[0])

    def run(
        self,
        seed: int | None = None,
        *,
        out: str | Path | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> ArenaResult:
        """Computes what is missing, and compares.

        Args:
          seed: of all data, in place of the plan's.
          out: a folder that keeps the trials of every world; run again, also with more worlds or
            estimators, only what is missing is computed.
          progress: called with ("worlds", done, total), and with ("trials", done, total) in each.
          **options: of `Study.run`: memory, chunk_size, devices.
        """
        arena = self if seed is None else dataclasses.replace(self, seed=seed)
        tell, rows = progress or silent, []
        for number, world in enumerate(arena.worlds):
            tell("worlds", number, len(arena.worlds))
            known = make(world) if isinstance(world, str) else world
            folder = None if out is None else Path(out) / "worlds" / known.name
            found: dict[Cell, np.ndarray] = {}
            for study, part in _parts(arena, known, folder):
                values = study.run(out=part, progress=progress, **options).store.values()
                found.update(zip(study.cells(), values.T, strict=True))
            field = _field_of(_study(arena, known, (BASELINE,), ()))
            rows += rows_of_world(field, found, COMPARED, float(ALPHA), BASELINE)
        tell("worlds", len(arena.worlds), len(arena.worlds))
        return ArenaResult(arena, tuple(rows))


def _study(
    arena: Arena, world: Any, names: tuple[str, ...], alphas: tuple[float | str, ...]
) -> Study:
    more: dict[str, Any] = {"alphas": alphas} if alphas else {}
    sizes, seed = arena.sizes, arena.seed
    return Study(world=world, trials=arena.trials, sizes=sizes, estimators=names, seed=seed, **more)


def _parts(arena: Arena, world: Any, folder: Path | None) -> Iterator[tuple[Study, Path | None]]:
    """The studies of a world: those in its folder, and others of all estimators they lack.

    Estimators that lack the same levels are in one of these.
    """
    there: dict[str, tuple[float | str, ...]] = {}
    number = 0
    while folder is not None and (part := folder / f"part-{number}").exists():
        try:
            plan = json.loads((part / "study.json").read_text())
            names, alphas = tuple(plan["estimators"]), tuple(plan["alphas"])
        except (OSError, ValueError, KeyError):
            break  # begun, and nothing in it yet
        yield _study(arena, world, names, alphas if any(map(_omits, names)) else ()), part
        there |= {name: (*there.get(name, ()), *alphas) for name in names}
        number += 1
    lacking: dict[tuple[float | str, ...], list[str]] = {}
    for name in arena.estimators:
        missing = arena.alphas
        if name in there:
            missing = tuple(x for x in arena.alphas if x not in there[name]) if _omits(name) else ()
        if (name not in there or missing) and (world.num_states or not _needs_states(name)):
            lacking.setdefault(missing, []).append(name)
    for alphas, names in lacking.items():
        new = None if folder is None else folder / f"part-{number}"
        yield _study(arena, world, tuple(names), alphas if any(map(_omits, names)) else ()), new
        number += 1


def _omits(name: str) -> bool:
    return parse_name(name.partition(":")[0])[1]


def _needs_states(name: str) -> bool:
    plain, omits = parse_name(name.partition(":")[0])
    return omits or "state" in ESTIMATORS[plain].reads


def _field_of(study: Study) -> Field:
    """What a world's estimates are compared with."""
    world, truth = study.world, truth_of(study)
    card = world.card
    spread: dict[int, float] = {}
    behavior = None
    if isinstance(world, TabularWorld):
        exact = world.exact(study.discount)
        behavior = exact.behavior_value
        spread = {size: float(exact.moments("mc", n=size).std) for size in study.sizes}
    kind = f"{'markov' if card.markov else 'aliased'}, {'heavy' if card.heavy else 'light'}"
    return Field(world, study.trials, truth, behavior, spread, card.half, kind)


@dataclasses.dataclass(frozen=True)
class ArenaResult:
    """The finished comparison.

    Attributes:
      arena: what was computed.
      rows: one for each world, size, estimator and level, see `summary`.
    """

    arena: Arena
    rows: tuple[dict[str, Any], ...]

    @property
    def standings(self) -> list[Standing]:
        """One for each estimator over all cells, the least geometric mean of regret first."""
        return standings(self.rows)

    @property
    def kinds(self) -> dict[str, list[Standing]]:
        """The same in each kind of world alone."""
        kinds = sorted({row["kind"] for row in self.rows})
        return {kind: standings([r for r in self.rows if r["kind"] == kind]) for kind in kinds}

    def summary(self) -> pandas.DataFrame:
        """One row per world, size, estimator and level: errors, regret, and their errors."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(ARENA_COLUMNS))
