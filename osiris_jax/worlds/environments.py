"""Tabular worlds as gymnax environments, for whoever trains or wraps with gymnax.

Importing gymnax takes seconds, so nothing else here imports this module until asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import struct
from gymnax.environments import environment, spaces
from jax import Array

from osiris_jax.worlds.gridworld import REWARDS, STEP_LIMIT, Maze
from osiris_jax.worlds.mdp import TabularDynamics, build_dynamics


@struct.dataclass
class TabularState(environment.EnvState):
    """The number of steps taken and where the agent is."""

    place: Array


@struct.dataclass
class TabularParams(environment.EnvParams):
    """The MDP and its step limit."""

    dynamics: Any = None


class TabularEnvironment(environment.Environment[TabularState, TabularParams]):
    """A finite MDP; the observation is the id that is shown of the state.

    Args:
      dynamics: of a `TabularWorld`.
      step_limit: after so many steps an episode is truncated.
    """

    def __init__(self, dynamics: TabularDynamics, step_limit: int, name: str = "tabular"):
        super().__init__()
        self._dynamics, self._step_limit, self._name = dynamics, step_limit, name

    @property
    def default_params(self) -> TabularParams:
        return TabularParams(max_steps_in_episode=self._step_limit, dynamics=self._dynamics)

    def reset_env(self, key: Array, params: TabularParams) -> tuple[Array, TabularState]:
        state = TabularState(time=0, place=params.dynamics.reset(key))
        return self.observe(key, state, None, params), state

    def step_env(self, key: Array, state: TabularState, action: Any, params: TabularParams):
        place, reward, ended = params.dynamics.step(key, state.place, jnp.asarray(action))
        state = TabularState(time=state.time + 1, place=place)
        info = {"discount": self.discount(state, params)}
        return self.observe(key, state, action, params), state, reward, ended, info

    def observe(self, key: Array, state: TabularState, action: Any, params: TabularParams) -> Array:
        return params.dynamics.state_of(state.place)

    def is_terminated(self, state: TabularState, params: TabularParams) -> Array:
        return jnp.asarray(params.dynamics.terminal)[state.place]

    @property
    def name(self) -> str:
        return self._name

    @property
    def num_actions(self) -> int:
        return self._dynamics.num_actions

    def action_space(self, params: TabularParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self._dynamics.num_actions)

    def observation_space(self, params: TabularParams | None = None) -> spaces.Discrete:
        return spaces.Discrete(self._dynamics.num_states)

    def state_space(self, params: TabularParams | None = None) -> spaces.Dict:
        return spaces.Dict(
            {
                "time": spaces.Discrete(self._step_limit),
                "place": spaces.Discrete(len(self._dynamics.terminal)),
            }
        )


class Gridworld(TabularEnvironment):
    """A gridworld: actions N 0, S 1, E 2, W 3; the observation is row * columns + column.

    Args:
      maze: the text of a maze, or a `Maze`.
      rewards: reward on entering each terminal letter.
      step_limit: after so many steps an episode is truncated.
      step_reward: the reward of every other step.

    Example:
      >>> env = Gridworld("#####\\n#o.A#\\n#####", {"A": 1.0}, step_limit=20)
      >>> observation, state = env.reset(jax.random.key(0))
    """

    def __init__(
        self,
        maze: str | Maze,
        rewards: Mapping[str, float] = REWARDS,
        step_limit: int = STEP_LIMIT,
        step_reward: float = 0.0,
    ):
        self.maze = Maze.parse(maze, rewards, step_reward)
        super().__init__(build_dynamics(**self.maze.mdp()), step_limit, "gridworld")
