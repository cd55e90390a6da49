"""Worlds of known answers for the tests of exact answers and of the paper's theory."""

import itertools
from functools import cache

import numpy as np
from oracles import enumeration

from osiris_jax.worlds import make
from osiris_jax.worlds.tabular import TabularWorld

SEEDS = range(30)
COVERED = [seed for seed in SEEDS if enumeration.random_mdp(seed).covered]
GRIDWORLDS = ("dilly-dallying", "express")
TOLERANCES = (1e-9, 1e-3, 0.1, 1.0)
PLAIN = ("mc", "is", "pdis")
OMITTING = ("osiris", "osiris-is", "osiris-pdis")
TERMS = ("importance_sampling", "centers", "omitted_variance", "covariance", "variance")


def world_of(mdp, **changes):
    fields = {
        "transition": mdp.transition,
        "reward": mdp.reward,
        "start": mdp.start,
        "behavior": mdp.behavior,
        "target": mdp.target,
        "horizon": mdp.horizon,
        "terminal": mdp.terminal,
    }
    return TabularWorld(**{**fields, **changes})


@cache
def case(seed):
    """A random MDP, its exact answers, and all trajectories of the behaviour policy."""
    mdp = enumeration.random_mdp(seed)
    exact = world_of(mdp).exact(mdp.discount)
    return mdp, exact, enumeration.Paths(mdp, mdp.behavior)


@cache
def gridworld(name):
    world = make(name)
    exact = world.exact()
    maps = [world.oracle, *(exact.relevance(tolerance) for tolerance in TOLERANCES)]
    return world, exact, np.array(maps)


def maps_of(mdp):
    """[map, state] every map of the states."""
    return np.array(list(itertools.product([False, True], repeat=len(mdp.start))))


def some_maps(mdp):
    """[map, state] no state, all states, and a few random maps."""
    rng = np.random.default_rng(len(mdp.start))
    return np.concatenate([maps_of(mdp)[[0, -1]], rng.random((4, len(mdp.start))) < 0.5])


def agree(found, expected, *, scale=None, tolerance=1e-9, what=""):
    """Equal relative to each entry, or to `scale` where terms of that size cancel."""
    floor = 1e-12 if scale is None else tolerance * np.max(np.abs(scale))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=floor, err_msg=what)


def subset_pairs(length):
    """Every pair of sets of times of which the first lies strictly inside the second."""
    sets = [
        frozenset(times)
        for size in range(length + 1)
        for times in itertools.combinations(range(length), size)
    ]
    return [(small, large) for small in sets for large in sets if small < large]


def waiting_world():
    """Two actions: how long state 0 lasts does not matter, what is done in state 1 does."""
    transition, reward = np.zeros((4, 2, 4)), np.zeros((4, 2, 4))
    transition[0, :, :2] = [[0.35, 0.65], [0.15, 0.85]]
    transition[1, :, 2:] = [[0.8, 0.2], [0.3, 0.7]]
    transition[2, :, 2] = transition[3, :, 3] = 1
    reward[1, :, 2:] = [1, -1]
    behavior, target = np.full((4, 2), 0.5), np.broadcast_to([0.8, 0.2], (4, 2))
    return TabularWorld(transition, reward, 0, behavior, target, horizon=24)
