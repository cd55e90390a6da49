"""Values of calls; each is written as the Python that a user would type, and is run as such."""

import jax
import jax.numpy as jnp
import numpy as np

import osiris_jax as oj

from . import samples
from .plainly import hashes, plain, words

ALPHAS = (0.1, 0.5, 1.0)
BY_LAG = ("stepwise", "stepwise-dr")
KEEP = [True, False, True, True, False]


def names():
    """What the calls may use."""
    return {
        "oj": oj,
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "hashes": hashes,
        "words": words,
        "softmax": jax.nn.softmax,
        "batch": samples.batch(),
        "episodes": samples.episodes(),
        "table": samples.table(),
        "behavior": samples.BEHAVIOR,
        "target": samples.TARGET,
        "other": samples.OTHER,
        "alphas": jnp.array(ALPHAS),
        "keep": np.array(KEEP),
        "key": jax.random.key(3),
        "tiny": samples.tiny(),
        "evaluation": samples.evaluation,
        "study": samples.study,
    }


def run(calls):
    """Call -> value, in plain types."""
    known = names()
    return {call: plain(eval(call, known)) for call in calls}


def estimates():
    """Every estimator with and without omission, and the options of `estimate`."""
    calls = [f"oj.estimate(batch, {name!r})" for name in oj.ESTIMATORS]
    calls += [
        f"oj.estimate(batch, {name!r}, relevance='oracle', keep=keep)"
        for name, entry in oj.ESTIMATORS.items()
        if entry.may_omit and name not in BY_LAG
    ]
    calls += [
        f"oj.estimate(batch, {name!r}, relevance='welch', alpha=alphas)"
        for name in ("wis", *BY_LAG)
    ]
    calls += [
        "oj.estimate(batch, 'osirwis')",
        "oj.estimate(batch, 'osiris-pdis', alpha=0.5, discount=0.9)",
        "oj.estimate(batch, 'wis', discount=0.9)",
        "oj.estimate(batch, 'is', clip=0.9)",
        "oj.estimate(batch, 'cwpdis', finished='drop')",
        "oj.estimate(batch, 'stepwise', weighted=True)",
        "oj.estimate(batch, 'wis', relevance='welch', alpha=alphas, ddof=0)",
        "oj.estimate(batch, 'wis', relevance='welch', alpha=alphas, weighting='to-go')",
        "oj.estimate(batch, 'wis', relevance='welch', alpha=alphas, max_kept=2)",
        "oj.estimate(batch, 'wis', relevance='effect', threshold=alphas)",
        "oj.estimate(batch, 'osirwis', alpha='auto')",
        "oj.estimate(batch, lambda batch, log_ratio: log_ratio.sum())",
    ]
    return run(calls)


def relevance():
    """Every relevance test with its options, and what an omission does."""
    return run(
        [
            "oj.relevance_pvalues(batch)",
            "oj.relevance_pvalues(batch, ddof=0)",
            "oj.relevance_pvalues(batch, weighting='future', first_visit=True, undecided=0.5)",
            "oj.relevance_pvalues(batch, weighting='to-go', classes='return', discount=0.9)",
            "oj.relevance_pvalues(batch, leave_one_out=True)",
            "oj.relevance_pvalues(batch, 'smirnov')",
            "oj.relevance_pvalues(batch, 'effect')",
            "oj.relevance_pvalues(batch, 'effect', folds=2, shrink=False)",
            "oj.relevance_pvalues(batch, 'nn-q', steps=5, key=key)",
            "oj.relevance_pvalues(batch, 'oracle', keep=keep)",
            "oj.omit(batch.log_ratio, batch.state > 1)",
            "oj.omission_diagnostics(batch, alpha=0.5, resamples=20, key=key)",
            "oj.omission_diagnostics(batch, alpha=0.5, resamples=20, key=key).biased",
            "oj.omission_diagnostics(batch, alpha=0.5, resamples=20, key=key).warnings()",
            "words(oj.omission_diagnostics(batch, alpha=0.5, resamples=20, key=key))",
        ]
    )


def choices():
    """Levels chosen from the data, and intervals, by every method."""
    chosen = "oj.choose_level(batch, method={!r}, key=key, levels=alphas)".format
    resampled = "oj.intervals(batch, ['wis', 'mc'], resamples=20, key=key)"
    calls = [
        "oj.choose_level(batch)",
        *(chosen(method) for method in oj.SELECTION if method != "model"),
        resampled,
        f"words({resampled}['wis'])",
        "oj.intervals(batch, 'is', methods=['t', 'bernstein', 'hoeffding', 'hcope'], "
        "weight_bound=40.0, return_bounds=(-20.0, 30.0), confidence=0.9)",
        "oj.intervals(batch, 'wis', methods='t')",
    ]
    return run(calls)


def evaluations():
    """What `evaluate` says: rows, verdicts, differences, curve, notes, text."""
    return run(
        [
            *(f"evaluation().rows[{place}]" for place in range(3)),
            *(f"evaluation().compared[{place}]" for place in range(3)),
            *(f"evaluation().differences[{place}]" for place in range(3)),
            "evaluation().main.estimator",
            "evaluation().main.label",
            "evaluation().main.interval",
            "evaluation()['mc'].verdict",
            "evaluation().verdicts",
            "evaluation().curve",
            "evaluation().omissions",
            "evaluation().states",
            "evaluation().support",
            "evaluation().propensities",
            "evaluation().log_weights",
            "evaluation().lengths",
            "evaluation().settings",
            "evaluation().notes",
            "evaluation().doubts()",
            "evaluation().table().columns.tolist()",
            "evaluation().summary()",
            "words(evaluation())",
        ]
    )


def data():
    """Ways into a batch and between batches."""
    observed = "oj.with_states(batch, oj.LinearBins(((0.0, 2.0), (1.0,))))"
    fits = {
        "tabular": "oj.fit_behavior(batch, method='tabular', folds=2)",
        "logistic": "oj.fit_behavior(batch, method='logistic', folds=2)",
        "auto": "oj.fit_behavior(batch, folds=2)",
    }
    return run(
        [
            "hashes(batch)",
            "repr(batch)",
            "batch.lengths",
            "hashes(batch[[3, 1]])",
            "repr(batch[:2])",
            "hashes(oj.from_dataframe(table))",
            "hashes(oj.from_arrays(reward=batch.reward, action=batch.action, mask=batch.mask, "
            "state=batch.state, log_ratio=batch.log_ratio))",
            "hashes(oj.concatenate([batch, batch[:2]]))",
            "hashes(oj.pad_to(batch, 14))",
            "hashes(oj.trim(oj.pad_to(batch, 14)))",
            "hashes(oj.pad_to_bucket(oj.pad_to(batch, 13)))",
            "[oj.bucket_length(steps) for steps in (1, 9, 12, 33, 100)]",
            f"hashes({observed})",
            f"{observed}.num_states",
            "oj.with_policies(batch, target=other).log_ratio[0]",
            "oj.with_policies(batch, target=other, behavior=target).log_ratio[0]",
            "oj.with_policies(batch, target=lambda seen: softmax(seen @ other[:2])).log_ratio[0]",
            *(f"{fit}.{part}" for fit in fits.values() for part in ("method", "probs[0]")),
            f"{fits['tabular']}.calibration",
            f"{fits['tabular']}.batch.log_ratio[0]",
            f"{fits['tabular']}.batch.fitted",
            f"{fits['auto']}.compared",
            f"words({fits['tabular']})",
        ]
    )


def worlds():
    """Simulated data bit by bit, exact answers, a study."""
    made = [f"oj.make({name!r})" for name in ("dilly-dallying", "express")]
    calls = [f"hashes({world}.rollout(key, 5))" for world in (*made, "tiny")]
    calls += [f"repr({world})" for world in (*made, "tiny", "oj.make('cartpole')")]
    for world in ("oj.make('dilly-dallying')", "oj.make('express')", "tiny"):
        calls += [f"{world}.exact().value", f"{world}.exact().behavior_value"]
        calls += [f"{world}.exact().moments({name!r}, n=25)" for name in ("is", "pdis")]
    calls += [
        "hashes(oj.make('cartpole').rollout(key, 5, steps=40, probs=True))",
        "hashes(tiny.rollout(jax.random.split(key, 2), 3, steps=4, policy='target', probs=True))",
        "tiny.returns(key, 5)",
        "tiny.exact(0.9).value",
        "tiny.exact().q",
        "tiny.exact().relevance(0.1)",
        "tiny.exact().moments('osiris', keep=[True, False, True], n=25)",
        "study().summary()",
        "study().summary().columns.tolist()",
        "study().notes",
    ]
    return run(calls)
