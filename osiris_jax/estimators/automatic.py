"""The automatic choice: a model of states, what the data hold against it, and the log's own mean.

With discrete states the answer begins with a model of them, which is by far the best guess where it
is right. The data may speak against it in two ways. Weights of states show how far it misses (the
correction of double reinforcement learning), which counts as far as it exceeds its own error. And
trajectories weighed as a whole, after omission, may contradict what the model says of the very
policy that they evaluate; together with the Markov check that decides whether the model is dropped
for them. What is left of a log without support, or of one whose own policy is the target, is the
mean of its returns.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.segments import segment_sum
from osiris_jax.estimators.doubly_robust import fitted_values
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.estimators.marginal_dr import corrected_terms, log_marginals, unlogged_terms
from osiris_jax.estimators.per_decision import cwpdis
from osiris_jax.estimators.trajectory import wis, wis_variance
from osiris_jax.models.empirical import CompositeMoments, composite_moments
from osiris_jax.relevance import omission
from osiris_jax.relevance.markov import markov_pvalues, of_both
from osiris_jax.relevance.tests import welch
from osiris_jax.stats import student_two_sided

PURPOSE = "the automatic choice"
LAGS = (1, 2, 4, 8)
LEVELS = (0.05, 0.01)  # of omission, at which the whole past is asked
LEAST_PVALUE, MOST_CELLS = 1e-30, 2**26


class Rule(NamedTuple):
    """The numbers that decide; what each is worth: `benchmarks/automatic.py`.

    Attributes:
      doubt: squared standard errors of the correction that do not count.
      evidence: natural logarithm of the odds against the model above which it is dropped.
      least_square: squared standard errors by which the whole past must differ then.
      unseen: standard errors from the mean that a target asks for which is never seen.
      check: what the evidence of the Markov check counts.
    """

    doubt: Any = 2.0
    evidence: Any = 6.9
    least_square: Any = 2.0
    unseen: Any = 5.0
    check: Any = 1.0


class Member(NamedTuple):
    """What is compared, as `estimate` would be asked for it; None where it has no such option."""

    name: str
    alpha: float | None = None
    past: int | None = None


class Decision(NamedTuple):
    """An estimate chosen from the data, with what it rests on.

    Attributes:
      value: the sum of the members' values by their weights.
      values, standard_errors, weights: [member] see `members_of`; a weight of 0 for what is not
        used. NaN where one is not known.
      markov: [lag] p-values of the Markov check by both its forms, not adjusted over `LAGS`.
      evidence: natural logarithm of the odds against the model.
      mean_weight, effective_size: of trajectories by all their ratios.
      unseen: the target's chance, by visits, of actions that were never seen in the state.
      distance: of the target from the behaviour, the mean of |ratio - 1| / 2 over steps.
      tails: standard error of the whole past by the data's chain, over that of its sample.
    """

    value: Float[Array, ""]
    values: Float[Array, " member"]
    standard_errors: Float[Array, " member"]
    weights: Float[Array, " member"]
    markov: Float[Array, " lag"]
    evidence: Float[Array, ""]
    mean_weight: Float[Array, ""]
    effective_size: Float[Array, ""]
    unseen: Float[Array, ""]
    distance: Float[Array, ""]
    tails: Float[Array, ""]


class _Model(NamedTuple):
    """Its value, and that corrected by weights of states where there is a Q-hat; the share of each
    in the answer; the terms [traj] of the corrected one."""

    values: Float[Array, " part"]
    shares: Float[Array, " part"]
    terms: Float[Array, " traj"]

    @property
    def answer(self) -> Float[Array, ""]:
        return _mixed(self.shares, self.values)


class _Past(NamedTuple):
    """By level: the value of the whole past after omission, its error, that of its sample, how
    far it is from what the model says of the same omission, and the effective number of weights."""

    value: Float[Array, " level"]
    error: Float[Array, " level"]
    sampled: Float[Array, " level"]
    surprise: Float[Array, " level"]
    size: Float[Array, " level"]


USUAL = Rule()


@with_headroom
def auto(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], *, discount=1.0
) -> Float[Array, ""]:
    """A model of states, the whole past, or the mean, as the data say (osiris_jax 2026).

    How it decides is in docs/automatic.md; `choose` shows what it compared.
    """
    return decide(batch, log_ratio, discount=discount).value


def members_of(batch: TrajectoryBatch) -> tuple[Member, ...]:
    """What is compared in a batch with these fields, in the order of a `Decision`."""
    if batch.state is None:
        return Member("mc"), Member("wis"), Member("cwpdis")
    whole = (Member("osirwis", alpha=level) for level in LEVELS)
    if _has_probs(batch):
        return Member("mc"), Member("dm"), Member("drl"), *whole
    return Member("mc"), Member("star", past=1), *whole


def decide(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount: Any = 1.0,
    rule: Rule = USUAL,
) -> Decision:
    """The choice and all that it rests on; NaN where a ratio or a reward is unknown."""
    batch = batch.replace(log_ratio=log_ratio)
    returns = masked.returns(batch.reward, batch.mask, discount)
    log_weight = masked.log_weights(log_ratio, batch.mask)
    if batch.state is None:
        found = _by_paths(batch, returns, log_weight, discount)
    else:
        found = _by_states(batch, returns, discount, rule)
    share = jax.nn.softmax(log_weight)
    steps = jnp.maximum(batch.mask.sum(), 1)
    apart = jnp.abs(jnp.exp(masked.fill(batch.mask, log_ratio)) - 1) / 2
    return found._replace(
        value=jnp.where(masked.unknown(log_ratio, batch.mask), jnp.nan, found.value),
        mean_weight=jnp.exp(log_weight).mean(),
        effective_size=1 / jnp.sum(share**2),
        distance=masked.fill(batch.mask, apart).sum() / steps,
    )


def _has_probs(batch: TrajectoryBatch) -> bool:
    return batch.target_probs is not None and batch.action is not None


def _decision(values: Array, errors: Array, weights: Array, **known: Any) -> Decision:
    blank = jnp.full((), jnp.nan, values.dtype)
    of_log = dict.fromkeys(Decision._fields[4:], blank) | {"markov": jnp.full(len(LAGS), blank)}
    return Decision(_mixed(weights, values), values, errors, weights, **(of_log | known))


def _by_paths(batch: TrajectoryBatch, returns: Array, log_weight: Array, discount: Any) -> Decision:
    """Without states: the whole past, drawn to the mean as far as chance may explain it."""
    options = {"discount": discount}
    by_step, by_path = (f(batch, batch.log_ratio, **options) for f in (cwpdis, wis))
    mean, mean_error = returns.mean(), _error(returns)
    error = jnp.sqrt(wis_variance(log_weight, returns))
    square = (by_step - mean) ** 2
    doubt = error**2 + mean_error**2
    weight = jnp.where(square > 0, square / jnp.where(square > 0, square + doubt, 1), 0)
    weight = jnp.where(jnp.isfinite(weight), weight, 0)
    weights = jnp.stack([1 - weight, jnp.zeros_like(weight), weight])
    errors = jnp.stack([mean_error, error, error])
    return _decision(jnp.stack([mean, by_path, by_step]), errors, weights)


def _by_states(batch: TrajectoryBatch, returns: Array, discount: Any, rule: Rule) -> Decision:
    pvalue = welch(batch, discount=discount)
    keep = jnp.stack([omission.relevant(pvalue, level) for level in LEVELS])
    everything = jnp.ones((1, batch.num_states), bool)
    chain = composite_moments(batch, jnp.concatenate([keep, everything]), discount=discount)
    model, past = _modelled(batch, chain, discount, rule), _whole_past(batch, keep, chain, returns)
    squares = ((past.surprise - (model.answer - model.values[0])) / past.error) ** 2
    squares = jnp.where(jnp.isfinite(squares) & jnp.isfinite(past.value), squares, 0)
    level, markov = jnp.argmax(squares), _markov(batch, discount)
    evidence = _against(markov, jnp.sqrt(squares[level]), past.size[level], rule.check)
    dropped = (evidence > rule.evidence) & (squares[level] > rule.least_square)
    by_level = jnp.where(dropped, jax.nn.one_hot(level, len(LEVELS), dtype=returns.dtype), 0)
    weights = jnp.concatenate([jnp.where(dropped, 0, model.shares), by_level])
    others = jnp.concatenate([model.values, past.value])
    mean, unseen = returns.mean(), _unseen(batch)
    wanted = rule.unseen * jnp.nan_to_num(unseen) * _error(model.terms - returns)
    trust = _trust(_mixed(weights, others) - mean, jnp.where(jnp.isfinite(wanted), wanted, 0))
    trust = jnp.where(masked.fill(batch.mask, batch.require("log_ratio", PURPOSE)).any(), trust, 0)
    error = jnp.broadcast_to(_error(model.terms), model.values.shape)
    return _decision(
        jnp.append(mean, others),
        jnp.concatenate([_error(returns)[None], error, past.error]),
        jnp.append(1 - trust, trust * weights),
        markov=markov,
        evidence=evidence,
        unseen=unseen,
        tails=past.error[0] / past.sampled[0],
    )


def _mixed(weights: Float[Array, " member"], values: Float[Array, " member"]) -> Float[Array, ""]:
    """The sum by weights; an undefined value without weight does not count, but 0 * NaN is NaN."""
    return jnp.sum(weights * jnp.where(weights != 0, values, 0))


def _error(terms: Float[Array, " traj"]) -> Float[Array, ""]:
    """The standard error of a mean."""
    return jnp.sqrt(jnp.var(terms) / max(len(terms) - 1, 1))


def _exceeding(x: Float[Array, ""], error: Float[Array, ""], doubt: Any) -> Float[Array, ""]:
    """The share of a correction that exceeds its error (James & Stein)."""
    square = x**2
    share = 1 - doubt * error**2 / jnp.where(square > 0, square, 1)
    return jnp.where((square > 0) & jnp.isfinite(share), jnp.maximum(share, 0), 0)


def _trust(distance: Float[Array, ""], wanted: Float[Array, ""]) -> Float[Array, ""]:
    """1, or less where the answer is not as far from the mean as is wanted."""
    near = (distance / jnp.where(wanted > 0, wanted, 1)) ** 2
    return jnp.where(jnp.abs(distance) < wanted, near, 1)


def _modelled(batch: TrajectoryBatch, chain: CompositeMoments, discount: Any, rule: Rule) -> _Model:
    """The model from all data, by the target's probabilities or by ratios alone."""
    log_marginal = log_marginals(batch, batch.require("log_ratio", PURPOSE), 0)
    if _has_probs(batch):
        fitted = fitted_values(batch, discount=discount, q_folds=0)
        terms = corrected_terms(batch, log_marginal, fitted, discount)
        value, corrected = fitted.v[:, 0].mean(), terms.mean()
        share = _exceeding(corrected - value, _error(terms - fitted.v[:, 0]), rule.doubt)
        return _Model(jnp.stack([value, corrected]), jnp.stack([1 - share, share]), terms)
    state = masked.fill(batch.mask, batch.require("state", PURPOSE))
    by_step = masked.fill(batch.mask, chain.by_state[-1][state])
    terms = unlogged_terms(batch, log_marginal, by_step, discount)
    return _Model(chain.value[-1:], jnp.ones_like(chain.value[-1:]), terms)


def _whole_past(
    batch: TrajectoryBatch,
    keep: Bool[Array, "level state"],
    chain: CompositeMoments,
    returns: Float[Array, " traj"],
) -> _Past:
    """What trajectories say of omission by each map, beside what the data's chain says of it.

    The error is the larger one of the sample and of the chain, which knows of heavy weights that
    this sample lacks.
    """

    def at(keep: Bool[Array, " state"], value: Array, centred: Array) -> _Past:
        kept = omission.kept_ratios(batch, omission.keep_steps(keep, batch))
        log_weight = masked.log_weights(kept, batch.mask)
        own = masked.weighted_mean(log_weight, returns)
        sampled = wis_variance(log_weight, returns)
        error = jnp.sqrt(jnp.fmax(sampled, centred / len(returns)))
        size = 1 / jnp.sum(jax.nn.softmax(log_weight) ** 2)
        return _Past(own, error, jnp.sqrt(sampled), own - value, size)

    return jax.vmap(at)(keep, chain.value[:-1], chain.centred[:-1])


def _markov(batch: TrajectoryBatch, discount: Any) -> Float[Array, " lag"]:
    """Of both forms; of the first alone, or of none, where tables would be too large."""
    cells, lags = max(batch.reward.shape) * batch.num_states, jnp.asarray(LAGS)
    forms = [
        markov_pvalues(batch, lags, first_visit=first, by_step=True, discount=discount)
        for first, most in ((False, MOST_CELLS), (True, MOST_CELLS // 4))
        if cells <= most
    ]
    undecided = jnp.full((2 - len(forms), len(LAGS)), jnp.nan, batch.dtype)
    return of_both(*forms, *undecided)


def _against(
    markov: Float[Array, " lag"], distance: Float[Array, ""], size: Float[Array, ""], check: Any
) -> Float[Array, ""]:
    """Minus the logarithms of two p-values: of the Markov check, and of so many errors.

    The latter is Student's, for few weights do not know their own error.
    """
    decided = jnp.isfinite(markov)
    least = jnp.where(decided, markov, 1).min() * decided.sum()
    least = jnp.where(decided.any(), jnp.clip(least, LEAST_PVALUE, 1), 1)
    far = jnp.maximum(student_two_sided(distance, jnp.fmax(size - 1, 1)), LEAST_PVALUE)
    return -check * jnp.log(least) - jnp.log(far)


def _unseen(batch: TrajectoryBatch) -> Float[Array, ""]:
    """The target's chance, by visits, of actions never seen in the state; NaN where not known."""
    if batch.action is None or (batch.target_probs is None and batch.behavior_log_prob is None):
        return jnp.full((), jnp.nan, batch.dtype)
    shape = batch.num_states + 1, batch.num_actions
    state = masked.fill(batch.mask, batch.require("state", PURPOSE), batch.num_states)
    pair = state * batch.num_actions + masked.fill(batch.mask, batch.require("action", PURPOSE))
    by_pair = partial(segment_sum, segment=pair.ravel(), num_segments=shape[0] * shape[1])
    count = by_pair(batch.mask.astype(batch.dtype).ravel()).reshape(shape)
    if batch.target_probs is not None:
        never = batch.mask[..., None] & (count[state] == 0)
        chance = jnp.where(never, batch.target_probs, 0).sum(-1)
    else:
        logged = jnp.exp(
            batch.require("log_ratio", PURPOSE) + batch.require("behavior_log_prob", PURPOSE)
        )
        seen = by_pair(masked.fill(batch.mask, logged).ravel()).reshape(shape)
        by_state = jnp.maximum(1 - (seen / jnp.maximum(count, 1)).sum(1), 0)
        chance = masked.fill(batch.mask, by_state[state])
    return chance.sum() / jnp.maximum(batch.mask.sum(), 1)
