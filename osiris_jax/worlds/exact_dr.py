"""The exact mean and variance of the doubly robust estimator in a tabular world.

With V(s) = sum_a pi(a|s) Q(s, a), the estimate from one trajectory is X_1 of the recursion
X_t = V_t(s_t) + rho_t (r_t + gamma X_{t+1} - Q_t(s_t, a_t)), with X = 0 after the end (Jiang & Li
2016). Variances follow by the law of total variance over one step: they are sums of squares, so
that one of zero, as with the true Q where steps are deterministic, comes out as zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from osiris_jax.worlds.exact import Exact


def mean_and_variance(exact: Exact, weight: np.ndarray, policy: np.ndarray, q: Any):
    """Of the estimate from one trajectory of the behaviour policy.

    Args:
      weight: [..., state, action] the ratio of a step.
      policy: [..., state, action] the policy under which Q is averaged to V.
      q: [state, action], or [time, state, action] by the time since the start.
    """
    steps, discount, frequency = exact.world.dynamics, exact.discount, exact.behavior * weight**2
    used = steps.probability > 0
    reward, successor = steps.reward[used], steps.successor[used]
    per_pair = np.count_nonzero(used, axis=-1).ravel()
    pair, first = np.repeat(np.arange(len(per_pair)), per_pair), np.append(0, np.cumsum(per_pair))
    outcomes = (steps.probability[used], np.arange(len(pair)), first)
    chance = sparse.csr_array(outcomes, shape=(len(per_pair), len(pair)))

    def average(x: np.ndarray) -> np.ndarray:
        """[..., pair] over the outcomes of each pair of state and action."""
        flat = x.reshape(-1, x.shape[-1])
        return (chance @ flat.T).T.reshape(*x.shape[:-1], -1)

    mean = variance = np.zeros(weight.shape[:-1])
    with np.errstate(over="ignore", invalid="ignore"):
        for q_now in _by_time(exact, q)[::-1]:
            baseline = (policy * q_now).sum(-1)
            gain = reward + discount * mean[..., successor]
            ahead = average(gain)
            noise = (gain - ahead[..., pair]) ** 2
            uncertain = average(noise + discount**2 * variance[..., successor])
            surprise = weight * (ahead.reshape(weight.shape) - q_now)
            mean = baseline + (exact.behavior * surprise).sum(-1)
            between = exact.behavior * (surprise + (baseline - mean)[..., None]) ** 2
            # an infinite variance does not count where the weight is zero
            within = np.where(frequency > 0, frequency * uncertain.reshape(weight.shape), 0)
            variance = (between + within).sum(-1)
            mean, variance = (np.where(steps.terminal, 0, x) for x in (mean, variance))
    mean, variance = mean[..., steps.start], variance[..., steps.start]
    overall = mean @ steps.start_probability
    return overall, (variance + (mean - overall[..., None]) ** 2) @ steps.start_probability


def _by_time(exact: Exact, q: Any) -> np.ndarray:
    """[horizon, state, action]."""
    q = np.asarray(q, np.float64)
    by_state = exact.behavior.shape
    if q.shape[-2:] != by_state or not (q.ndim == 2 or (q.ndim == 3 and len(q) >= exact.horizon)):
        raise ValueError(
            f"q: expected [state, action] = {by_state}, or [time, state, action] with at least "
            f"{exact.horizon} steps, got shape {q.shape}"
        )
    return np.broadcast_to(q, (exact.horizon, *by_state)) if q.ndim == 2 else q[: exact.horizon]
