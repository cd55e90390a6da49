"""`osiris-jax train-policy`: networks for the worlds, each with a card and its curve."""

from __future__ import annotations

import json
from pathlib import Path

from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import print_table, say, stages
from osiris_jax.models.networks import save_network
from osiris_jax.worlds import training

MOST = 10**9


def train(world: str, seed: int, runs: int | None, updates: int | None, out: Path) -> None:
    """Trains, selects, evaluates on fresh episodes, writes everything into one folder."""
    from osiris_jax import plots

    if world not in training.RECIPES:
        raise ValueError(f"world: {world!r} has no recipe; there are {', '.join(training.RECIPES)}")
    for name, value in (("runs", runs), ("updates", updates)):
        if value is not None and not 1 <= value <= MOST:
            raise ValueError(f"{name}: expected a positive number up to {MOST}, got {value}")
    options = {"runs": runs, "updates": updates}
    with stages() as progress:
        found = training.RECIPES[world](
            seed, progress=progress, **{k: v for k, v in options.items() if v is not None}
        )
    save_network(out / f"{world}.npz", found.q)
    write_text(out / f"{world}.md", training.card(found.facts))
    write_text(out / "summary.json", json.dumps(found.facts, indent=2))
    chosen = found.facts["chosen"]["update"]
    pictures = plots.save(
        plots.learning_curve(found.curve, f"{world}: learning", chosen), out, "learning-curve"
    )
    pictures += plots.save(plots.lengths(found.lengths, f"{world}: lengths"), out, "lengths")
    rows = [
        [policy, f"{value['mean']:.1f}", f"{value['standard_error']:.1f}", str(value["episodes"])]
        for policy in ("behavior", "target")
        for value in [found.facts[policy]]
    ]
    print_table(f"{world}: the selected network", ["policy", "value", "s.e.", "episodes"], rows)
    say("network:", out / f"{world}.npz")
    say("pictures:", *pictures)
