"""Models of pi_b(a|s), cross-fitted: every step is answered for by a fit without its trajectory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int, Key

from osiris_jax.core.compiled import compiled
from osiris_jax.models.descent import all_finite, descend, used_first


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Taken:
    """The actions taken at the steps of one data set, in one row, and which fit sees which.

    Attributes:
      action: of every step.
      fold: that of its trajectory, or -1 for a step that only fills the row and is never seen.
      folds: how many there are (static); with one, its fit sees all steps.
      num_actions: number of action ids (static).
    """

    action: Int[Array, " step"]
    fold: Int[Array, " step"]
    folds: int = dataclasses.field(metadata={"static": True})
    num_actions: int = dataclasses.field(metadata={"static": True})

    def seen_by(self, number: Array) -> Bool[Array, " step"]:
        """The steps from which the fit of this fold learns."""
        return (self.fold >= 0) & ((self.fold != number) | (self.folds == 1))

    def counts(
        self, state: Int[Array, " step"], num_states: int
    ) -> Int[Array, "fold state action"]:
        """How often each action was taken in each state, in the steps that each fold's fit sees."""
        chex.assert_equal_shape([state, self.action, self.fold])
        shape = (self.folds, num_states, self.num_actions)
        cell = (self.fold * num_states + state) * self.num_actions + self.action
        cell = jnp.where(self.fold < 0, -1, cell)  # an id that is dropped
        size = self.folds * num_states * self.num_actions
        own = jax.ops.segment_sum(jnp.ones_like(cell), cell, size).reshape(shape)
        everything = own.sum(0, keepdims=True)
        return everything - own if self.folds > 1 else everything


class Fitted(NamedTuple):
    """Cross-fitted probabilities.

    Attributes:
      log_probs: log pi_b(.|s) of every step.
      converged: for each fold whether the fit found its minimum; True for a closed form.
    """

    log_probs: Float[Array, "step action"]
    converged: Bool[Array, " fold"]


def marginals(counts: Int[Array, "fold state action"], dtype: Any) -> Float[Array, "fold action"]:
    """The share of each action, one imagined visit added to each: (n(a) + 1) / (n + A)."""
    visits = counts.sum(1).astype(dtype)
    return (visits + 1) / (visits.sum(-1, keepdims=True) + visits.shape[-1])


@compiled(static_argnames=("dtype",))
def action_shares(taken: Taken, *, dtype: Any) -> Float[Array, "fold action"]:
    """What the fits of the folds would predict without looking at the state."""
    return marginals(taken.counts(jnp.zeros_like(taken.action), 1), dtype)


@compiled(static_argnames=("num_states",))
def tabular(
    taken: Taken, state: Int[Array, " step"], smoothing: Float[Array, ""], *, num_states: int
) -> Fitted:
    """Counts per state, drawn towards the actions' shares by `smoothing` imagined visits.

    pi_b(a|s) = (n(s, a) + smoothing m(a)) / (n(s) + smoothing), m the shares of `marginals`.
    """
    counts = taken.counts(state, num_states)
    share = marginals(counts, smoothing.dtype)[:, None, :]
    visits = counts.astype(smoothing.dtype)
    probs = (visits + smoothing * share) / (visits.sum(-1, keepdims=True) + smoothing)
    return Fitted(jnp.log(probs[taken.fold, state]), jnp.ones(taken.folds, bool))


@compiled(static_argnames=("iterations",))
def logistic(
    taken: Taken,
    rows: Float[Array, "step dim"],
    smoothing: Float[Array, ""],
    *,
    iterations: int = 100,
) -> Fitted:
    """Multinomial logistic regression with an L2 penalty, by Newton's method.

    Minimises the mean log-loss plus smoothing / (2 n) times the squares of all weights, the
    intercepts too: without that an action unseen in the other folds would have probability 0.
    """
    chex.assert_rank(rows, 2)
    chex.assert_equal_shape_prefix([rows, taken.action], 1)
    inputs = jnp.concatenate([rows, jnp.ones((len(rows), 1), rows.dtype)], axis=1)
    start = jnp.zeros((inputs.shape[1], taken.num_actions), rows.dtype)

    def times(weights: Array) -> Array:
        return jnp.matmul(inputs, weights, precision=lax.Precision.HIGHEST)

    def fit(number: Array) -> tuple[Array, Array]:
        used = taken.seen_by(number).astype(rows.dtype)

        def loss(weights: Array) -> Array:
            log_probs = jax.nn.log_softmax(times(weights))
            of_taken = jnp.take_along_axis(log_probs, taken.action[:, None], 1)[:, 0]
            return (smoothing / 2 * (weights**2).sum() - (used * of_taken).sum()) / used.sum()

        return _minimise(loss, start, iterations)

    return _cross_fitted(taken, fit, times)


def _minimise(loss: Callable, start: Array, iterations: int) -> tuple[Array, Array]:
    """The minimum of a strictly convex loss by Newton's method, and whether it was reached.

    Directions come from conjugate gradients, so no Hessian is formed, and each is halved until
    the loss falls enough (Armijo).
    """
    slope_of = jax.grad(loss)
    double = start.dtype == jnp.float64
    # far below what shows in a probability, and above the rounding of a mean
    tolerance, stalled = (1e-9, 1e-7) if double else (1e-5, 1e-3)

    def step(carry: tuple) -> tuple:
        weights, slope, number, _ = carry

        def curvature(vector: Array) -> Array:
            return jax.jvp(slope_of, (weights,), (vector,))[1]

        direction, _ = jax.scipy.sparse.linalg.cg(curvature, slope, tol=1e-3, maxiter=100)
        value, descent = loss(weights), (slope * direction).sum()
        rounding = 4 * jnp.finfo(start.dtype).eps * jnp.abs(value)

        def too_long(size: Array) -> Array:
            fallen = value - loss(weights - size * direction)
            return (fallen < 1e-4 * size * descent - rounding) & (size > 1e-6)

        size = lax.while_loop(too_long, lambda size: size / 2, jnp.ones_like(value))
        moved = weights - size * direction
        new_slope = slope_of(moved)
        better = (loss(moved) < value) | (jnp.abs(new_slope).max() < jnp.abs(slope).max())
        kept = (jnp.where(better, moved, weights), jnp.where(better, new_slope, slope))
        return *kept, number + 1, better

    def goes_on(carry: tuple) -> Array:
        _, slope, number, better = carry
        return (number < iterations) & better & (jnp.abs(slope).max() > tolerance)

    first = (start, slope_of(start), jnp.zeros((), jnp.int32), jnp.ones((), bool))
    weights, slope, _, _ = lax.while_loop(goes_on, step, first)
    # where rounding hides any further fall of the loss, the slope may stay above the tolerance
    return weights, jnp.abs(slope).max() <= stalled


@compiled(static_argnames=("hidden", "steps", "minibatch"))
def network(
    key: Key[Array, ""],
    taken: Taken,
    rows: Float[Array, "step dim"],
    smoothing: Float[Array, ""],
    *,
    hidden: Sequence[int] = (32,),
    steps: int = 2000,
    minibatch: int = 256,
    learning_rate: float = 5e-3,
) -> Fitted:
    """A small network with softmax output, by Adam on minibatches, its rate falling to 0.

    Minimises the mean log-loss plus smoothing / (2 n) times the squares of all weights.

    Args:
      key: consumed.
    """
    import optax

    from osiris_jax.models.networks import MLP

    chex.assert_rank(rows, 2)
    chex.assert_equal_shape_prefix([rows, taken.action], 1)
    model: Any = MLP((*hidden, taken.num_actions))
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def fit(number: Array) -> tuple[Any, Array]:
        init_key, draw_key = random.split(random.fold_in(key, number))
        order, count = used_first(taken.seen_by(number))
        params = model.init(init_key, rows[:1])
        params = jax.tree.map(lambda leaf: leaf.astype(rows.dtype), params)

        def loss_of(params: Any, place: Array) -> Array:
            index = order[place]
            log_probs = jax.nn.log_softmax(model.apply(params, rows[index]))
            of_taken = jnp.take_along_axis(log_probs, taken.action[index][:, None], 1)
            squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
            return smoothing / (2 * count) * squares - of_taken.mean()

        sizes = {"count": count, "steps": steps, "minibatch": minibatch}
        params, _ = descend(draw_key, params, loss_of, optimizer, **sizes)
        return params, all_finite(params)

    return _cross_fitted(taken, fit, lambda params: model.apply(params, rows))


def _cross_fitted(
    taken: Taken,
    fit: Callable[[Array], tuple[Any, Array]],
    logits: Callable[[Any], Float[Array, "step action"]],
) -> Fitted:
    """Log-probabilities of every step by its own fold's fit, one fold after another for memory.

    `fit` gives a fold's parameters and whether they are a minimum, `logits` those of every step.
    """
    numbers = jnp.arange(taken.folds)
    params, converged = jax.vmap(fit)(numbers)

    def add(total: Array, one: Any) -> tuple[Array, None]:
        number, own = one
        return jnp.where((taken.fold == number)[:, None], logits(own), total), None

    blank = jnp.zeros((len(taken.fold), taken.num_actions), jax.tree.leaves(params)[0].dtype)
    total, _ = lax.scan(add, blank, (numbers, params))
    return Fitted(jax.nn.log_softmax(total), converged)
