"""INCRIS on ratios from e^-50 to e^50, in both float types, against long double."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import incremental as oracle_wild

import osiris_jax as oj
from osiris_jax.estimators import incremental

DATA_SETS = 60
SHAPES = ((7, 5), (50, 40))


@jax.jit
def _incris(batch):
    choice = incremental.choose_cuts(batch, batch.log_ratio)
    return choice, oj.ESTIMATORS["incris"](batch, batch.log_ratio)


def load(data):
    return oj.TrajectoryBatch(*map(jnp.asarray, (data.reward, data.mask, data.log_ratio)))


def test_incris_of_wild_ratios_is_as_exact_as_its_float_type(float_type):
    """No cut is illegal or worse than ties and rounding explain, no mean further off than that."""
    undefined = 0
    for seed in range(DATA_SETS):
        data = oracle_wild.wild_data(seed, float_type, SHAPES)
        (cuts, means), value = jax.tree.map(np.asarray, _incris(load(data)))
        judged = [
            oracle_wild.judge_cut(
                oracle_wild.cuts_of_reward(data, t + 1), int(cut), mean, float_type
            )
            for t, (cut, mean) in enumerate(zip(cuts, means, strict=True))
        ]
        assert all(one.legal for one in judged), seed
        assert max(one.score_units for one in judged) <= 1, seed
        known = [one for one in judged if one.representable]
        assert max((one.mean_units for one in known), default=0) <= 1, seed
        if len(known) == len(judged):
            np.testing.assert_allclose(value, means.sum(dtype=np.longdouble), rtol=1e-4)
        undefined += not np.isfinite(value)
    assert undefined < DATA_SETS / 2


def test_incris_where_products_of_the_error_overflow():
    """Two policies over two actions: 7.69e17 in float32 where rewards are 1 and there are 40."""
    rng = np.random.default_rng(0)
    action = (rng.random((50, 40)) < 0.2).astype(int)
    batch = oj.from_arrays(
        reward=np.ones((50, 40)),
        action=action,
        state=np.zeros((50, 40), int),
        behavior_prob=np.where(action == 0, 0.8, 0.2),
        target_prob=np.where(action == 0, 0.2, 0.8),
    )
    data = oracle_wild.Wild(*map(np.asarray, (batch.reward, batch.log_ratio, batch.mask)))
    expected = 0
    for t in range(40):
        cuts = oracle_wild.cuts_of_reward(data, t + 1)
        expected = expected + cuts.mean[np.argmin(cuts.score)]
    np.testing.assert_allclose(oj.estimate(batch, "incris"), float(expected), rtol=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_of_wild_data_is_the_definition(seed):
    """Against the plain oracle, which computes scores one by one from lists."""
    import oracles as oracle

    data = oracle_wild.wild_data(5 * seed, "float64")
    log = [
        {"rewards": r[m], "log_ratio": x[m]}
        for r, x, m in zip(data.reward, data.log_ratio, data.mask, strict=True)
    ]
    for t in range(1, data.mask.shape[1] + 1):
        scores, means = zip(*oracle.incris_scores(log, 1.0, t)[::-1], strict=True)
        cuts = oracle_wild.cuts_of_reward(data, t)
        np.testing.assert_allclose(
            cuts.score, np.array(scores, np.longdouble), rtol=1e-9, atol=1e-15 * max(scores)
        )
        np.testing.assert_allclose(cuts.mean, np.array(means, np.longdouble), rtol=1e-9)
