"""Exact answers for tabular worlds, by dynamic programming in float64.

Everything rests on one recursion. Let a step in state s multiply a weight by u(s, a) and pay r.
Then E[(prod u) G^k] with h steps to go follows from the same with h - 1 to go, for all k up to an
order, because G = r + gamma G' and (r + gamma G')^k is a binomial sum. Importance sampling,
omission (Shen et al. 2021, Definition 1) and the omitted ratios differ in u alone; per-decision
importance sampling differs in that u depends on k. The doubly robust estimator has a recursion of
its own, in `exact_dr`.
"""

from __future__ import annotations

from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from osiris_jax.worlds.exact_dr import mean_and_variance
from osiris_jax.worlds.exact_results import Moments, VarianceTerms
from osiris_jax.worlds.growth import reached, spectral_radius

if TYPE_CHECKING:
    from osiris_jax.worlds.tabular import TabularWorld

TOLERANCE = 1e-9


# which steps an estimator weighs, and by which recursion its moments are exact
SOLVABLE = {
    "mc": ("none", "product"),
    "is": ("all", "product"),
    "pdis": ("all", "per-decision"),
    "osiris": ("kept", "product"),
    "osiris-is": ("kept", "product"),
    "osiris-pdis": ("kept", "per-decision"),
    "dr": ("all", "doubly robust"),
    "osiris-dr": ("kept", "doubly robust"),
}
DOUBLY_ROBUST = [name for name, (_, recursion) in SOLVABLE.items() if recursion == "doubly robust"]


class Exact:
    """Values, relevance and the exact behaviour of estimators in a tabular world.

    Args:
      world: a `TabularWorld`.
      discount: gamma in [0, 1].

    A map `keep` is [state], true where ratios are kept; [map, state] answers for many maps at once.
    Where states are aliased, maps, `gaps` and `relevance` are by the id that is shown, and all else
    by state.
    """

    def __init__(self, world: TabularWorld, discount: float = 1.0):
        if not 0 <= discount <= 1:
            raise ValueError(f"discount: must be in [0, 1], got {discount}")
        self.world, self.discount, self.horizon = world, float(discount), world.horizon
        self.behavior, self.target = world.behavior_probs, world.target_probs
        self._steps, self._transitions = world.dynamics, {}
        self._num_states = len(self._steps.terminal)
        supported = self.behavior > 0
        self.ratio = np.where(supported, self.target / np.where(supported, self.behavior, 1), 0)

    # Values ---------------------------------------------------------------------------------

    @cached_property
    def value(self) -> float:
        """V of the target policy."""
        return self.policy_value("target")

    @cached_property
    def behavior_value(self) -> float:
        """V of the behaviour policy."""
        return self.policy_value("behavior")

    @cached_property
    def q(self) -> np.ndarray:
        """[state, action] Q of the target policy with the whole horizon to go."""
        return self.action_values("target")

    def policy_value(self, policy: Any) -> float:
        """V of "behavior", "target" or any table of probabilities."""
        return self._from_start(self.state_values(policy))

    def state_values(self, policy: Any) -> np.ndarray:
        """[state] V with the whole horizon to go."""
        return self._backward([None, self.world.policy_table(policy)])[1]

    def action_values(self, policy: Any) -> np.ndarray:
        """[state, action] Q with the whole horizon to go; 0 in terminal states."""
        table = self.world.policy_table(policy)
        following = self._backward([None, table], self.horizon - 1)[1]
        return self._expect(1, np.ones_like(following)) + self.discount * self._expect(0, following)

    def action_values_by_time(self, policy: Any) -> np.ndarray:
        """[time, state, action] Q at each step of a trajectory, with the rest of the horizon to go.

        Entry 0 is `action_values`. For the target policy it makes `dr` as good as it can be.
        """
        table = self.world.policy_table(policy)
        reward = self._expect(1, np.ones(self._num_states))
        following, by_time = np.zeros(self._num_states), []
        for _ in range(self.horizon):
            by_time.append(reward + self.discount * self._expect(0, following))
            following = (table * by_time[-1]).sum(-1)
        return np.array(by_time[::-1])

    @cached_property
    def gaps(self) -> np.ndarray:
        """[state] the largest less the smallest Q; of an id, the largest gap of its states."""
        return self._by_id(np.maximum, self.q.max(1) - self.q.min(1))

    @cached_property
    def visited(self) -> np.ndarray:
        """[state] true where trajectories of the behaviour ever are before they end."""
        return self._by_id(np.maximum, self.occupancy("behavior").sum(0) > 0)

    def _by_id(self, combine: np.ufunc, of_state: np.ndarray) -> np.ndarray:
        by_id = np.zeros(self.world.num_states, of_state.dtype)
        combine.at(by_id, self.world.shown, of_state)
        return by_id

    def relevance(self, tolerance: float = TOLERANCE) -> np.ndarray:
        """[state] true where actions differ in Q by more than the tolerance."""
        return self.gaps > tolerance

    def composite(self, keep: Any) -> np.ndarray:
        """[state, action] the target policy where ratios are kept, the behaviour elsewhere."""
        return np.where(self._map(keep)[..., None], self.target, self.behavior)

    def occupancy(self, policy: Any = "behavior") -> np.ndarray:
        """[time, state] probability that a trajectory still runs and is in the state."""
        onward = (self._acting(self.world.policy_table(policy)) @ self._transition(0)).T
        running, rows = np.zeros(self._num_states), []
        np.add.at(running, self._steps.start, self._steps.start_probability)
        for _ in range(self.horizon):
            rows.append(running)
            running = (onward @ running) * ~self._steps.terminal
        return np.array(rows)

    def length_probs(self, policy: Any = "behavior") -> np.ndarray:
        """[horizon + 1] probability of each number of steps."""
        running = np.append(self.occupancy(policy).sum(1), 0.0)
        return np.append(0.0, running[:-1] - running[1:])

    # Weights --------------------------------------------------------------------------------

    @cached_property
    def squared_weight(self) -> float:
        """E[(product of all ratios)^2]: so many trajectories are worth one of the target's own."""
        return self._mean(self.ratio**2, 0)

    @cached_property
    def spectral_radius(self) -> float:
        """Of sum_a pi_b rho^2 P over the states that the target reaches.

        Above 1 the second moment of the weights, and with it the variance of importance sampling,
        grows geometrically with the horizon, by this factor a step.
        """
        onward = self._acting(self.behavior * self.ratio**2) @ self._transition(0)
        return spectral_radius(onward, self._reached(self.target))

    @property
    def reached(self) -> np.ndarray:
        """[state] true where trajectories of the behaviour can be, however long they last."""
        return self._reached(self.behavior)

    @property
    def is_heavy(self) -> bool:
        """Whether the variance of IS grows geometrically with the horizon, or is beyond float64."""
        return self.spectral_radius > 1 + TOLERANCE or not np.isfinite(self.squared_weight)

    def weights_in_words(self) -> str:
        """What becomes of the variance of importance sampling as trajectories get longer."""
        if not np.isfinite(self.squared_weight):
            return "the variance of IS lies beyond float64"
        if self.is_heavy:
            return f"the variance of IS grows {self.spectral_radius:.3g} times a step"
        return "the variance of IS stays bounded as the horizon grows"

    def _acting(self, table: np.ndarray) -> sparse.csr_array:
        """[state, state * action] what leads from a state to its actions."""
        pairs = np.arange(table.size)
        return sparse.csr_array((table.ravel(), (pairs // table.shape[1], pairs)))

    def _reached(self, policy: np.ndarray) -> np.ndarray:
        """[state] true where trajectories of a policy can be before they end."""
        return reached(self._acting(policy) @ self._transition(0), self._steps)

    # Estimators -----------------------------------------------------------------------------

    def moments(self, estimator: str, *, keep: Any = None, q: Any = None, n: Any = 25) -> Moments:
        """Mean, bias, standard deviation and RMSE over all data sets of n trajectories.

        Args:
          estimator: "mc", "is", "pdis", "dr", "osiris" (or "osiris-is"), "osiris-pdis" or
            "osiris-dr".
          keep: the map of OSIRIS, [state] or [map, state].
          q: for "dr" and "osiris-dr" the Q-hat, [state, action] or [time, state, action]; where
            ratios are omitted it is averaged over the behaviour policy.
          n: number of trajectories, or an array of them (not with several maps).

        Example:
          >>> world.exact().moments("osiris", keep=world.oracle, n=25).rmse
        """
        if np.ndim(n) and np.ndim(keep) > 1:
            raise ValueError("n: expected one number with several maps")
        if not (np.asarray(n) > 0).all():
            raise ValueError(f"n: expected a positive number of trajectories, got {n}")
        if (estimator in DOUBLY_ROBUST) != (q is not None):
            need = "needs" if q is None else "takes no"
            raise ValueError(f"q: {estimator!r} {need} table of action values")
        if estimator in DOUBLY_ROBUST:
            weight, policy = self._weight(estimator, keep), self.target
            policy = policy if keep is None else self.composite(keep)
            first, variance = mean_and_variance(self, weight, policy, q)
        else:
            first, second = self.power_means(estimator, keep=keep, order=2)
            variance = np.maximum(np.asarray(second) - np.asarray(first) ** 2, 0)
        variance, bias = variance / np.asarray(n), first - self.value
        mean, bias = (np.broadcast_to(x, np.shape(variance))[()] for x in (first, bias))
        return Moments(mean, bias, np.sqrt(variance), np.sqrt(variance + bias**2))

    def power_means(self, estimator: str, *, keep: Any = None, order: int = 4) -> list:
        """E[x], E[x^2], ... up to the order, x being the estimate from one trajectory."""
        if estimator not in SOLVABLE or estimator in DOUBLY_ROBUST:
            others = ", ".join(name for name in SOLVABLE if name not in DOUBLY_ROBUST)
            raise ValueError(f"estimator: {estimator!r} has no exact moments; there are {others}")
        weight = self._weight(estimator, keep)
        if SOLVABLE[estimator][1] == "per-decision":
            factors = [self.behavior * weight**k for k in range(1, order + 1)]
            powers = self._backward([None, *factors])
            return [self._from_start(powers[k]) for k in range(1, order + 1)]
        return [self._mean(weight**k, k) for k in range(1, order + 1)]

    def variance_terms(self, keep: Any, *, n: Any = 25) -> VarianceTerms:
        """The terms of Theorem 1 of Shen et al. 2021 for any map."""
        kept, omitted = self._kept_and_omitted(keep)
        of_is = self._mean(self.ratio, 1), self._mean(self.ratio**2, 2)
        of_osiris = self._mean(kept, 1), self._mean(kept**2, 2)
        omitted_square = self._mean(omitted**2, 0)
        joint_square = self._mean(kept**2 * omitted**2, 2)
        n = np.asarray(n)
        return VarianceTerms(
            importance_sampling=(of_is[1] - of_is[0] ** 2) / n,
            centers=(of_is[0] ** 2 - of_osiris[0] ** 2) / n,
            omitted_variance=-of_osiris[1] * (omitted_square - self._mean(omitted, 0) ** 2) / n,
            covariance=-(joint_square - of_osiris[1] * omitted_square) / n,
            variance=(of_osiris[1] - of_osiris[0] ** 2) / n,
        )

    def omitted_mean(self, keep: Any):
        """E of the product of omitted ratios, 1 by the paper's lemma."""
        return self._mean(self._kept_and_omitted(keep)[1], 0)

    def bias_covariance(self, keep: Any):
        """Cov[g rho_kept, rho_omitted], by Theorem 2 the value of the target less OSIRIS's mean."""
        kept, omitted = self._kept_and_omitted(keep)
        joint = self._mean(kept * omitted, 1)
        return joint - self._mean(kept, 1) * self._mean(omitted, 0)

    def ratio_covariances(self, keep: Any) -> np.ndarray:
        """[horizon] the covariance with the l-th omitted ratio of a trajectory, for l = 1, 2, ...

        Entry l is Cov[g rho_kept (product of the first l - 1 omitted ratios), l-th omitted ratio],
        where the mean of each ratio is 1; a trajectory with fewer has ratios of 1 there. Their sum
        is `bias_covariance` (appendix of Shen et al. 2021).
        """
        of_state = self._map(keep)
        if of_state.ndim > 1:
            raise ValueError("keep: expected one map, [state]")
        kept, omitted = self._kept_and_omitted(keep)
        counts = np.arange(self.horizon + 1)
        weight = np.where(counts[:, None, None] > 0, kept * omitted, kept)
        return np.diff(self._counted(weight, of_state))

    def expected_log_weight(self, keep: Any = None):
        """E of the log of the product of kept ratios under the behaviour policy."""
        keep = self._map(np.ones(self.world.num_states) if keep is None else keep)
        visited = self.occupancy("behavior").sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_action = np.where(self.behavior > 0, self.behavior * np.log(self.ratio), 0)
            by_state = np.where(visited > 0, visited * by_action.sum(1), 0)
        mean = np.where(keep, by_state, 0).sum(-1)
        return float(mean) if np.ndim(mean) == 0 else mean

    # The recursion --------------------------------------------------------------------------

    def _map(self, keep: Any) -> np.ndarray:
        """[..., state] of a map by the ids that are shown."""
        keep = np.asarray(keep)
        if keep.shape[-1:] != (self.world.num_states,) or keep.ndim > 2:
            raise ValueError(
                f"keep: expected [state] or [map, state] with {self.world.num_states} states, "
                f"got shape {keep.shape}"
            )
        return keep.astype(bool)[..., self.world.shown]

    def _weight(self, estimator: str, keep: Any) -> np.ndarray:
        """[..., state, action] the ratio by which the estimator weighs a step."""
        weighs, _ = SOLVABLE[estimator]
        if (weighs == "kept") != (keep is not None):
            need = "needs" if keep is None else "takes no"
            raise ValueError(f"keep: {estimator!r} {need} map of the states to keep")
        if keep is None:
            keep = np.full(self.world.num_states, weighs == "all")
        return self._kept_and_omitted(keep)[0]

    def _kept_and_omitted(self, keep: Any) -> tuple[np.ndarray, np.ndarray]:
        chosen = self._map(keep)[..., None]
        return np.where(chosen, self.ratio, 1), np.where(chosen, 1, self.ratio)

    def _from_start(self, by_state: np.ndarray):
        mean = by_state[..., self._steps.start] @ self._steps.start_probability
        return float(mean) if np.ndim(mean) == 0 else mean

    def _mean(self, weight: np.ndarray, power: int):
        """E[(product of weights) g^power] under the behaviour policy."""
        powers = self._backward([self.behavior * weight] * (power + 1))
        return self._from_start(powers[power])

    def _backward(self, factors: list, horizon: int | None = None) -> list[np.ndarray]:
        """E[(prod u) G^k] from every state, [..., state], for k = 0, 1, ..., len(factors) - 1.

        `factors[k]` is [..., state, action], the probability of the action times u; None for a
        policy's own probabilities at k = 0, where the expectation stays 1. Even moments too large
        for a float64 are infinite.
        """
        shape = np.broadcast_shapes(*(f.shape for f in factors if f is not None))[:-1]
        powers = [np.full(shape, float(k == 0)) for k in range(len(factors))]
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(self.horizon if horizon is None else horizon):
                powers = [
                    powers[k] if factor is None else self._step_back(k, factor, powers)
                    for k, factor in enumerate(factors)
                ]
        return powers

    def _step_back(self, k: int, factor: np.ndarray, powers: list[np.ndarray]) -> np.ndarray:
        by_action = np.where(factor > 0, factor * self._binomial(k, powers), 0)
        by_state = np.where(self._steps.terminal, float(k == 0), by_action.sum(-1))
        return by_state if k % 2 else np.where(np.isnan(by_state), np.inf, by_state)

    def _binomial(self, k: int, powers: list[np.ndarray]) -> np.ndarray:
        """E[(r + gamma G')^k] times the later weights, [..., state, action]."""
        orders = range(k + 1 if self.discount > 0 else 1)
        terms = [comb(k, j) * self.discount**j * self._expect(k - j, powers[j]) for j in orders]
        return sum(terms[1:], terms[0])

    def _expect(self, power: int, following: np.ndarray) -> np.ndarray:
        """sum over s' of P(s'|s, a) r^power following(s'), [..., state, action]."""
        flat = following.reshape(-1, following.shape[-1])
        result = (self._transition(power) @ flat.T).T
        return result.reshape(*following.shape, self.world.num_actions)

    def _transition(self, power: int) -> sparse.csr_array:
        """[state * action, state] of P(s'|s, a) r^power."""
        if power not in self._transitions:
            steps, used = self._steps, self._steps.probability > 0
            first = np.append(0, np.cumsum(np.count_nonzero(used, -1)))
            entries = steps.probability[used] * steps.reward[used] ** power
            shape = (len(first) - 1, self._num_states)
            matrix = sparse.csr_array((entries, steps.successor[used], first), shape=shape)
            matrix.eliminate_zeros()
            self._transitions[power] = matrix
        return self._transitions[power]

    def _counted(self, weight: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """[count] E[g times the product of weights], of which only the first `count` omitted act.

        `weight` is [count, state, action], by how many omitted ratios may still act.
        """
        factor, ended = self.behavior * weight, self._steps.terminal
        one_less = np.maximum(np.arange(len(weight)) - 1, 0)
        total, gain = np.ones(weight.shape[:-1]), np.zeros(weight.shape[:-1])
        for _ in range(self.horizon):
            earned = self._expect(1, total) + self.discount * self._expect(0, gain)
            following = (self._expect(0, total), earned)
            # an omitted step leaves one ratio fewer to act
            following = [np.where(keep[:, None], x, x[one_less]) for x in following]
            total, gain = ((factor * x).sum(-1) for x in following)
            total, gain = np.where(ended, 1.0, total), np.where(ended, 0.0, gain)
        return np.asarray(self._from_start(gain))
