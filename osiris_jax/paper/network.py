"""NN-Q as the paper's own code computes it."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
from jax import Array, random
from jaxtyping import Float, Key

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core import masked
from osiris_jax.models.descent import used_first
from osiris_jax.models.layers import Layer, Layers, affine, network
from osiris_jax.models.neural import TrainingSet, targets, train
from osiris_jax.relevance.omission import AtSteps

HIDDEN = (32, 32)
STEPS, MINIBATCH, LEARNING_RATE, GRADIENT_CLIP = 500, 128, 1e-3, 1.0


def nn_q_published(
    batch: TrajectoryBatch, *, key: Key[Array, ""], steps: int = STEPS
) -> Float[Array, " state"] | AtSteps:
    """NN-Q with two hidden layers, raw inputs, behaviour returns and a signed mean.

    The input is the observation as it is, or without one the state's index as one number; the
    target is the return to go without ratios; every entry of a gradient is clipped to [-1, 1]; and
    std_a Q is divided by mean_a Q, not by its size, so that where the mean is negative no threshold
    is passed.
    """
    if batch.observation is None:
        state = masked.fill(batch.mask, batch.require("state", "NN-Q"))
        value = state.reshape(-1, 1).astype(batch.dtype)
        asked = jnp.arange(batch.num_states, dtype=batch.dtype)[:, None]
    else:
        rows = jnp.where(batch.mask[..., None], batch.observation, 0)
        value = rows.reshape(-1, rows.shape[-1]).astype(batch.dtype)
        asked = value
    order, count = used_first(batch.mask.ravel())  # as `train` draws them
    action = masked.fill(batch.mask, batch.require("action", "NN-Q")).ravel()
    target = targets(batch, "none", 1.0).ravel()
    init_key, draw_key = random.split(key)
    params = first_layers(init_key, (value.shape[1], *HIDDEN, batch.num_actions), batch.dtype)
    params, _ = train(
        draw_key,
        params,
        TrainingSet(value[order], action[order], target[order], count),
        steps=steps,
        minibatch=MINIBATCH,
        learning_rate=LEARNING_RATE,
        gradient_clip=GRADIENT_CLIP,
    )
    q = network(params[1:], affine(params[0], asked.T))
    statistic = q.std(0) / q.mean(0)
    if batch.observation is None:
        return statistic
    return AtSteps(masked.fill(batch.mask, statistic.reshape(batch.mask.shape)))


def first_layers(key: Array, widths: tuple[int, ...], dtype) -> Layers:
    """Kernels and biases uniform within 1 / sqrt(inputs) of 0, as PyTorch begins."""
    layers = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        drawn = random.uniform(
            random.fold_in(key, number), (outputs, inputs + 1), jnp.float32, minval=-1, maxval=1
        )
        drawn = (drawn / jnp.sqrt(inputs)).astype(dtype)
        layers.append(Layer(drawn[:, :-1], drawn[:, -1]))
    return tuple(layers)
