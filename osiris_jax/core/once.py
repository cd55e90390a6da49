"""What a program computes twice is computed once, loops too, which XLA leaves as they are.

Estimators are written one by one, so that a program of many fits the same Q-hat again for each, and
finds the same states relevant. Equations with the same inputs are equal, whoever wrote them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var, jaxpr_as_fun

# how a derivative is taken, or a batch made of it, says nothing of what is computed
RULES = ("jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "rule")
SMALL = 64


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, none of whose equations is computed twice for the same numbers."""

    @functools.wraps(function)
    def of_arguments(*arguments: Any) -> Any:
        made, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        values = jaxpr_as_fun(without_repeats(made))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), values)

    return of_arguments


def without_repeats(program: ClosedJaxpr) -> ClosedJaxpr:
    """The program with every repeated equation replaced by the first of its kind."""
    same: dict[Var, Var] = {}
    first: dict[Hashable, list[Any]] = {}
    kept, names = [], _Names()
    for equation in program.jaxpr.eqns:
        inputs = [x if isinstance(x, Literal) else same.get(x, x) for x in equation.invars]
        equation = equation.replace(invars=inputs)
        if not equation.effects:
            key = _key(equation, names)
            if key in first:
                same.update(zip(equation.outvars, first[key], strict=True))
                continue
            first[key] = equation.outvars
        kept.append(equation)
    outputs = [x if isinstance(x, Literal) else same.get(x, x) for x in program.jaxpr.outvars]
    return program.replace(jaxpr=program.jaxpr.replace(eqns=kept, outvars=outputs))


class _Names(dict):
    """Variables by the order in which they are met, so that two programs may be compared."""

    def __missing__(self, variable: Var) -> int:
        self[variable] = number = len(self)
        return number


def _key(equation: Any, names: _Names) -> Hashable:
    inputs = tuple(
        _constant(x.val) if isinstance(x, Literal) else names[x] for x in equation.invars
    )
    parameters = sorted(equation.params.items())
    settings = tuple((k, _setting(x)) for k, x in parameters if k not in RULES)
    results = tuple(str(x.aval) for x in equation.outvars)
    return equation.primitive.name, inputs, settings, results


def _setting(x: Any) -> Hashable:
    if isinstance(x, ClosedJaxpr):
        return _fingerprint(x.jaxpr), tuple(_constant(c) for c in x.consts)
    if isinstance(x, Jaxpr):
        return _fingerprint(x)
    if isinstance(x, tuple | list):
        return tuple(map(_setting, x))
    try:
        hash(x)
    except TypeError:
        return id(x)
    return x


def _constant(x: Any) -> Hashable:
    if isinstance(x, np.ndarray | np.generic | int | float | bool) and np.size(x) <= SMALL:
        array = np.asarray(x)
        return str(array.dtype), array.shape, array.tobytes()
    return id(x)


def _fingerprint(program: Jaxpr) -> Hashable:
    """Equal where two programs do the same, whatever their variables are called."""
    names = _Names()
    given = tuple((names[x], str(x.aval)) for x in (*program.constvars, *program.invars))
    equations = []
    for equation in program.eqns:
        equations.append(_key(equation, names))
        equations.append(tuple(names[x] for x in equation.outvars))
    results = tuple(
        _constant(x.val) if isinstance(x, Literal) else names[x] for x in program.outvars
    )
    return given, tuple(equations), results
