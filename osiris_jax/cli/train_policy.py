"""`osiris-jax train-policy`: networks for the worlds, each with a card and its curve."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from osiris_jax.cli import options
from osiris_jax.cli.options import Seed, passed_on
from osiris_jax.core.faces import to_json
from osiris_jax.core.files import write_text
from osiris_jax.core.terminal import print_table, say, stages

MOST = 10**9


@dataclasses.dataclass(frozen=True)
class TrainPolicy:
    """Trains Q-networks by double DQN, selects one, and writes it with its card and curve.

    Example: osiris-jax train-policy cartpole --seed 1 --out runs/cartpole
    """

    world: str = options.argument("cartpole or lunar-lander.")
    seed: Seed = options.seed()
    runs: int | None = options.option("Networks to train; default by world.")
    updates: int | None = options.option("Gradient steps of each; default by world.")
    out: Path = options.out(Path("runs/policy"))

    def run(self) -> None:
        """Trains, selects, evaluates on fresh episodes, writes everything into one folder."""
        from osiris_jax import plots
        from osiris_jax.core.pictures import save_all
        from osiris_jax.models.networks import save_network
        from osiris_jax.worlds import training

        world, out, recipes = self.world, self.out, training.RECIPES
        if world not in recipes:
            raise ValueError(f"world: {world!r} has no recipe; there are {', '.join(recipes)}")
        asked = passed_on(self, recipes[world])
        for name in ("runs", "updates"):
            if not 1 <= asked.get(name, 1) <= MOST:
                number = asked[name]
                raise ValueError(f"{name}: expected a positive number up to {MOST}, got {number}")
        with stages() as progress:
            trained = recipes[world](progress=progress, **asked)
        facts = trained.facts
        network = out / f"{world}.npz"
        save_network(network, trained.q)
        write_text(out / f"{world}.md", training.card(facts))
        write_text(out / "summary.json", to_json(facts))
        update = facts["chosen"]["update"]
        figures = {
            "learning-curve": plots.learning_curve(trained.curve, f"{world}: learning", update),
            "lengths": plots.lengths(trained.lengths, f"{world}: lengths"),
        }
        pictures = save_all(figures, out)
        rows = []
        for policy in ("behavior", "target"):
            mean, error = (f"{facts[policy][name]:.1f}" for name in ("mean", "standard_error"))
            rows.append([policy, mean, error, str(facts[policy]["episodes"])])
        print_table(f"{world}: the selected network", ["policy", "value", "s.e.", "episodes"], rows)
        say("network:", network)
        say("pictures:", *pictures)
