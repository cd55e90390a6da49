"""Padded arrays to a batch, and the law that all ways in agree."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_from_dataframe import SINGULAR, table_of
from test_from_episodes import (
    BAD_CELLS,
    NARROW,
    OTHER_FORM,
    VECTORS,
    WIDE,
    assert_same,
    good,
    random_episodes,
)

import osiris_jax as oj


def arrays_of(episodes, steps=None, garbage=0):
    """Padded arrays under from_arrays' names, with garbage in the padding."""
    longest = steps or max(len(episode["actions"]) for episode in episodes)
    arrays = {}
    for key in episodes[0]:
        ragged = [np.asarray(episode[key], float) for episode in episodes]
        padded = np.full((len(ragged), longest, *ragged[0].shape[1:]), garbage, float)
        for row, part in zip(padded, ragged, strict=True):
            row[: len(part)] = part
        arrays[SINGULAR.get(key, key)] = padded
    return arrays


def fields(**changes):
    """The arguments of a good call, changed; None drops one."""
    arguments = arrays_of(good()) | {"lengths": [3, 2]} | changes
    return {name: value for name, value in arguments.items() if value is not None}


# ------------------------------------------------------------------------------- good input


@pytest.mark.parametrize("garbage", [0, -7, np.nan, np.inf, 1e300], ids=str)
@pytest.mark.parametrize(
    "rows",
    [{"lengths": [3, 2]}, {"lengths": np.array([3, 2], np.uint8)},
     {"mask": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)},
     {"mask": [[True] * 3 + [False], [True, True, False, False]]}],
    ids=["lengths", "uint8", "mask", "list"],
)  # fmt: skip
def test_what_stands_in_padding_does_not_matter(rows, garbage):
    arrays = arrays_of(good(), steps=4, garbage=garbage)
    assert_same(oj.from_arrays(**arrays, **rows), oj.pad_to(oj.from_episodes(good()), 4))


def test_lists_with_objects_in_the_padding():
    batch = oj.from_arrays(
        reward=[[1, 2], [3, None]], action=[[0, 1], [1, "?"]], state=[[0, 1], [2, {}]],
        log_ratio=[[0.0, -np.inf], [0.5, "-"]], lengths=[2, 1],
    )  # fmt: skip
    expected = [
        {"states": [0, 1], "actions": [0, 1], "rewards": [1, 2], "log_ratio": [0.0, -np.inf]},
        {"states": [2], "actions": [1], "rewards": [3], "log_ratio": [0.5]},
    ]
    assert_same(batch, oj.from_episodes(expected))


def test_without_mask_and_lengths_every_step_is_real():
    arrays = arrays_of(good()[:1])
    assert_same(oj.from_arrays(**arrays), oj.from_episodes(good()[:1]))
    assert_same(oj.from_arrays(**arrays, mask=None, lengths=None), oj.from_episodes(good()[:1]))


def test_a_batchs_own_fields_load_again():
    batch = oj.from_episodes(good(), num_states=9)
    names = ("reward", "action", "state", "observation", "log_ratio", "mask", *WIDE)
    again = oj.from_arrays(**{name: getattr(batch, name) for name in names}, num_states=9)
    assert_same(again, batch, rtol=1e-6)


def test_bfloat16_is_a_number():
    reward = jnp.asarray([[0.5, 2.0]], jnp.bfloat16)
    batch = oj.from_arrays(reward=reward, action=[[0, 1]], state=[[0, 1]])
    np.testing.assert_array_equal(batch.reward, [[0.5, 2.0]])
    assert batch.dtype == np.float32


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    drop=st.sets(st.sampled_from(["observations", "log_ratio", *NARROW, *WIDE])),
    order=st.randoms(use_true_random=False),
)
def test_all_ways_in_agree(seed, lengths, drop, order):
    episodes = [
        {key: value for key, value in episode.items() if key not in drop}
        for episode in random_episodes(seed, lengths)
    ]
    table = table_of(episodes, labels=range(len(episodes)))
    rows = list(range(len(table)))
    order.shuffle(rows)
    shuffled = table.iloc[rows]
    episodes = [episodes[label] for label in shuffled["episode"].drop_duplicates()]
    expected = oj.from_episodes(episodes)
    assert_same(oj.from_dataframe(shuffled), expected)
    rows = [len(episode["actions"]) for episode in episodes]
    assert_same(oj.from_arrays(**arrays_of(episodes, garbage=np.nan), lengths=rows), expected)


# -------------------------------------------------------------------------------- bad input

PLACE = "trajectory 1, step 1\\b"


def put(field, value, *, keep_other_form=False):
    """The arguments with the value at trajectory 1, step 1 (in a vector: in the first entry)."""
    array = arrays_of(good())[field]
    number = isinstance(value, int | float) and abs(value) != 10**400
    array = array if number else array.astype(object)
    array[(1, 1, 0) if field in VECTORS else (1, 1)] = value
    other = {} if keep_other_form else {OTHER_FORM.get(field, field): None}
    return fields(**(other | {field: array}))


BAD = [
    *((f"{field}={value!r:.12}", put(field, value), f"{field}: {said}.*{PLACE}")
      for field, value, said in BAD_CELLS),
    ("typo", fields(states=[[1]]), "states: not a field; did you mean state\\?"),
    ("unknown", fields(zzz=[[1]]), "zzz: not a field; there are state, action"),
    ("no reward", {"reward": None, "action": [[0]], "state": [[0]]}, "reward: missing"),
    ("no action", {"reward": [[0]], "action": None, "state": [[0]]}, "action: missing"),
    ("no state", fields(state=None, observation=None), "state: missing, and so is observation"),
    ("flat reward", fields(reward=[1, 2]), "reward: expected axes \\[traj, time\\].*\\(2,\\)"),
    ("no trajectories", fields(reward=np.ones((0, 3))), "reward: no trajectory.*\\(0, 3\\)"),
    ("no steps", fields(reward=np.ones((2, 0))), "reward: no trajectory or no step.*\\(2, 0\\)"),
    ("shape", fields(state=np.zeros((2, 4), int)), "state: shape \\(2, 4\\) .* \\(2, 3\\)"),
    ("transposed", fields(action=np.zeros((3, 2), int)), "action: shape \\(3, 2\\) does not fit"),
    ("one axis more", fields(state=np.zeros((2, 3, 1), int)), "state: shape \\(2, 3, 1\\)"),
    ("one axis less", fields(observation=np.zeros((2, 3))), "observation: .* and one more axis"),
    ("ragged", fields(reward=[[1, 2], [1, 2, 3]]), "reward: rows of unequal .*ory 1, step 2"),
    ("ragged rows", fields(state=[[1, 2, 0], None]), "state: rows of unequal .*ory 1, step 0"),
    ("nested", fields(state=[[1, 2, 0], [1, [1, 2], 0]]), f"state: .*unequal.*{PLACE}"),
    ("vectors", fields(observation=[[[1], [2], [3]], [[1], [2, 3], [4]]]), f"obs.*{PLACE}"),
    ("text", fields(state=[["0", "1", "x"]] * 2), "state: .*got 'x' at trajectory 0, step 2"),
    ("one text", fields(state=[[1, 2, 0], [1, "2", 0]]), f"state: .*got '2' at {PLACE}"),
    ("complex", fields(reward=np.ones((2, 3)) + 0j), "reward: .*\\(1\\+0j\\) at trajectory 0"),
    ("dates", fields(reward=np.zeros((2, 3), "M8[s]")), "reward: expected a real number, got date"),
    ("spans", fields(reward=np.zeros((2, 3), "m8[s]")), "reward: expected a real number, got date"),
    ("both", fields(mask=np.ones((2, 3), bool)), "mask: give either mask or lengths"),
    ("mask shape", fields(lengths=None, mask=[True, True]), "mask: shape \\(2,\\) .* \\(2, 3\\)"),
    ("mask type", fields(lengths=None, mask=np.ones((2, 3))), "mask: expected booleans, got float"),
    ("mask ragged", fields(lengths=None, mask=[[True], []]), "mask: rows .*ory 1, step 0"),
    ("hole", fields(lengths=None, mask=[[True] * 3, [True, False, True]]),
     "mask: True after False at trajectory 1, step 2"),
    ("suffix", fields(lengths=None, mask=[[True] * 3, [False, True, True]]),
     f"mask: True after False at {PLACE}"),
    ("empty row", fields(lengths=None, mask=[[True] * 3, [False] * 3]), "mask: empty trajectory 1"),
    ("length 0", fields(lengths=[3, 0]), "lengths: 0 at trajectory 1 is not in 1..3"),
    ("length 4", fields(lengths=[3, 4]), "lengths: 4 at trajectory 1 is not in 1..3"),
    ("negative length", fields(lengths=[-1, 3]), "lengths: -1 at trajectory 0 is not in 1..3"),
    ("too few lengths", fields(lengths=[3]), "lengths: expected 2 integers, got \\[3\\]"),
    ("one length", fields(lengths=3), "lengths: expected 2 integers, got 3"),
    ("float lengths", fields(lengths=[3.0, 2.0]), "lengths: expected 2 integers, got \\[3.0"),
    ("text lengths", fields(lengths=["3", "2"]), "lengths: expected 2 integers, got \\['3'"),
    ("ragged lengths", fields(lengths=[[3], 2]), "lengths: rows of unequal length"),
    ("action beyond", put("action", 3), f"action: 3 is not below .* 3, at {PLACE}"),
    ("state beyond", fields(num_states=3), "state: 3 is not below .* 3, at trajectory 0, step 1"),
    ("widths", fields(target_probs=np.full((2, 3, 2), 0.5)), "target_probs: 2 actions where 3"),
    ("num_actions", fields(num_actions=4), "behavior_probs: 3 actions where 4 are expected"),
    ("contradiction", put("target_prob", 0.25, keep_other_form=True),
     f"target_prob: 0.25 contradicts 0.5 in target_probs at {PLACE}"),
    ("float64", fields(dtype=np.float64), "dtype: float64 needs"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), [pytest.param(*row, id=id) for id, *row in BAD])
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.from_arrays(**{"reward": None, "action": None} | arguments)
