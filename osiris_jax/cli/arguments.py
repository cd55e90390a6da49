"""Options that several commands share.

Those whose default is None are left to what they are given to, so that it is known which were
typed: one without effect is an error. What they are then is shown as `show_default`.
"""

from pathlib import Path
from typing import Annotated

import typer


def _seed(number: int) -> int:
    if not 0 <= number < 2**63:
        raise ValueError(f"seed: expected an integer from 0 to {2**63 - 1}, got {number}")
    return number


Out = Annotated[Path, typer.Option(help="Folder for tables and pictures.")]
Seed = Annotated[int, typer.Option(help="Seed of all that is random.", callback=_seed)]
Alpha = Annotated[
    str | None, typer.Option(help="Level of relevance, or auto.", show_default="0.05")
]
Threshold = Annotated[float | None, typer.Option(help="Level of effect and nn-q instead.")]
Weighting = Annotated[str | None, typer.Option(help="to-go, future or none.", show_default="none")]
Resamples = Annotated[int | None, typer.Option(help="Of the bootstrap.", show_default="1000")]
Relevance = Annotated[
    str | None, typer.Option(help="Test of osir...: welch.", show_default="welch")
]
Discount = Annotated[float, typer.Option(help="In [0, 1].")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Sizes = Annotated[str, typer.Option(help="Trajectories in a data set: 25,100.")]
Trials = Annotated[int, typer.Option(help="Independent data sets.")]
Tabular = Annotated[str, typer.Option(help="A tabular world.")]
Levels = Annotated[str | None, typer.Option(help="Levels: 0.01,0.05,0.25.", show_default="0.05")]
Thresholds = Annotated[
    str | None, typer.Option(help="Levels of effect and nn-q: 0.2,0.4.", show_default="0.1,0.2,0.4")
]
Epsilon = Annotated[
    float | None, typer.Option(help="Of targets that are networks.", show_default="0")
]
BehaviorEpsilon = Annotated[
    float | None, typer.Option(help="Of a behaviour network.", show_default="0")
]
