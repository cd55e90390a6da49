"""A world so small that studies of it take little time, and two studies of it."""

import dataclasses

import numpy as np

import osiris_jax as oj


def small_world(target=None):
    """Six states in a line, two actions, some chance; the last state ends a trajectory."""
    rng = np.random.default_rng(1)
    transition = rng.dirichlet(np.ones(6), (6, 2))
    transition[-1] = np.eye(6)[-1]
    reward = rng.normal(size=(6, 2))
    reward[-1] = 0
    behavior = rng.dirichlet((4, 4), 6)
    target = rng.dirichlet((4, 4), 6) if target is None else target
    keep = np.array([1, 0, 1, 0, 1, 0], bool)
    return oj.TabularWorld(transition, reward, 0, behavior, target, horizon=12, oracle=keep)


def small_study():
    return oj.Study(
        world=small_world(),
        trials=20,
        sizes=(5, 9),
        alphas=(0.1, 1.0),
        estimators=("wis", "cwpdis:finished=drop", "on-policy", "osirwis", "osiris-pdis"),
        relevance=("welch", "welch:weighting=none:ddof=0", "oracle", "true:tolerance=0.2"),
        discount=0.9,
        seed=3,
    )


def lean_study():
    """The same with little to compile."""
    return dataclasses.replace(
        small_study(), sizes=(5,), estimators=("wis", "osirwis"), relevance=("welch",)
    )
