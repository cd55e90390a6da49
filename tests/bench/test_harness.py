"""The stopwatch, curves of sizes, bytes that are moved."""

import json
import math
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import osiris_jax as oj
from osiris_jax.bench import data, roofline, scaling
from osiris_jax.bench.harness import difference, machine, measure

SHAPE = (6, 5, 3)
TIMED = [name for name in (*oj.ESTIMATORS, *oj.RELEVANCE) if name != "oracle"]


class Clock:
    """A clock that a function moves on by the seconds it is said to take."""

    def __init__(self, *seconds):
        self.now, self.seconds, self.calls = 0.0, list(seconds), 0

    def __call__(self):
        return self.now

    def work(self):
        self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
        self.calls += 1


def test_the_first_call_is_apart_and_the_steady_state_has_least_and_median():
    clock = Clock(5.0, 2.0, 1.0, 4.0)
    found = measure(clock.work, runs=3, at_least=0.5, clock=clock)
    assert (found.first, found.seconds, found.calls) == (5.0, (2.0, 1.0, 4.0), 1)
    assert (found.least, found.median, found.compiling) == (1.0, 2.0, 4.0)


def test_short_calls_are_repeated_and_the_call_that_warms_up_does_not_count():
    clock = Clock(5.0, 0.03, 0.01)
    found = measure(clock.work, runs=2, at_least=0.1, clock=clock)
    assert found.calls == 4
    assert clock.calls == 2 + 2 * 4
    assert found.seconds == pytest.approx((0.01, 0.01))


def test_a_budget_stops_the_runs_but_never_before_the_first():
    clock = Clock(50.0, 7.0)
    assert len(measure(clock.work, runs=5, budget=60.0, clock=clock).seconds) == 2
    clock = Clock(50.0, 7.0)
    assert len(measure(clock.work, runs=5, budget=1.0, clock=clock).seconds) == 1


def test_a_call_that_was_faster_at_first_compiled_for_no_time():
    clock = Clock(1.0, 2.0)
    assert measure(clock.work, runs=1, clock=clock).compiling == 0


def test_processors_are_those_of_the_fastest_run():
    wall, used = Clock(5.0, 3.0, 2.0, 4.0), Clock(5.0, 0.3, 1.5, 0.4)

    def work():
        wall.work()
        used.work()

    found = measure(work, runs=3, clock=wall, processor_clock=used)
    assert (found.least, found.processor) == (2.0, 1.5)


def test_results_are_waited_for():
    class Pending:
        waited = 0

        def block_until_ready(self):
            Pending.waited += 1

    measure(Pending, runs=1, at_least=0.0)
    assert Pending.waited == 2


def test_runs_must_be_positive():
    with pytest.raises(ValueError, match=r"^runs: expected a positive number"):
        measure(lambda: None, runs=0)


def test_the_peak_of_memory_belongs_to_one_case():
    size = 2**27
    large = measure(lambda: np.ones(size, np.uint8).sum(), runs=1).peak_memory
    small = measure(lambda: np.ones(1, np.uint8).sum(), runs=1).peak_memory
    assert large - small > 0.8 * size


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], math.inf),
        ([1.0], [1.0, 2.0], math.inf),
        ([np.nan], [np.nan], 0.0),
        ([0.5], [0.0], 0.5),
    ],
)
def test_difference(ours, theirs, expected):
    assert difference(ours, theirs) == expected


def test_the_machine_is_described():
    facts = machine("float32")
    assert facts["cores"] >= 1
    assert facts["dtype"] == "float32"
    assert facts["versions"]["jax"] == jax.__version__
    json.dumps(facts)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, -0.5])
def test_exponents_of_power_laws(power):
    sizes = [3, 10, 17, 200]
    assert scaling.exponent(sizes, [0.7 * n**power for n in sizes]) == pytest.approx(power)


def test_an_exponent_is_the_slope_of_least_squares():
    sizes, seconds = [10, 20, 40, 90], [1.0, 1.7, 5.0, 6.0]
    slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    assert scaling.exponent(sizes, seconds) == pytest.approx(slope)


def test_an_exponent_needs_two_sizes():
    with pytest.raises(ValueError, match=r"^sizes: an exponent needs two"):
        scaling.exponent([5, 5], [1.0, 2.0])


@pytest.mark.parametrize(
    ("name", "dtype", "per_step"),
    [
        ("mc", "float32", 4 + 1),
        ("wis", "float32", 4 + 4 + 1),
        ("wis", "float64", 8 + 8 + 1),
        ("mis", "float32", 4 + 4 + 1 + 4),
        ("osirwis", "float32", 4 + 4 + 1 + 4),
        ("dr", "float32", 4 + 4 + 1 + 4 + 4 + 4 * data.ACTIONS),
    ],
)
def test_bytes_counted_by_hand(name, dtype, per_step):
    with jax.enable_x64(dtype == "float64"):
        batch, values = data.log(7, 11, 3), jnp.zeros(5)
    moved = roofline.least_bytes(roofline.fields_of(name), batch, values)
    assert moved == 7 * 11 * per_step + 5 * np.dtype(dtype).itemsize


def bytes_of_arguments(function, batch):
    """Those that the compiled function takes; the ones it does not use are dropped."""
    text = jax.jit(function).lower(batch).as_text()
    signature = re.search(r"@main\((.*?)\) ->", text, re.S)[1]
    widths, total = {"f32": 4, "i32": 4, "i1": 1}, 0
    for shape, kind in re.findall(r"tensor<([\dx]*)x(\w+)>", signature):
        total += math.prod(map(int, shape.split("x"))) * widths[kind]
    return total


@pytest.mark.parametrize("name", [*TIMED, "osirwis", "osiris-mis", "osiris-dr"])
def test_bytes_are_those_of_the_arrays_that_the_compiler_keeps(name):
    batch = data.log(*SHAPE)

    def function(batch):
        if name in oj.RELEVANCE:
            return oj.relevance_pvalues(batch, name)
        return oj.estimate(batch, name)

    expected = roofline.least_bytes(roofline.fields_of(name), batch, ())
    assert bytes_of_arguments(function, batch) == expected


def test_bandwidth_counts_what_is_read_and_written(monkeypatch):
    took = types.SimpleNamespace(least=0.5)
    monkeypatch.setattr(roofline, "measure", lambda function, **options: took)
    found = roofline.bandwidth(4000)
    once = 4000 / 0.5
    assert found.scale == roofline.LOOPS * 2 * once
    assert found.triad == found.best == roofline.LOOPS * 3 * once
    assert found.copy == 2 * once
    assert roofline.share(50, 2.0, 100.0) == 0.25
    assert roofline.share(None, 2.0, 100.0) is None
