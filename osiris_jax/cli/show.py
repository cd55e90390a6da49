"""`osiris-jax show`: what a world is like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import markdown, print_table, say, stages
from osiris_jax.worlds import make
from osiris_jax.worlds.tabular import TabularWorld
from osiris_jax.worlds.values import Value
from osiris_jax.worlds.world import World

TOLERANCES = (1e-9, 1e-3, 0.1, 1.0)
POLICIES = ("behavior", "target")
EPISODES, EPISODES_PLAYED = 10_000, 500


def show_world(name: str, episodes: int | None, seed: int, out: Path) -> None:
    """Simulates both policies, adds exact answers where there are any, and draws."""
    world = make(name)
    episodes = _usual_episodes(world) if episodes is None else episodes
    if episodes < 2:
        raise ValueError(f"episodes: expected at least 2, got {episodes}")
    lengths, values = {}, {}
    with stages() as progress:
        for number, policy in enumerate(POLICIES):
            found = world.returns(
                jax.random.fold_in(jax.random.key(seed), number), episodes, policy=policy
            )
            lengths[policy], values[policy] = np.asarray(found.lengths), Value.of(*found)
            progress("simulating", number + 1, len(POLICIES))
    exact = world.exact() if isinstance(world, TabularWorld) else None
    header, rows = _policy_rows(values, exact)
    print_table(f"{name}: {episodes} episodes of each policy", header, rows)
    tables = [markdown(header, rows)]
    summary: dict[str, Any] = {"world": name, "seed": seed, "episodes": episodes}
    summary |= {policy: value._asdict() for policy, value in values.items()}
    if exact is not None:
        summary["exact"] = {"target": exact.value, "behavior": exact.behavior_value}
        header, rows = osiris_rows(world, exact)
        print_table(f"OSIRIS under fixed maps, N = {world.size}, exact", header, rows)
        tables.append(markdown(header, rows))
    write_text(out / "summary.md", f"# {name}\n\n" + "\n".join(tables))
    write_text(out / "summary.json", json.dumps(summary, indent=2))
    say("pictures:", *_draw(world, lengths, out))


def _usual_episodes(world: Any) -> int:
    return EPISODES if isinstance(world, World) else EPISODES_PLAYED


def _policy_rows(values: dict[str, Value], exact: Any) -> tuple[list[str], list[list[str]]]:
    header = ["policy", "value", "standard error", "exact value", "mean steps", "median", "longest"]
    rows = []
    for policy, value in values.items():
        truth = "" if exact is None else f"{exact.policy_value(policy):.6f}"
        rows.append(
            [
                policy,
                f"{value.mean:.4f}",
                f"{value.standard_error:.4f}",
                truth,
                f"{value.mean_length:.2f}",
                f"{value.quantiles['0.5']:g}",
                str(value.longest),
            ]
        )
    return header, rows


def osiris_rows(world: TabularWorld, exact: Any) -> tuple[list[str], list[list[str]]]:
    """Exact bias, standard deviation and RMSE at the world's usual size, for several maps."""
    maps = {"keep all (IS)": np.ones(world.num_states, bool)}
    if world.oracle is not None:
        maps["the world's oracle"] = world.oracle
    for tolerance in TOLERANCES:
        maps[f"true relevance, tolerance {tolerance:g}"] = exact.relevance(tolerance)
    maps["keep none (behaviour)"] = np.zeros(world.num_states, bool)
    visited = exact.occupancy("behavior").sum(0) > 0
    found = exact.moments("osiris", keep=np.stack(list(maps.values())), n=world.size)
    rows = []
    for label, keep, *results in zip(
        maps, maps.values(), found.bias, found.std, found.rmse, strict=True
    ):
        kept = f"{int((keep & visited).sum())} of {int(visited.sum())}"
        rows.append([label, kept, *(f"{round(float(x), 4) + 0.0:.4f}" for x in results)])
    return ["map", "states kept", "bias", "std", "RMSE"], rows


def _draw(world: Any, lengths: dict[str, np.ndarray], out: Path) -> list[Path]:
    from osiris_jax import plots
    from osiris_jax.worlds.gridworld import GridWorld

    paths = plots.save(plots.lengths(lengths, f"{world.name}: lengths"), out, "lengths")
    if isinstance(world, GridWorld):
        paths += plots.save(plots.gridworld([world]), out, "world")
    return paths
