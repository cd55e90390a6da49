"""The notebooks: they run, their claims hold, and what is committed of them is clean and small."""

import copy
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import IN_A_HURRY

FOLDER = Path(__file__).parents[2] / "notebooks"
SCRIPT = FOLDER / "execute.py"
COMPUTES = "03-bias-variance"  # for longer than it compiles
NAMES = ("01-first-look", "02-your-own-log", COMPUTES, "04-many-devices")
MOST_BYTES, MOST_BYTES_IN_ALL = 250_000, 700_000
MACHINE_PATH = re.compile(
    r"(?<![\w.:])/(home|tmp|var|usr|root|Users|work|opt|mnt|private)/|[A-Z]:\\\\?Users|site-packages"
)
REFRESH = "refresh it with: python notebooks/execute.py"


def load_script():
    spec = importlib.util.spec_from_file_location("execute_notebooks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


execute = load_script()


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run_script(*arguments, **environment):
    command = [sys.executable, SCRIPT, *arguments]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout, done.stderr


def test_these_are_the_notebooks():
    assert tuple(path.stem for path in execute.find([])) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_in_a_fresh_kernel_and_its_claims_hold(name):
    """Its `assert`s state what its text says."""
    before = (FOLDER / f"{name}.ipynb").read_bytes()
    hurry = {} if name == COMPUTES else IN_A_HURRY
    code, printed, problem = run_script("--check", name, **hurry)
    assert code == 0, problem
    assert printed == f"{name}.ipynb runs\n"
    assert (FOLDER / f"{name}.ipynb").read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_has_its_outputs_and_no_errors(name):
    cells = code_cells(read(name))
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)], REFRESH
    outputs = [output for cell in cells for output in cell.outputs]
    assert len(outputs) >= len(cells) // 2, REFRESH
    for output in outputs:
        assert output.output_type != "error"
        assert output.get("name") != "stderr", output.text
    assert sum("assert " in cell.source for cell in cells) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_says_nothing_about_the_machine(name):
    notebook = read(name)
    assert execute.clean(copy.deepcopy(notebook)) == notebook, REFRESH
    for cell in notebook.cells:
        for text in texts_of(cell):
            assert not MACHINE_PATH.search(text), text


def texts_of(cell):
    """The source and all outputs but pictures."""
    yield cell.source
    for output in cell.get("outputs", []):
        yield output.get("text", "")
        kinds = output.get("data", {})
        yield from (str(value) for kind, value in kinds.items() if kind != "image/png")


def test_the_search_for_paths_finds_them():
    places = ("home", "ann", "run"), ("tmp", "x")
    texts = [f"in '/{'/'.join(parts)}'" for parts in places]
    for text in (*texts, "C:\\Users\\ann", "lib/site-packages/jax"):
        assert MACHINE_PATH.search(text), text
    for text in ("--out /shared/dd", "[a](../docs/studies.md)", "sum g rho / sum rho"):
        assert not MACHINE_PATH.search(text), text


def test_the_notebooks_are_small():
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.is_file()}
    assert max(sizes.values()) < MOST_BYTES, sizes
    assert sum(sizes.values()) < MOST_BYTES_IN_ALL, sizes


def test_links_of_the_notebooks_lead_somewhere():
    for name in NAMES:
        text = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (FOLDER / link).exists(), f"{name}: {link}"


def make(folder, name, *sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    path = folder / f"{name}.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_claim_that_fails_fails_the_script_and_writes_nothing(tmp_path):
    path = make(tmp_path, "bad", "x = 1", "assert x == 2, 'the claim'")
    before = path.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n"
        f"from pathlib import Path; import execute\n"
        f"sys.exit(execute.main([], Path({str(tmp_path)!r})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "the claim" in done.stderr
    assert path.read_bytes() == before


def test_an_unknown_notebook_is_one_line():
    code, printed, problem = run_script("99")
    assert (code, printed) == (1, "")
    assert problem.startswith("99: no such notebook; there are 01-first-look.ipynb")
    assert len(problem.splitlines()) == 1


def test_cleaning_removes_what_changes_and_keeps_what_is_shown(tmp_path):
    notebook = nbformat.read(make(tmp_path, "x", "print(1)"), as_version=4)
    notebook.metadata["kernelspec"] = {"name": "mine", "display_name": "a python of mine"}
    (cell,) = notebook.cells
    cell.metadata["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00"}
    for text in ("a\n", "b\n"):
        cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=text))
    data = {"text/plain": "7"}
    cell.outputs.append(nbformat.v4.new_output("execute_result", data=data, metadata={"at": 3}))
    cleaned = execute.clean(notebook)
    assert cleaned.metadata == execute.METADATA
    assert cell.metadata == {}
    assert [output.get("text") for output in cell.outputs] == ["a\nb\n", None]
    assert cell.outputs[1].data == data
    assert cell.outputs[1].metadata == {}
    nbformat.validate(cleaned)
