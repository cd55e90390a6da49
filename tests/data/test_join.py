"""Parts of a log, and several logs as one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_from_episodes import assert_same, good, random_episodes

import osiris_jax as oj

LENGTHS = (3, 1, 4, 2)


def log(seed=0, lengths=LENGTHS, **options):
    return oj.from_episodes(random_episodes(seed, lengths), num_states=5, **options)


def named(states, actions, **more):
    """One episode whose states and actions are called so."""
    rewards = [float(i) for i in range(len(states))]
    return oj.from_episodes([{"states": states, "actions": actions, "rewards": rewards, **more}])


def called(batch, field):
    """The log's own names of each trajectory's states or actions."""
    labels = getattr(batch, f"{field}_labels")
    ids = [np.asarray(getattr(batch, field))[i, :n] for i, n in enumerate(batch.lengths)]
    return [[int(x) if labels is None else labels[x] for x in row] for row in ids]


# ------------------------------------------------------------------------------------- parts

ROWS = [2, [3, 1, 3], slice(1, 3), slice(None, None, -1), np.array([True, False, True, False])]
ROWS += [jnp.array([0, 2]), range(2), -1, np.int8(1), np.uint64(3), [-4, 3], jnp.ones(4, bool)]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_a_part_is_what_loading_these_episodes_gives(rows):
    flags = np.array([True, False, False, True])
    wards = np.array(["n", "s", "s", "w"])
    batch = log().replace(truncated=flags, groups={"ward": wards}, fitted="by hand")
    index = np.asarray(rows) if not isinstance(rows, slice) else rows
    places = np.atleast_1d(np.arange(4)[index])
    part = batch[rows]
    assert part.mask.shape == (len(places), 4)
    kept = [random_episodes(0, LENGTHS)[place] for place in places]
    assert_same(
        oj.trim(part).replace(truncated=None),
        oj.from_episodes(kept, num_states=5).replace(fitted="by hand"),
    )
    assert part.truncated.tolist() == flags[places].tolist()
    assert part.groups["ward"].tolist() == wards[places].tolist()
    assert part.fitted == "by hand"


def test_parts_under_jit_and_vmap():
    batch = log()
    rows = jnp.array([[3, 0], [1, 1]])
    taken = jax.jit(jax.vmap(lambda row: batch[row].reward))(rows)
    np.testing.assert_array_equal(taken, np.asarray(batch.reward)[np.asarray(rows)])
    inside = jax.jit(lambda data: data[1:3].reward)(batch)
    np.testing.assert_array_equal(inside, batch.reward[1:3])


BAD_ROWS = {
    "beyond": (4, "rows: 4 is not a trajectory; there are 4, from 0 on"),
    "far below": ([0, -5], "rows: -5 is not a trajectory"),
    "short mask": ([True, False], "rows: a mask of 2 for 4 trajectories"),
    "empty mask": (np.zeros(4, bool), "rows: none of the 4 trajectories"),
    "empty slice": (slice(2, 2), "rows: none of the 4 trajectories"),
    "nothing": ([], "rows: expected a number, numbers, a slice or a mask"),
    "fraction": (1.5, "rows: expected a number, .* got 1.5"),
    "text": ("a", "rows: expected a number, .* got 'a'"),
    "two axes": ([[0]], "rows: expected"),
    "a tuple": ((0, 1), r"rows: expected .* got \(0, 1\)"),
    "ellipsis": (..., "rows: expected"),
    "none": (None, "rows: expected"),
    "odd slice": (slice("a"), "rows: slice.* is no slice of trajectories"),
    "ragged": ([[0], [1, 2]], "rows: expected"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_are_named(case):
    rows, message = BAD_ROWS[case]
    with pytest.raises(ValueError, match=f"^{message}"):
        log()[rows]


def test_a_stack_of_data_sets_has_no_rows_and_nothing_iterates():
    stack = jax.tree.map(lambda field: field[None], log())
    with pytest.raises(ValueError, match=r"^batch: rows of one data set"):
        stack[0]
    with pytest.raises(TypeError, match="not iterable"):
        iter(log())


# ----------------------------------------------------------------------------------- several


def test_several_logs_are_one_log_of_all_episodes():
    lengths = [(3, 1), (6,), (2, 2, 5)]
    parts = [random_episodes(seed, of) for seed, of in enumerate(lengths)]
    batches = [oj.from_episodes(part, num_states=5) for part in parts]
    assert_same(
        oj.concatenate(batches), oj.from_episodes([e for part in parts for e in part], num_states=5)
    )
    assert_same(oj.concatenate(batches[:1]), batches[0])
    assert_same(oj.concatenate([log()[:2], log()[2:]]), log())


def test_names_are_joined_by_name():
    one, two = named(["b", "a"], ["x", "y"]), named(["c", "a", "b"], ["x", "z", "x"])
    both = oj.concatenate([one, two])
    assert (both.state_labels, both.action_labels) == (("a", "b", "c"), ("x", "y", "z"))
    assert (both.num_states, both.num_actions) == (3, 3)
    assert called(both, "state") == [["b", "a"], ["c", "a", "b"]]
    assert called(both, "action") == [["x", "y"], ["x", "z", "x"]]


def test_integers_are_joined_by_integer():
    small, large = named([1, 4], [0, 1]), named([4, 10**12], [0, 9000])
    both = oj.concatenate([small, large])
    assert called(both, "state") == [[1, 4], [4, 10**12]]
    assert called(both, "action") == [[0, 1], [0, 9000]]
    assert both.num_states <= 6
    plain = oj.concatenate([small, named([7], [2])])
    assert (plain.state_labels, plain.num_states, plain.num_actions) == (None, 8, 3)


def test_what_lives_outside_jit_is_joined():
    one = log(1, (2, 3)).replace(groups={"w": ["a", "b"]}, truncated=np.array([True, False]))
    two = log(2, (1,)).replace(groups={"w": ["c"]}, truncated=np.array([True]), fitted="Fitted.")
    both = oj.concatenate([one, two, two])
    assert both.groups["w"].tolist() == ["a", "b", "c", "c"]
    assert both.truncated.tolist() == [True, False, True, True]
    assert both.fitted == "Fitted."


PROBS = {"behavior_probs": [[0.5, 0.5]], "target_probs": [[0.5, 0.5]]}
BAD_LOGS = {
    "none": (lambda: [], "batches: expected a list of at least one"),
    "one batch": (log, "batches: expected a list"),
    "no batch": (lambda: [log(), 3], "batches: log 1 is a int"),
    "a stack": (
        lambda: [jax.tree.map(lambda x: x[None], log())],
        r"batches: log 0 has axes \(1, 4, 4\)",
    ),
    "no ratios": (
        lambda: [log(), log().replace(log_ratio=None)],
        "log_ratio: log 0 has it and log 1 has not",
    ),
    "no flags": (
        lambda: [log(), log().replace(truncated=np.ones(4, bool))],
        "truncated: log 1 has it and log 0 has not",
    ),
    "other groups": (
        lambda: [log().replace(groups={"a": [1] * 4}), log().replace(groups={"b": [1] * 4})],
        "groups: log 1 has b, log 0 a",
    ),
    "other vectors": (
        lambda: [log(), log().replace(observation=jnp.zeros((4, 4, 3)))],
        r"observation: log 1 has float32 of size \(3,\) per step, log 0 float32 of size \(2,\)",
    ),
    "text and numbers": (
        lambda: [named(["a"], [0]), named([0], [0])],
        "state: log 1 calls its states 0, log 0 a: text and numbers cannot be joined",
    ),
    "other actions": (
        lambda: [
            named([0], [0], **PROBS).replace(action_labels=("a", "b")),
            named([0], [0], **PROBS).replace(action_labels=("b", "c")),
        ],
        "action: log 1 has b, c, log 0 a, b; probabilities of all actions need the same",
    ),
}


@pytest.mark.parametrize("case", BAD_LOGS)
def test_logs_that_do_not_fit_are_named(case):
    make, message = BAD_LOGS[case]
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.concatenate(make())


def test_float_types_must_agree():
    with jax.enable_x64(True):
        double = oj.from_episodes(good(), dtype="float64")
        with pytest.raises(ValueError, match=r"^reward: log 1 has float64 .* log 0 float32"):
            oj.concatenate([oj.from_episodes(good(), dtype="float32"), double])


def test_joining_what_would_not_fit_is_refused(monkeypatch):
    monkeypatch.setenv("OSIRIS_JAX_MEMORY", "1M")
    long = oj.from_episodes([{"states": [0] * 9000, "actions": [0] * 9000, "rewards": [0] * 9000}])
    short = named([0], [0])
    with pytest.raises(ValueError, match=r"^batches: 21 trajectories, padded .* \(9000 steps\)"):
        oj.concatenate([long, *[short] * 20])
