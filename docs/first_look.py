import random
import osiris_jax as oj

def episode(steps):  # in state 0 the action decides the reward; in state 1, waiting, it does not
    actions = [random.randrange(2) for _ in range(steps)]
    return {"states": [0] + [1] * (steps - 1), "actions": actions,
            "rewards": [0.0] * (steps - 1) + [random.gauss(actions[0], 0.5)],
            "behavior_prob": [0.5] * steps, "target_prob": [(0.2, 0.8)[a] for a in actions]}

random.seed(0)
batch = oj.from_episodes([episode(steps=random.randrange(2, 15)) for _ in range(100)])
print("relevant states:", (oj.relevance_pvalues(batch, weighting="future") <= 0.05).nonzero()[0])
print("OSIRWIS:", oj.estimate(batch, "osirwis", weighting="future", alpha=0.05), "(true: 0.8)")
print("WIS:", oj.estimate(batch, "wis"), " IS:", oj.estimate(batch, "is"))
