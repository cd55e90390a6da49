"""ICU-Sepsis as its files and its paper describe it."""

from importlib.metadata import PackageNotFoundError, files

import numpy as np
import pytest

from osiris_jax.worlds import icu_sepsis, make

LIVING = 713  # states of ICU-Sepsis that do not end a stay


@pytest.fixture(scope="module")
def sepsis():
    return make("icu-sepsis")


@pytest.fixture(scope="module")
def wheel():
    """The arrays of the package's own file."""
    path = next(p for p in files("icu-sepsis") if str(p).endswith("dynamics.npz"))
    with np.load(str(path.locate())) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def sepsis_policies(wheel):
    """Uniform, expert and optimal, the last by policy iteration, the first of equal actions."""
    transition, states, actions = wheel["tx_mat"], *wheel["expert_policy"].shape
    uniform = np.full((states, actions), 1 / actions)
    expert = uniform.copy()
    expert[:LIVING] = wheel["expert_policy"][:LIVING]
    paid = np.einsum("ijk,ijk->ij", transition, wheel["r_mat"])[:LIVING]
    onward, rows = transition[:LIVING, :, :LIVING], np.arange(LIVING)
    chosen, before = paid.argmax(1), None
    while not np.array_equal(chosen, before):
        before = chosen
        value = np.linalg.solve(np.eye(LIVING) - onward[rows, chosen], paid[rows, chosen])
        action_value = paid + onward @ value
        chosen = (action_value >= action_value.max(1, keepdims=True) - 1e-9).argmax(1)
    optimal = np.eye(actions)[np.append(chosen, [0, 0, 0])]
    return {"uniform": uniform, "expert": expert, "optimal": optimal}


@pytest.mark.parametrize(
    ("name", "value", "length"),
    [("uniform", 0.7801, 9.46), ("expert", 0.7818, 9.24), ("optimal", 0.8751, 10.99)],
)
def test_icu_sepsis_has_the_known_values(sepsis, sepsis_policies, name, value, length):
    exact, policy = sepsis.exact(), sepsis_policies[name]
    assert exact.policy_value(policy) == pytest.approx(value, abs=5e-5)
    lengths = exact.length_probs(policy)
    assert lengths.sum() == pytest.approx(1)
    assert lengths @ np.arange(501) == pytest.approx(length, abs=5e-3)


def test_icu_sepsis_is_as_large_as_described(sepsis):
    assert repr(sepsis) == "TabularWorld('icu-sepsis', num_states=716, num_actions=25, horizon=500)"
    assert sepsis.size == 100
    assert np.flatnonzero(sepsis.dynamics.terminal).tolist() == [713, 714, 715]


def test_icu_sepsis_mixes_the_policies_as_described(sepsis, sepsis_policies):
    """In a third of the states several actions are best: whatever the rounding, it is the first."""
    expert = sepsis_policies["expert"]
    behavior = 0.9 * expert + 0.1 * sepsis_policies["uniform"]
    np.testing.assert_allclose(sepsis.behavior_probs, behavior, rtol=1e-6)
    target = 0.5 * expert + 0.5 * sepsis_policies["optimal"]
    np.testing.assert_allclose(sepsis.target_probs[:LIVING], target[:LIVING], rtol=0, atol=1e-6)


def test_icu_sepsis_keeps_the_files_transitions(sepsis, wheel):
    dynamics = sepsis.dynamics
    rng = np.random.default_rng(0)
    for state, action in zip(rng.integers(0, 713, 50), rng.integers(0, 25, 50), strict=True):
        row = np.zeros(716)
        np.add.at(row, dynamics.successor[state, action], dynamics.probability[state, action])
        np.testing.assert_allclose(row, wheel["tx_mat"][state, action], rtol=1e-6, atol=1e-12)
    start = np.zeros(716)
    start[dynamics.start] = dynamics.start_probability
    np.testing.assert_allclose(start, wheel["d_0"], rtol=1e-6)


def test_without_the_package_the_extra_is_named(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    for absent in (missing, lambda name: None, lambda name: []):
        monkeypatch.setattr(icu_sepsis, "files", absent)
        with pytest.raises(ModuleNotFoundError, match=r"osiris-jax\[sepsis\]"):
            icu_sepsis.icu_sepsis()
