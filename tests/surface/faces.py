"""Names, arguments and defaults of all that is public; annotations are left out."""

import dataclasses
import inspect
import re
from functools import cached_property

import jax

import osiris_jax as oj
from osiris_jax import plots
from osiris_jax.evaluation.report import About, write_report
from osiris_jax.paper.protocol import Protocol

from . import samples

REGISTRIES = ("ESTIMATORS", "RELEVANCE", "INTERVALS", "SELECTION")
WITH_OPTIONS = ("ESTIMATORS", "RELEVANCE")
OF_SYNTAX = ("__getitem__", "__call__", "__len__", "__iter__")


def arguments(function):
    """The signature as text without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return re.sub(r"<function (\S+) at 0x[0-9a-f]+>", r"\1", text)


def members(owner):
    """Name -> arguments, "field" or "property" of the public members of a class."""
    found = {}
    for name in dir(owner):
        if name.startswith("_") and name not in OF_SYNTAX:
            continue
        member = inspect.getattr_static(owner, name)
        if getattr(tuple, name, None) is member and name not in OF_SYNTAX:
            continue
        if isinstance(member, property | cached_property):
            found[name] = "property"
        elif callable(member) or isinstance(member, classmethod | staticmethod):
            found[name] = arguments(getattr(owner, name))
        else:
            found[name] = "field"
    if dataclasses.is_dataclass(owner):
        found |= {field.name: "field" for field in dataclasses.fields(owner)}
    if issubclass(owner, tuple):
        found = {name: kind for name, kind in found.items() if name not in OF_SYNTAX}
    return found


def results():
    """Where a user meets an object -> the object."""
    batch, evaluation, exact = samples.batch(), samples.evaluation(), samples.tiny().exact()
    row = evaluation.rows[0]
    fit = oj.fit_behavior(batch, folds=2)
    interval = oj.intervals(batch, "mc", methods="t")["mc"]
    samples.table().to_csv(samples.folder() / "log.csv", index=False)
    return {
        "oj.evaluate(...)": evaluation,
        "oj.evaluate(...).rows[0]": row,
        "oj.evaluate(...).rows[0].weights": row.weights,
        "oj.evaluate(...).rows[0].reasons[0]": row.reasons[0],
        "oj.evaluate(...).rows[0].interval[1]": row.interval[1],
        "oj.evaluate(...).differences[0]": evaluation.differences[0],
        "oj.evaluate(...).curve": evaluation.curve,
        "oj.evaluate(...).omissions['osirwis']": evaluation.omissions["osirwis"],
        "oj.evaluate(...).states": evaluation.states,
        "oj.evaluate(...).support": evaluation.support,
        "oj.evaluate(...).propensities": evaluation.propensities,
        "oj.Study(...).run()": samples.study(),
        "oj.intervals(...)['mc']": interval,
        "oj.choose_level(...)": oj.choose_level(batch),
        "oj.fit_behavior(...)": fit,
        "oj.fit_behavior(...).calibration": fit.calibration,
        "oj.load_log(...)": oj.load_log(samples.folder() / "log.csv"),
        "world.exact()": exact,
        "world.exact().moments('is')": exact.moments("is", n=5),
        "world.returns(...)": samples.tiny().returns(jax.random.key(0), 5),
    }


def signatures():
    """Every public callable, every public member of a public class or of what it returns."""
    found = {"oj.__all__": sorted(oj.__all__)}
    named = {f"oj.{name}": getattr(oj, name) for name in oj.__all__}
    named |= {
        "osiris_jax.evaluation.report.About": About,
        "osiris_jax.evaluation.report.write_report": write_report,
        "osiris_jax.paper.protocol.Protocol": Protocol,
    }
    for name, function in vars(plots).items():
        if inspect.isfunction(function) and function.__module__ == plots.__name__:
            named |= {} if name.startswith("_") else {f"osiris_jax.plots.{name}": function}
    for name, owner in named.items():
        if callable(owner):
            found[name] = arguments(owner)
        if inspect.isclass(owner):
            found |= {f"{name}.{member}": kind for member, kind in members(owner).items()}
    for name, result in results().items():
        found |= {f"{name}.{member}": kind for member, kind in members(type(result)).items()}
    return found


def registries():
    """Names, first lines of what is said of them, and the options of estimators and tests."""
    found = {"oj.WORLDS": list(oj.WORLDS)}
    found["oj.THRESHOLDS"] = {name: float(level) for name, level in oj.THRESHOLDS.items()}
    for registry in REGISTRIES:
        entries = getattr(oj, registry)
        found[f"list(oj.{registry})"] = list(entries)
        for name, entry in entries.items():
            place = f"oj.{registry}[{name!r}]"
            found[f"{place}.__doc__"] = inspect.getdoc(entry).splitlines()[0]
            if registry in WITH_OPTIONS:
                found[place] = arguments(entry)
    return found


def helps():
    """The help of the command and of every command in it, line by line."""
    whole = samples.help_of()
    commands = re.findall(r"^│ ([a-z][a-z-]*) {2}", "\n".join(whole), re.MULTILINE)
    found = {"osiris-jax --help": whole}
    return found | {f"osiris-jax {name} --help": samples.help_of(name) for name in commands}
