"""The command line: `osiris-jax`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="osiris-jax",
    help="Off-policy evaluation in JAX.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

OutOption = Annotated[Path, typer.Option(help="Folder for tables and pictures.")]


@app.callback()
def _osiris_jax() -> None:
    """Off-policy evaluation in JAX."""


@app.command()
def show(
    world: Annotated[str, typer.Argument(help="A world, such as dilly-dallying.")],
    episodes: Annotated[int, typer.Option(help="Simulated episodes of each policy.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    out: OutOption = Path("runs/world"),
) -> None:
    """What a world is like: values, lengths, exact answers, and pictures.

    Example: osiris-jax show dilly-dallying --out runs/dilly-dallying
    """
    from osiris_jax.commands.show import show_world

    show_world(world, episodes, seed, out)


@app.command("train-policy")
def train_policy(
    world: Annotated[str, typer.Argument(help="cartpole or lunar-lander.")],
    seed: Annotated[int, typer.Option(help="Seed of training and selection.")] = 0,
    runs: Annotated[int | None, typer.Option(help="Networks to train; default by world.")] = None,
    updates: Annotated[
        int | None, typer.Option(help="Gradient steps of each; default by world.")
    ] = None,
    out: OutOption = Path("runs/policy"),
) -> None:
    """Trains Q-networks by double DQN, selects one, and writes it with its card and curve.

    Example: osiris-jax train-policy cartpole --seed 1 --out runs/cartpole
    """
    from osiris_jax.commands.train import train

    train(world, seed, runs, updates, out)


def main() -> None:
    """Runs the command line; what the user can mend is one line and exit code 2."""
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except typer.TyperException as error:
        problem = error.format_message()
    except (ValueError, ModuleNotFoundError, OSError) as error:
        problem = str(error)
    except (KeyboardInterrupt, typer.Abort):
        print("osiris-jax: stopped", file=sys.stderr)
        sys.exit(130)
    print("osiris-jax:", " ".join(problem.split()), file=sys.stderr)
    sys.exit(2)
