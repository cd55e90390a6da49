"""The compiled part of a reproduction: all columns of a table for many data sets, in one call."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh
from jaxtyping import Bool, Float

from osiris_jax.batch import TrajectoryBatch
from osiris_jax.core.platforms import over_devices
from osiris_jax.estimators import parse_name
from osiris_jax.paper.network import nn_q_published
from osiris_jax.paper.numbers import BY_RETURN, Column
from osiris_jax.paper.protocol import Form, Protocol
from osiris_jax.paper.published import (
    Coins,
    incris_published,
    keep_published,
    mis_published,
    pvalues_published,
)
from osiris_jax.pipeline import compose
from osiris_jax.relevance import RELEVANCE, above, keep_steps, relevant
from osiris_jax.study.plan import ON_POLICY
from osiris_jax.study.source import DataSets, method_key

_PUBLISHED_FORMS = {"incris": incris_published, "mis": mis_published}


@partial(jax.jit, static_argnames=("forms", "mesh"))
def values_of(
    data: DataSets, oracle: Any, forms: tuple[Form, ...], mesh: Mesh | None = None
) -> Float[Array, "trial form"]:
    """The estimates of all forms from every data set.

    Args:
      oracle: [state] the world's own map, or None.
      mesh: the devices over which data sets are divided, where there are several.
    """

    def of_data_sets(oracle: Any, data: DataSets) -> Array:
        return jax.vmap(partial(_of_data_set, oracle, forms))(*data)

    return over_devices(of_data_sets, mesh, (oracle,), data)


def _of_data_set(
    oracle: Any, forms: tuple[Form, ...], key: Array, batch: TrajectoryBatch, on_policy: Any
) -> Float[Array, " form"]:
    key = method_key(key, len(batch.mask))
    values, maps = [], {}
    for form in forms:
        name, settings = form.column.estimator, dict(form.settings)
        if name == ON_POLICY:
            values.append(on_policy.mean())
        elif form.column.relevance is not None:
            test = form._replace(column=form.column._replace(estimator=""))
            if test not in maps:
                maps[test] = keep_steps(_relevant_states(test, oracle, key, batch), batch)
            values.append(compose.value_of(batch, parse_name(name)[0], maps[test]))
        elif settings.get(name) == "published":
            log_ratio = batch.require("log_ratio", "a reproduction")
            values.append(_PUBLISHED_FORMS[name](batch, log_ratio))
        else:
            values.append(compose.plain_value(batch, name))
    return jnp.stack(values)


def _relevant_states(form: Form, oracle: Any, key: Array, batch: TrajectoryBatch) -> Any:
    """The map of what is kept, by state or by step."""
    column, settings = form.column, dict(form.settings)
    if column.relevance == "oracle":
        return jnp.asarray(oracle)
    if column.relevance == "nn-q":
        if settings["network"] == "published":
            statistic = nn_q_published(batch, key=key)
        else:
            statistic = RELEVANCE["nn-q"](batch, key=key, weighting="to-go")
        return above(statistic, column.threshold)
    coins = Coins.toss(key, batch) if settings.get("ties") == "random" else None
    return _by_pvalue(form, column.alpha, batch, coins)


def keep_map(
    protocol: Protocol, batch: TrajectoryBatch, alpha: float | Float[Array, ""]
) -> Bool[Array, " state"]:
    """The states that Algorithm 1 keeps at a level, as the protocol computes it."""
    return _by_pvalue(protocol.form(Column("osiris", "welch")), alpha, batch)


def _by_pvalue(
    form: Form, alpha: float | Array | None, batch: TrajectoryBatch, coins: Coins | None = None
) -> Bool[Array, " state"]:
    settings, relevance = dict(form.settings), form.column.relevance
    pvalue = pvalues_published(
        batch,
        "smirnov" if relevance == "smirnov" else "welch",
        weighting=settings["weighting"],
        ddof=settings.get("ddof", 1),
        classes="return" if relevance == BY_RETURN else "ratio",
        coins=coins,
    )
    if settings["levels"] == "published":
        return keep_published(pvalue, alpha)
    return relevant(jnp.where(jnp.isnan(pvalue), 1, pvalue), alpha)
