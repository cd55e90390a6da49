"""What happened, drawn before any file is written: which step belongs to which episode."""

import dataclasses
from decimal import Decimal

import numpy as np
import pandas as pd

NUM_STATES, NUM_ACTIONS = 5, 3
MAX_STEPS, LONG = 8, 1000
SIZES = (3, 1, 8)

BIG = 12345678901234567890
ESCAPES = ("\x1b[31mred", "a|b*`c`", "<script>alert(1)</script>", "two\nlines", "[bold]x[/bold]")
UNICODE = ("e\u0301tat", "\u00e9tat", "\u65e5\u672c", "\u202eabc", "A")
TEXT_IDS = {
    "words": ("shock", "calm", "fever", "Calm", "calm "),
    "leading zeros": ("007", "070", "07", "00", "0007"),
    "zeros and numbers": ("007", "7", "07", "0", "00"),
    "big integers as text": tuple(str(BIG + k) for k in range(5)),
    "escape characters": ESCAPES,
    "unicode": UNICODE,
    "minus zero": ("0", "-0", "1", "2", "3"),
    "long names": tuple("x" * 5000 + str(k) for k in range(5)),
}
INTEGER_IDS = {
    "dense": (0, 1, 2, 3, 4),
    "gaps": (0, 3, 7, 20, 97),
    "sparse": (2, 2_000_000_000, 50_000_000, 2**40 + 1, 5),
    "beyond floats": (2**53 + 1, 2**53, 2**62 + 1, 2**62, 0),
}
ACTION_IDS = {"dense": (0, 1, 2), "words": ("wait", "Drug|*", "drug"), "sparse": (1, 2**31, 2**53)}


def day(number):
    """A time of day, another one for every number."""
    return pd.Timestamp("2024-02-29 23:59:59") + pd.Timedelta(minutes=7 * number)


EPISODE_NAMES = {
    "integers": lambda n: list(range(n)),
    "falling integers": lambda n: list(range(n, 0, -1)),
    "negative integers": lambda n: [-3 * k for k in range(n)],
    "beyond floats": lambda n: [2**53 + k for k in range(n)],
    "unsigned": lambda n: [2**63 + 2**62 + k for k in range(n)],
    "words": lambda n: [f"patient {k}" for k in range(n)],
    "minus zero": lambda n: ["-0", *map(str, range(n - 1))],
    "numbers and text": lambda n: [k // 2 if k % 2 else str(k // 2) for k in range(n)],
    "trailing NULs": lambda n: ["a" + "\0" * k for k in range(n)],
    "whole floats": lambda n: [float(k) for k in range(n)],
    "floats": lambda n: [0.1 + k for k in range(n)],
    "big integers as text": lambda n: [str(BIG + k) for k in range(n)],
    "leading zeros": lambda n: ["7".rjust(k + 1, "0") for k in range(n)],
    "decimals as text": lambda n: ["1" if k == 0 else "1." + "0" * k for k in range(n)],
    "exponents as text": lambda n: [
        ["1000", "1e3", "1E3", "10e2"][k % 4] * (k // 4 + 1) for k in range(n)
    ],
    "case and spaces": lambda n: [["a", "A", "a ", " a"][k % 4] + "_" * (k // 4) for k in range(n)],
    "escape characters": lambda n: [ESCAPES[k % 5] + "!" * (k // 5) for k in range(n)],
    "unicode": lambda n: [UNICODE[k % 5] + "\u0301" * (k // 5) for k in range(n)],
    "decimals": lambda n: [Decimal(2**53 * 10**6 + k) for k in range(n)],
    "fractions": lambda n: [Decimal(f"1.{k:020}") for k in range(n)],
    "times": lambda n: [day(k) for k in range(n)],
    "times with a zone": lambda n: [day(k).tz_localize("Europe/Berlin") for k in range(n)],
}


@dataclasses.dataclass(frozen=True)
class Truth:
    """A log before it is written down.

    Attributes:
      states: for each episode the index of the state at every step.
      actions: likewise.
      rewards: likewise.
      behavior: [state, action] probabilities that made the log.
      target: [state, action] probabilities to evaluate.
      state_ids: what the log calls each state.
      action_ids: what it calls each action.
      names: what it calls each episode.
      truncated: whether each episode was cut off; None if the log does not say.
    """

    states: list[np.ndarray]
    actions: list[np.ndarray]
    rewards: list[np.ndarray]
    behavior: np.ndarray
    target: np.ndarray
    state_ids: tuple = INTEGER_IDS["dense"]
    action_ids: tuple = ACTION_IDS["dense"]
    names: tuple = ()
    truncated: tuple | None = None

    @property
    def lengths(self):
        return [len(rewards) for rewards in self.rewards]

    @property
    def text_states(self):
        return isinstance(self.state_ids[0], str)

    @property
    def text_actions(self):
        return isinstance(self.action_ids[0], str)

    def logged(self, table):
        """For each episode the probability of the logged action at every step."""
        return [table[s, a] for s, a in zip(self.states, self.actions, strict=True)]

    def log_ratios(self):
        with np.errstate(divide="ignore"):
            pairs = zip(self.logged(self.target), self.logged(self.behavior), strict=True)
            return [np.log(target) - np.log(behavior) for target, behavior in pairs]

    def for_oracle(self):
        """The data as `oracle` reads it, states and actions by index."""
        keys = ("states", "actions", "rewards", "log_ratio")
        columns = (self.states, self.actions, self.rewards, self.log_ratios())
        return [dict(zip(keys, episode, strict=True)) for episode in zip(*columns, strict=True)]


def draw(rng, *, size=None, long=False):
    """A truth with dense ids and episodes named 0, 1, ..."""
    size = int(rng.choice(SIZES)) if size is None else size
    lengths = rng.integers(1, MAX_STEPS + 1, size=size)
    lengths[rng.integers(size)] = MAX_STEPS if rng.random() < 0.3 else lengths[0]
    if long:
        lengths = np.ones(4, int)
        lengths[rng.integers(4)] = LONG
    behavior = (rng.dirichlet(np.ones(NUM_ACTIONS), NUM_STATES) + 0.2) / (1 + 0.2 * NUM_ACTIONS)
    # a long product of such ratios would leave float32, which is another test's question
    spread = 0.001 if long else 1.0
    target = (1 - spread) * behavior + spread * rng.dirichlet(np.ones(NUM_ACTIONS), NUM_STATES)
    if rng.random() < 0.2 and not long:
        target[rng.integers(NUM_STATES)] = np.eye(NUM_ACTIONS)[rng.integers(NUM_ACTIONS)]
    states = [rng.integers(NUM_STATES, size=steps) for steps in lengths]
    actions = [np.array([rng.choice(NUM_ACTIONS, p=behavior[s]) for s in path]) for path in states]
    coarse = rng.random() < 0.3
    rewards = [rng.normal(size=steps).round(0 if coarse else 12) for steps in lengths]
    return Truth(states, actions, rewards, behavior, target, names=tuple(range(len(lengths))))


def draw_all(rng):
    """A truth of eight episodes in which every state and every action occurs."""
    truth = draw(rng, size=8)
    for number in range(NUM_STATES):
        truth.states[number][0], truth.actions[number][0] = number, number % NUM_ACTIONS
    return truth
