"""Relevance from a fitted network: how much Q varies over the actions of a state."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, random
from jaxtyping import Float, Key

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.options import takes_options_of
from osiris_jax.models.neural import QFit, fit_q, q_table, q_values
from osiris_jax.relevance.omission import AtSteps


@takes_options_of(fit_q)
def nn_q(
    batch: TrajectoryBatch, *, key: Key[Array, ""] | None = None, **options: Any
) -> Float[Array, " state"] | AtSteps:
    """NN-Q: std_a Q / |mean_a Q| of a network fitted to the data (Shen et al. 2021, appendix).

    Not a p-value: theta = [statistic > threshold], 0.4 in the paper, see `above`. NaN everywhere
    if the fit diverged; 0 where Q is the same for all actions.

    Args:
      key: of the fit, by default `jax.random.key(0)`. Under `vmap` give every data set its own,
        or all share their first weights and their minibatches.
      weighting: of the targets, see `fit_q`.
      discount: gamma in [0, 1].
      hidden: size of each hidden layer.
      layers: number of hidden layers; 0 makes the model linear.
      steps: number of minibatches.
      minibatch: steps in each.
      learning_rate: of Adam.
      gradient_clip: clips every entry of the gradient to so much either way; None for no clipping.
      standardize: centres and scales the targets while fitting.
      inputs: "observation", "state", or "auto": observations if there are any.

    Returns:
      [state] for a network on states; for one on observations [traj, time], 0 in the padding.
    """
    fit = nn_q_fit(batch, key=key, **options)
    by_state = fit.input is None
    statistic = variation(q_table(fit) if by_state else q_values(fit, batch))
    statistic = jnp.where(fit.diverged, jnp.nan, statistic)
    return statistic if by_state else AtSteps(statistic)


_SIZES_AND_WORDS = ("weighting", "hidden", "layers", "steps", "minibatch", "standardize", "inputs")


@partial(jax.jit, static_argnames=_SIZES_AND_WORDS)
@takes_options_of(fit_q)
def nn_q_fit(batch: TrajectoryBatch, *, key: Key[Array, ""] | None = None, **options: Any) -> QFit:
    """The fit behind `nn_q`, with its loss curve; same options."""
    return fit_q(random.key(0) if key is None else key, batch, **options)


def variation(q: Float[Array, "*shape action"]) -> Float[Array, "*shape"]:
    """Population std over actions / |mean over actions|; 0 where all are equal, also all 0."""
    std, size = q.std(-1), jnp.abs(q.mean(-1))
    return std / jnp.where(std == 0, 1, size)
