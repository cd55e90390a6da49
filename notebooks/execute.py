"""Runs the notebooks and stores their outputs, without what changes from run to run.

python notebooks/execute.py            runs all and writes their outputs
python notebooks/execute.py 01 03      runs some, by how their names begin
python notebooks/execute.py --check    runs all and writes nothing

A cell that fails ends the script with its traceback and exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parent
SECONDS_PER_CELL = 600
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def find(names: list[str], folder: Path = FOLDER) -> list[Path]:
    """The notebooks whose names begin so, all without names; a ValueError if one is not there."""
    paths = sorted(folder.glob("*.ipynb"))
    for name in names:
        if not any(path.name.startswith(name) for path in paths):
            known = ", ".join(path.name for path in paths)
            raise ValueError(f"{name}: no such notebook; there are {known}")
    return [path for path in paths if not names or path.name.startswith(tuple(names))]


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with fresh outputs, from a fresh kernel in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        return clean(client.execute())


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what depends on the machine, the editor or the moment."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = nbformat.from_dict({})
    return notebook


def _joined(outputs: list) -> list:
    """The outputs, with pieces of one stream put together: where it breaks is chance."""
    joined = []
    for output in outputs:
        last = joined[-1] if joined else None
        if last and output.output_type == "stream" and last.get("name") == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    """Runs what the arguments ask for; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names, such as 01; default all")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    try:
        for path in find(given.names, folder):
            notebook = execute(nbformat.read(path, as_version=4))
            if not given.check:
                nbformat.write(notebook, path)
            print(path.name, "runs" if given.check else "written")
    except (ValueError, CellExecutionError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
