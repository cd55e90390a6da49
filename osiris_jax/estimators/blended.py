"""MAGIC: importance sampling for the first steps and a model for the rest, blended by the data."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import takes_options_of
from osiris_jax.core.random_streams import BLEND_STREAM, integers_below
from osiris_jax.core.segments import segment_sum
from osiris_jax.estimators.doubly_robust import fitted_values, weights_now_and_before
from osiris_jax.estimators.headroom import with_headroom
from osiris_jax.models.qhat import StepValues
from osiris_jax.models.simplex import least_on_simplex

INTERVAL = (0.05, 0.95)


class Members(NamedTuple):
    """The estimates that are blended, which are for every number of steps j.

    Attributes:
      value: [member] g^(j), the last being `wdr`.
      exists: [member] false where j is not below the length of the longest trajectory, except for
        the last.
      terms: [traj, member] what each trajectory adds to them.
    """

    value: Float[Array, " member"]
    exists: Bool[Array, " member"]
    terms: Float[Array, "traj member"]


class _Steps(NamedTuple):
    """What happens at each step, discounted; weights are of sum 1, and 1/N before the first."""

    weight: Float[Array, "traj time"]
    before: Float[Array, "traj time"]
    surprise: Float[Array, "traj time"]
    value: Float[Array, "traj time"]


@with_headroom
@takes_options_of(fitted_values)
def magic(
    batch: TrajectoryBatch,
    log_ratio: Float[Array, "traj time"],
    *,
    discount=1.0,
    resamples: int = 200,
    **fitting: Any,
) -> Float[Array, ""]:
    """MAGIC: `wdr` for j steps and Q-hat for the rest, blended over j (Thomas & Brunskill 2016).

    For j = 0, 1, 2, 4, ... and the length T of the longest trajectory

    g^(j) = sum_{t<=j} gamma^(t-1) sum_i [w_t (r_t - Qhat(s_t, a_t)) + w_{t-1} Vhat(s_t)]
            + gamma^j sum_i w_j Vhat(s_{j+1}),

    where w_t is rho_{1:t} over its sum, as in `wdr`, w_0 = 1/N, and g^(T) is `wdr`. Their weights,
    none below 0 and of sum 1, minimise x' (Omega + b b') x: Omega is the covariance of the g^(j), b
    how far each is outside of the 90% percentile interval of `wdr` by resamples, widened to hold
    `wdr`. Q-hat is not fitted again to resamples; those where a step has no weight are left out.
    A single trajectory says nothing of variance, and gives `wdr`.

    Args:
      resamples: how many give the interval of `wdr`.
    """
    if resamples < 1:
        raise ValueError(f"resamples: expected 1 or more, got {resamples}")
    value = fitted_values(batch, discount=discount, **fitting)
    steps = _weighted_steps(batch, log_ratio, value, discount)
    members = _members(batch, steps)
    counts = _resampled(fitting.get("key"), resamples, len(batch.reward), batch.dtype)
    drawn = _of_resamples(counts, steps, batch.mask)
    share = blend(members, drawn)
    # measured from the last, so that members that agree are met exactly
    last = members.value[-1]
    return last + jnp.sum(share * (members.value - last))


def blend(members: Members, resampled: Float[Array, " resample"]) -> Float[Array, " member"]:
    """The weights of the members; those that do not exist have none.

    Args:
      resampled: the last member's estimates from resamples, NaN where undefined.
    """
    value, number = members.value, len(members.terms)
    low, high = jnp.nanquantile(resampled, jnp.asarray(INTERVAL, value.dtype))
    low, high = jnp.fmin(low, value[-1]), jnp.fmax(high, value[-1])
    bias = jnp.maximum(value - high, 0) + jnp.minimum(value - low, 0)
    excess = members.terms - members.terms[:1]  # constants have no variance, nor its rounding
    centred = (excess - excess.mean(0, keepdims=True)) * np.sqrt(number / max(number - 1, 1))
    rounding = jnp.finfo(value.dtype).eps * jnp.max(jnp.abs(members.terms))
    errors = jnp.concatenate([centred, bias[None]])
    return least_on_simplex(errors, members.exists, rounding)


def _weighted_steps(
    batch: TrajectoryBatch, log_ratio: Float[Array, "traj time"], value: StepValues, discount
) -> _Steps:
    log_weight, _ = weights_now_and_before(batch, log_ratio)
    weight = jnp.exp(log_weight - jax.nn.logsumexp(log_weight, axis=0, keepdims=True))
    number, num_steps = batch.mask.shape
    before = jnp.pad(weight[:, :-1], ((0, 0), (1, 0)), constant_values=1 / number)
    scale = masked.discounts(num_steps, discount, batch.dtype)[None]
    surprise = masked.fill(batch.mask, batch.reward) - value.q
    return _Steps(weight, before, surprise * scale, value.v * scale)


def _members(batch: TrajectoryBatch, steps: _Steps) -> Members:
    num_steps = batch.mask.shape[1]
    lengths = np.array([0, *(2**k for k in range((num_steps - 1).bit_length())), num_steps])
    corrected = steps.weight * steps.surprise + steps.before * steps.value
    added = [masked.total(corrected[:, start:stop]) for start, stop in pairwise(lengths)]
    nothing = jnp.zeros_like(added[0])
    summed = jnp.cumsum(jnp.stack([nothing, *added], axis=1), axis=1)
    ahead = jnp.pad(steps.before * steps.value, ((0, 0), (0, 1)))[:, lengths]
    terms = summed + ahead
    longest = masked.alive(batch.mask).sum()
    exists = (jnp.asarray(lengths) < longest).at[-1].set(True)
    return Members(terms.sum(0), exists, terms)


def _resampled(key: Array | None, resamples: int, number: int, dtype) -> Array:
    """[resample, traj] how often each trajectory came."""
    key = random.key(0) if key is None else key
    rows = integers_below(key, BLEND_STREAM, resamples * number, number)
    one = jnp.ones(number, dtype)
    return jax.vmap(lambda row: segment_sum(one, row, number))(rows.reshape(resamples, number))


def _of_resamples(
    counts: Float[Array, "resample traj"], steps: _Steps, mask: Bool[Array, "traj time"]
) -> Float[Array, " resample"]:
    """`wdr` of every resample, NaN where a step's weights vanish beside the heaviest of all."""
    dtype = counts.dtype
    columns = (
        *(steps.weight, steps.weight * steps.surprise, steps.before * steps.value),
        mask.astype(dtype),
    )
    product = jnp.matmul(counts, jnp.concatenate(columns, 1), precision=lax.Precision.HIGHEST)
    norm, surprise, value, alive = jnp.split(product, 4, axis=1)
    before = jnp.pad(norm[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    least = float(jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps)
    runs, holds = alive > 0, norm > least
    mean = surprise / jnp.where(holds, norm, 1) + value / jnp.where(before > least, before, 1)
    total = masked.total(jnp.where(runs, mean, 0))
    return jnp.where(jnp.any(runs & ~holds, axis=1), jnp.nan, total)
