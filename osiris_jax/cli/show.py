"""`osiris-jax show`: what a world is like."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osiris_jax.cli import options
from osiris_jax.cli.options import Seed
from osiris_jax.core.faces import Table, markdown, to_json
from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import print_table, say, stages

if TYPE_CHECKING:
    from osiris_jax.worlds.rollout import Value
    from osiris_jax.worlds.tabular import TabularWorld

TOLERANCES = (1e-9, 1e-3, 0.1, 1.0)
EPISODES, EPISODES_PLAYED = 10_000, 500


@dataclasses.dataclass(frozen=True)
class ShowWorld:
    """What a world is like: values, lengths, exact answers, and pictures.

    Example: osiris-jax show dilly-dallying --out runs/dilly-dallying
    """

    world: str = options.argument("A world, such as dilly-dallying.")
    episodes: int | None = options.option("Simulated episodes of each policy; default by world.")
    seed: Seed = options.seed()
    out: Path = options.out(Path("runs/world"))

    def run(self) -> None:
        """Simulates both policies, adds exact answers where there are any, and draws."""
        from osiris_jax.worlds import make
        from osiris_jax.worlds.tabular import TabularWorld
        from osiris_jax.worlds.world import World

        world, name = make(self.world), self.world
        usual = EPISODES if isinstance(world, World) else EPISODES_PLAYED
        episodes = usual if self.episodes is None else self.episodes
        if episodes < 2:
            raise ValueError(f"episodes: expected at least 2, got {episodes}")
        lengths, values = _simulated(world, episodes, self.seed)
        exact = world.exact() if isinstance(world, TabularWorld) else None
        title = f"{name}: {episodes} episodes of each policy"
        tables = [Table(title, *policy_rows(values, exact))]
        summary: dict[str, Any] = {"world": name, "seed": self.seed, "episodes": episodes, **values}
        if isinstance(world, TabularWorld) and exact is not None:
            summary["exact"] = {"target": exact.value, "behavior": exact.behavior_value}
            title = f"OSIRIS under fixed maps, N = {world.size}, exact"
            tables.append(Table(title, *osiris_rows(world, exact)))
        for table in tables:
            print_table(*table)
        page = "\n".join(markdown(table.header, table.lines) for table in tables)
        write_text(self.out / "summary.md", f"# {name}\n\n{page}")
        write_text(self.out / "summary.json", to_json(summary))
        say("pictures:", *_draw(world, lengths, self.out))


def _simulated(world: Any, episodes: int, seed: int) -> tuple[dict[str, Any], dict[str, Value]]:
    """Policy -> the lengths of its episodes, and policy -> its value."""
    import numpy as np
    from jax import random

    from osiris_jax.worlds.rollout import Value

    lengths, values = {}, {}
    policies = ("behavior", "target")
    with stages() as progress:
        for stream, policy in enumerate(policies):
            key = random.fold_in(random.key(seed), stream)
            returns = world.returns(key, episodes, policy=policy)
            lengths[policy], values[policy] = np.asarray(returns.lengths), Value.of(*returns)
            progress("simulating", stream + 1, len(policies))
    return lengths, values


def policy_rows(values: Mapping[str, Value], exact: Any) -> tuple[list[str], list[list[str]]]:
    """Value and lengths of each policy, simulated, beside the exact value if it is known."""
    header = ["policy", "value", "standard error", "exact value", "mean steps", "median", "longest"]
    rows = []
    for policy, value in values.items():
        truth = "" if exact is None else f"{exact.policy_value(policy):.6f}"
        simulated = [f"{value.mean:.4f}", f"{value.standard_error:.4f}"]
        steps = [f"{value.mean_length:.2f}", f"{value.quantiles['0.5']:g}", str(value.longest)]
        rows.append([policy, *simulated, truth, *steps])
    return header, rows


def osiris_rows(world: TabularWorld, exact: Any) -> tuple[list[str], list[list[str]]]:
    """Exact bias, standard deviation and RMSE at the world's usual size, for several maps."""
    import numpy as np

    maps = {"keep all (IS)": np.ones(world.num_states, bool)}
    if world.oracle is not None:
        maps["the world's oracle"] = world.oracle
    for tolerance in TOLERANCES:
        maps[f"true relevance, tolerance {tolerance:g}"] = exact.relevance(tolerance)
    maps["keep none (behaviour)"] = np.zeros(world.num_states, bool)
    visited = exact.visited
    moments = exact.moments("osiris", keep=np.stack(list(maps.values())), n=world.size)
    columns = (maps, maps.values(), moments.bias, moments.std, moments.rmse)
    rows = []
    for label, keep, *results in zip(*columns, strict=True):
        kept = f"{int((keep & visited).sum())} of {int(visited.sum())}"
        rows.append([label, kept, *(f"{round(float(x), 4) + 0.0:.4f}" for x in results)])
    return ["map", "states kept", "bias", "std", "RMSE"], rows


def _draw(world: Any, lengths: Mapping[str, Any], out: Path) -> list[Path]:
    from osiris_jax import plots
    from osiris_jax.core.pictures import save_all
    from osiris_jax.worlds.gridworld import GridWorld

    figures = {"lengths": plots.lengths(lengths, f"{world.name}: lengths")}
    if isinstance(world, GridWorld):
        figures["world"] = plots.gridworld([world])
    return save_all(figures, out)
