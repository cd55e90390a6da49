"""Recipes that train, select and describe the networks shipped with the package."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jaxtyping import Int, Key

from osiris_jax.models.networks import QNetwork
from osiris_jax.worlds import dqn
from osiris_jax.worlds.cartpole import OBSERVATION_SCALE, cartpole_with, environment
from osiris_jax.worlds.rollout import Value, outcomes
from osiris_jax.worlds.world import POLICIES

Progress = Callable[[str, int, int], None]
PAPER_VALUES = (608.0, 1504.0)
GROUP, LONGEST = 32, 10_000
EPISODES = {"screen": 64, "tune": 256, "refine": 1024, "decide": 4096}
KEPT = {"screen": 12, "tune": 2, "refine": 16, "decide": 1}
COARSE_GAINS = tuple(itertools.product((0.7, 0.85, 1.0, 1.15, 1.3), repeat=2))
FINE_GAINS = tuple(itertools.product((0.94, 1.0, 1.06), repeat=4))
STEADY, LATE = 0.6, 0.6
FINAL_EPISODES = {"cartpole": 10_000, "lunar-lander": 2000}
LANDER_AIM, LANDER_FINALISTS, LANDER_EPISODES = 240.0, 5, (150, 1000)
LANDER_STORY = """Double DQN (`worlds/dqn_gymnasium.py`): NumPy acts, JAX learns; several runs.
Late snapshots were judged by the target policy, the best by both; of those whose target reached
{0:g} the one with the widest gap between the policies was kept. The values above come from fresh
episodes that took no part in it."""
CARTPOLE_STORY = """Double DQN in JAX (`worlds/dqn.py`), several runs, many snapshots of each.
A snapshot was selected and tuned so that the two policies live about as long as those of the paper
({0:g} and {1:g} steps for behaviour and target): the snapshots nearest to both were tried with
gains on their inputs, and the nearest of all was kept. So the agreement with those two lengths is
by construction. The values above come from fresh episodes that took no part
in it."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A selected network and all that its card says.

    Attributes:
      q: the network.
      facts: how it was trained and selected, and the values of both policies.
      curve: (update, mean return of training episodes) of the run it came from.
      lengths: of fresh episodes, by policy.
    """

    q: QNetwork
    facts: dict[str, Any]
    curve: list[tuple[int, float]]
    lengths: dict[str, np.ndarray]


class Candidate(NamedTuple):
    """A network on the way, by the run that it came from and its number of updates."""

    run: int
    update: int
    q: QNetwork


def silent(stage: str, done: int, total: int) -> None:
    """No progress shown."""


def train_cartpole(
    seed: int = 0,
    *,
    runs: int = 24,
    updates: int | None = None,
    aims: tuple[float, float] = PAPER_VALUES,
    progress: Progress = silent,
) -> Trained:
    """Trains several networks, then selects and tunes one to given values (V_b, V_e).

    Every snapshot of every run is judged by rollouts of both policies; the best are judged again
    over a grid of gains on the inputs of position and velocity (two numbers that make the cart
    drift more or less), the best of those over a fine grid of gains on all four inputs, and the
    best of these once more. Networks whose median length is far below
    their mean, so that a few endless episodes make the value, are left out. The values of the
    winner come from episodes that took no part in this.
    """
    settings = dqn.Settings()
    if updates is not None:
        settings = dataclasses.replace(settings, updates=updates, snapshots=min(100, updates))
    key_train, key_judge, key_final = random.split(random.key(seed), 3)
    env, snapshots = environment(), []
    for snapshot in dqn.train(
        random.split(key_train, runs), env, env.default_params, OBSERVATION_SCALE, settings
    ):
        snapshots.append(jax.tree.map(np.asarray, snapshot))
        progress("training", len(snapshots), settings.snapshots)
    candidates = [
        Candidate(run, int(snapshot.update), jax.tree.map(lambda x, run=run: x[run], snapshot.q))
        for snapshot in snapshots
        for run in range(runs)
    ]
    nearest = partial(_nearest, key=key_judge, aims=aims, progress=progress)
    (run, update, network), gains = _tune(candidates, nearest)
    facts = {
        "world": "cartpole",
        "story": CARTPOLE_STORY.format(*aims),
        "seed": seed,
        "runs": runs,
        "settings": dataclasses.asdict(settings),
        "observation_scale": OBSERVATION_SCALE,
        "aims": {"behavior": aims[0], "target": aims[1]},
        "snapshots_screened": len(candidates),
        "gains_tried": [KEPT["screen"] * len(COARSE_GAINS), KEPT["tune"] * len(FINE_GAINS)],
        "episodes_per_stage": EPISODES,
        "chosen": {"run": run, "update": update, "gains": gains},
    }
    curve = [(int(s.update), float(s.mean_return[run])) for s in snapshots]
    q = _with_gains(network, gains)
    return _describe(cartpole_with(q), q, facts, curve, key_final, progress)


def _tune(
    candidates: list[Candidate], nearest: Callable[..., list[int]]
) -> tuple[Candidate, tuple[float, ...]]:
    """The candidate and the gains that come nearest to the aims, found in four stages."""
    screened = nearest([candidate.q for candidate in candidates], stage="screen")
    tuned = [(candidates[i], (*gains, 1.0, 1.0)) for i in screened for gains in COARSE_GAINS]
    for stage in ("tune", "refine", "decide"):
        best = nearest([_with_gains(candidate.q, gains) for candidate, gains in tuned], stage=stage)
        tuned = [tuned[place] for place in best]
        if stage == "tune":
            tuned = [(one, _times(gains, fine)) for one, gains in tuned for fine in FINE_GAINS]
    ((chosen, gains),) = tuned
    return chosen, gains


def train_lunar_lander(
    seed: int = 0, *, runs: int = 3, updates: int = 100_000, progress: Progress = silent
) -> Trained:
    """Trains several networks, then selects one whose policies differ and whose target does well.

    The late snapshots of every run are judged by the target policy; the best by both policies. Of
    those whose target reaches `LANDER_AIM` the one with the widest gap between the policies is
    kept (if none does, the best target). Its values come from fresh episodes.
    """
    from osiris_jax.worlds import dqn_gymnasium
    from osiris_jax.worlds.lunar_lander import ENV_ID, LunarLander, make_environment

    per_update = 4
    budget: dict[str, Any] = {
        "steps": per_update * updates,
        "update_every": per_update,
        "snapshot_every": max(1, updates // 10),
    }
    settings = dqn_gymnasium.Settings(**budget)
    candidates, curves = [], []
    for run in range(runs):
        trained = dqn_gymnasium.train(
            make_environment,
            settings,
            seed=seed * runs + run,
            on_progress=lambda step, _, run=run: progress(f"run {run}", step, settings.steps),
        )
        curves.append([(step // per_update, value) for step, value in trained.curve])
        late = [(step, q) for step, q in trained.snapshots if step > LATE * settings.steps]
        candidates += [Candidate(run, step // per_update, q) for step, q in late]
    run, update, q = _widest_gap(candidates, random.key(seed), progress)
    facts = {
        "world": "lunar-lander",
        "story": LANDER_STORY.format(LANDER_AIM),
        "environment": ENV_ID,
        "seed": seed,
        "runs": runs,
        "settings": {"hidden": settings.hidden, **budget},
        "snapshots_screened": len(candidates),
        "episodes_per_stage": LANDER_EPISODES,
        "chosen": {"run": run, "update": update},
    }
    world = LunarLander(q, cache=None, progress=False)
    final_key = random.fold_in(random.key(seed), 3)
    return _describe(world, q, facts, _smoothed(curves[run]), final_key, progress)


def _widest_gap(candidates: list[Candidate], key: Array, progress: Progress) -> Candidate:
    """Of those with good targets the one whose policies differ most, else the best target."""
    from osiris_jax.worlds.lunar_lander import LunarLander

    def value(candidate: Candidate, policy: str, stage: int) -> float:
        world = LunarLander(candidate.q, cache=None, progress=False)
        stage_key, episodes = random.fold_in(key, stage), LANDER_EPISODES[stage - 1]
        return float(world.returns(stage_key, episodes, policy=policy).returns.mean())

    screened = []
    for candidate in candidates:
        screened.append(value(candidate, "target", 1))
        progress("screen", len(screened), len(candidates))
    finalists = [candidates[place] for place in np.argsort(screened)[::-1][:LANDER_FINALISTS]]
    scores = []
    for finalist in finalists:
        target, behavior = (value(finalist, policy, 2) for policy in ("target", "behavior"))
        reached = target >= LANDER_AIM
        scores.append((reached, target - behavior if reached else target))
        progress("decide", len(scores), len(finalists))
    return finalists[max(range(len(scores)), key=scores.__getitem__)]


def _smoothed(curve: list[tuple[int, float]], window: int = 50) -> list[tuple[int, float]]:
    """Means over windows of episodes."""
    chunks = [curve[i : i + window] for i in range(0, len(curve), window)]
    return [(chunk[-1][0], float(np.mean([value for _, value in chunk]))) for chunk in chunks]


def _describe(world, q, facts, curve, key: Array, progress: Progress) -> Trained:
    lengths, episodes = {}, FINAL_EPISODES[facts["world"]]
    for number, name in enumerate(POLICIES):
        fresh = world.returns(random.fold_in(key, number), episodes, policy=name)
        lengths[name] = np.asarray(fresh.lengths)
        epsilon = float(getattr(world, name).epsilon)
        facts[name] = {"epsilon": epsilon, **Value.of(*fresh)._asdict()}
        progress("evaluate", number + 1, len(POLICIES))
    return Trained(q, facts, curve, lengths)


def _with_gains(q: QNetwork, gains: tuple[float, ...]) -> QNetwork:
    return q.replace(scale=np.asarray(q.scale) * np.asarray(gains, np.float32))


def _times(gains: tuple[float, ...], others: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round(x * y, 4) for x, y in zip(gains, others, strict=True))


def card(facts: dict[str, Any]) -> str:
    """What a reader should know of a network, as Markdown."""
    apart = (*POLICIES, "settings", "story")
    details = {name: fact for name, fact in facts.items() if name not in apart}
    values = {policy: facts[policy] for policy in POLICIES}
    lines = [
        f"# The {facts['world']} network",
        "",
        "A small Q-network; the policies act greedily on it but for a share of random actions.",
        "",
        "| policy | random actions | value | standard error | episodes | mean steps | longest |",
        "|---|---|---|---|---|---|---|",
    ]
    for policy, value in values.items():
        lines.append(
            f"| {policy} | {value['epsilon']} | {value['mean']:.1f} | "
            f"{value['standard_error']:.1f} | {value['episodes']} | {value['mean_length']:.1f} | "
            f"{value['longest']} |"
        )
    shares = values["behavior"]["quantiles"]
    lines += ["", "Quantiles of the number of steps:", ""]
    lines += ["| policy | " + " | ".join(shares) + " |", "|---" * (len(shares) + 1) + "|"]
    for policy, value in values.items():
        row = (f"{steps:.0f}" for steps in value["quantiles"].values())
        lines.append(f"| {policy} | " + " | ".join(row) + " |")
    lines += ["", "## How it was trained and selected", "", facts["story"], "", "```json"]
    lines += [json.dumps({**details, "settings": facts["settings"]}, indent=2), "```", ""]
    return "\n".join(lines)


def _nearest(
    networks: Sequence[QNetwork],
    *,
    stage: str,
    key: Array,
    aims: tuple[float, float],
    progress: Progress,
) -> list[int]:
    """Which networks come nearest to both aims, by the larger relative error; steady ones first."""
    means, medians = [], []
    key = random.fold_in(key, list(EPISODES).index(stage))
    for first in range(0, len(networks), GROUP):
        group = list(networks[first : first + GROUP])
        padded = group + [group[0]] * (GROUP - len(group))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *padded)
        lengths = np.asarray(_lengths(stacked, key, EPISODES[stage]))[: len(group)]
        means.append(lengths.mean(-1))
        medians.append(np.median(lengths, -1))
        progress(stage, min(first + GROUP, len(networks)), len(networks))
    mean, median = np.concatenate(means), np.concatenate(medians)
    distance = np.abs(np.log(mean / np.asarray(aims))).max(1)
    unsteady = (median < STEADY * mean).any(1)
    return [int(number) for number in np.lexsort((distance, unsteady))[: KEPT[stage]]]


@partial(jax.jit, static_argnames="episodes")
def _lengths(
    networks: QNetwork, key: Key[Array, ""], episodes: int
) -> Int[Array, "network policy episode"]:
    """Lengths, which are CartPole's returns, all on the same keys."""
    room = {"steps": LONGEST, "discount": 1.0, "lanes": min(episodes, 128)}

    def of_one(q: QNetwork, policy: str) -> Int[Array, " episode"]:
        world = cartpole_with(q)
        acts = world.decider(policy)
        return outcomes(world.dynamics, acts, key[None], episodes, **room).lengths[0]

    by_policy = [jax.vmap(partial(of_one, policy=p))(networks) for p in POLICIES]
    return jnp.stack(by_policy, 1)


RECIPES: dict[str, Callable[..., Trained]] = {
    "cartpole": train_cartpole,
    "lunar-lander": train_lunar_lander,
}
