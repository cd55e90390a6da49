"""What a study is: settings, refusals, cells, worlds of every kind."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import random
from small_world import lean_study, small_study, small_world

import osiris_jax as oj
from osiris_jax.core import memory
from osiris_jax.models.networks import QNetwork
from osiris_jax.study import engine, plan, run, store
from osiris_jax.worlds.lunar_lander import LunarLander


def test_numbers_of_any_kind_are_the_same_study():
    lean = lean_study()
    plain = dataclasses.replace(lean, alphas=(0.1, 1.0))
    for alphas in ([0.1, 1], np.array([0.1, 1.0], np.float32), jax.numpy.array([0.1, 1.0])):
        other = dataclasses.replace(
            lean, alphas=alphas, sizes=np.int64(5), trials=np.int32(20), discount=np.float64(0.9)
        )
        assert other.settings() == plain.settings()
        assert other.to_toml() == plain.to_toml()


def test_worlds_that_differ_in_horizon_or_bins_are_told_apart():
    lean = lean_study()
    digests = {store.world_identity(lean)["world_digest"]}
    shorter = small_world()
    shorter.horizon = 5
    digests.add(store.world_identity(dataclasses.replace(lean, world=shorter))["world_digest"])
    q = QNetwork.create(random.key(0), (4,), 4, np.ones(8))
    for horizon in (30, 40):
        world = LunarLander(q, horizon=horizon, cache=None)
        one = dataclasses.replace(lean, world=world)
        digests.add(store.world_identity(one)["world_digest"])
    assert len(digests) == 4


def test_chunks_fit_the_memory_that_is_given():
    study = small_study()
    computing = engine.Engine(study)
    one = computing.bytes_per_trial()
    assert run._chunk_size(study, computing, 7 * one, None) == 7
    assert run._chunk_size(study, computing, one // 2, None) == 1
    assert run._chunk_size(study, computing, None, None) == study.trials
    assert memory.free() > 2**20


@pytest.mark.parametrize(
    ("variables", "distributed", "joins"),
    [
        ({}, None, False),
        ({"SLURM_STEP_NUM_TASKS": "4"}, None, True),
        ({"SLURM_STEP_NUM_TASKS": "1"}, None, False),
        ({"SLURM_STEP_NUM_TASKS": "4"}, False, False),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, None, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, None, True),
        ({}, True, True),
    ],
)
def test_a_cluster_is_joined_where_there_is_one(monkeypatch, variables, distributed, joins):
    for name in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "TPU_WORKER_HOSTNAMES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *given: calls.append(given))
    run.start_devices(distributed=distributed)
    assert calls == [()] * joins


def test_toml_says_the_same_study(tmp_path):
    named = oj.Study(world="express", trials=7, alphas=(0.1, 1), relevance=("welch", "true"))
    path = tmp_path / "study.toml"
    path.write_text(named.to_toml())
    again = oj.Study.from_toml(path)
    assert again.settings() == named.settings()
    assert oj.Study.from_toml(path, trials=9).trials == 9
    path.write_text(named.to_toml().replace("trials", "trails"))
    with pytest.raises(ValueError, match=r"study\.toml: 'trails' is not a field; did you mean"):
        oj.Study.from_toml(path)
    path.write_text("trials = 3\nworld express")
    with pytest.raises(ValueError, match=r"study\.toml: .*line 2"):
        oj.Study.from_toml(path)


BAD = {
    "world": {"world": "mars"},
    "trials": {"trials": 0},
    "sizes": {"sizes": (0,)},
    "sizes: 5": {"sizes": (5, 5)},
    "alphas: must be": {"alphas": (0.1, 1.2)},
    "alphas: none": {"alphas": ()},
    "alphas: 0.1 is": {"alphas": (0.1, 0.1)},
    "estimator: 'wiss'": {"estimators": ("wiss",)},
    "estimators: none": {"estimators": ()},
    "estimators: expected option": {"estimators": ("cwpdis:finished",)},
    "kept: not an option": {"estimators": ("cwpdis:kept=1",)},
    "finished": {"estimators": ("cwpdis:finished=3",)},
    "finished: 'never'": {"estimators": ("cwpdis:finished=never",)},
    "relevance: 'walch'": {"relevance": ("walch",)},
    "relevance: none": {"relevance": ()},
    "wait: not an option": {"relevance": ("welch:wait=1",)},
    "ddof": {"ddof": 3},
    "weighting: 'x'": {"weighting": "x", "relevance": ("oracle",)},
    "the discount is the whole": {"estimators": ("is:discount=0.5",)},
    "trials: expected an integer from": {"trials": 10**12},
    "seed: expected": {"seed": 2**64},
    "world: expected a name": {"world": 3},
    "weighting": {"weighting": "heavy"},
    "discount": {"discount": 1.5},
    "dtype": {"dtype": "float16"},
    "seed": {"seed": -1},
    "tolerance": {"relevance": ("true:tolerance=-1",)},
    "relevance: 'true' has no option": {"relevance": ("true:alpha=1",)},
    "truth_episodes": {"truth_episodes": 0},
    "alphas: expected a number or one of auto": {"alphas": (0.1, "best")},
    "alphas: 'auto' is given twice": {"alphas": ("auto", "auto")},
    "thresholds: must be in": {"thresholds": (-0.1,), "relevance": ("effect",)},
    "thresholds: must be .*'auto'": {"thresholds": ("auto",), "relevance": ("effect",)},
    "thresholds: 0.2 is given twice": {"thresholds": (0.2, 0.2), "relevance": ("effect",)},
    "shrinks: not an option": {"relevance": ("effect:shrinks=true",)},
    "shrink: expected bool": {"relevance": ("effect:shrink=3",)},
    "relevance: max_kept: expected an integer": {"relevance": ("welch:max_kept=-1",)},
    "max_kept: expected an integer": {"relevance": ("welch:max_kept=2.5",)},
    "fit: 'other' is unknown": {"estimators": ("dr:fit=other",)},
    "smoothing: must be 0 or more": {"estimators": ("dr:smoothing=-1",)},
    "q_folds: expected a whole number": {"estimators": ("wdr:q_folds=-2",)},
    "relevance: 'effect' has no form by lag": {
        "estimators": ("osiris-stepwise",),
        "relevance": ("effect",),
    },
    "alphas: the method `model` needs relevance by state": {
        "estimators": ("osiris-stepwise",),
        "alphas": ("auto",),
    },
}


@pytest.mark.parametrize("problem", BAD)
def test_a_study_that_cannot_be_run_is_refused_at_once(problem):
    with pytest.raises(ValueError, match=problem):
        oj.Study(**{"world": small_world(), "sizes": (5,), **BAD[problem]})


def test_a_world_without_an_oracle_or_exact_answers_says_so():
    world = small_world()
    world.oracle = None
    with pytest.raises(ValueError, match="no oracle"):
        oj.Study(world=world, relevance=("oracle",))
    lander = LunarLander(QNetwork.create(random.key(0), (4,), 4, np.ones(8)), cache=None)
    with pytest.raises(ValueError, match="tabular"):
        oj.Study(world=lander, relevance=("true",))


def test_a_world_without_states_takes_what_needs_none():
    from osiris_jax.data.policies import EpsilonGreedy
    from osiris_jax.worlds.cartpole import OBSERVATION_SCALE, environment

    q = QNetwork.create(random.key(0), (4,), 2, OBSERVATION_SCALE)
    policies = EpsilonGreedy(q, 0.3), EpsilonGreedy(q, 0.2)
    world = oj.GymnaxWorld(environment(), *policies, horizon=30)
    for name in ("osirwis", "mis"):
        with pytest.raises(ValueError, match=f"estimators: '{name}' needs states"):
            oj.Study(world=world, estimators=(name,))
    batch = world.rollout(random.key(0), 3)
    assert (batch.state, batch.num_states) == (None, 0)
    result = oj.Study(
        world=world, trials=4, sizes=(3,), estimators=("wis",), truth_episodes=10
    ).run()
    batch = world.rollout(random.fold_in(random.key(0), 2), 3)
    expected = float(oj.estimate(batch, "wis"))
    assert result.trials().value[2] == pytest.approx(expected, rel=1e-4)


def test_the_rows_of_a_study_are_its_cells():
    study = small_study()
    cells = study.cells()
    assert len(set(cells)) == len(cells) == 2 * (3 + 2 * (2 * 2 + 2))
    assert cells[0] == plan.Cell("wis", None, None, None, 5)
    assert plan.Cell("osiris-pdis", "oracle", None, None, 9) in cells
    assert plan.Cell("osiris-pdis", "welch", 0.1, None, 9) in cells


def test_what_reads_probabilities_if_there_are_any_is_given_them():
    """Else the automatic choice would depend on the estimators beside it."""
    settings = {"world": "waiting-room", "trials": 4, "sizes": (8,)}
    alone = oj.Study(**settings, estimators=("auto",)).run()
    beside = oj.Study(**settings, estimators=("auto", "dm")).run()
    columns = [list(map(str, one.study.cells())) for one in (alone, beside)]
    assert columns[0] == columns[1][:1]
    np.testing.assert_allclose(
        alone.store.values()[:, 0], beside.store.values()[:, 0], rtol=1e-5, atol=1e-6
    )
    assert not dataclasses.replace(alone.study, estimators=("wis",)).needs_probs
