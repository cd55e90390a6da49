import random
import osiris_jax as oj
def episode(steps):  # in state 0 the action decides the reward; in state 1, waiting, it does not
    actions = random.choices([0, 1], k=steps)
    rewards = [0.0] * (steps - 1) + [random.gauss(actions[0], 0.5)]
    return {"states": [0] + [1] * (steps - 1), "actions": actions, "rewards": rewards,
            "behavior_prob": [0.5] * steps, "target_prob": [[0.2, 0.8][a] for a in actions]}
for seed in range(10):  # the target's true value is 0.8
    random.seed(seed)
    batch = oj.from_episodes([episode(steps=random.randint(2, 14)) for _ in range(400)])
    relevant = (oj.relevance_pvalues(batch) <= 0.05).nonzero()[0]
    values = [f"{name} {oj.estimate(batch, name):.2f}" for name in ("osirwis", "wis", "is")]
    print(*values, "relevant states:", relevant, sep="  ")
