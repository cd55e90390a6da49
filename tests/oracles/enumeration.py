"""A slow oracle for small MDPs: every trajectory one by one, then sums straight from definitions.

`trajectories` is a recursion that yields each possible trajectory with its probability; `Paths`
puts them in arrays and takes expectations as sums over them.
"""

import dataclasses

import numpy as np

BRANCHES_AND_HORIZON = {2: ((2, 5), (3, 4)), 3: ((2, 4), (3, 3))}  # by actions; few trajectories


@dataclasses.dataclass(frozen=True)
class Mdp:
    """A finite MDP with two policies.

    `transition` and `reward` are [state, action, state], `start` and `terminal` [state], `behavior`
    and `target` [state, action].
    """

    transition: np.ndarray
    reward: np.ndarray
    start: np.ndarray
    terminal: np.ndarray
    behavior: np.ndarray
    target: np.ndarray
    horizon: int
    discount: float = 1.0

    @property
    def covered(self):
        """Whether the behaviour policy takes every action that the target policy takes."""
        return not np.any((self.target > 0) & (self.behavior == 0))

    def starting(self, state):
        """The same MDP with every trajectory beginning in the state."""
        return dataclasses.replace(self, start=np.arange(len(self.start)) == state)


def trajectories(mdp, policy, first_action=None):
    """Yields (probability, states, actions, rewards) of every possible trajectory."""
    for state in np.flatnonzero(mdp.start):
        choices = {first_action: 1.0} if first_action is not None else None
        yield from _continue(mdp, policy, state, mdp.horizon, float(mdp.start[state]), choices)


def _continue(mdp, policy, state, steps, probability, choices=None):
    if steps == 0 or mdp.terminal[state]:
        yield probability, (), (), ()
        return
    choices = choices or {a: float(p) for a, p in enumerate(policy[state]) if p > 0}
    for action, chosen in choices.items():
        for successor in np.flatnonzero(mdp.transition[state, action]):
            led = probability * chosen * float(mdp.transition[state, action, successor])
            reward = float(mdp.reward[state, action, successor])
            for whole, states, actions, rewards in _continue(
                mdp, policy, successor, steps - 1, led
            ):
                yield whole, (state, *states), (action, *actions), (reward, *rewards)


class Paths:
    """All trajectories of a policy in arrays [path, time], and expectations over them.

    Past a trajectory's end the state and the action are -1, the reward is 0 and the ratio is 1.
    """

    def __init__(self, mdp, policy, first_action=None):
        found = list(trajectories(mdp, policy, first_action))
        self.mdp, shape = mdp, (len(found), mdp.horizon)
        self.probability = np.array([row[0] for row in found])
        self.lengths = np.array([len(row[1]) for row in found])
        self.states, self.actions = np.full(shape, -1), np.full(shape, -1)
        self.rewards = np.zeros(shape)
        for row, (_, states, actions, rewards) in enumerate(found):
            self.states[row, : len(states)] = states
            self.actions[row, : len(states)] = actions
            self.rewards[row, : len(states)] = rewards
        self.mask = self.states >= 0

    # Expectations -------------------------------------------------------------------------------

    def mean(self, x):
        """E[x] for x [path]."""
        return np.sum(self.probability * x)

    def variance(self, x):
        """E[(x - E x)^2]."""
        return self.mean((x - self.mean(x)) ** 2)

    def covariance(self, x, y):
        """E[(x - E x)(y - E y)]."""
        return self.mean((x - self.mean(x)) * (y - self.mean(y)))

    # What a trajectory has ----------------------------------------------------------------------

    @property
    def discounted(self):
        """[path, time] gamma^(t-1) r_t."""
        return self.mdp.discount ** np.arange(self.mdp.horizon) * self.rewards

    @property
    def returns(self):
        """[path] g = sum_t gamma^(t-1) r_t."""
        return self.discounted.sum(1)

    @property
    def ratios(self):
        """[path, time] rho_t = pi_e(a_t|s_t) / pi_b(a_t|s_t)."""
        taken = self.states, self.actions
        ratio = self.mdp.target[taken] / np.where(self.mask, self.mdp.behavior[taken], 1)
        return np.where(self.mask, ratio, 1)

    def is_kept(self, theta):
        """[path, time] theta(s_t)."""
        return np.asarray(theta, bool)[self.states] & self.mask

    def kept_ratios(self, theta):
        """[path, time] rho_t^theta(s_t)."""
        return np.where(self.is_kept(theta), self.ratios, 1)

    def omitted_ratios(self, theta):
        """[path, time] rho_t^(1 - theta(s_t))."""
        return np.where(self.is_kept(theta), 1, self.ratios)

    def omitted(self, theta):
        """[path] the product of the omitted ratios."""
        return self.omitted_ratios(theta).prod(1)

    def estimate(self, estimator, theta=None):
        """[path] the estimate from one trajectory."""
        ratios = self.ratios if theta is None else self.kept_ratios(theta)
        if estimator == "mc":
            return self.returns
        if estimator.endswith("pdis"):
            return (self.discounted * np.cumprod(ratios, 1)).sum(1)
        return self.returns * ratios.prod(1)

    # What the theorems speak of -----------------------------------------------------------------

    def visits(self):
        """[time, state] probability that the trajectory runs at the time and is in the state."""
        count = np.zeros((self.mdp.horizon, len(self.mdp.start)))
        for time in range(self.mdp.horizon):
            for state in range(len(self.mdp.start)):
                count[time, state] = self.mean(self.states[:, time] == state)
        return count

    def length_probs(self):
        """[horizon + 1] probability of each number of steps."""
        return np.array([self.mean(self.lengths == x) for x in range(self.mdp.horizon + 1)])

    def variance_terms(self, theta):
        """The terms of Theorem 1 for one trajectory, as the theorem writes them."""
        of_is, of_osiris = self.estimate("is"), self.estimate("osiris", theta)
        omitted = self.omitted(theta)
        return {
            "importance_sampling": self.variance(of_is),
            "centers": self.mean(of_is) ** 2 - self.mean(of_osiris) ** 2,
            "omitted_variance": -self.mean(of_osiris**2) * self.variance(omitted),
            "covariance": -self.covariance(of_osiris**2, omitted**2),
            "variance": self.variance(of_osiris),
        }

    def bias_covariance(self, theta):
        """The covariance of Theorem 2."""
        return self.covariance(self.estimate("osiris", theta), self.omitted(theta))

    def ratio_covariances(self, theta):
        """[horizon] Cov[g rho_kept (first l - 1 omitted ratios), l-th omitted ratio], l = 1, ..."""
        columns = np.ones((len(self.probability), self.mdp.horizon))
        kept = self.is_kept(theta)
        for row, ratios in enumerate(self.ratios):
            omitted = ratios[self.mask[row] & ~kept[row]]
            columns[row, : len(omitted)] = omitted
        estimate = self.estimate("osiris", theta)
        return np.array(
            [
                self.covariance(estimate * columns[:, :place].prod(1), columns[:, place])
                for place in range(self.mdp.horizon)
            ]
        )

    def expected_log(self, ratios):
        """E[log of the product] of ratios [path, time]."""
        with np.errstate(divide="ignore"):
            return self.mean(np.log(ratios).sum(1))


def value(mdp, policy):
    """V of a policy."""
    paths = Paths(mdp, policy)
    return paths.mean(paths.returns)


def action_values(mdp, policy):
    """[state, action] Q of a policy with the whole horizon to go, 0 in terminal states."""
    table = np.zeros(mdp.behavior.shape)
    for state, action in zip(*np.nonzero(table == 0), strict=True):
        paths = Paths(mdp.starting(state), policy, int(action))
        table[state, action] = paths.mean(paths.returns)
    return table


def random_mdp(seed):
    """A random MDP of 3 to 5 states, 2 or 3 actions and at most 5 steps.

    By the seed some have terminal states (whose rows of the tables are nonsense), target
    probabilities of zero, behaviour probabilities of zero, covered or not, and a discount of 0.9.
    Rewards depend on the successor. Steps have two or three possible successors.
    """
    rng = np.random.default_rng([2021, seed])
    states, actions = int(rng.integers(3, 6)), int(rng.integers(2, 4))
    branches, horizon = BRANCHES_AND_HORIZON[actions][rng.integers(2)]
    transition = np.zeros((states, actions, states))
    for row in transition.reshape(-1, states):
        row[rng.permutation(states)[:branches]] = rng.dirichlet(np.full(branches, 2.0))
    terminal = np.zeros(states, bool)
    if seed % 3:
        terminal[rng.permutation(states)[: 1 + (states > 3)]] = True
    start = np.where(terminal, 0, rng.random(states) * (rng.random(states) < 0.6))
    start[np.flatnonzero(~terminal)[0]] += 0.5
    behavior, target = random_policy(rng, states, actions), random_policy(rng, states, actions)
    for which, policies in ((2, [target]), (3, [target, behavior]), (4, [behavior])):
        if seed % 5 == which:
            forbid(policies, np.flatnonzero(~terminal)[0], int(rng.integers(actions)))
    return Mdp(
        transition=transition,
        reward=rng.normal(size=transition.shape),
        start=start / start.sum(),
        terminal=terminal,
        behavior=behavior,
        target=target,
        horizon=horizon,
        discount=0.9 if seed % 2 else 1.0,
    )


def random_policy(rng, states, actions):
    """[state, action] probabilities, none below a twentieth."""
    floor = 0.05
    return floor + (1 - floor * actions) * rng.dirichlet(np.ones(actions), states)


def forbid(policies, state, action):
    """Takes the action in the state from each policy, in place."""
    for policy in policies:
        policy[state, action] = 0
        policy[state] /= policy[state].sum()
