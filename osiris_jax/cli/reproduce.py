"""`osiris-jax reproduce`: the paper's tables and figures, as published and as they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from osiris_jax.cli import options
from osiris_jax.cli.options import Seed, Words, option


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """The paper's tables and figures, as published and with independent trials.

    Tables resume when run again. `all` also writes a page that shows everything.

    Example: osiris-jax reproduce table1 --protocol published --worlds dilly-dallying,express
    --trials 200 --out runs/table1
    """

    target: str = options.argument(
        "table1, tableS1, tableS2, ablation, fig1 to fig4, figS2-4 or all."
    )
    protocol: str | None = option(
        "published, independent or both; figures are independent by default."
    )
    worlds: Words | None = option("dilly-dallying,express,cartpole,lunar-lander or all.")
    trials: int | None = option("Data sets; default by world and protocol.")
    seed: Seed = options.seed()
    out: Path | None = option("Folder for tables and pictures; default runs/TARGET.")

    def run(self) -> None:
        """Checks all that can be checked, then computes, prints and writes the target."""
        from osiris_jax.cli.reproduction import checked, reproduce

        reproduce(checked(self))
