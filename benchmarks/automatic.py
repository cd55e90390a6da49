"""What each ingredient and each number of the automatic choice is worth, and what it costs.

`python benchmarks/automatic.py` draws data sets of the design half's worlds and decides each by the
usual rule and by others, in each of which one thing is changed. Printed: the geometric mean over
worlds and sizes of the error (RMSE) over that of the usual rule, and the largest one.

`python benchmarks/automatic.py --cost-only` times it, warm, for 1,000 trajectories of 100 steps.
`--corridors-only`: its errors in corridors whose walks are cut off by a cap on steps.
"""

import jax
import jax.numpy as jnp
import numpy as np
import typer
from workbench import machine, timed

import osiris_jax as oj
from osiris_jax.estimators.automatic import USUAL, Rule, decide
from osiris_jax.study.arena import worlds_of

CHANGED = {
    "no correction": USUAL._replace(doubt=np.inf),
    "no whole past": USUAL._replace(evidence=np.inf),
    "no Markov check": USUAL._replace(check=0.0),
    "no mean for what was never seen": USUAL._replace(unseen=0.0),
    **{
        f"{name} {'half' if factor < 1 else 'twice'}": USUAL._replace(
            **{name: factor * getattr(USUAL, name)}
        )
        for name in USUAL._fields
        for factor in (0.5, 2.0)
    },
}
RULES = Rule(*(jnp.asarray(x) for x in zip(USUAL, *CHANGED.values(), strict=True)))


@jax.jit
def values(batches):
    """[trial, rule]."""

    def of_rule(batch, rule):
        return decide(batch, batch.log_ratio, rule=rule).value

    return jax.vmap(jax.vmap(of_rule, (None, 0)), (0, None))(batches, RULES)


def cost():
    """Milliseconds of one decision, warm, the least of seven."""
    rng = np.random.default_rng(0)
    shape = (1000, 100)
    probs = rng.dirichlet(np.ones(4), size=98)
    state, action = rng.integers(98, size=shape), rng.integers(4, size=shape)
    batch = oj.from_arrays(
        reward=rng.normal(size=shape),
        state=state,
        action=action,
        behavior_prob=np.full(shape, 0.25),
        target_prob=probs[state, action],
        target_probs=probs[state],
    )
    decided = jax.jit(lambda batch: decide(batch, batch.log_ratio))
    timed(lambda: decided(batch))
    least = min(timed(lambda: decided(batch))[1] for _ in range(7))
    print(f"1,000 trajectories of 100 steps, 98 states: {1e3 * least:.1f} ms, {machine()}")


def corridor(size, slip, target, behavior, cap):
    """A walk to the right end at a cost of 1 a step; the chances are those of going right."""
    transition, reward = np.zeros((size, 2, size)), np.full((size, 2), -1.0)
    for state in range(size - 1):
        for action, way in enumerate((-1, 1)):
            for chance, to in ((1 - slip, state + way), (slip, state - way)):
                transition[state, action, np.clip(to, 0, size - 1)] += chance
    transition[-1, :, -1], reward[-1] = 1, 0
    even, right = (np.full((size, 2), [1 - p, p]) for p in (behavior, target))
    end = np.arange(size) == size - 1
    return oj.TabularWorld(transition, reward, 0, even, right, cap, terminal=end)


@jax.jit
def chosen(batches):
    """Values of `auto` and `dm`, and whether the model was dropped; [trial] each."""

    def one(batch):
        found = decide(batch, batch.log_ratio)
        return found.value, found.values[1], found.weights[-2:].any()

    return jax.lax.map(one, batches)


def corridors(trials):
    for setting in ((10, 0.0, 0.9, 0.5, 40), (15, 0.1, 0.9, 0.6, 60), (20, 0.0, 0.8, 0.6, 100)):
        world = corridor(*setting)
        for size in (25, 100):
            keys = jax.random.split(jax.random.key(2), trials)
            *values, dropped = map(np.asarray, chosen(world.rollout(keys, size, probs=True)))
            errors = [np.sqrt(((x - world.exact().value) ** 2).mean()) for x in values]
            told = "auto {:.3g}, dm {:.3g}".format(*errors)
            print(f"{setting}, N = {size}: {told}, dropped {dropped.mean():.1%}", flush=True)


def main(
    worlds: str = "design",
    sizes: str = "25,100",
    trials: int = 100,
    cost_only: bool = False,
    corridors_only: bool = False,
):
    """Worlds are a half or names; sizes and trials as in a study."""
    if cost_only:
        return cost()
    if corridors_only:
        return corridors(trials)
    ratios = []
    for name in worlds_of(tuple(worlds.split(","))):
        world = oj.make(name)
        for size in map(int, sizes.split(",")):
            keys = jax.random.split(jax.random.key(size), trials)
            found = np.asarray(values(world.rollout(keys, size, probs=True)), np.float64)
            error = np.sqrt(((found - world.exact().value) ** 2).mean(0))
            ratios.append(error[1:] / error[0])
            print(f"{name} {size}: {error[0]:.4g}", flush=True)
    logs = np.log(np.array(ratios))
    for label, column in zip(CHANGED, logs.T, strict=True):
        print(f"| {label} | {np.exp(column.mean()):.3f} | {np.exp(column.max()):.2f} |")


if __name__ == "__main__":
    typer.run(main)
