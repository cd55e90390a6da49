import random
import osiris_jax as oj
random.seed(0)
def episode(steps):  # in state 0 the action decides the reward; in state 1, waiting, it does not
    actions = random.choices([0, 1], k=steps)
    rewards = [0.0] * (steps - 1) + [random.gauss(actions[0], 0.5)]
    return {"states": [0] + [1] * (steps - 1), "actions": actions, "rewards": rewards,
            "behavior_prob": [0.5] * steps, "target_prob": [[0.2, 0.8][a] for a in actions]}
batch = oj.from_episodes([episode(steps=random.randint(2, 14)) for _ in range(400)])
print("relevant states:", (oj.relevance_pvalues(batch, weighting="future") <= 0.05).nonzero()[0])
print("OSIRWIS:", oj.estimate(batch, "osirwis", weighting="future", alpha=0.05), "(truth 0.8)")
print("WIS:", oj.estimate(batch, "wis"), "IS:", oj.estimate(batch, "is"))
