"""Studies that several files of this folder look at."""

import dataclasses

import pytest
from small_world import small_world

import osiris_jax as oj

ESTIMATORS = ("wis", "cwpdis:finished=drop", "on-policy", "osirwis", "osiris-pdis")
RELEVANCE = ("welch", "welch:weighting=none:ddof=0", "oracle", "true:tolerance=0.2")


@pytest.fixture(scope="module")
def study():
    return oj.Study(
        world=small_world(),
        trials=20,
        sizes=(5, 9),
        alphas=(0.1, 1.0),
        estimators=ESTIMATORS,
        relevance=RELEVANCE,
        discount=0.9,
        seed=3,
    )


@pytest.fixture(scope="module")
def lean(study):
    """The same with little to compile."""
    return dataclasses.replace(
        study, sizes=(5,), estimators=("wis", "osirwis"), relevance=("welch",)
    )
