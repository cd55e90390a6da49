"""Gridworlds against a slow walker written from the rules, and mazes that must be refused."""

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.walker import EAST, SOUTH, Walker

from osiris_jax.worlds import make
from osiris_jax.worlds.gridworld import GREEDY, MAZE, GridWorld, Maze, read_greedy

SMALL = "#####\n#o.A#\n#####"

CORRIDOR = [(1, column) for column in range(1, 9)] + [(2, 1), (3, 1)]

PAPER = Walker(MAZE, {"A": 5.0, "Z": -5.0})


def assert_walks_as(maze, walker):
    """Every action from every cell in which a trajectory can be."""
    compared = 0
    for cell, letter in walker.cells.items():
        if letter == "#" or letter in walker.rewards:
            continue
        for action in range(4):
            following, reward, ended = walker.step(cell, action)
            place = walker.number(cell), action
            assert maze.successor[place] == walker.number(following), (cell, action)
            assert maze.reward[place] == reward, (cell, action)
            assert maze.terminal[maze.successor[place]] == ended, (cell, action)
            compared += 1
    assert compared >= 4


# ------------------------------------------------------------------------- mazes refused

POINTED = {
    "short row": ("####\n#oA#\n###", (2, 3), "3 columns where the first row has 4"),
    "long row": ("####\n#oA##\n####", (1, 4), "5 columns where the first row has 4"),
    "short first row": ("###\n#oA#\n####", (1, 3), "4 columns where the first row has 3"),
    "empty row": ("####\n\n#oA#\n####", (1, 0), "0 columns"),
    "unknown letter": ("####\n#oA#\n#?.#\n####", (2, 1), "unknown letter '?'"),
    "letter without reward": ("#####\n#oAB#\n#####", (1, 3), "unknown letter 'B'"),
    "blank": ("####\n#oA#\n# .#\n####", (2, 1), "unknown letter ' '"),
    "walled off": ("######\n#oA#Z#\n######", (1, 4), "terminal 'Z' cannot be reached"),
    "one of two walled off": ("######\n#oA.##\n####A#\n######", (2, 4), "terminal 'A'"),
    "only through another": ("######\n#o.AZ#\n######", (1, 4), "terminal 'Z' cannot be reached"),
    "both behind another": ("#######\n#ZZAo.#\n#######", (1, 1), "terminal 'Z'"),
}


@pytest.mark.parametrize(("text", "place", "problem"), POINTED.values(), ids=POINTED)
def test_a_refused_maze_points_at_the_character(text, place, problem):
    with pytest.raises(ValueError, match=r"^maze: ") as caught:
        Maze.parse(f"\n{text}\n")
    row, column = place
    first, *picture = str(caught.value).splitlines()
    assert first.startswith(f"maze: row {row}, column {column}: ")
    assert problem in first
    rows = text.splitlines()
    assert picture == [*rows[: row + 1], " " * column + "^", *rows[row + 1 :]]


def test_an_unknown_letter_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"there are # , \. A o\n"):
        Maze.parse(SMALL.replace(".", "x"), {"A": 1.0})


def test_a_maze_needs_a_start_a_terminal_and_text():
    with pytest.raises(ValueError, match=r"^maze: no start; mark one cell with 'o'\n#+\n#\.\.A#"):
        Maze.parse(SMALL.replace("o", "."))
    with pytest.raises(ValueError, match=r"^maze: no terminal cell; mark one with A or Z\n#####"):
        Maze.parse(SMALL.replace("A", "."))
    for empty in ("", "\n", "  \n \n"):
        with pytest.raises(ValueError, match="maze: empty"):
            Maze.parse(empty)


@pytest.mark.parametrize("letter", ["AB", "", "#", "o", ".", ",", " ", "\n"])
def test_a_terminal_letter_must_be_one_free_character(letter):
    with pytest.raises(ValueError, match=r"rewards: .* cannot stand for a terminal cell"):
        Maze.parse(SMALL, {"A": 1.0, letter: 2.0})


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf])
def test_a_terminal_reward_must_be_finite(reward):
    with pytest.raises(ValueError, match=r"rewards: 'A' pays -?(nan|inf)"):
        Maze.parse(SMALL, {"A": reward})


def test_unused_letters_and_white_space_at_the_end_of_rows_do_no_harm():
    padded = "\n\n" + "\n".join(row + "  " for row in SMALL.splitlines()) + "\n"
    assert Maze.parse(padded, {"A": 1.0, "Q": 3.0}).rows == tuple(SMALL.splitlines())


def test_the_papers_maze_has_a_terminal_cell_behind_others_and_is_accepted():
    maze = Maze.parse(MAZE)
    behind = PAPER.number((5, 12))  # south of A, and neighbours are Z and walls
    assert maze.terminal[behind]
    assert not maze.reachable[behind]
    assert maze.is_letter("Z").sum() == 14
    assert (maze.is_letter("Z") & maze.reachable).sum() == 13


GREEDY_ERRORS = {
    "letter": ("NNNNN\nNEXNN\nNNNNN", r"row 1, column 2: 'X' is not one of N S E W"),
    "small letter": ("NNNNN\nNENNn\nNNNNN", r"row 1, column 4: 'n' is not one"),
    "rows": ("NNNNN\nNENNN", r"expected 3 rows of 5 letters"),
    "ragged": ("NNNNN\nNENN\nNNNNN", r"expected 3 rows of 5 letters"),
    "columns": ("NNNN\nNENN\nNNNN", r"expected 3 rows of 5 letters"),
    "nothing": ("", r"expected 3 rows of 5 letters"),
}


@pytest.mark.parametrize(("text", "problem"), GREEDY_ERRORS.values(), ids=GREEDY_ERRORS)
def test_a_refused_greedy_text_says_where(text, problem):
    with pytest.raises(ValueError, match=f"^greedy: {problem}"):
        GridWorld(SMALL, text, 0.5, 0.1)


def test_greedy_letters_are_actions():
    actions = read_greedy("NSEWN\nWESNN\nNNNNN", Maze.parse(SMALL))
    assert actions.tolist() == [0, 1, 2, 3, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0]


# ----------------------------------------------------------------------------- the rules


def test_every_move_of_the_papers_maze_is_the_walkers():
    assert_walks_as(Maze.parse(MAZE), PAPER)


def test_an_open_edge_stops_a_move_as_a_wall_does():
    """Without a border, a move off the edge must neither leave nor come back on the other side."""
    walker = Walker("o.A\n#,.", {"A": 2.0}, -0.25)
    maze = Maze.parse("o.A\n#,.", {"A": 2.0}, -0.25)
    assert_walks_as(maze, walker)
    assert maze.successor[0].tolist() == [0, 0, 1, 0]
    assert maze.successor[5].tolist() == [2, 5, 5, 4]
    assert maze.reward[0].tolist() == [-0.25] * 4
    assert maze.reward[5].tolist() == [2.0, -0.25, -0.25, -0.25]
    assert maze.successor[2].tolist() == [2] * 4  # terminal
    assert maze.successor[3].tolist() == [3] * 4  # wall


def test_several_starts_are_equally_likely():
    maze = Maze.parse("o.A.o\n..o..", {"A": 1.0})
    expected = np.zeros(10)
    expected[[0, 4, 7]] = 1 / 3
    np.testing.assert_allclose(maze.start, expected, rtol=1e-15)
    world = GridWorld(maze, "NNNNN\nNNNNN", 0.5, 0.1, step_limit=2)
    assert world.dynamics.start.tolist() == [0, 4, 7]
    found = jax.jit(jax.vmap(world.dynamics.reset))(jax.random.split(jax.random.key(0), 300))
    share = np.bincount(found, minlength=10) / 300
    np.testing.assert_allclose(share, expected, atol=4 * np.sqrt(2 / 9 / 300))
    assert share[expected == 0].sum() == 0


@st.composite
def mazes(draw):
    """Text with or without a border, a start, and letters anywhere."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    cells = st.sampled_from("....,,#AZo")
    grid = [[draw(cells) for _ in range(columns)] for _ in range(rows)]
    if draw(st.booleans()):
        wall = ["#"] * (columns + 2)
        grid = [wall, *(["#", *row, "#"] for row in grid), wall]
    return "\n".join("".join(row) for row in grid)


def flood(walker, closed):
    """Cells that can be entered when those with letters in `closed` cannot be left."""
    seen, edge = set(), [cell for cell, letter in walker.cells.items() if letter == "o"]
    while edge:
        cell = edge.pop()
        if cell not in seen:
            seen.add(cell)
            if walker.cells[cell] not in closed:
                edge += [walker.step(cell, action)[0] for action in range(4)]
    return seen


@given(mazes(), st.sampled_from([0.0, -0.5]))
@example("o.#Z", 0.0)
@example("oAZ", 0.0)
@example("oAZ\n.Z.", 0.0)
@settings(max_examples=100)
def test_random_mazes_are_walked_or_refused_by_the_rules(text, step_reward):
    rewards = {"A": 3.0, "Z": -1.0}
    walker = Walker(text, rewards, step_reward)
    letters = set(text)
    terminal = {cell for cell, letter in walker.cells.items() if letter in rewards}
    entered, connected = flood(walker, "AZ"), flood(walker, "")
    served = {walker.cells[cell] for cell in terminal & entered} == letters & set("AZ")
    if "o" in letters and terminal and terminal <= connected and served:
        maze = Maze.parse(text, rewards, step_reward)
        assert_walks_as(maze, walker)
        assert set(np.flatnonzero(maze.reachable)) == {walker.number(cell) for cell in entered}
        assert np.flatnonzero(maze.start).tolist() == walker.starts()
    else:
        with pytest.raises(ValueError, match=r"^maze: "):
            Maze.parse(text, rewards, step_reward)


# ---------------------------------------------------------------------- the paper's worlds


@pytest.mark.parametrize(
    ("name", "in_corridor", "elsewhere"),
    [("dilly-dallying", (0.625, 0.125), (0.625, 0.125)), ("express", (0.85, 0.05), (0.625, 0.125))],
)
def test_the_papers_policies_by_hand(name, in_corridor, elsewhere):
    world = make(name)
    lines = GREEDY.split()
    for cell, letter in PAPER.cells.items():
        if letter not in "o.,":
            continue
        state, best = PAPER.number(cell), "NSEW".index(lines[cell[0]][cell[1]])
        greedy, other = in_corridor if letter == "," else elsewhere
        for action in range(4):
            probability = world.behavior_probs[state, action]
            assert probability == pytest.approx(greedy if action == best else other, rel=1e-12)
            probability = world.target_probs[state, action]
            assert probability == pytest.approx(0.925 if action == best else 0.025, rel=1e-12)
    assert PAPER.starts() == [4 * 14 + 1]
    assert world.behavior_probs[4 * 14 + 3].argmax() == EAST
    assert world.behavior_probs[1 * 14 + 10].argmax() == SOUTH
    assert (world.num_states, world.num_actions, world.horizon, world.size) == (98, 4, 100, 25)


@pytest.mark.parametrize("name", ["dilly-dallying", "express"])
def test_the_oracle_omits_the_ten_corridor_cells(name):
    world = make(name)
    omitted = [divmod(int(state), 14) for state in np.flatnonzero(~world.oracle)]
    assert omitted == sorted(CORRIDOR)
    assert len(omitted) == 10


def test_the_oracle_of_a_maze_without_corridor_is_unknown_unless_given():
    greedy = "NNNNN\nNEENN\nNNNNN"
    assert GridWorld(SMALL, greedy, 0.5, 0.1).oracle is None
    given_map = np.arange(15) > 6
    world = GridWorld(SMALL, greedy, 0.5, 0.1, oracle=given_map)
    np.testing.assert_array_equal(world.oracle, given_map)
    with_corridor = GridWorld(SMALL.replace(".", ","), greedy, 0.5, 0.1)
    assert np.flatnonzero(~with_corridor.oracle).tolist() == [7]
