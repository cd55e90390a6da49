"""Models of pi_b(a|s), cross-fitted: every step is answered for by a fit without its trajectory.

Each takes the steps of one data set in one row and gives log-probabilities [step, action]. `fold`
is the fold of each step's trajectory, or -1 for a step that only fills the row and is never seen;
with one fold, every fit sees all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jaxtyping import Bool, Float, Int, Key

from osiris_jax.core.compiled import compiled
from osiris_jax.core.random_streams import integers_below


class Fitted(NamedTuple):
    """Cross-fitted probabilities.

    Attributes:
      log_probs: log pi_b(.|s) of every step.
      converged: for each fold whether the fit found its minimum; True for a closed form.
    """

    log_probs: Float[Array, "step action"]
    converged: Bool[Array, " fold"]


def training_counts(
    state: Int[Array, " step"],
    action: Int[Array, " step"],
    fold: Int[Array, " step"],
    *,
    folds: int,
    num_states: int,
    num_actions: int,
) -> Int[Array, "fold state action"]:
    """How often each action was taken in each state, in the steps that each fold's fit sees."""
    shape = (folds, num_states, num_actions)
    cell = (fold * num_states + state) * num_actions + action
    cell = jnp.where(fold < 0, -1, cell)  # an id that is dropped
    size = folds * num_states * num_actions
    own = jax.ops.segment_sum(jnp.ones_like(cell), cell, size).reshape(shape)
    everything = own.sum(0, keepdims=True)
    return everything - own if folds > 1 else everything


def marginals(counts: Int[Array, "fold state action"], dtype: Any) -> Float[Array, "fold action"]:
    """The share of each action, one imagined visit added to each: (n(a) + 1) / (n + A)."""
    visits = counts.sum(1).astype(dtype)
    return (visits + 1) / (visits.sum(-1, keepdims=True) + visits.shape[-1])


@compiled(static_argnames=("folds", "num_actions", "dtype"))
def action_shares(
    action: Int[Array, " step"],
    fold: Int[Array, " step"],
    *,
    folds: int,
    num_actions: int,
    dtype: Any,
) -> Float[Array, "fold action"]:
    """What the fits of the folds would predict without looking at the state."""
    sizes = {"folds": folds, "num_states": 1, "num_actions": num_actions}
    return marginals(training_counts(jnp.zeros_like(action), action, fold, **sizes), dtype)


@compiled(static_argnames=("folds", "num_states", "num_actions"))
def tabular(
    state: Int[Array, " step"],
    action: Int[Array, " step"],
    fold: Int[Array, " step"],
    *,
    folds: int,
    num_states: int,
    num_actions: int,
    smoothing: Float[Array, ""],
) -> Fitted:
    """Counts per state, drawn towards the actions' shares by `smoothing` imagined visits.

    pi_b(a|s) = (n(s, a) + smoothing m(a)) / (n(s) + smoothing), m the shares of `marginals`.
    """
    counts = training_counts(
        state, action, fold, folds=folds, num_states=num_states, num_actions=num_actions
    )
    share = marginals(counts, smoothing.dtype)[:, None, :]
    visits = counts.astype(smoothing.dtype)
    probs = (visits + smoothing * share) / (visits.sum(-1, keepdims=True) + smoothing)
    return Fitted(jnp.log(probs[fold, state]), jnp.ones(folds, bool))


@compiled(static_argnames=("folds", "num_actions", "iterations"))
def logistic(
    rows: Float[Array, "step dim"],
    action: Int[Array, " step"],
    fold: Int[Array, " step"],
    *,
    folds: int,
    num_actions: int,
    smoothing: Float[Array, ""],
    iterations: int = 100,
) -> Fitted:
    """Multinomial logistic regression with an L2 penalty, by Newton's method.

    Minimises the mean log-loss plus smoothing / (2 n) times the squares of all weights, the
    intercepts too: without that an action unseen in the other folds would have probability 0.
    """
    inputs = jnp.concatenate([rows, jnp.ones((len(rows), 1), rows.dtype)], axis=1)
    start = jnp.zeros((inputs.shape[1], num_actions), rows.dtype)

    def times(weights: Array) -> Array:
        return jnp.matmul(inputs, weights, precision=lax.Precision.HIGHEST)

    def fit(number: Array) -> tuple[Array, Array]:
        used = _seen(fold, number, folds).astype(rows.dtype)

        def loss(weights: Array) -> Array:
            log_probs = jax.nn.log_softmax(times(weights))
            taken = jnp.take_along_axis(log_probs, action[:, None], 1)[:, 0]
            return (smoothing / 2 * (weights**2).sum() - (used * taken).sum()) / used.sum()

        return _minimise(loss, start, iterations)

    weights, converged = jax.vmap(fit)(jnp.arange(folds))
    return Fitted(_by_fold(times, weights, fold, num_actions), converged)


def _seen(fold: Int[Array, " step"], number: Array, folds: int) -> Bool[Array, " step"]:
    return (fold >= 0) & ((fold != number) | (folds == 1))


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


@compiled(static_argnames=("folds", "num_actions", "hidden", "steps", "minibatch"))
def network(
    key: Key[Array, ""],
    rows: Float[Array, "step dim"],
    action: Int[Array, " step"],
    fold: Int[Array, " step"],
    *,
    folds: int,
    num_actions: int,
    smoothing: Float[Array, ""],
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

    model = MLP((*hidden, num_actions))
    solver = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def fit(number: Array) -> Any:
        init_key, draw_key = random.split(random.fold_in(key, number))
        used = _seen(fold, number, folds)
        order = jnp.nonzero(used, size=len(used), fill_value=0)[0]
        count = used.sum(dtype=jnp.int32)
        params = model.init(init_key, rows[:1])
        params = jax.tree.map(lambda leaf: leaf.astype(rows.dtype), params)

        def loss(params: Any, index: Array) -> Array:
            logits: Any = model.apply(params, rows[index])
            log_probs = jax.nn.log_softmax(logits)
            taken = jnp.take_along_axis(log_probs, action[index][:, None], 1)
            squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
            return smoothing / (2 * count) * squares - taken.mean()

        def step(carry: Any, place: Array) -> tuple[Any, None]:
            params, state = carry
            index = order[integers_below(draw_key, place, minibatch, count)]
            change, state = solver.update(jax.grad(loss)(params, index), state, params)
            return (optax.apply_updates(params, change), state), None

        (params, _), _ = lax.scan(step, (params, solver.init(params)), jnp.arange(steps))
        finite = jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), params)
        return params, jnp.stack(jax.tree.leaves(finite)).all()

    params, finite = jax.vmap(fit)(jnp.arange(folds))
    return Fitted(_by_fold(lambda p: model.apply(p, rows), params, fold, num_actions), finite)


def _by_fold(
    logits: Callable, params: Any, fold: Int[Array, " step"], num_actions: int
) -> Float[Array, "step action"]:
    """Log-probabilities of every step by its own fold's fit, one fold after another for memory."""

    def add(total: Array, one: Any) -> tuple[Array, None]:
        number, own = one
        return jnp.where((fold == number)[:, None], logits(own), total), None

    kind = jax.tree.leaves(params)[0].dtype
    numbers = jnp.arange(len(jax.tree.leaves(params)[0]))
    total, _ = lax.scan(add, jnp.zeros((len(fold), num_actions), kind), (numbers, params))
    return jax.nn.log_softmax(total)
