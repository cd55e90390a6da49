"""The random words of a key, by the generator's own definition, for oracles of what is random."""

import numpy as np

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
WORD = np.uint64(2**32)


def threefry(key, counter):
    """Threefry 2x32 with 20 rounds (Salmon et al. 2011): two words of a key and of a counter."""
    keys = [np.uint64(k) for k in (*key, key[0] ^ key[1] ^ PARITY)]
    first, second = ((np.uint64(x) + k) % WORD for x, k in zip(counter, keys[:2], strict=True))
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            first = (first + second) % WORD
            high = second >> np.uint64(32 - rotation)
            second = ((second << np.uint64(rotation)) % WORD | high) ^ first
        first = (first + keys[(group + 1) % 3]) % WORD
        second = (second + keys[(group + 2) % 3] + np.uint64(group + 1)) % WORD
    return first, second


def words(seed, stream, number):
    """[number] words of 32 bits of `jax.random.bits(fold_in(key(seed), stream), ...)`."""
    key = [int(x) for x in threefry((0, seed), (0, stream))]
    count = np.arange(number, dtype=np.uint64)
    high, low = threefry(key, (np.zeros_like(count), count))
    return high ^ low
