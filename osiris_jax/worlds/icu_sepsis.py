"""ICU-Sepsis: treatment of sepsis in intensive care as a tabular MDP (Choudhary et al. 2024)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files

import numpy as np
from scipy import sparse

from osiris_jax.core.files import read_arrays
from osiris_jax.data.policies import mixture_table
from osiris_jax.worlds.tabular import TabularWorld

PACKAGE, ASSET = "icu-sepsis", "envs/assets/dynamics.npz"
STEP_LIMIT = 500
TERMINAL = 3
TIE = 1e-9  # many states have several best actions, which rounding alone sets apart


def icu_sepsis() -> TabularWorld:
    """716 patient states, 25 treatments, survival pays 1 (from MIMIC-III; extra `sepsis`).

    Behaviour: 0.9 expert + 0.1 uniform. Target: 0.5 expert + 0.5 optimal.
    """
    arrays = _read_dynamics()
    transition, expert = arrays["tx_mat"], arrays["expert_policy"]
    num_states, num_actions = expert.shape
    terminal = np.arange(num_states) >= num_states - TERMINAL
    uniform = np.full(expert.shape, 1 / num_actions)
    expert = np.where(terminal[:, None], uniform, expert)
    optimal = optimal_policy(transition, arrays["r_mat"], terminal, STEP_LIMIT)
    return TabularWorld(
        transition,
        arrays["r_mat"],
        arrays["d_0"],
        mixture_table([expert, uniform], [0.9, 0.1]),
        mixture_table([expert, optimal], [0.5, 0.5]),
        STEP_LIMIT,
        terminal=terminal,
        name="icu-sepsis",
        size=100,
    )


def optimal_policy(
    transition: np.ndarray, reward: np.ndarray, terminal: np.ndarray, steps: int
) -> np.ndarray:
    """[state, action] the policy greedy in Q* with `steps` to go, the first of equal actions."""
    num_states, num_actions = transition.shape[:2]
    onward = sparse.csr_array(transition.reshape(-1, num_states))
    paid = (onward * reward.reshape(onward.shape)).sum(1).reshape(num_states, num_actions)
    action_value = paid
    for _ in range(steps - 1):
        value = np.where(terminal, 0.0, action_value.max(1))
        action_value = paid + (onward @ value).reshape(paid.shape)
    best = action_value >= action_value.max(1, keepdims=True) - TIE
    return np.eye(num_actions)[best.argmax(1)]


def _read_dynamics() -> dict[str, np.ndarray]:
    try:
        assets = [path for path in files(PACKAGE) or () if str(path).endswith(ASSET)]
    except PackageNotFoundError:
        assets = []
    if not assets:
        raise ModuleNotFoundError(
            'icu-sepsis: its data is missing; install it with: pip install "osiris-jax[sepsis]"'
        )
    return read_arrays(str(assets[0].locate()))
