"""Level and power of the Markov check in worlds made for it: when does one decide?

python benchmarks/markov_worlds.py --trials 1000 --sizes 25,100,250 --out runs/markov-worlds
"""

from __future__ import annotations

import numpy as np

from osiris_jax.worlds.tabular import TabularWorld

LONGEST, SPREAD, PUSH = 14, 0.5, 0.15


def decided_at(step: int, *, seen: bool = False) -> TabularWorld:
    """The first look, but the action at this step decides: the reward at the end, give or take 0.5.

    One waits for step + 1 to 14 steps, in one state but for the first. Where it is `seen`, states
    show how long it still takes and what was decided, and are Markov.
    """
    lengths = range(step + 1, LONGEST + 1)
    cells = [(left, until, None) for left in range(1, LONGEST + 1) for until in range(1, step + 1)]
    cells += [(left, 0, chosen) for left in range(1, LONGEST + 1) for chosen in (0, 1)]
    place = {cell: number for number, cell in enumerate(cells)}
    low, high = len(cells), len(cells) + 1
    transition, reward = np.zeros((2, high + 1, 2, high + 1))
    for (left, until, chosen), number in place.items():
        for action in (0, 1):
            decided = action if until == 1 else chosen
            if left == 1:
                transition[number, action, [low, high]] = 0.5
                paid = (decided or 0) + np.array([-SPREAD, SPREAD])
                reward[number, action, [low, high]] = paid
            else:
                following = (left - 1, max(until - 1, 0), decided)
                transition[number, action, place[following]] = 1
    transition[[low, high], :, [low, high]] = 1
    starts = [place[length, step, None] for length in lengths]
    start = np.isin(np.arange(high + 1), starts) / len(starts)
    shown = np.where(np.isin(np.arange(high + 1), starts), 0, 1)
    return _world(
        f"decided-at-{step}{'-seen' if seen else ''}",
        transition,
        reward,
        start,
        None if seen else shown,
    )


def many_pushes() -> TabularWorld:
    """Each of 14 actions adds 0 or 0.15 to the reward at the end, give or take 0.5; one state."""
    cells = [(time, pushes) for time in range(LONGEST) for pushes in range(time + 1)]
    place = {cell: number for number, cell in enumerate(cells)}
    low, high = len(cells), len(cells) + 1
    transition, reward = np.zeros((2, high + 1, 2, high + 1))
    for (time, pushes), number in place.items():
        for action in (0, 1):
            if time + 1 < LONGEST:
                transition[number, action, place[time + 1, pushes + action]] = 1
            else:
                transition[number, action, [low, high]] = 0.5
                paid = PUSH * (pushes + action) + np.array([-SPREAD, SPREAD])
                reward[number, action, [low, high]] = paid
    transition[[low, high], :, [low, high]] = 1
    start = (np.arange(high + 1) == 0).astype(float)
    return _world("many-pushes", transition, reward, start, (np.arange(high + 1) > 0).astype(int))


def _world(name, transition, reward, start, shown) -> TabularWorld:
    behavior, target = (np.tile(probs, (len(start), 1)) for probs in ([0.5, 0.5], [0.2, 0.8]))
    mdp = (transition, reward, start, behavior, target, LONGEST)
    return TabularWorld(*mdp, observe=shown, name=name)


WORLDS = (decided_at(1), decided_at(3), decided_at(5), many_pushes(), decided_at(3, seen=True))


def main() -> None:
    import argparse
    from pathlib import Path

    from osiris_jax.cli.calibrate_markov import report
    from osiris_jax.study.markov_calibration import MarkovCalibration

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--sizes", default="25,100,250")
    parser.add_argument("--out", type=Path, default=Path("runs/markov-worlds"))
    typed = parser.parse_args()
    sizes = tuple(map(int, typed.sizes.split(",")))
    report(MarkovCalibration(worlds=WORLDS, trials=typed.trials, sizes=sizes).run(), typed.out)


if __name__ == "__main__":
    main()
