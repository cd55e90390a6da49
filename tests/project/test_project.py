"""The project itself: layers, a light import, the README's example, the registries' one-liners."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import conftest
import pytest

import osiris_jax as oj

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "osiris_jax"
ROOMS = (
    *("core", "batch", "stats", "models", "relevance", "estimators", "pipeline", "inference"),
    *("data", "worlds", "study", "plots", "evaluation", "paper", "bench", "cli"),
)
HEAVY = (
    *("jax", "numpy", "pandas", "scipy", "matplotlib", "gymnax", "gymnasium"),
    *("flax", "optax", "pyarrow", "typer", "rich", "minari", "h5py"),
)


def imports_of(path):
    """(room, line) for every import of the package's own modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("osiris_jax"):
            rooms = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            homes = (oj._HOME_OF.get(room, room).split(".")[0] for room in rooms)
            yield from ((home, node.lineno) for home in homes)


ORACLES = sorted((ROOT / "tests" / "oracles").glob("*.py"))
MODULES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py"})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_room_and_those_before(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for room, line in imports_of(path):
        assert ROOMS.index(room) <= ROOMS.index(own), f"{path.name}:{line} imports {room}"


def test_nothing_is_unpickled():
    for path in MODULES:
        text = path.read_text()
        assert "import pickle" not in text, path
        assert "allow_pickle=True" not in text, path


@pytest.mark.parametrize("path", ORACLES, ids=lambda p: p.stem)
def test_an_oracle_knows_nothing_of_the_library(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", []) if isinstance(alias, ast.alias)]
        for name in [*names, getattr(node, "module", None) or ""]:
            assert name.split(".")[0] not in ("osiris_jax", "jax"), f"{path}:{node.lineno}"


def test_the_slowest_files_exist():
    names = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
    assert set(conftest.SLOWEST_FIRST) <= set(names)


def test_everything_has_a_room():
    at_the_top = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert at_the_top == set(ROOMS)


def test_importing_is_light():
    code = f"import sys, osiris_jax; print([m for m in {HEAVY} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stderr


def test_every_public_name_is_found_on_first_use():
    assert sorted(oj.__all__) == sorted(oj._HOME_OF)
    for name in oj.__all__:
        assert not isinstance(getattr(oj, name), ModuleType), name
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        oj.estimat  # noqa: B018


@pytest.mark.parametrize(("old", "new"), oj._MOVED.items())
def test_a_module_that_moved_is_found_under_its_documented_name(old, new):
    assert importlib.import_module(old) is importlib.import_module(new)
    assert getattr(oj, old.rpartition(".")[2]) is sys.modules[new]
    assert sys.modules[new].__name__ == new


def test_no_module_at_the_top_is_named_like_a_public_name():
    assert not set(ROOMS) & set(oj.__all__)


def test_the_readme_shows_the_example_and_what_it_prints():
    readme = (ROOT / "README.md").read_text()
    example = ROOT / "docs" / "first_look.py"
    assert example.read_text() in readme
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    printed = re.search(r"```text\n(.*?)```", readme, re.S)
    assert printed
    assert masked_digits(run.stdout) == masked_digits(printed[1])


def masked_digits(text):
    """Numbers to four digits: the last ones depend on the machine."""
    return re.sub(r"(\d\.\d{4})\d+", r"\1", text)


@pytest.mark.parametrize("registry", ["ESTIMATORS", "RELEVANCE"])
def test_every_entry_says_in_one_line_what_it_is(registry):
    for name, function in getattr(oj, registry).items():
        first_line = function.__doc__.splitlines()[0]
        assert len(first_line) > 20, name
        assert first_line.endswith("."), name


BREAKS = tomllib.loads((ROOT / "tests" / "breaks.toml").read_text())["breaks"]


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one["room"])
def test_a_break_can_be_made(one):
    """`benchmarks/breaks.py` makes them, and sees whether their tests fail."""
    assert (ROOT / one["file"]).read_text().count(one["old"]) == 1
    assert (ROOT / one["test"].split()[0]).exists()
