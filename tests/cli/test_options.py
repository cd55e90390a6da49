"""Options as fields: each reaches what it is for, and shows the default that it has there."""

import dataclasses
import inspect

import pytest

import osiris_jax as oj
from osiris_jax.bench.case import Settings
from osiris_jax.cli.bench import Bench
from osiris_jax.cli.calibrate import Calibrate
from osiris_jax.cli.calibrate_markov import CalibrateMarkov
from osiris_jax.cli.coverage import MeasureCoverage
from osiris_jax.cli.evaluate import EvaluateLog
from osiris_jax.cli.options import as_typed, passed_on
from osiris_jax.cli.study import RunStudy
from osiris_jax.data import load_log
from osiris_jax.study import Study
from osiris_jax.study.calibration import Calibration
from osiris_jax.study.coverage import Coverage
from osiris_jax.study.markov_calibration import MarkovCalibration
from osiris_jax.study.run import run, start_devices

READERS = {
    Bench: ((Settings,), {"only", "out"}),
    Calibrate: ((Calibration,), {"out"}),
    CalibrateMarkov: ((MarkovCalibration,), {"out"}),
    MeasureCoverage: ((Coverage,), {"out"}),
    EvaluateLog: ((oj.evaluate, load_log), {"log", "compare", "seed", "out"}),
    RunStudy: ((Study, run, start_devices), {"toml"}),
}


def defaults(function):
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("command", READERS)
def test_every_option_is_passed_on_by_its_name(command):
    """But those that the command itself reads: a renamed parameter would lose its option."""
    functions, own = READERS[command]
    known = {name for function in functions for name in defaults(function)}
    assert {field.name for field in dataclasses.fields(command)} - known == own


@pytest.mark.parametrize("command", READERS)
def test_the_default_that_the_help_shows_is_the_one_that_is_used(command):
    for field in dataclasses.fields(command):
        usual = field.metadata["usual"]
        for function in READERS[command][0]:
            if usual and (used := defaults(function).get(field.name)) is not None:
                assert str(as_typed(used)) == usual or float(used) == float(usual), field.name


def test_what_was_not_typed_is_left_to_the_default():
    assert passed_on(RunStudy(trials=3, sizes=(5,), memory=9), Study) == {
        "trials": 3,
        "sizes": (5,),
    }
    assert passed_on(RunStudy(distributed=False), start_devices) == {"distributed": False}
