"""What a registry says now is what is computed; functions are as good as names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data

import osiris_jax as oj
from osiris_jax.core import masked
from osiris_jax.relevance import RELEVANCE


def batch_of(seed=0, size=8):
    return oj.from_episodes(random_data(seed, size), num_states=NUM_STATES)


def constant(value):
    def mine(batch, log_ratio, *, discount=1.0):
        return jnp.full((), value, batch.dtype)

    return mine


def half(batch, log_ratio, *, discount=1.0, share=0.5):
    """Half of IS, or another share."""
    log_weight = masked.log_weights(log_ratio, batch.mask)
    value = masked.returns(batch.reward, batch.mask, discount)
    return share * jnp.mean(jnp.exp(log_weight) * value)


def all_or_nothing(pvalue):
    def test(batch, *, discount=1.0):
        return jnp.full(batch.num_states, pvalue, batch.dtype)

    return test


def test_a_redefined_estimator_answers_everywhere(monkeypatch):
    batch = batch_of()
    for value in (1.0, 2.0):
        monkeypatch.setitem(oj.ESTIMATORS, "mine", constant(value))
        assert oj.estimate(batch, "mine") == value
        assert oj.estimate(batch, "osiris-mine", alpha=0.3) == value
        found = oj.intervals(batch, ["mine"], methods="percentile", resamples=5)["mine"]
        assert found.value == value
        assert set(found.resampled) == {value}
        assert oj.choose_level(batch, "mine", method="model", levels=[0.1, 1.0]).value == value


@pytest.mark.parametrize("name", ["is", "wis", "mc"])
def test_a_known_name_may_mean_something_else(name, monkeypatch):
    """No faster form of what the name meant before is taken for it."""
    batch = batch_of()
    before = oj.estimate(batch, name)
    monkeypatch.setitem(oj.ESTIMATORS, name, constant(7.0))
    assert oj.estimate(batch, name) == 7
    assert np.all(oj.estimate(batch, f"osiris-{name}", alpha=np.array([0.1, 0.5])) == 7)
    found = oj.intervals(batch, [name], methods="percentile", resamples=5)[name]
    assert (found.value, *set(found.resampled)) == (7, 7)
    with pytest.raises(ValueError, match="are means of independent terms"):
        oj.intervals(batch, [name], methods="t")
    monkeypatch.undo()
    assert oj.estimate(batch, name) == before


def test_a_redefined_test_answers_everywhere(monkeypatch):
    batch = batch_of()
    expected = {0.0: oj.estimate(batch, "is"), 1.0: oj.estimate(batch, "mc")}
    for pvalue, value in expected.items():
        monkeypatch.setitem(RELEVANCE, "mine", all_or_nothing(pvalue))
        monkeypatch.setitem(RELEVANCE, "welch", all_or_nothing(pvalue))
        for test in ("mine", "welch"):
            assert np.all(oj.relevance_pvalues(batch, test) == pvalue)
            found = oj.estimate(batch, "osiris", relevance=test)
            np.testing.assert_allclose(found, value, rtol=1e-5)
            omission = oj.omission_diagnostics(batch, test, resamples=5)
            assert omission.share_kept == 1 - pvalue
            known = oj.intervals(
                batch, ["osiris"], relevance=test, methods="percentile", resamples=5
            )
            np.testing.assert_allclose(known["osiris"].value, value, rtol=1e-5)


def test_a_redefined_estimator_in_a_study(monkeypatch):
    for value in (3.0, 4.0):
        monkeypatch.setitem(oj.ESTIMATORS, "mine", constant(value))
        study = oj.Study(world="waiting-room", trials=2, sizes=(4,), estimators=["mine"])
        assert study.run(seed=0).summary()["mean"].tolist() == [value]


def test_a_function_in_place_of_a_name(double):
    batch = batch_of(1)
    expected = oj.estimate(batch, "is", discount=0.9) / 2
    np.testing.assert_allclose(oj.estimate(batch, half, discount=0.9), expected, rtol=1e-12)
    given = oj.estimate(batch, half, discount=0.9, share=1.0)
    np.testing.assert_allclose(given, 2 * expected, rtol=1e-12)
    keep = np.arange(NUM_STATES) < 2
    omitted, known = (
        oj.estimate(batch, what, relevance="oracle", keep=keep) for what in (half, "is")
    )
    np.testing.assert_allclose(omitted, known / 2, rtol=1e-12)
    mapped = jax.vmap(lambda reward: oj.estimate(batch.replace(reward=reward), half))
    both = mapped(jnp.stack([batch.reward, 3 * batch.reward]))
    np.testing.assert_allclose(both[1], 3 * both[0], rtol=1e-12)
    with pytest.raises(ValueError, match=r"^speed: not an option of `half`"):
        oj.estimate(batch, half, speed=1)


@pytest.mark.parametrize("estimator", [["wis"], None, 3])
def test_what_is_neither_a_name_nor_a_function_is_refused(estimator):
    with pytest.raises(ValueError, match=r"^estimator: expected one name"):
        oj.estimate(batch_of(), estimator)
