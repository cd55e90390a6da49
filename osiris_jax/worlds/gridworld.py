"""Gridworlds from maze text, and the two worlds of the paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from osiris_jax.data.policies import epsilon_greedy_table
from osiris_jax.worlds.tabular import TabularWorld

ACTIONS = "NSEW"
MOVES = np.array([(-1, 0), (1, 0), (0, 1), (0, -1)])
WALL, START, FLOOR, CORRIDOR = "#o.,"

MAZE = """
##############
#,,,,,,,,..Z.#
#,#######....#
#,#######Z...#
#o..........A#
#ZZZZZZZZZZZZ#
##############
"""
GREEDY = """
NNNNNNNNNNNNNN
NEEEEEEEEESNSN
NNNNNNNNNEESSN
NNNNNNNNNEEESN
NNWEEEEEEENENN
NNNNNNNNNNNNNN
NNNNNNNNNNNNNN
"""
REWARDS = {"A": 5.0, "Z": -5.0}
STEP_LIMIT = 100
TARGET_EPSILON, BEHAVIOR_EPSILON, EXPRESS_EPSILON = 0.1, 0.5, 0.2


@dataclasses.dataclass(frozen=True)
class Maze:
    """A checked maze. The state id of a cell is row * columns + column.

    Attributes:
      rows: the text, one string per row: `#` wall, `o` start, `.` floor, `,` corridor (floor that
        is marked), and letters that end the trajectory.
      rewards: (letter, reward on entering) of the terminal letters.
      step_reward: the reward of every other step.
    """

    rows: tuple[str, ...]
    rewards: tuple[tuple[str, float], ...]
    step_reward: float = 0.0

    @classmethod
    def parse(
        cls, text: str | Maze, rewards: Mapping[str, float] = REWARDS, step_reward: float = 0.0
    ) -> Maze:
        """Reads a maze; one that is a `Maze` already keeps its own rewards.

        Raises:
          ValueError: points at the character that is wrong.
        """
        if isinstance(text, Maze):
            return text
        for letter, reward in rewards.items():
            if len(letter) != 1 or letter in (WALL, START, FLOOR, CORRIDOR) or letter.isspace():
                raise ValueError(f"rewards: {letter!r} cannot stand for a terminal cell")
            if not np.isfinite(reward):
                raise ValueError(f"rewards: {letter!r} pays {reward}")
        rows = [row.rstrip() for row in text.strip("\n").splitlines()]
        if not any(rows):
            raise ValueError("maze: empty")
        alphabet = {WALL, START, FLOOR, CORRIDOR, *rewards}
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                where = min(len(row), len(rows[0]))
                problem = f"{len(row)} columns where the first row has {len(rows[0])}"
                _point(rows, number, where, problem)
            for column, letter in enumerate(row):
                if letter not in alphabet:
                    problem = f"unknown letter {letter!r}; there are {' '.join(sorted(alphabet))}"
                    _point(rows, number, column, problem)
        maze = cls(tuple(rows), tuple(rewards.items()), float(step_reward))
        maze._check_ways(rows)
        return maze

    def _check_ways(self, rows: list[str]) -> None:
        if not self.is_letter(START).any():
            raise ValueError("maze: no start; mark one cell with 'o'\n" + "\n".join(rows))
        if not self.terminal.any():
            letters = " or ".join(letter for letter, _ in self.rewards)
            raise ValueError(f"maze: no terminal cell; mark one with {letters}\n" + "\n".join(rows))
        in_vain = np.zeros_like(self.terminal)
        for letter, _ in self.rewards:
            if not (self.is_letter(letter) & self.reachable).any():
                in_vain |= self.is_letter(letter)
        walled_off = self.terminal & ~self._reach(self._moves(frozen=self.is_letter(WALL)))
        lost = np.flatnonzero(in_vain | walled_off)
        if len(lost):
            row, column = divmod(int(lost[0]), self.shape[1])
            _point(rows, row, column, f"terminal {rows[row][column]!r} cannot be reached")

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.rows[0])

    @property
    def letters(self) -> np.ndarray:
        """[state] the letter of every cell."""
        return np.array(list("".join(self.rows)))

    def is_letter(self, letter: str) -> np.ndarray:
        """[state] true for the cells with this letter."""
        return self.letters == letter

    @property
    def terminal(self) -> np.ndarray:
        """[state] true for the cells that end a trajectory."""
        return np.isin(self.letters, [letter for letter, _ in self.rewards])

    @property
    def successor(self) -> np.ndarray:
        """[state, action] where a move leads; into a wall, or from a terminal cell: nowhere."""
        return self._moves(frozen=self.is_letter(WALL) | self.terminal)

    def _moves(self, frozen: np.ndarray) -> np.ndarray:
        rows, columns = self.shape
        position = np.stack(np.divmod(np.arange(rows * columns), columns), -1)
        aimed = position[:, None] + MOVES
        inside = ((aimed >= 0) & (aimed < self.shape)).all(-1)
        ahead = np.where(inside, aimed[..., 0] * columns + aimed[..., 1], 0)
        here = np.arange(rows * columns)[:, None]
        stuck = ~inside | self.is_letter(WALL)[ahead] | frozen[here]
        return np.where(stuck, here, ahead)

    @property
    def reward(self) -> np.ndarray:
        """[state, action] reward of the move."""
        entering = np.full(len(self.letters), self.step_reward)
        for letter, reward in self.rewards:
            entering[self.is_letter(letter)] = reward
        return entering[self.successor]

    @property
    def start(self) -> np.ndarray:
        """[state] probability of beginning there, equal over the start cells."""
        cells = self.is_letter(START)
        return cells / cells.sum()

    def mdp(self) -> dict[str, np.ndarray]:
        """The arrays that `TabularWorld` and `build_dynamics` take; walls end what is in them."""
        arrays = {"transition": self.successor, "reward": self.reward, "start": self.start}
        return {**arrays, "terminal": self.terminal | self.is_letter(WALL)}

    @property
    def reachable(self) -> np.ndarray:
        """[state] true for the cells that some actions reach from the start."""
        return self._reach(self.successor)

    def _reach(self, successor: np.ndarray) -> np.ndarray:
        reached, before = self.is_letter(START), 0
        while reached.sum() > before:
            before = reached.sum()
            reached[successor[reached]] = True
        return reached


def _point(rows: list[str], row: int, column: int, problem: str) -> NoReturn:
    picture = [*rows[: row + 1], " " * column + "^", *rows[row + 1 :]]
    raise ValueError(f"maze: row {row}, column {column}: {problem}\n" + "\n".join(picture))


def read_greedy(text: str, maze: Maze) -> np.ndarray:
    """[state] the action that each cell's letter N, S, E or W names.

    Raises:
      ValueError: points at the character that is wrong.
    """
    rows = [row.rstrip() for row in text.strip("\n").splitlines()]
    if (len(rows), *{len(row) for row in rows}) != maze.shape:
        raise ValueError(f"greedy: expected {maze.shape[0]} rows of {maze.shape[1]} letters")
    for number, row in enumerate(rows):
        for column, letter in enumerate(row):
            if letter not in ACTIONS:
                raise ValueError(
                    f"greedy: row {number}, column {column}: {letter!r} is not one of N S E W"
                )
    return np.array([ACTIONS.index(letter) for letter in "".join(rows)])


class GridWorld(TabularWorld):
    """A gridworld with epsilon-greedy policies: actions N, S, E, W, walls stop a move.

    Args:
      maze: the text of a maze (see `Maze`), or a `Maze`.
      greedy: text of the same shape, the greedy action of every cell as N, S, E or W.
      behavior_epsilon: probability of a random action under the behaviour policy, a number or
        one for each cell.
      target_epsilon: the same for the target policy.
      rewards: reward on entering each terminal letter.
      step_limit: the largest number of steps.
      step_reward: the reward of a step that ends nowhere.
      oracle: [state] the states whose ratios matter; by default all but the corridor, if any.

    Example:
      >>> world = GridWorld("####\\n#oA#\\n####", "NNNN\\nNENN\\nNNNN", 0.5, 0.1, {"A": 1.0})
    """

    def __init__(
        self,
        maze: str | Maze,
        greedy: str,
        behavior_epsilon,
        target_epsilon,
        rewards: Mapping[str, float] = REWARDS,
        step_limit: int = STEP_LIMIT,
        *,
        step_reward: float = 0.0,
        oracle=None,
        name: str = "gridworld",
        size: int = 25,
    ):
        self.maze = Maze.parse(maze, rewards, step_reward)
        self.greedy = read_greedy(greedy, self.maze)
        corridor = self.maze.is_letter(CORRIDOR)
        super().__init__(
            **self.maze.mdp(),
            behavior=epsilon_greedy_table(self.greedy, behavior_epsilon, len(ACTIONS)),
            target=epsilon_greedy_table(self.greedy, target_epsilon, len(ACTIONS)),
            horizon=step_limit,
            oracle=~corridor if oracle is None and corridor.any() else oracle,
            name=name,
            size=size,
        )

    @property
    def environment(self):
        """The same world as a gymnax environment, which resets itself."""
        from osiris_jax.worlds.environments import Gridworld

        return Gridworld(self.maze, step_limit=self.horizon)


def dilly_dallying() -> GridWorld:
    """Gridworld of Shen et al. 2021 whose behaviour policy dallies in an irrelevant corridor."""
    return GridWorld(MAZE, GREEDY, BEHAVIOR_EPSILON, TARGET_EPSILON, name="dilly-dallying")


def express() -> GridWorld:
    """The same gridworld with a behaviour policy that hurries through the corridor."""
    corridor = Maze.parse(MAZE).is_letter(CORRIDOR)
    epsilon = np.where(corridor, EXPRESS_EPSILON, BEHAVIOR_EPSILON)
    return GridWorld(MAZE, GREEDY, epsilon, TARGET_EPSILON, name="express")
