"""The command line: `osiris-jax`."""

from __future__ import annotations

import sys

import typer

from osiris_jax.cli.arena import RunArena
from osiris_jax.cli.bench import Bench
from osiris_jax.cli.calibrate import Calibrate
from osiris_jax.cli.calibrate_markov import CalibrateMarkov
from osiris_jax.cli.coverage import MeasureCoverage
from osiris_jax.cli.ending import finish
from osiris_jax.cli.evaluate import EvaluateLog
from osiris_jax.cli.listing import ListAll
from osiris_jax.cli.options import command
from osiris_jax.cli.reproduce import Reproduce
from osiris_jax.cli.show import ShowWorld
from osiris_jax.cli.study import RunStudy
from osiris_jax.cli.train_policy import TrainPolicy
from osiris_jax.core.compilations import keep_compilations

app = typer.Typer(
    name="osiris-jax",
    help="Off-policy evaluation in JAX.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
COMMANDS = {
    "show": ShowWorld,
    "list": ListAll,
    "study": RunStudy,
    "arena": RunArena,
    "reproduce": Reproduce,
    "calibrate": Calibrate,
    "calibrate-markov": CalibrateMarkov,
    "coverage": MeasureCoverage,
    "evaluate": EvaluateLog,
    "bench": Bench,
    "train-policy": TrainPolicy,
}
for _name, _request in COMMANDS.items():
    app.command(_name)(command(_request))


@app.callback()
def _osiris_jax() -> None:
    """Off-policy evaluation in JAX."""


def main() -> None:
    """Runs the command line; what the user can mend is one line and exit code 2."""
    words_given = sys.argv[1:] or ["--help"]
    if "--help" not in words_given:
        keep_compilations()
    sys.exit(finish(lambda: app(words_given, standalone_mode=False)))
