"""Q-hat as a small network fitted to one data set (NN-Q: Shen et al. 2021, appendix)."""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array, random
from jaxtyping import Bool, Float, Int, Key

from osiris_jax import stats
from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.core.options import check_word, takes_options_of
from osiris_jax.models.descent import all_finite, descend, used_first
from osiris_jax.models.layers import (
    Layers,
    affine,
    initial_params,
    logged_values,
    network,
    table_of,
)
from osiris_jax.models.tabular import StepValues, at_steps, cross_fitting

PURPOSE = "a network for Q"
WEIGHTINGS = ("to-go", "future", "none")
INPUTS = ("auto", "state", "observation")


class Scale(NamedTuple):
    """What is subtracted, and what is divided by."""

    mean: Float[Array, "*dim"]
    std: Float[Array, "*dim"]


class QFit(NamedTuple):
    """A fitted network and how the fit went.

    Attributes:
      params: the layers, ReLU between them; after the first scale, before the second.
      loss: [step] the Huber loss of every minibatch, before its update, in the units of `target`.
      diverged: whether any loss, parameter or scale is not a finite number, as without data.
      input: of the observations; None for a network on state ids.
      target: of Q; 0 and 1 unless targets were standardised.
    """

    params: Layers
    loss: Float[Array, " step"]
    diverged: Bool[Array, ""]
    input: Scale | None
    target: Scale


class TrainingSet(NamedTuple):
    """The steps of a data set in one row, those that may be drawn first.

    Attributes:
      input: state ids, or standardised observations.
      size: how many may be drawn.
    """

    input: Int[Array, " item"] | Float[Array, "item dim"]
    action: Int[Array, " item"]
    target: Float[Array, " item"]
    size: Int[Array, ""]


def fit_q(
    key: Key[Array, ""],
    batch: TrajectoryBatch,
    used: Bool[Array, "traj time"] | None = None,
    *,
    weighting: str = "none",
    discount=1.0,
    hidden: int = 32,
    layers: int = 1,
    steps: int = 500,
    minibatch: int = 128,
    learning_rate=1e-3,
    gradient_clip=None,
    standardize: bool = False,
    inputs: str = "auto",
) -> QFit:
    """A network for Q(s, .), fitted to what followed every step (Shen et al. 2021, appendix).

    Minimises the Huber loss at the logged action by Adam. A minibatch is drawn with replacement,
    every real step being equally likely. The result does not depend on padding.

    Args:
      key: consumed.
      used: the steps that may be drawn, by default all.
      weighting: the target is g_{t:T} times rho_{t:T} ("to-go"), rho_{t+1:T} ("future": its mean
        is Q of the target policy) or 1 ("none": Q of the behaviour policy).
      discount, hidden, layers, steps, minibatch, learning_rate, gradient_clip: as for `nn_q`.
      standardize: centres and scales the targets; Q is scaled back.
      inputs: "observation" (standardised), "state" (one-hot), or "auto": observations if any.
    """
    _check_sizes(least=0, layers=layers)
    _check_sizes(steps=steps, minibatch=minibatch, hidden=hidden if layers else 1)
    used = batch.mask if used is None else batch.mask & used
    chex.assert_equal_shape([used, batch.mask])
    data, input_scale, target_scale = _read_steps(
        batch, used, targets(batch, weighting, discount), standardize, inputs
    )
    width = batch.num_states if input_scale is None else data.input.shape[1]
    init_key, draw_key = random.split(key)
    widths = (width, *(hidden,) * layers, batch.num_actions)
    params = initial_params(init_key, widths, batch.dtype)
    params, loss = train(
        draw_key,
        params,
        data,
        steps=steps,
        minibatch=minibatch,
        learning_rate=learning_rate,
        gradient_clip=gradient_clip,
    )
    diverged = ~all_finite((params, loss, target_scale))
    return QFit(params, loss, diverged, input_scale, target_scale)


def train(
    key: Key[Array, ""],
    params: Layers,
    data: TrainingSet,
    *,
    steps: int,
    minibatch: int,
    learning_rate,
    gradient_clip,
) -> tuple[Layers, Float[Array, " step"]]:
    """The layers after so many minibatches, and the loss of each; options as for `fit_q`."""
    import optax

    clip = optax.identity() if gradient_clip is None else optax.clip(gradient_clip)
    optimizer = optax.chain(clip, optax.adam(jnp.asarray(learning_rate, data.target.dtype)))

    def loss_of(params: Layers, index: Array) -> Array:
        q = logged_values(params, data.input[index], data.action[index])
        return optax.losses.huber_loss(q, data.target[index], delta=1.0).mean()

    return descend(
        key, params, loss_of, optimizer, count=data.size, steps=steps, minibatch=minibatch
    )


def q_table(fit: QFit) -> Float[Array, "state action"]:
    """Q of every state, by a network on state ids."""
    if fit.input is not None:
        raise ValueError("fit: this network takes observations; use q_values")
    return (fit.target.mean + fit.target.std * table_of(fit.params)).T


def q_values(fit: QFit, batch: TrajectoryBatch) -> Float[Array, "traj time action"]:
    """Q of all actions at every step; 0 in the padding."""
    if fit.input is None:
        q = q_table(fit)[masked.fill(batch.mask, batch.require("state", PURPOSE))]
    else:
        rows = _standardized(_observations(batch), fit.input)
        columns = network(fit.params[1:], affine(fit.params[0], rows.T))
        q = (fit.target.mean + fit.target.std * columns).T.reshape(*batch.mask.shape, -1)
    return jnp.where(batch.mask[..., None], q, 0)


@takes_options_of(fit_q)
def neural(
    batch: TrajectoryBatch,
    *,
    discount=1.0,
    folds: int = 2,
    key: Key[Array, ""] | None = None,
    weighting: str = "future",
    **options: Any,
) -> StepValues:
    """Q-hat from networks: Q of the logged action and the target policy's mean of Q at every step.

    Both are 0 in the padding, and NaN where the network that answers for a trajectory diverged.

    Args:
      folds: from 2 on, trajectory i is answered for by a network that saw only the trajectories j
        with j mod folds other than i mod folds; 0 or 1: by one that saw all.
      key: of the fits; by default `jax.random.key(0)`.
      **options: see `fit_q`.
    """
    _check_sizes(least=0, folds=folds)
    for field in ("action", "target_probs"):
        batch.require(field, PURPOSE)
    first_key = random.key(0) if key is None else key
    model_of, learns = cross_fitting(len(batch.mask), folds)

    def answers(model: Array, learned: Array) -> Array:
        fit_key, used = random.fold_in(first_key, model), batch.mask & learned[:, None]
        fit = fit_q(fit_key, batch, used, weighting=weighting, discount=discount, **options)
        spoiled = batch.mask[..., None] & fit.diverged
        return jnp.where(spoiled, jnp.nan, q_values(fit, batch))

    by_model = jax.vmap(answers)(jnp.arange(len(learns)), learns)
    return at_steps(batch, by_model[model_of, jnp.arange(len(model_of))], PURPOSE)


def targets(batch: TrajectoryBatch, weighting: str, discount) -> Float[Array, "traj time"]:
    """g_{t:T} times rho_{t:T}, rho_{t+1:T} or 1 at every step; 0 in the padding."""
    check_word("weighting", weighting, WEIGHTINGS)
    value = masked.returns_to_go(batch.reward, batch.mask, discount)
    if weighting == "none":
        return masked.fill(batch.mask, value)
    log_ratio = batch.require("log_ratio", PURPOSE)
    log_weight = masked.running_log_weights(log_ratio, batch.mask, reverse=True)
    if weighting == "future":
        log_weight = jnp.pad(log_weight[:, 1:], ((0, 0), (0, 1)))
    counts = batch.mask & (value != 0) & ~jnp.isneginf(log_weight)
    # by halves, for a small return may bring an overflowing weight back into range
    root = jnp.exp(jnp.where(counts, log_weight, 0) / 2)
    return jnp.where(counts, value * root * root, 0)


def _read_steps(
    batch: TrajectoryBatch,
    used: Bool[Array, "traj time"],
    target: Float[Array, "traj time"],
    standardize: bool,
    inputs: str,
) -> tuple[TrainingSet, Scale | None, Scale]:
    check_word("inputs", inputs, INPUTS)
    if inputs == "auto":
        inputs = "state" if batch.observation is None else "observation"
    drawn = used.ravel()
    order, count = used_first(drawn)
    action = masked.fill(batch.mask, batch.require("action", PURPOSE)).ravel()
    if inputs == "state":
        value = masked.fill(batch.mask, batch.require("state", PURPOSE)).ravel()
        input_scale = None
    else:
        value = _observations(batch)
        input_scale = jax.vmap(_scale, in_axes=(1, None))(value, drawn)
        value = _standardized(value, input_scale)
    target_scale = Scale(jnp.zeros((), batch.dtype), jnp.ones((), batch.dtype))
    if standardize:
        target_scale = _scale(target.ravel(), drawn)
        target = (target - target_scale.mean) / target_scale.std
    # the mean of no steps is no number: a fit without data is to be flagged
    target = jnp.where(count > 0, target, jnp.nan).ravel()
    return TrainingSet(value[order], action[order], target[order], count), input_scale, target_scale


def _observations(batch: TrajectoryBatch) -> Float[Array, "item dim"]:
    observation = batch.require("observation", PURPOSE)
    rows = jnp.where(batch.mask[..., None], observation, 0)
    return rows.reshape(-1, observation.shape[-1]).astype(batch.dtype)


def _scale(value: Float[Array, " item"], used: Bool[Array, " item"]) -> Scale:
    """Mean and standard deviation of the used items, 1 in place of a deviation of 0.

    By segment sums, which add one item after another: padding does not change the rounding.
    """
    moments = stats.segment_moments(value, jnp.where(used, 0, 1), 1)
    std = jnp.sqrt(moments.variance(ddof=0)[0])
    return Scale(moments.mean[0], jnp.where(std == 0, 1, std))


def _standardized(rows: Float[Array, "item dim"], scale: Scale) -> Float[Array, "item dim"]:
    return (rows - scale.mean[None]) / scale.std[None]


def _check_sizes(least: int = 1, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name}: expected a number of at least {least}, got {size}")
