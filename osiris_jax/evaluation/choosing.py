"""`choose`: what `estimate(batch, "auto")` decides, with all that it compared, and why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.compiled import compiled
from osiris_jax.core.faces import aligned, number, percent
from osiris_jax.core.options import traced
from osiris_jax.estimators.automatic import LAGS, Decision, Member, decide, members_of
from osiris_jax.inference.weights import FINE, NO_TRUST, Verdict, judged_by, overall
from osiris_jax.pipeline.spec import Composition, Spec, check_batch, make_spec

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

GROUPS = 10
PLANE_ALPHAS, PLANE_PASTS = (1.0, 0.2, 0.05), (1, 4, 16, 0)
PLANE = "osiris-star"
COLUMNS = ("name", "alpha", "past", "value", "bias", "standard_error", "weight")
# above the first of each pair the answer calls for care, above the second for distrust
UNSEEN, ERROR, AGAINST, OFF = (0.2, 0.5), (0.3, 0.6), (3.0, math.inf), (4.0, math.inf)
UNCHECKED, PATHS, LEAST_SIZE = (0.5, math.inf), (-20.0, -5.0), 20.0


class Compared(NamedTuple):
    """One of the estimates that a choice looks at.

    Attributes:
      name, alpha, past: what `estimate` would be asked for; None where there is no such option.
      value: its estimate.
      bias: how far it is from the answer.
      standard_error: its own.
      weight: its share of the answer.
    """

    name: str
    alpha: float | None
    past: int | None
    value: float
    bias: float
    standard_error: float
    weight: float


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """An estimate chosen from the data, with what was compared and what it rests on.

    Attributes:
      rows: all that were compared, those that the answer is made of first.
      value: the answer, the sum of values by weights.
      standard_error: of the member with the largest weight.
      safe: whether the log can carry the answer.
      reason: why the answer is what it is, and what speaks against it.
      markov: lag -> p-value of the Markov check by both its forms, NaN where it is undecided.
      evidence: natural logarithm of the odds against a model of states.
      mean_weight, effective_size: of trajectories by all their ratios.
      unseen: the target's chance of actions that were never seen in the state, NaN if not known.
      distance: of the target from the behaviour, the mean of |ratio - 1| / 2.
      tails: how much larger the error of the whole past is by the data's chain than by its sample.
    """

    rows: tuple[Compared, ...]
    value: float
    standard_error: float
    safe: bool
    reason: str
    markov: dict[int, float]
    evidence: float
    mean_weight: float
    effective_size: float
    unseen: float
    distance: float
    tails: float

    @property
    def main(self) -> Compared:
        """The member with the largest weight."""
        return _main(self.rows)

    @property
    def name(self) -> str:
        return self.main.name

    @property
    def alpha(self) -> float | None:
        return self.main.alpha

    @property
    def past(self) -> int | None:
        return self.main.past

    @property
    def bias(self) -> float:
        """How far the main member is from the answer."""
        return self.main.bias

    def table(self) -> pandas.DataFrame:
        """All that were compared, a row each."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(COLUMNS))

    def plot(self) -> Figure:
        """The plane of levels and pasts beside the members of the answer, which is marked."""
        from osiris_jax.evaluation.pictures import plane

        return plane(self)

    def __str__(self) -> str:
        header = ["estimator", "alpha", "past", "value", "error", "weight"]
        lines = [
            [
                row.name,
                "-" if row.alpha is None else f"{row.alpha:g}",
                {None: "-", 0: "all"}.get(row.past, str(row.past)),
                number(row.value),
                number(row.standard_error, 3),
                f"{row.weight:.2f}" if row.weight else "-",
            ]
            for row in self.rows
        ]
        said = "safe" if self.safe else "not safe"
        answer = f"{number(self.value)} +- {number(self.standard_error, 3)}, {said}: {self.reason}"
        return f"{answer}\n\n{aligned(header, lines)}"

    __repr__ = __str__


def choose(batch: TrajectoryBatch, *, discount: ArrayLike = 1.0) -> Chosen:
    """What `estimate(batch, "auto")` decides, with all that it compared.

    The answer is made of a few members, whose errors are those of their own terms. The others are
    there to be looked at: importance sampling, doubly robust estimators and the plane of levels
    and pasts, with errors by a jackknife of ten groups. Nothing is random.

    Args:
      batch: the log, with ratios; [traj, time]. With states, and with the target's probabilities
        of all actions, more can be compared.
      discount: gamma in [0, 1].

    Example:
      >>> choice = oj.choose(batch)
      >>> choice.value, choice.name, choice.safe
      >>> choice.table(); choice.plot()
    """
    check_batch(batch)
    batch.require("log_ratio", "a choice")
    discount = traced("discount", discount, batch.dtype)
    found = jax.tree.map(np.asarray, _decided(batch, discount))
    rows = _rows(members_of(batch), found)
    looked_at = _looked_at(batch, discount, float(found.value))
    main = _main(rows)
    verdicts = _verdicts(batch, found, rows)
    return Chosen(
        rows=(*rows, *looked_at),
        value=float(found.value),
        standard_error=main.standard_error,
        safe=overall(verdicts) == FINE,
        reason="; ".join(verdict.reason for verdict in verdicts),
        markov={lag: float(p) for lag, p in zip(LAGS, found.markov, strict=True)},
        **{name: float(getattr(found, name)) for name in Decision._fields[5:]},
    )


@compiled(quick=True)
def _decided(batch: TrajectoryBatch, discount: Array) -> Decision:
    return decide(batch, batch.require("log_ratio", "a choice"), discount=discount)


def _rows(members: tuple[Member, ...], found: Decision) -> list[Compared]:
    numbers = zip(found.values, found.standard_errors, found.weights, strict=True)
    return [
        Compared(*member, float(value), float(value - found.value), float(error), float(weight))
        for member, (value, error, weight) in zip(members, numbers, strict=True)
    ]


def _looked_at(batch: TrajectoryBatch, discount: Array, answer: float) -> Iterator[Compared]:
    """Estimates that have no part in the answer, with errors by groups of trajectories."""
    by_name = _others(batch, discount)
    values = {name: np.asarray(x) for name, x in _of_all(batch, by_name).items()}
    if len(batch.reward) < 2:
        errors = jax.tree.map(lambda x: np.full(x.shape, np.nan), values)
    else:
        groups = min(GROUPS, len(batch.reward))
        rows = np.arange(len(batch.reward))
        size = len(rows) - -(-len(rows) // groups)
        left = np.stack([rows[rows % groups != group][:size] for group in range(groups)])
        parts = {k: np.asarray(x) for k, x in _without(batch, by_name, jnp.asarray(left)).items()}
        errors = {name: np.sqrt((groups - 1) * x.var(0)) for name, x in parts.items()}
    for name, value in values.items():
        plane = [(alpha, past) for alpha in PLANE_ALPHAS for past in PLANE_PASTS]
        labels = plane if name == PLANE else [(0.05 if name.startswith("osir") else None, None)]
        for (alpha, past), x, error in zip(
            labels, value.ravel(), errors[name].ravel(), strict=True
        ):
            yield Compared(name, alpha, past, float(x), float(x) - answer, float(error), 0.0)


def _others(batch: TrajectoryBatch, discount: Array) -> dict[str, Spec]:
    def spec(name: str, test: str | None = None, **settings: Any) -> Spec:
        return make_spec(batch, Composition.of(name, test), {"discount": discount, **settings})

    found = {}
    if batch.state is not None:
        found = {"wis": spec("wis"), "osiris-cwpdis": spec("cwpdis", "welch", alpha=0.05)}
        if batch.target_probs is not None and batch.action is not None:
            found |= {name: spec(name) for name in ("wdr", "magic")}
        plane = {"alpha": np.array(PLANE_ALPHAS), "past": np.array(PLANE_PASTS)}
        found[PLANE] = spec("star", "welch", **plane)
    return found


@compiled(quick=True)
def _of_all(batch: TrajectoryBatch, specs: dict[str, Spec]) -> dict[str, Array]:
    return {name: spec.values(batch) for name, spec in specs.items()}


@compiled(quick=True)
def _without(batch: TrajectoryBatch, specs: dict[str, Spec], rows: Array) -> dict[str, Array]:
    """[group, ...] the estimates of the trajectories left in each row."""

    def one(left: Array) -> dict[str, Array]:
        part = jax.tree.map(lambda field: field[left], batch)
        return {name: spec.values(part) for name, spec in specs.items()}

    return lax.map(one, rows)


def verdicts_on_choice(batch: TrajectoryBatch, discount: Any) -> list[Verdict]:
    """Why the answer is what it is, and what speaks against it."""
    found = jax.tree.map(np.asarray, _decided(batch, traced("discount", discount, batch.dtype)))
    return _verdicts(batch, found, _rows(members_of(batch), found))


def _verdicts(batch: TrajectoryBatch, found: Decision, rows: list[Compared]) -> list[Verdict]:
    if math.isnan(float(found.value)):
        return [Verdict(NO_TRUST, "a ratio or a reward of the log is unknown")]
    main = _main(rows)
    spread = rows[0].standard_error * math.sqrt(len(batch.reward))
    judged = [Verdict(FINE, _why(batch, found, main))]
    judged += [
        judged_by(value, limits, text)
        for value, limits, text in _doubts(batch, found, main, spread)
    ]
    return [judged[0], *(verdict for verdict in judged[1:] if verdict.level != FINE)]


def _main(rows: Sequence[Compared]) -> Compared:
    """The member with the largest weight."""
    return max(rows, key=lambda row: row.weight)


def _why(batch: TrajectoryBatch, found: Decision, main: Compared) -> str:
    if batch.state is None:
        return "without states only whole pasts can be weighed, beside the mean of the log"
    if main.name == "osirwis":
        return (
            "trajectories as a whole contradict a model of states "
            f"({_odds(found.evidence)}), which is dropped for them"
        )
    if main.name == "mc":
        return "what was seen of the target is hardly apart from the mean of the log"
    return "nothing in the log contradicts a model of its states"


def _doubts(
    batch: TrajectoryBatch, found: Decision, main: Compared, spread: float
) -> Iterator[tuple[float, tuple[float, float], str]]:
    """What is bad when large, above which it calls for care and for distrust, and its text."""
    share = f"{percent(float(found.unseen))} of what the target does was never seen in its state"
    yield float(np.nan_to_num(found.unseen)), UNSEEN, share
    error = main.standard_error / spread if spread > 0 else 0.0
    text = f"its standard error is {percent(error)} of the spread of returns"
    yield error, ERROR, text
    by_model = batch.state is not None and main.name not in ("osirwis", "mc")
    unchecked = by_model and not np.isfinite(found.markov).any()
    text = "it could not be checked whether the log's states are all that matters"
    yield float(unchecked), UNCHECKED, text
    against = float(np.nan_to_num(found.evidence)) if by_model else 0.0
    yield against, AGAINST, f"the odds are {_odds(found.evidence)} against a model of its states"
    size, weight = float(found.effective_size), float(found.mean_weight)
    if batch.state is None:
        yield -size, PATHS, f"its weights are those of {size:.3g} trajectories"
    off = abs(weight - 1) * math.sqrt(size) / max(weight, 1) if size >= LEAST_SIZE else 0.0
    yield off, OFF, f"the mean weight is {weight:.3g}, where 1 is right"


def _odds(evidence: Any) -> str:
    """In words; beyond a million nobody counts."""
    return "over a million to 1" if evidence > 13.8 else f"{math.exp(float(evidence)):.2g} to 1"
