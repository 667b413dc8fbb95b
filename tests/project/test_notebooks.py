"""The notebooks run from the wheel alone, in a folder without the checkout, and print what they show."""

import os
import re
from pathlib import Path

import programs
import pytest
from changed_pages import page_cases
from each import for_each

CHECKOUT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((CHECKOUT / "docs/notebooks").glob("*.ipynb"))


def read(path):
    """A notebook; its packages are imported by the tests that need them."""
    return pytest.importorskip("nbformat").read(path, as_version=4)


def texts(notebook):
    """The printed lines of each cell, without numbers, which differ in the last digits between processors."""
    streams = (
        "".join(output.text for output in cell.outputs if output.output_type == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    )
    return [re.sub(r"\W*\d[\d.,]*\W*|\r", "#", text) for text in streams]


@for_each(NOTEBOOKS)
def test_outputs_are_stored(path):
    notebook = read(path)
    pytest.importorskip("nbformat").validate(notebook)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output.get("name") == "stderr" or output.output_type == "error" for output in outputs)
    assert "hetero_tf/" not in "".join(texts(notebook)) and path.stat().st_size < 200_000


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed wheel."""
    return programs.install(tmp_path_factory.mktemp("wheel") / "installed")


@pytest.mark.parametrize("path", page_cases(NOTEBOOKS))
def test_a_notebook_runs(path, installed, tmp_path, monkeypatch):
    if "import keras_hub" in path.read_text("utf-8"):
        pytest.importorskip("keras_hub", reason="keras-hub is not installed")
    others = [
        entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry) != CHECKOUT
    ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *others]))
    notebook = programs.script("docs/notebooks/execute.py").execute(path, tmp_path)
    for printed, stored in zip(texts(notebook), texts(read(path)), strict=True):
        assert set(stored.splitlines()) == set(printed.splitlines())
