#!/usr/bin/env python3
"""Runs the notebooks of this folder and stores their outputs: docs/notebooks/execute.py [NAME ...]"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent


def execute(path: Path, folder: Path | str) -> nbformat.NotebookNode:
    """Return a notebook after a run in a folder, without what libraries log; raise `CellExecutionError` on an error."""
    notebook = nbformat.read(path, as_version=4)
    # `!python` in a cell is this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    return notebook


def main(names: list[str]) -> None:
    """Run notebooks, all of them without a name."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                nbformat.write(execute(path, folder), path)
            print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
