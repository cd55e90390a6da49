"""Runs a case under limits of time and memory, and says what is wrong with its outcome."""

import contextlib
import re
import resource
import signal
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import oracles as oracle

import osiris_jax as oj
from fuzzing.forms import ANSWER, ANYTHING, REFUSAL, Case
from fuzzing.truth import LONG, MAX_STEPS

SECONDS = 20.0
MEGABYTES = 700
LONGEST_MESSAGE = 2000
ESTIMATORS = ("mc", "is", "wis", "pdis")
ID_BUCKETS = (5, 128)
WEIGHTINGS = ("none", "to-go", "future")


class TooSlow(BaseException):
    """Raised by the alarm; no `except Exception` of the code under test can swallow it."""


class Outcome(NamedTuple):
    """What came of a case; `problem` is empty if it is what was expected."""

    case: Case
    answered: bool
    problem: str
    seconds: float


@contextlib.contextmanager
def limits(seconds=None):
    """Raises TooSlow after so many seconds, and makes every warning an error."""
    seconds = SECONDS if seconds is None else seconds

    def ring(*_):
        raise TooSlow(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def bounded_memory(gigabytes=6):
    """No more address space than so much beyond what there is: a wild allocation fails at once."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + gigabytes * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def peak_megabytes():
    """The most memory that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def run(case, *, estimate=True, double=False):
    """The outcome of a case: nothing but a ValueError or the truth is well."""
    started, peak = time.perf_counter(), peak_megabytes()
    found, problem = None, ""
    with jax.enable_x64(double):
        try:
            with limits():
                found = case.call()
        except ValueError as error:
            problem = wrong_refusal(case, str(error))
        except TooSlow as error:
            problem = f"hangs: {error}"
        except Exception as error:  # whatever it is, it is a finding
            problem = f"{type(error).__name__} in place of ValueError: {str(error)[:300]!r}"
        else:
            problem = wrong_answer(case, found, estimate)
    if not problem and peak_megabytes() - peak > MEGABYTES:
        problem = f"took {peak_megabytes() - peak:.0f} MB"
    return Outcome(case, found is not None, problem, time.perf_counter() - started)


def wrong_refusal(case, message):
    """What is wrong with a ValueError, if anything."""
    if case.expected == ANSWER:
        return f"refused: {message[:300]!r}"
    if not message.isprintable():
        return f"more than one line, or raw control codes: {message[:300]!r}"
    if len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message)} characters"
    if case.expected == REFUSAL and not re.search(case.field, message):
        return f"does not name {case.field!r}: {message[:300]!r}"
    return ""


def wrong_answer(case, found, estimate):
    """What is wrong with what was read, if anything."""
    batch, names = found if isinstance(found, tuple) else (found, None)
    if case.expected == REFUSAL:
        return f"accepted, where {case.field!r} should have been refused: {batch!r}"
    if case.expected == ANYTHING:
        return ""
    problem = wrong_data(case.truth, batch) or wrong_names(case.truth, names)
    problem = problem or wrong_ends(case.truth, batch)
    if problem or not estimate or batch.log_ratio is None:
        return problem
    return wrong_estimates(case.truth, batch)


# ------------------------------------------------------------------------------- the data


def wrong_data(truth, batch):
    """The batch against the truth, cell by cell."""
    lengths = np.asarray(batch.lengths).tolist()
    if lengths != list(truth.lengths):
        return f"silent merge or split: lengths {lengths}, truth {list(truth.lengths)}"
    real = np.asarray(batch.mask)
    if not np.array_equal(real, np.arange(real.shape[1]) < np.array(lengths)[:, None]):
        return "mask: not a prefix of each row"
    rounding = 8 * float(np.finfo(batch.dtype).eps)
    for field, expected in (("reward", truth.rewards), ("log_ratio", truth.log_ratios())):
        value = getattr(batch, field)
        if value is None:
            continue
        value, flat = np.asarray(value)[real], np.concatenate(expected)
        if not np.allclose(value, flat, rtol=rounding, atol=16 * rounding):
            worst = int(np.argmax(~np.isclose(value, flat, rtol=rounding, atol=16 * rounding)))
            return f"{field}: {value[worst]} at flat step {worst}, truth {flat[worst]}"
    for field, paths, ids in (
        ("state", truth.states, truth.state_ids),
        ("action", truth.actions, truth.action_ids),
    ):
        problem = wrong_ids(batch, field, np.asarray(getattr(batch, field))[real], paths, ids)
        if problem:
            return problem
    return ""


def wrong_ids(batch, field, found, paths, ids):
    """Whether the batch's ids, with its labels, are the log's own."""
    indices = np.concatenate(paths)
    labels = getattr(batch, f"{field}_labels", None)
    number = getattr(batch, f"num_{field}s")
    if number > 1000:
        return f"num_{field}s: {number} ids for {len(set(indices.tolist()))} distinct ones"
    if labels is not None and len(labels) != number:
        return f"{field}_labels: {len(labels)} for {number} ids"
    said = [int(k) if labels is None else labels[k] for k in found]
    # text that is written as an integer is may become that integer, nothing else may change
    kind = str if isinstance(ids[0], str) else int
    for step, (label, index) in enumerate(zip(said, indices, strict=True)):
        if isinstance(label, str) is not (kind is str) and str(label) != ids[index]:
            return f"{field}: {label!r} at flat step {step}, truth {ids[index]!r}"
        if kind(label) != ids[index]:
            return f"{field}: {label!r} at flat step {step}, truth {ids[index]!r}"
    if len(found) and not 0 <= found.min() <= found.max() < number:
        return f"num_{field}s: {number}, though ids reach {found.max()}"
    return ""


def wrong_ends(truth, batch):
    """Whether the batch says which episodes were cut off, where the log did."""
    found = getattr(batch, "truncated", None)
    found = None if found is None else tuple(np.asarray(found).tolist())
    return "" if found == truth.truncated else f"truncated: {found}, truth {truth.truncated}"


def wrong_names(truth, names):
    """Whether the log says what its episodes were called."""
    if not names:
        return ""
    if not isinstance(truth.names[0], float) and any(
        isinstance(name, float | np.floating) for name in names
    ):
        return f"episode: an id became a float: {names!r}"
    if len(set(names)) != len(truth.names):
        return f"episode: {len(truth.names)} names became {len(set(names))}"
    if isinstance(truth.names[0], str | int) and list(map(str, names)) != list(
        map(str, truth.names)
    ):
        return f"episode: called {list(names)!r}, truth {list(truth.names)!r}"
    return ""


# -------------------------------------------------------------------------- the estimates


def standard(batch):
    """The batch in one of few shapes, so that few programs are compiled."""
    steps = MAX_STEPS + 1 if batch.mask.shape[1] <= MAX_STEPS + 1 else LONG
    slim = batch.replace(
        observation=None, target_probs=None, behavior_probs=None, behavior_log_prob=None
    )
    num_states = next(size for size in ID_BUCKETS if size >= batch.num_states)
    # labels would no longer number the ids
    labels = {"state_labels": None} if getattr(slim, "state_labels", None) is not None else {}
    slim = slim.replace(num_states=num_states, num_actions=3, **labels)
    return oj.pad_to(slim, max(steps, slim.mask.shape[1]))


def wrong_estimates(truth, batch):
    """Estimates and p-values against the oracle, on the ragged lists of the truth."""
    data, padded = truth.for_oracle(), standard(batch)
    rtol = 2e-4 if batch.dtype == np.float32 else 1e-9
    weight = max([1.0, *(float(np.prod(oracle.ratios(traj))) for traj in data)])
    scale = max(1.0, *(float(np.abs(traj["rewards"]).sum()) for traj in data)) * weight
    for name in ESTIMATORS:
        value, expected = float(oj.estimate(padded, name)), oracle.ESTIMATORS[name](data)
        if not np.isclose(value, expected, rtol=rtol, atol=rtol * scale, equal_nan=True):
            return f"{name}: {value}, oracle {expected}"
    return "" if max(truth.lengths) > MAX_STEPS else wrong_pvalues(truth, batch, padded)


def wrong_pvalues(truth, batch, padded):
    """p-values of Welch's test, in float64 alone: in float32 ties may break."""
    if batch.dtype != np.float64:
        return ""
    weighting = WEIGHTINGS[truth.lengths[0] % len(WEIGHTINGS)]
    found = np.asarray(oj.relevance_pvalues(padded, "welch", weighting=weighting))
    states = np.asarray(batch.state)[np.asarray(batch.mask)]
    expected = oracle.pvalues(truth.for_oracle(), len(truth.state_ids), weighting=weighting)
    for index, number in zip(np.concatenate(truth.states), states, strict=True):
        if not np.isclose(found[number], expected[index], atol=1e-6):
            return f"p-value: {found[number]} for state {number}, oracle {expected[index]}"
    return ""
