"""A gridworld walked by its rules."""

NORTH, SOUTH, EAST, WEST = range(4)


class Walker:
    """A gridworld by its rules alone: one dictionary of cells, one step at a time."""

    def __init__(self, text, rewards, step_reward=0.0):
        lines = text.split()
        self.columns = len(lines[0])
        self.cells = {(r, c): x for r, line in enumerate(lines) for c, x in enumerate(line)}
        self.rewards, self.step_reward = rewards, step_reward

    def number(self, cell):
        return cell[0] * self.columns + cell[1]

    def starts(self):
        return [self.number(cell) for cell, letter in self.cells.items() if letter == "o"]

    def step(self, cell, action):
        """Where the action leads, what it pays, whether it ends the trajectory."""
        row, column = cell
        if action == NORTH:
            row -= 1
        elif action == SOUTH:
            row += 1
        elif action == EAST:
            column += 1
        else:
            column -= 1
        if self.cells.get((row, column), "#") == "#":
            row, column = cell
        letter = self.cells[row, column]
        ended = letter in self.rewards
        return (row, column), self.rewards[letter] if ended else self.step_reward, ended
