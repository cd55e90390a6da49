"""The dictionaries of SCOPE-RL to a batch."""

import numpy as np
import pytest

import osiris_jax as oj

N, T, ACTIONS = 4, 5, 3


def dictionaries(seed=0):
    """A `logged_dataset` and an `input_dict` with the fields that SCOPE-RL 0.2.1 writes."""
    rng = np.random.default_rng(seed)
    size = N * T
    done = np.zeros((N, T))
    done[:, -1] = 1
    log = {
        "size": size,
        "n_trajectories": N,
        "step_per_trajectory": T,
        "action_type": "discrete",
        "n_actions": ACTIONS,
        "action_dim": None,
        "action_keys": None,
        "action_meaning": None,
        "state_dim": 2,
        "state_keys": ["x", "y"],
        "state": rng.normal(size=(size, 2)),
        "action": rng.integers(ACTIONS, size=size).astype(float),
        "reward": rng.normal(size=size),
        "done": done.ravel(),
        "terminal": done.ravel(),
        "info": {},
        "pscore": rng.uniform(0.2, 1, size=size),
        "behavior_policy": "ddqn_0.3",
        "dataset_id": 0,
    }
    inputs = {
        name: {
            "evaluation_policy_action_dist": rng.dirichlet(np.ones(ACTIONS), size),
            "evaluation_policy_action": None,
            "state_action_value_prediction": None,
            "gamma": 0.95 if name == "ddqn" else 1.0,
            "behavior_policy": "ddqn_0.3",
            "evaluation_policy": name,
            "dataset_id": 0,
        }
        for name in ("ddqn", "random")
    }
    return log, inputs


def test_the_fields_are_where_they_belong(double):
    log, inputs = dictionaries()
    said = []
    batch = oj.from_scope_rl(log, inputs, policy="ddqn", say=said.append)
    target = inputs["ddqn"]["evaluation_policy_action_dist"]
    for i in range(N):
        for t in range(T):
            row = i * T + t
            action = int(log["action"][row])
            assert int(batch.action[i, t]) == action
            np.testing.assert_allclose(batch.observation[i, t], log["state"][row])
            assert float(batch.reward[i, t]) == log["reward"][row]
            ratio = np.log(target[row, action] / log["pscore"][row])
            np.testing.assert_allclose(batch.log_ratio[i, t], ratio, atol=1e-12)
            np.testing.assert_allclose(batch.target_probs[i, t], target[row])
    assert np.asarray(batch.mask).all()
    assert batch.num_actions == ACTIONS
    assert said == ["gamma: 0.95 there; give discount=0.95 to the estimators"]


def test_its_own_estimates_come_out(double):
    """Per-decision and trajectory-wise importance sampling, from their definitions."""
    log, inputs = dictionaries(1)
    batch = oj.from_scope_rl(log, inputs, policy="ddqn")
    target = inputs["ddqn"]["evaluation_policy_action_dist"]
    chosen = target[np.arange(N * T), log["action"].astype(int)]
    weight = np.cumprod((chosen / log["pscore"]).reshape(N, T), axis=1)
    reward = log["reward"].reshape(N, T) * 0.95 ** np.arange(T)
    for name, value in [
        ("is", (weight[:, -1] * reward.sum(1)).mean()),
        ("pdis", (weight * reward).sum(1).mean()),
    ]:
        np.testing.assert_allclose(oj.estimate(batch, name, discount=0.95), value, rtol=1e-10)


def test_done_ends_a_trajectory():
    log, inputs = dictionaries()
    log["done"][[1, 3, 2 * T + 3]] = 1
    log["reward"][[2, 3]] = np.nan
    said = []
    batch = oj.from_scope_rl(log, inputs, policy="random", say=said.append)
    np.testing.assert_array_equal(batch.lengths, [2, 5, 4, 5])
    assert batch.mask.shape == (N, T)
    assert said == [
        "done: 2 of 4 trajectories end before step 5; the 4 steps logged after it are left out"
    ]


def test_without_policy_or_propensities():
    log, inputs = dictionaries()
    assert oj.from_scope_rl(log).log_ratio is None
    said = []
    del inputs["ddqn"]
    batch = oj.from_scope_rl({**log, "pscore": None}, inputs, say=said.append)
    assert said == ["pscore: missing; fit_behavior fits the behaviour policy"]
    assert batch.log_ratio is None
    assert oj.fit_behavior(batch, folds=2).batch.log_ratio is not None
    ids = oj.from_scope_rl({**log, "state": np.arange(N * T) % 3}, inputs)
    assert (ids.num_states, ids.observation) == (3, None)


def log_with(**changes):
    return lambda log, inputs: ({**log, **changes}, inputs)


BAD = {
    "no dict": (lambda log, inputs: ([log], inputs), "logged_dataset: .*MultipleLoggedDataset"),
    "no reward": (log_with(reward=None), "reward: missing in logged_dataset; there are size"),
    "continuous": (log_with(action_type="continuous"), "action_type: only discrete"),
    "count": (log_with(n_trajectories=0), "n_trajectories: expected a positive integer"),
    "size": (log_with(n_trajectories=3), "action: shape .20,., where .* is 15"),
    "zero": (log_with(pscore=np.zeros(N * T)), "pscore: 0 for the logged action.*trajectory 0"),
    "beyond 1": (log_with(pscore=np.full(N * T, 1.5)), "pscore: 1.5 is not in"),
    "NaN state": (log_with(state=np.full((N * T, 2), np.nan)), "state: NaN at .* 0, step 0"),
    "few actions": (log_with(n_actions=2), "evaluation_policy_action_dist: 3 actions where 2"),
    "which policy": (lambda log, inputs: (log, {**inputs, "x": {}}), "policy: None is not one"),
    "no dist": (lambda log, inputs: (log, {"x": {}}), "evaluation_policy_action_dist: missing"),
    "no inputs": (lambda log, inputs: (log, {}), "input_dict: expected a dictionary by policy"),
    "odd inputs": (lambda log, inputs: (log, {"x": 3}), "input_dict: x holds a int"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_dictionaries_are_named(case):
    change, message = BAD[case]
    log, inputs = change(*dictionaries())
    if "policy" not in case and len(inputs) > 1:
        inputs.pop("random")
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.from_scope_rl(log, inputs)
