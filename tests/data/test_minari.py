"""Minari data sets, made here on disk, to a batch."""

import sys
import warnings

import gymnasium as gym
import jax
import minari
import numpy as np
import pytest
from minari.data_collector import EpisodeBuffer
from test_from_episodes import assert_same

import osiris_jax as oj
from osiris_jax.models.networks import QNetwork, save_network

spaces = gym.spaces


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def episodes(seed=0, lengths=(3, 1, 4), start=0):
    """Ragged episodes with one observation more than steps."""
    rng = np.random.default_rng(seed)
    return [
        {
            "observations": rng.normal(size=(steps + 1, 2)).astype(np.float32),
            "actions": rng.integers(3, size=steps) + start,
            "rewards": rng.normal(size=steps),
            "truncated": steps == 3,
        }
        for steps in lengths
    ]


def made(data, name="test/log-v0", *, seen=None, actions=None, data_format="hdf5"):
    """The data set that Minari keeps of these episodes."""
    buffers = [
        EpisodeBuffer(
            id=i,
            observations=list(one["observations"]),
            actions=list(one["actions"]),
            rewards=list(one["rewards"]),
            terminations=[False] * (len(one["rewards"]) - 1) + [not one["truncated"]],
            truncations=[False] * (len(one["rewards"]) - 1) + [one["truncated"]],
            infos={},
        )
        for i, one in enumerate(data)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to know the authors
        return minari.create_dataset_from_buffers(
            name,
            buffers,
            observation_space=seen or spaces.Box(-np.inf, np.inf, (2,), np.float32),
            action_space=actions or spaces.Discrete(3),
            data_format=data_format,
        )


def expected(data, **options):
    parts = [{**one, "observations": one["observations"][:-1]} for one in data]
    return oj.from_episodes(parts, num_actions=3, **options)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_vectors(data_format):
    data = episodes()
    dataset = made(data, data_format=data_format)
    said = []
    batch = oj.from_minari(dataset, say=said.append)
    assert_same(batch, expected(data))
    assert batch.truncated.tolist() == [True, False, False]
    assert_same(oj.from_minari("test/log-v0", bucket=True), expected(data, bucket=True))
    assert said == [
        "target: the log says nothing of the policy to evaluate; give it by with_policies"
    ]


def test_ids_and_actions_that_start_elsewhere():
    data = episodes(start=5)
    for one in data:
        one["observations"] = np.arange(len(one["observations"])) % 4 + 2
    dataset = made(data, seen=spaces.Discrete(6, start=2), actions=spaces.Discrete(3, start=5))
    batch = oj.from_minari(dataset)
    parts = [
        {
            "states": one["observations"][:-1] - 2,
            "actions": one["actions"] - 5,
            "rewards": one["rewards"],
            "truncated": one["truncated"],
        }
        for one in data
    ]
    assert_same(batch, oj.from_episodes(parts, num_states=6, num_actions=3))


def test_a_function_for_other_observations():
    data = episodes()
    dataset = made(data)
    batch = oj.from_minari(dataset, observe=lambda seen: (seen[:, 0] > 0).astype(int))
    states = [(one["observations"][:-1, 0] > 0).astype(int) for one in data]
    for i, wanted in enumerate(states):
        np.testing.assert_array_equal(np.asarray(batch.state)[i, : len(wanted)], wanted)
    assert batch.observation is None


def test_policies_and_a_fit(tmp_path):
    data = episodes(lengths=(3, 1, 4, 2, 5))
    dataset = made(data)
    network = QNetwork.create(jax.random.key(0), (4,), 3, np.ones(2))
    path = save_network(tmp_path / "q.npz", network)
    batch = oj.from_minari(dataset, target=path, epsilon=0.3, behavior=path, behavior_epsilon=0.6)
    greedy = np.asarray(network(batch.observation)).argmax(-1)
    ratio = np.where(greedy == batch.action, 0.8 / 0.6, 0.1 / 0.2)
    mask = np.asarray(batch.mask)
    np.testing.assert_allclose(np.exp(batch.log_ratio)[mask], ratio[mask], rtol=1e-5)
    said = []
    bare = oj.from_minari(dataset, target=path, epsilon=0.3, say=said.append)
    assert bare.log_ratio is None
    assert said[-1].startswith("behavior: the log has no probabilities of its own actions")
    np.testing.assert_allclose(bare.target_probs, batch.target_probs, rtol=1e-6)
    assert np.isfinite(np.asarray(oj.fit_behavior(bare).batch.log_ratio)).all()


def test_what_cannot_be_read_is_named():
    with pytest.raises(FileNotFoundError, match="none-v0"):
        oj.from_minari("none-v0")
    with pytest.raises(ValueError, match="dataset: expected a MinariDataset or its id, got 3"):
        oj.from_minari(3)
    data = episodes()
    for one in data:
        one["actions"] = np.zeros((len(one["rewards"]), 1), np.float32)
    dataset = made(data, actions=spaces.Box(-1, 1, (1,)))
    with pytest.raises(ValueError, match="action_space: only Discrete actions"):
        oj.from_minari(dataset)
    data = episodes()
    data[1]["rewards"] = np.array([np.nan])
    with pytest.raises(ValueError, match="rewards: NaN at trajectory 1, step 0"):
        oj.from_minari(made(data, "test/nan-v0"))


def test_words_as_observations_need_a_function():
    data = episodes()
    for one in data:
        one["observations"] = ["a"] * len(one["observations"])
    dataset = made(data, seen=spaces.Text(3))
    with pytest.raises(ValueError, match="observation_space: Text needs observe"):
        oj.from_minari(dataset)
    batch = oj.from_minari(dataset, observe=lambda seen: np.array([len(word) for word in seen]))
    assert int(np.asarray(batch.state)[0, 0]) == 1


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ValueError, match=r'pip install "osiris-jax\[minari\]"'):
        oj.from_minari("some-v0")
