"""Ragged lists to a batch; also the good data and the bad cells that the other ways in share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import osiris_jax as oj

PLURAL = {name: f"{name}s" for name in ("state", "action", "reward", "observation")}
NARROW = ("behavior_prob", "target_prob")
WIDE = ("behavior_probs", "target_probs")
OTHER_FORM = dict(zip(NARROW + WIDE, WIDE + NARROW, strict=True))
VECTORS = ("observation", *WIDE)
NOT_A_NUMBER = [("x", "'x'"), (None, "None"), (2j, "2j"), (object(), "object")]

# What may stand in one cell and must not: (field, value, what the message says of it).
BAD_CELLS = [
    *((field, value, f"expected a real number, got .*{said}")
      for field in ("reward", "state", "log_ratio", "behavior_prob", "observation", "target_probs")
      for value, said in NOT_A_NUMBER),
    *((field, np.nan, "NaN")
      for field in ("reward", "state", "action", "log_ratio", "observation", *NARROW, *WIDE)),
    *((field, value, f"{value} is not in \\[0, 1\\]")
      for field in (*NARROW, *WIDE) for value in (1.2, -0.1, np.inf)),
    *((field, value, "not finite")
      for field in ("reward", "observation") for value in (np.inf, -np.inf)),
    *((field, value, problem)
      for field in ("state", "action")
      for value, problem in [
          (-1, "-1.* is negative"),
          (0.5, "0.5 is not an integer"),
          (np.inf, "inf is not an integer"),
          (2**70, ".* is too large an id")]),
    *((field, -1e39, "-1e\\+39 is too large for float32")
      for field in ("reward", "observation", "log_ratio")),
    ("reward", 10**400, "expected a real number, got 10000"),
    ("log_ratio", np.inf, "\\+inf"),
    ("behavior_prob", 0, "0 for the logged action"),
    ("target_probs", 0.9, "probabilities sum to"),
    ("behavior_probs", 0.0, "probabilities sum to"),
]  # fmt: skip


def good(*, drop=()):
    """Two episodes with every key there is; the target forbids the action of trajectory 0, step 1.

    The longer comes first, so a table sorted by falling step keeps the order of the two.
    """
    episodes = [
        {
            "states": [0, 3, 1],
            "observations": [[0.0, 0.5], [1.5, -1.0], [2.0, 4.0]],
            "actions": [0, 1, 0],
            "rewards": [1, 0, -2],
            "behavior_probs": [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]],
            "target_probs": [[1.0, 0.0, 0.0], [0.75, 0.0, 0.25], [0.125, 0.25, 0.625]],
        },
        {
            "states": [1, 0],
            "observations": [[2.5, 4.5], [0.5, 1.0]],
            "actions": [1, 0],
            "rewards": [0.5, 3],
            "behavior_probs": [[0.25, 0.5, 0.25], [0.5, 0.5, 0.0]],
            "target_probs": [[0.25, 0.25, 0.5], [0.5, 0.0, 0.5]],
        },
    ]
    return [add_derived(episode, drop) for episode in episodes]


def add_derived(episode, drop=()):
    """The episode with the logged actions' probabilities and their log-ratio added."""
    for narrow, wide in zip(NARROW, WIDE, strict=True):
        steps = zip(episode[wide], episode["actions"], strict=True)
        episode[narrow] = [row[action] for row, action in steps]
    with np.errstate(divide="ignore"):
        log_ratio = np.log(episode["target_prob"]) - np.log(episode["behavior_prob"])
    episode["log_ratio"] = log_ratio.tolist()
    return {key: value for key, value in episode.items() if key not in drop}


def random_episodes(seed, lengths):
    """Random episodes of these lengths, as lists, with every key there is."""
    rng = np.random.default_rng(seed)
    episodes = [
        {
            "states": rng.integers(5, size=steps).tolist(),
            "observations": rng.normal(size=(steps, 2)).tolist(),
            "actions": rng.integers(3, size=steps).tolist(),
            "rewards": rng.normal(size=steps).tolist(),
            "behavior_probs": rng.dirichlet(np.ones(3), size=steps).tolist(),
            "target_probs": rng.dirichlet(np.ones(3), size=steps).tolist(),
        }
        for steps in lengths
    ]
    return [add_derived(episode) for episode in episodes]


def assert_same(batch, expected, rtol=0.0):
    """Equal (or close) in every field, padding included, and in every static field."""
    assert jax.tree.structure(batch) == jax.tree.structure(expected)
    for field, wanted in vars(expected).items():
        value = getattr(batch, field)
        assert getattr(value, "dtype", None) == getattr(wanted, "dtype", None), field
        if isinstance(wanted, jax.Array):
            np.testing.assert_allclose(value, wanted, rtol=rtol, atol=rtol, err_msg=field)


# ------------------------------------------------------------------------------- good input


def test_every_field_is_padded_with_zeros_and_masked():
    batch = oj.from_episodes(good())
    with np.errstate(divide="ignore"):
        log_ratio = np.log([[2, 0, 0.25], [0.5, 1, 1]])
    expected = {
        "reward": [[1, 0, -2], [0.5, 3, 0]],
        "state": [[0, 3, 1], [1, 0, 0]],
        "action": [[0, 1, 0], [1, 0, 0]],
        "mask": [[1, 1, 1], [1, 1, 0]],
        "log_ratio": log_ratio,
        "behavior_log_prob": np.log([[0.5, 0.25, 0.5], [0.5, 0.5, 1]]),
        "lengths": [3, 2],
    }
    for field, value in expected.items():
        np.testing.assert_allclose(getattr(batch, field), value, rtol=1e-6, err_msg=field)
    for field, key in [("observation", "observations"), *zip(WIDE, WIDE, strict=True)]:
        ragged = [episode[key] for episode in good()]
        np.testing.assert_allclose(getattr(batch, field)[0], ragged[0])
        np.testing.assert_allclose(getattr(batch, field)[1, :2], ragged[1])
        np.testing.assert_array_equal(getattr(batch, field)[1, 2], 0)
    assert (batch.num_states, batch.num_actions, batch.dtype) == (4, 3, np.float32)
    assert batch.mask.dtype == bool
    assert batch.state.dtype == batch.action.dtype == np.int32


@pytest.mark.parametrize(
    "convert",
    [np.asarray, jnp.asarray, tuple, lambda v: np.asarray(v, object), np.float16, np.longdouble],
    ids=["numpy", "jax", "tuple", "object", "float16", "longdouble"],
)
def test_containers_and_number_types_do_not_matter(convert):
    keys = ("observations", "states", "actions", "rewards", *WIDE)
    episodes = [{key: episode[key] for key in keys} for episode in good()]
    converted = [{k: convert(v) for k, v in episode.items()} for episode in episodes]
    assert_same(oj.from_episodes(tuple(converted)), oj.from_episodes(episodes))


def test_booleans_are_numbers():
    episode = {"states": [0, 1], "actions": [1, 0], "rewards": [0, 1]}
    flags = {key: [bool(entry) for entry in value] for key, value in episode.items()}
    assert_same(oj.from_episodes([flags]), oj.from_episodes([episode]))


@pytest.mark.parametrize(
    "drop",
    [WIDE, NARROW, ("log_ratio", *WIDE), ("log_ratio", *NARROW), ("log_ratio",), NARROW + WIDE,
     ("log_ratio", "behavior_probs", "target_prob"), ("behavior_prob", "behavior_probs")],
    ids=" ".join,
)  # fmt: skip
def test_log_ratio_is_the_same_from_any_form(drop):
    full, batch = oj.from_episodes(good()), oj.from_episodes(good(drop=drop))
    np.testing.assert_allclose(batch.log_ratio, full.log_ratio, rtol=1e-6)
    assert [getattr(batch, field) is None for field in WIDE] == [field in drop for field in WIDE]
    has_behavior = not {"behavior_prob", "behavior_probs"} <= set(drop)
    assert (batch.behavior_log_prob is not None) == has_behavior


def test_given_log_ratio_wins_over_probabilities():
    episodes = good()
    episodes[0]["log_ratio"] = [0.1, 0.2, -np.inf]
    np.testing.assert_allclose(oj.from_episodes(episodes).log_ratio[0], [0.1, 0.2, -np.inf])


@pytest.mark.parametrize("behavior", [(), ("behavior_prob",), ("behavior_probs",)], ids=str)
def test_a_log_without_target_loads_without_ratios(behavior):
    absent = {"log_ratio", "target_prob", *NARROW, *WIDE} - set(behavior)
    batch = oj.from_episodes(good(drop=absent))
    assert batch.log_ratio is None
    assert batch.target_probs is None
    assert (batch.behavior_log_prob is None) == (not behavior)


def test_observations_may_stand_instead_of_states():
    only, both = oj.from_episodes(good(drop=["states"])), oj.from_episodes(good())
    assert_same(only, both.replace(state=None, num_states=0))


def test_numbers_of_ids_may_be_given():
    few = good(drop=["log_ratio", *WIDE])
    batch = oj.from_episodes(few, num_states=np.int64(7), num_actions=5)
    assert (batch.num_states, batch.num_actions) == (7, 5)
    assert oj.from_episodes(few).num_actions == 2  # as seen
    assert oj.from_episodes(good()).num_actions == 3  # as wide as the policies


def test_the_smallest_and_the_largest_numbers_that_fit_are_taken():
    smallest = {"states": [0], "actions": [0], "rewards": [-np.finfo("float32").max]}
    batch = oj.from_episodes([smallest], num_states=1, num_actions=1)
    assert (batch.num_states, batch.num_actions) == (1, 1)
    largest = {"states": [2**31 - 2], "actions": [0], "rewards": [np.finfo("float32").max]}
    batch = oj.from_episodes([largest], num_states=2**31 - 1)
    assert (batch.num_states, int(batch.state[0, 0])) == (2**31 - 1, 2**31 - 2)
    assert np.isfinite(batch.reward[0, 0])


def test_bucket_pads_further():
    batch = oj.from_episodes(good(), bucket=True)
    assert_same(batch, oj.pad_to(oj.from_episodes(good()), 4))


def test_float_type_is_jaxs_unless_given():
    episodes = good()
    episodes[0]["rewards"][0] = 1 + 2**-40
    with jax.enable_x64(True):
        batch = oj.from_episodes(episodes)
        assert batch.reward[0, 0] == 1 + 2**-40
        assert {x.dtype for x in jax.tree.leaves(batch)} == {
            np.dtype(kind) for kind in ("float64", "int32", "bool")
        }
        assert oj.from_episodes(episodes, dtype="float32").dtype == np.float32
        episodes[0]["rewards"][0] = 1e300
        assert oj.from_episodes(episodes).reward[0, 0] == 1e300
    assert oj.from_episodes(good(), dtype=jnp.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float64"}, "^dtype: float64 needs .*enable_x64"),
        ({"dtype": "int32"}, "^dtype: expected float32 or float64, got int32"),
        ({"dtype": "float16"}, "^dtype: .*float16"),
        ({"dtype": "flaot32"}, "^dtype: .*'flaot32'"),
        ({"num_states": 3}, "^states: 3 is not below .* 3, at trajectory 0, step 1"),
        ({"num_actions": 2}, "^behavior_probs: 3 actions where 2 are expected"),
        ({"num_states": 0}, "^num_states: .*positive integer, got 0"),
        ({"num_states": 4.5}, "^num_states: .*4.5"),
        ({"num_actions": "3"}, "^num_actions: .*'3'"),
    ],
    ids=str,
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        oj.from_episodes(good(), **options)


# -------------------------------------------------------------------------------- bad input

PLACE = "trajectory 1, step 1\\b"


def put(field, value, *, keep_other_form=False):
    """Puts the value at trajectory 1, step 1 (in a vector: in the entry of the logged action)."""

    def mutate(episodes):
        key = PLURAL.get(field, field)
        steps = episodes[1][key]
        if field in VECTORS:
            steps[1][0] = value
        else:
            steps[1] = value
        if not keep_other_form:
            for episode in episodes:
                episode.pop(OTHER_FORM.get(field), None)

    return mutate


def entry(trajectory, **changes):
    """Changes whole entries of one episode; None removes the key."""

    def mutate(episodes):
        episodes[trajectory].update(changes)
        for key in [key for key, value in changes.items() if value is None]:
            del episodes[trajectory][key]

    return mutate


def dropping(*keys):
    """The good episodes without some keys."""
    return lambda _: good(drop=keys)


def one_of(**changes):
    """One episode with few keys, changed."""
    few = {"states": [0], "actions": [0], "rewards": [0.0]}
    return lambda _: [few | changes]


BAD = [
    *((f"{field}={value!r:.12}", put(field, value), f"{PLURAL.get(field, field)}: {said}.*{PLACE}")
      for field, value, said in BAD_CELLS),
    ("no episodes", lambda _: [], "episodes: expected a list of at least one"),
    ("a number", lambda _: 0, "episodes: expected a list"),
    ("one dict", lambda episodes: episodes[0], "episodes: expected a list"),
    ("generator", iter, "episodes: expected a list"),
    ("text", lambda _: "abc", "episodes: trajectory 0 is a str, not a dict"),
    ("not dicts", lambda episodes: [episodes[0], [1]], "episodes: trajectory 1 is a list"),
    ("no keys", lambda _: [{}, {}], "rewards: missing"),
    ("typo", entry(1, reward=[1, 2]), "reward: not a field, at trajectory 1.*mean rewards\\?"),
    ("British", entry(0, behaviour_prob=[]), "behaviour_prob: .*trajectory 0.*behavior_prob\\?"),
    ("unknown", entry(1, zzz=[]), "zzz: .*trajectory 1.*there are states, .*target_probs"),
    ("odd key", lambda _: [{0: [1]}], "0: not a field, at trajectory 0"),
    ("key only later", lambda e: [good(drop=["states"])[0], e[1]], "states: missing at .*ory 0"),
    ("key only first", entry(1, actions=None), "actions: missing at trajectory 1"),
    ("no rewards", dropping("rewards"), "rewards: missing"),
    ("no actions", dropping("actions"), "actions: missing"),
    ("no states", dropping("states", "observations"), "states: missing, .* observations"),
    ("empty episode", lambda _: [{key: [] for key in good()[0]}], "rewards: empty trajectory 0"),
    ("no steps", one_of(states=[], actions=[], rewards=[]), "rewards: empty trajectory 0"),
    ("short", entry(1, actions=[1]), "actions: 1 steps where rewards has 2.*trajectory 1, step 1"),
    ("long", entry(1, states=[1, 0, 1]), "states: 3 steps where rewards has 2.*ory 1, step 2"),
    ("no vectors", entry(1, observations=[]), "observations: 0 steps where .*ory 1, step 0"),
    ("scalar", entry(1, rewards=3.0), "rewards: expected one number per step at trajectory 1"),
    ("no list", one_of(rewards=None), "rewards: expected one number per step at trajectory 0"),
    ("a word", entry(1, rewards="ab"), "rewards: expected one number per step at trajectory 1"),
    ("texts", entry(1, rewards=["1", "2"]), "rewards: .*'1' at trajectory 1, step 0 .and 1 more"),
    ("dates", entry(1, rewards=np.zeros(2, "M8[s]")), "rewards: .* at trajectory 1, step 0"),
    ("complex", entry(1, rewards=np.zeros(2) + 0j), "rewards: .*0j at trajectory 1, step 0"),
    ("matrix", entry(1, rewards=np.ones((2, 2))), "rewards: .* at trajectory 1, step 0"),
    ("nested", entry(1, states=[[1], [0]]), "states: expected one number .*ory 1, step 0"),
    ("nested later", put("state", [1, 2]), f"states: expected one number .*{PLACE}"),
    ("flat vectors", entry(1, observations=[1.0, 2.0]), "observations: .*one vector .*ory 1"),
    ("scalar vector", entry(1, observations=[[1, 2], 3]), f"observations: .*one vector.*{PLACE}"),
    ("short vector", entry(1, observations=[[1, 2], [3]]), f"observations: .*one vector.*{PLACE}"),
    ("nested vector", put("observation", [1, 2]), f"observations: .*one vector.*{PLACE}"),
    ("other size", entry(1, observations=[[1], [2]]),
     "observations: .*size 1 at trajectory 1, step 0, where trajectory 0 has size 2"),
    ("other width", entry(0, target_probs=[[1, 0]] * 3), "target_probs: .*size 3 at trajectory 1"),
    ("widths", lambda e: [e[0] | {"target_probs": [[1, 0]] * 3}], "target_probs: 2 actions where"),
    ("action beyond", put("action", 3), f"actions: 3 is not below .* 3, at {PLACE}"),
    ("contradiction", put("behavior_prob", 0.3, keep_other_form=True),
     f"behavior_prob: 0.3 contradicts 0.5 in behavior_probs at {PLACE}"),
    ("zero in wide", lambda _: [
        good(drop=NARROW)[0] | {"behavior_probs": [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1, 0, 0]]}],
     "behavior_probs: 0 for the logged action.* at trajectory 0, step 1"),
]  # fmt: skip


def test_a_target_without_a_behaviour_policy_loads_without_ratios():
    batch = oj.from_episodes(good(drop=["log_ratio", "behavior_probs", *NARROW]))
    np.testing.assert_allclose(batch.target_probs[0], good()[0]["target_probs"])
    assert batch.log_ratio is None
    with pytest.raises(ValueError, match="needs `log_ratio`, which this batch lacks"):
        oj.estimate(batch, "wis")


@pytest.mark.parametrize(("mutate", "message"), [pytest.param(*row, id=id) for id, *row in BAD])
def test_bad_input_is_named(mutate, message):
    episodes = good()
    replaced = mutate(episodes)
    with pytest.raises(ValueError, match=f"^{message}"):
        oj.from_episodes(episodes if replaced is None else replaced)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    key=st.sampled_from(sorted(good()[0])),
    value=st.sampled_from([np.nan, np.inf, -1, "x", None, [1, 2]]),
    data=st.data(),
)
def test_one_bad_cell_anywhere_is_named(seed, lengths, key, value, data):
    episodes = random_episodes(seed, lengths)
    trajectory = data.draw(st.integers(0, len(lengths) - 1))
    step = data.draw(st.integers(0, lengths[trajectory] - 1))
    assume(not (value == "x" and key in ("states", "actions") and sum(lengths) == 1))  # a name
    steps = episodes[trajectory][key]
    if isinstance(steps[step], list):
        steps[step][data.draw(st.integers(0, len(steps[step]) - 1))] = value
    else:
        steps[step] = value
    if value == -1 and key in ("rewards", "observations", "log_ratio"):
        assert oj.from_episodes(episodes).lengths.tolist() == lengths
    else:
        with pytest.raises(ValueError, match=rf"^{key}: .*trajectory {trajectory}, step {step}\b"):
            oj.from_episodes(episodes)


def test_probabilities_apart_by_rounding_have_a_ratio_of_one():
    episode = {"states": [0], "actions": [0], "rewards": [1.0]}
    probs = {"behavior_prob": [0.1 + 0.2], "target_prob": [0.3]}
    assert oj.from_episodes([episode | probs]).log_ratio[0, 0] == 0
