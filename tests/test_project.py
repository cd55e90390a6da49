"""The project itself: layers, a light import, the README's example, the registries' one-liners."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import osiris_jax as oj

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "osiris_jax"
LAYERS = [
    {"batch", "bits", "masked", "compiled", "segments", "files", "terminal", "options"},
    {"stats", "networks", "qhat", "empirical"},
    {"relevance", "estimators", "selection", "compose", "estimate"}
    | {"diagnostics", "weights", "intervals"},
    {"io", "policies", "behavior"},
    {"rollout", "envs", "exact", "exact_dr", "dqn", "dqn_gymnasium", "training"},
    {"study"},
    {"paper", "plots", "evaluation", "bench"},
    {"commands", "cli"},
]
HEAVY = (
    *("jax", "numpy", "pandas", "scipy", "matplotlib", "gymnax", "gymnasium"),
    *("flax", "optax", "pyarrow", "typer", "rich", "minari", "h5py"),
)


def layer_of(part):
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def imports_of(path):
    """(part of the package, line) for every import of the package's own modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("osiris_jax"):
            parts = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from ((part, node.lineno) for part in parts)


MODULES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py"})


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_data_flows_one_way(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for part, line in imports_of(path):
        assert layer_of(part) <= layer_of(own), f"{path.name}:{line} imports {part}"


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


@pytest.mark.parametrize("name", ["estimate", "intervals"])
@pytest.mark.parametrize("module_first", [False, True])
def test_functions_are_not_hidden_by_modules_of_their_name(name, module_first):
    lines = [f"import osiris_jax.{name}", f"import osiris_jax as oj; print(callable(oj.{name}))"]
    code = "; ".join(lines if module_first else lines[::-1] + lines)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert set(run.stdout.split()) == {"True"}, run.stderr


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


def test_the_readme_names_every_estimator_and_test():
    readme = (ROOT / "README.md").read_text()
    for name in [*oj.ESTIMATORS, *oj.RELEVANCE]:
        assert f"`{name}`" in readme
