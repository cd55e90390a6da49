"""Commands: what they print, the files they write, the columns and values in these."""

import json
import shlex

import pyarrow.parquet

from . import samples
from .plainly import plain, words

COMMANDS = {
    "list": "list",
    "show": "show waiting-room --episodes 20 --out show",
    "study": "study --world waiting-room --trials 4 --sizes 6 --alphas 0.05,1 "
    "--estimators is,wis,osirwis --seed 3 --out study",
    "evaluate": "evaluate ward.csv --estimators osirwis,wis,mc --methods percentile,t "
    "--resamples 20 --compare behavior --seed 3 --out evaluate",
    "coverage": "coverage --world waiting-room --trials 3 --sizes 6 --estimators wis "
    "--methods percentile,t --resamples 10 --out coverage",
    "calibrate": "calibrate --trials 3 --sizes 6 --tests welch --weightings none "
    "--alphas 0.05,0.25 --variants plain --out calibrate",
    "table1": "reproduce table1 --protocol published --worlds express --trials 3 --out table1",
    "fig1": "reproduce fig1 --out fig1",
}
OF_THE_RUN = ("command",)


def taken(name):
    """What one command does, by its name in `COMMANDS`."""
    typed = COMMANDS[name]
    out = samples.folder() / shlex.split(typed)[-1]
    if name == "evaluate":
        wards = samples.table()["state"].map("ward {}".format)
        log = samples.table().assign(state=wards).rename(columns={"episode": "patient_id"})
        log.to_csv(samples.folder() / "ward.csv", index=False)
    code, printed, complaints = samples.command(*shlex.split(typed))
    call = f"osiris-jax {typed}"
    found = {f"{call}: exit code": code, f"{call}: printed": words("\n".join(printed))}
    if code:
        found[f"{call}: complaints"] = complaints
    if out.is_dir():
        found |= {f"{call}: {what}": fact for what, fact in _written(out).items()}
    return found


def _written(out):
    files = sorted(path for path in out.rglob("*") if path.is_file())
    found = {"files": [str(path.relative_to(out)) for path in files]}
    for path in files:
        name = path.relative_to(out)
        if path.suffix == ".parquet":
            schema = pyarrow.parquet.read_schema(path)
            found[f"columns of {name}"] = [f"{field.name}: {field.type}" for field in schema]
        if path.suffix == ".json":
            content = json.loads(path.read_text())
            found[f"keys of {name}"] = sorted(_keys(content))
            if name.name == "summary.json":
                found |= {f"{name}{place}": x for place, x in _values(content).items()}
    return found


def _keys(content, place=""):
    """The places of all keys, [] for any entry of a list."""
    if isinstance(content, list):
        return set().union(*(_keys(entry, f"{place}[]") for entry in content))
    if not isinstance(content, dict):
        return set()
    own = {f"{place}.{key}" for key in content}
    return own.union(*(_keys(entry, f"{place}.{key}") for key, entry in content.items()))


def _values(content):
    """A fact for each entry of the whole."""
    if isinstance(content, list):
        return {f"[{i}]": plain(entry) for i, entry in enumerate(content)}
    return {f".{key}": plain(entry) for key, entry in content.items() if key not in OF_THE_RUN}
