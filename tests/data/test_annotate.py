"""Ratios from policies, states from observations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_from_episodes import NARROW, add_derived, assert_same, good

import osiris_jax as oj

BEHAVIOR = np.array([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375], [0.25, 0.25, 0.5]])
TARGET = np.array([[0.75, 0.25, 0.0], [0.25, 0.0, 0.75], [1.0, 0.0, 0.0]])  # forbids some logged
STATES = [[0, 1, 2, 0], [1], [2, 0]]
ACTIONS = [[0, 1, 0, 2], [2], [0, 1]]
EDGES = ((-1.0, 0.1, 1.0), (0.7,), (-2.0, 3.0))


def episodes(*keys):
    """Episodes whose steps follow the tables above, with these keys beside actions and rewards."""
    result = []
    for states, actions in zip(STATES, ACTIONS, strict=True):
        steps = {"states": states, "actions": actions, "rewards": [1.0] * len(states)}
        steps["observations"] = np.eye(3)[states]
        steps |= {"behavior_probs": BEHAVIOR[states], "target_probs": TARGET[states]}
        steps = add_derived(steps)
        result.append({key: steps[key] for key in ("actions", "rewards", *keys)})
    return result


def digitized(observation, edges=EDGES):
    """Cells by NumPy's digitize, with edges rounded as the observations are."""
    shape = [len(dimension) + 1 for dimension in edges]
    rounded = [np.asarray(dimension, observation.dtype) for dimension in edges]
    bins = [np.digitize(observation[..., i], rounded[i]) for i in range(len(edges))]
    return np.ravel_multi_index(bins, shape)


def observed(values):
    """A log of two episodes (the last row of values and the rest) with observations alone."""
    parts = [values[:-1], values[-1:]]
    return oj.from_episodes(
        [{"observations": p, "actions": [0] * len(p), "rewards": [0] * len(p)} for p in parts]
    )


# --------------------------------------------------------------------------------- policies

FORMS = {
    "table": ("states", lambda table: table),
    "list": ("states", lambda table: table.tolist()),
    "function of states": ("states", lambda table: lambda states: table[states]),
    "jax function": ("states", lambda table: lambda states: jnp.asarray(table)[states]),
    "function of observations": ("observations", lambda table: lambda seen: seen @ table),
}


@pytest.mark.parametrize("behavior_key", [None, "behavior_prob", "behavior_probs"], ids=str)
@pytest.mark.parametrize(("seen", "form"), FORMS.values(), ids=FORMS)
def test_policies_give_what_loading_probabilities_gives(seen, form, behavior_key):
    logged = [behavior_key] if behavior_key else []
    batch = oj.from_episodes(episodes(seen, *logged))
    assert batch.log_ratio is None
    behavior = None if logged else form(BEHAVIOR)
    filled = oj.with_policies(batch, target=form(TARGET), behavior=behavior)
    keys = (seen, behavior_key or "behavior_probs", "target_probs")
    assert_same(filled, oj.from_episodes(episodes(*keys)), rtol=1e-6)
    forbidden = [[False, True, False, True], [False] * 4, [False] * 4]
    np.testing.assert_array_equal(filled.log_ratio == -np.inf, forbidden)


def test_a_function_sees_observations_where_there_are_any_and_only_real_steps():
    batch = oj.pad_to(oj.from_episodes(episodes("states", "observations")), 8)
    seen = []

    def policy(steps):
        seen.append(steps.shape)
        return steps @ TARGET

    filled = oj.with_policies(batch, target=policy, behavior=BEHAVIOR)
    assert seen == [(7, 3)]
    assert filled.mask.shape == (3, 8)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("key", ["behavior_prob", "behavior_probs"])
def test_the_logs_own_policy_has_ratios_of_exactly_one(key, kind):
    """Relevance tests split on the sign of log_ratio, so rounding must not show in it."""
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(3), size=500)
    action = rng.integers(3, size=500)
    probs = {"behavior_probs": policy, "behavior_prob": policy[np.arange(500), action]}
    steps = {"states": np.arange(500), "actions": action, "rewards": np.zeros(500)}
    other = np.roll(policy, 1, axis=0)
    batch = oj.from_episodes([steps | {key: probs[key], "target_probs": other}])
    assert np.all(batch.log_ratio != 0)
    filled = oj.with_policies(batch, target=policy.astype(kind))
    np.testing.assert_array_equal(filled.log_ratio, 0)


def test_a_policy_may_know_actions_that_were_never_logged():
    wide = np.pad(TARGET, [(0, 0), (0, 1)])
    batch = oj.from_episodes(episodes("states", "behavior_prob"))
    assert batch.num_actions == 3
    assert oj.with_policies(batch, target=wide).num_actions == 4


def test_tiny_logged_probabilities_survive_float32():
    log = episodes("states", "behavior_prob")
    log[0]["behavior_prob"][0] = 1e-60
    filled = oj.with_policies(oj.from_episodes(log), target=TARGET)
    np.testing.assert_allclose(filled.log_ratio[0, 0], np.log(0.75) - np.log(1e-60), rtol=1e-6)


def test_float64_is_kept():
    with jax.enable_x64(True):
        batch = oj.from_episodes(episodes("states", "behavior_prob"))
        filled = oj.with_policies(batch, target=TARGET)
        expected = oj.from_episodes(episodes("states", *NARROW))
        np.testing.assert_allclose(filled.log_ratio, expected.log_ratio, rtol=1e-15)


def changed(table, row, entries):
    """The table with one row replaced."""
    table = table.astype(object) if any(isinstance(e, str) for e in entries) else table.copy()
    table[row] = entries
    return table


POLICY_ERRORS = [
    ("zero", "behavior", changed(BEHAVIOR, 1, [0.5, 0, 0.5]), "0 for the .* trajectory 0, step 1$"),
    ("sum", "target", changed(TARGET, 2, [0.5, 0.6, 0]), "sum to 1.1 at trajectory 0, step 2"),
    ("NaN", "target", changed(TARGET, 2, [np.nan, 0, 1]), "NaN at trajectory 0, step 2"),
    ("negative", "behavior", changed(BEHAVIOR, 1, [-0.1, 0.6, 0.5]), "-0.1 is not .*ory 0, step 1"),
    ("above", "target", changed(TARGET, 1, [0, 0, 1.2]), "1.2 is not in .* trajectory 0, step 1"),
    ("text", "target", changed(TARGET, 1, [0, 0, "1"]), "got '1' at trajectory 0, step 1"),
    ("few states", "target", TARGET[:2], "more than 2 states, got shape \\(2, 3\\)"),
    ("flat", "target", TARGET[0], "a table .*got shape \\(3,\\)"),
    ("three axes", "behavior", BEHAVIOR[None], "a table .*got shape \\(1, 3, 3\\)"),
    ("nothing", "target", None, "expected a function or a table .*got shape \\(\\)"),
    ("ragged", "target", [[1.0, 0, 0], [1.0], [1.0]], "rows of unequal length"),
    ("few actions", "target", BEHAVIOR[:, :2] / 0.75, "2 actions where 3 are expected"),
    ("few steps", "target", lambda s: TARGET[s[1:]], "\\[7 steps, action\\], got \\(6, 3\\)"),
    ("flat steps", "behavior", lambda s: BEHAVIOR[s, 0], "\\[7 steps, action\\], got \\(7,\\)"),
    ("nonsense", "target", lambda _: "x", "\\[7 steps, action\\], got \\(\\)"),
    ("ragged steps", "target", lambda _: [[1.0], [1.0, 2.0]], "rows of unequal length"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("which", "policy", "message"), [pytest.param(*row, id=id) for id, *row in POLICY_ERRORS]
)
def test_bad_policies_are_named(which, policy, message):
    policies = {"target": TARGET, "behavior": BEHAVIOR} | {which: policy}
    with pytest.raises(ValueError, match=f"^{which}: .*{message}"):
        oj.with_policies(oj.from_episodes(episodes("states")), **policies)


def test_bad_calls_say_what_is_missing():
    with pytest.raises(ValueError, match=r"^behavior: the log has no behaviour probabilities"):
        oj.with_policies(oj.from_episodes(episodes("states", "log_ratio")), target=TARGET)
    with pytest.raises(ValueError, match=r"^target: a table needs states, and the log has none"):
        oj.with_policies(oj.from_episodes(episodes("observations")), target=TARGET)


# ----------------------------------------------------------------------------------- states


def test_bins_agree_with_numpys_digitize_on_edges_too():
    rng = np.random.default_rng(0)
    observation = rng.normal(scale=2, size=(200, 3)).astype(np.float32)
    grid = np.meshgrid(*([*dimension, -np.inf, np.inf] for dimension in EDGES))
    on_edges = np.stack([axis.ravel() for axis in grid], axis=-1).astype(np.float32)
    observation = np.concatenate([observation, on_edges, np.nextafter(on_edges, np.float32(-9))])
    bins = oj.LinearBins(EDGES)
    expected = digitized(observation)
    assert set(expected) == set(range(bins.num_cells))
    np.testing.assert_array_equal(bins(jnp.asarray(observation)), expected)
    np.testing.assert_array_equal(jax.jit(bins)(observation), expected)
    by_trial = bins(jnp.asarray(observation[:200]).reshape(5, 40, 3))
    np.testing.assert_array_equal(by_trial, expected[:200].reshape(5, 40))


def test_bins_of_whole_numbers_keep_their_fractional_edges():
    whole = jnp.array([[-1], [0], [1]])
    np.testing.assert_array_equal(oj.LinearBins([[-0.5, 0.5]])(whole), [0, 1, 2])


def test_the_papers_cartpole_bins():
    bins = oj.LinearBins.uniform([(-1, 1), (-3, 3), (-1, 1), (-3, 3)])
    assert bins.edges == ((-1, 0, 1), (-3, 0, 3), (-1, 0, 1), (-3, 0, 3))
    assert (bins.shape, bins.num_cells) == ((4, 4, 4, 4), 256)
    as_lists = oj.LinearBins([list(dimension) for dimension in bins.edges])
    assert (bins, hash(bins)) == (as_lists, hash(as_lists))  # fit for jit's static arguments
    assert oj.LinearBins.uniform([(0, 1)], num_edges=2).edges == ((0, 1),)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [1, 1]], "dimension 1 does not rise: \\(1.0, 1.0\\)"),
        ([[1, 0]], "dimension 0 does not rise"),
        ([[np.nan]], "dimension 0 does not rise"),
        ([0, 1], "expected a sequence of numbers for each dimension, got \\[0, 1\\]"),
        ([["x"]], "expected a sequence of numbers"),
        ([[0, 1, 2]] * 16, "4294967296 cells are more than 32-bit ids"),
    ],
    ids=["equal", "falling", "nan", "flat", "text", "too many"],
)
def test_bad_edges(edges, message):
    with pytest.raises(ValueError, match=f"^edges: {message}"):
        oj.LinearBins(edges)


def test_states_are_the_cells_visited_or_the_cells():
    values = np.array([[5, 0, 0], [-5, 1, 5], [5, 0, 0], [0.5, 0, 0], [-5, 1, 5]], np.float32)
    batch, bins = observed(values), oj.LinearBins(EDGES)
    cells = digitized(values)
    plain = oj.with_states(batch, bins, relabel=False)
    assert plain.num_states == 24
    np.testing.assert_array_equal(np.asarray(plain.state)[batch.mask], cells)
    relabelled = oj.with_states(batch, bins)
    visited = np.unique(cells)
    assert relabelled.num_states == len(visited) == 3  # the padding's cell is not among them
    np.testing.assert_array_equal(visited[np.asarray(relabelled.state)[batch.mask]], cells)
    for new in (plain, relabelled):
        assert new.state.dtype == np.int32
        assert_same(new.replace(state=None, num_states=0), batch)


def test_any_function_discretises():
    batch = observed(np.array([[3.0], [7.0], [3.0]]))
    plain = oj.with_states(batch, lambda seen: seen[:, 0].astype(int), relabel=False)
    np.testing.assert_array_equal(plain.state, [[3, 7], [3, 0]])
    assert plain.num_states == 8
    hashed = oj.with_states(batch, lambda seen: np.where(seen[:, 0] > 5, 2**40, 7))
    np.testing.assert_array_equal(hashed.state, [[0, 1], [0, 0]])


class FewCells:
    """A discretiser that promises too few cells."""

    num_cells = 3

    def __call__(self, seen):
        """Cells 3 and 7."""
        return seen[:, 0].astype(int)


DISCRETISER_ERRORS = [
    ("negative", lambda seen: np.array([0, 1, -1]), "cell -1 is negative at trajectory 1, step 0"),
    ("float", lambda seen: seen[:, 0], "expected 3 integers, got float32 of shape \\(3,\\)"),
    ("shape", lambda seen: np.zeros((3, 1), int), "expected 3 integers, got int64 of .*\\(3, 1\\)"),
    ("short", lambda seen: np.zeros(2, int), "expected 3 integers, got int64 of shape \\(2,\\)"),
    ("64 bits", lambda seen: np.array([0, 2**40, 0]), "cell 1099511627776 .*trajectory 0, step 1"),
    ("num_cells", FewCells(), "cell 3 is beyond the 3 there are.* at trajectory 0, step 0"),
]


@pytest.mark.parametrize(
    ("discretiser", "message"), [pytest.param(*row, id=id) for id, *row in DISCRETISER_ERRORS]
)
def test_bad_discretisers_are_named(discretiser, message):
    with pytest.raises(ValueError, match=f"^discretiser: {message}"):
        oj.with_states(observed(np.array([[3.0], [7.0], [3.0]])), discretiser, relabel=False)


def test_states_need_observations_of_the_bins_dimensions():
    with pytest.raises(ValueError, match=r"^with_states needs `observation`.*with observations"):
        oj.with_states(oj.from_episodes(good(drop=["observations"])), oj.LinearBins(EDGES))
    with pytest.raises(ValueError, match=r"^observation: 2 dimensions where the bins have 3"):
        oj.with_states(oj.from_episodes(good()), oj.LinearBins(EDGES))
