"""Plain Python functions among JAX's: what they compute is traced, their arrays are passed along.

A function is no pytree, so `jit` takes it only as a constant, and would go on using the arrays that
it saw first. Here it is traced again whenever it is given to something compiled: its arrays become
arguments, and only a function whose steps changed is compiled anew.
"""

from __future__ import annotations

import dataclasses
import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from osiris_jax.data.policies import log_probs_of

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Program:
    """The steps of a function without its arrays, for inputs of one shape."""

    def __init__(self, jaxpr: Any, text: str):
        self.jaxpr, self.text = jaxpr, text

    def __repr__(self) -> str:
        return self.text


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A function of one array as a pytree.

    Attributes:
      arrays: that the function closes over.
      program: what it does (static).
    """

    arrays: tuple[Array, ...]
    program: Program = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Array) -> Array:
        steps: Any = jaxpr_as_fun(ClosedJaxpr(self.program.jaxpr, self.arrays))
        return steps(x)[0]


_programs: weakref.WeakKeyDictionary[Callable, Program] = weakref.WeakKeyDictionary()


def as_pytree(function: Callable[[Array], Any], like: jax.ShapeDtypeStruct) -> Function:
    """The function for inputs like this one, traced now."""
    closed = jax.make_jaxpr(lambda x: jnp.asarray(function(x)))(like)
    text = _ADDRESS.sub("", str(closed.jaxpr))
    try:
        program = _programs.get(function)
        if program is None or program.text != text:
            program = _programs[function] = Program(closed.jaxpr, text)
    except TypeError:  # an object without a hash or without weak references
        program = Program(closed.jaxpr, text)
    return Function(tuple(map(jnp.asarray, closed.consts)), program)


def portable(policy: Any, like: jax.ShapeDtypeStruct) -> Any:
    """The policy with every plain function in it as a pytree."""
    return jax.tree.map(lambda leaf: as_pytree(leaf, like) if callable(leaf) else leaf, policy)


def check_policy(name: str, policy: Any, like: jax.ShapeDtypeStruct, num_actions: int) -> None:
    """Raises a ValueError unless the policy can be traced and is over so many actions."""
    if getattr(policy, "reads", "observation") != "observation":
        raise ValueError(f"{name}: reads states, where policies of this world read observations")
    if not callable(policy):
        kind = type(policy).__name__
        raise ValueError(f"{name}: expected a policy or a function of observations, got {kind}")
    try:
        answer = jax.eval_shape(lambda seen: log_probs_of(policy, seen), like)
    except (TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{name}: JAX cannot trace this function of an observation of shape {like.shape}; "
            f"write it with jax.numpy ({reason})"
        ) from error
    if answer.shape != (num_actions,):
        raise ValueError(
            f"{name}: gives probabilities of shape {answer.shape} for one observation, where the "
            f"environment has {num_actions} actions"
        )
