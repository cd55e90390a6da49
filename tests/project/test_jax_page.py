"""docs/jax.md: its examples run, and the constructor names what is wrong, also under jit."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datasets import NUM_STATES, random_data

import osiris_jax as oj

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"


def test_the_examples_of_the_page(capsys):
    known = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 5
    for block in blocks:
        exec(block, known)
    assert known["better"] > known["value"]
    np.testing.assert_allclose(known["value"], known["reward"].sum(1).mean(), rtol=1e-5)
    for seed, batch in enumerate(known["worlds"]):
        alone = oj.estimate(batch, "osirwis", alpha=0.1)
        np.testing.assert_allclose(known["values"][seed], alone, rtol=1e-5)
    np.testing.assert_allclose(known["by_target"][1], oj.estimate(known["batch"], "wis"), rtol=1e-5)
    printed = re.search(r"print\(problem\)  # (.*)", PAGE.read_text())[1]
    assert capsys.readouterr().out.strip() == printed


def fields(**changes):
    """The fields of a batch of 4 x 3 steps, some changed."""
    good = {
        "reward": jnp.ones((4, 3)),
        "mask": jnp.ones((4, 3), bool),
        "log_ratio": jnp.zeros((4, 3)),
        "action": jnp.zeros((4, 3), int),
        "state": jnp.zeros((4, 3), int),
        "target_probs": jnp.full((4, 3, 2), 0.5),
        "num_states": 2,
        "num_actions": 2,
    }
    return good | changes


WRONG = {
    "mask: expected booleans": {"mask": jnp.ones((4, 3))},
    "mask: expected shape 4x3": {"mask": jnp.ones((4, 2), bool)},
    "num_states: expected the number of state ids, got 0": {"num_states": 0},
    "num_actions: expected the number of action ids, got 0": {
        "num_actions": 0,
        "target_probs": None,
    },
    "log_ratio: expected shape 4x3, as `reward` has it, got (4, 1)": {
        "log_ratio": jnp.zeros((4, 1))
    },
    "log_ratio: expected real numbers, got int": {"log_ratio": jnp.zeros((4, 3), int)},
    "reward: expected real numbers, got int": {"reward": jnp.ones((4, 3), int)},
    "state: expected integer ids, got float": {"state": jnp.zeros((4, 3))},
    "action: expected shape 4x3": {"action": jnp.zeros(4, int)},
    "target_probs: expected shape 4x3x[action]": {"target_probs": jnp.zeros((4, 3))},
    "target_probs: 5 columns, but num_actions=2": {"target_probs": jnp.zeros((4, 3, 5))},
    "observation: expected shape 4x3x[dim]": {"observation": jnp.zeros((4, 3))},
}


@pytest.mark.parametrize("problem", WRONG)
@pytest.mark.parametrize("compiled", [False, True])
def test_a_wrong_field_is_named(problem, compiled):
    given = fields(**WRONG[problem])
    sizes = {name: given.pop(name) for name in ("num_states", "num_actions")}

    def make(arrays):
        return oj.TrajectoryBatch(**arrays, **sizes).reward

    with pytest.raises(ValueError, match=f"^{re.escape(problem)}"):
        (jax.jit(make) if compiled else make)(given)


def test_trees_that_are_no_data_are_let_through():
    batch = oj.TrajectoryBatch(**fields())
    shapes = jax.eval_shape(lambda x: x, batch)
    assert shapes.mask.dtype == bool
    for function in (jnp.sum, jnp.isfinite, lambda x: None, lambda x: object(), lambda x: x[:, 0]):
        jax.tree.map(function, batch)
    slope = jax.grad(lambda b: oj.estimate(b, "is"), allow_int=True)(batch)
    assert slope.log_ratio.shape == (4, 3)
    mapped = jax.vmap(lambda b: b.reward.sum())(jax.tree.map(lambda x: x[None], batch))
    assert mapped.shape == (1,)
    jax.vmap(lambda b: b, out_axes=jax.tree.map(lambda _: 0, batch))(
        jax.tree.map(lambda x: x[None], batch)
    )
    assert repr(jax.tree.map(lambda _: 0, batch)).startswith("TrajectoryBatch(")
    jax.tree.unflatten(jax.tree.structure(batch), range(6))


def test_checks_cost_next_to_nothing():
    """Nothing is computed: they are done on shapes alone."""
    batch = oj.from_episodes(random_data(0, 4), num_states=NUM_STATES)
    count = []
    jax.make_jaxpr(lambda b: count.append(b.replace(reward=b.reward)) or b.reward)(batch)
    jaxpr = jax.make_jaxpr(lambda b: b.replace(reward=b.reward).reward)(batch)
    assert not jaxpr.jaxpr.eqns
