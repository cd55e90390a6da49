"""CartPole without a time limit: it ends only when the pole falls or the cart leaves."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from osiris_jax.data import LinearBins
from osiris_jax.data.policies import EpsilonGreedy
from osiris_jax.worlds.gymnax_world import GymnaxWorld

BEHAVIOR_EPSILON, TARGET_EPSILON = 0.25, 0.20
NO_LIMIT = 1_000_000
BINS = LinearBins.uniform([(-1, 1), (-3, 3), (-1, 1), (-3, 3)])
OBSERVATION_SCALE = (1 / 2.4, 1 / 2, 1 / 0.21, 1 / 2)


@cache
def environment() -> Any:
    """gymnax's CartPole, one object for all."""
    from gymnax.environments.classic_control.cartpole import CartPole

    return CartPole()


def cartpole_with(q: Any, *, horizon: int = NO_LIMIT) -> GymnaxWorld:
    """CartPole with the paper's epsilon-greedy policies over any Q-function."""
    return GymnaxWorld(
        environment(),
        EpsilonGreedy(q, BEHAVIOR_EPSILON),
        EpsilonGreedy(q, TARGET_EPSILON),
        horizon,
        bins=BINS,
        params=environment().default_params.replace(max_steps_in_episode=horizon),
        name="cartpole",
    )


def cartpole() -> GymnaxWorld:
    """CartPole of Shen et al. 2021, no time limit, epsilon-greedy on the network shipped here."""
    from osiris_jax.models.networks import load_network

    return cartpole_with(load_network(Path(__file__).parent / "assets" / "cartpole.npz"))
