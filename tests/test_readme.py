"""What README.md shows works: its Python example, and the flags, commands and files that it names."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np

from hetero_tf import learning_process, load_recipe
from hetero_tf.base import registry
from hetero_tf.cli.flags import COMMANDS, definitions

CHECKOUT = Path(__file__).resolve().parents[1]
TEXT = (CHECKOUT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_the_example_for_a_notebook_runs():
    (example,) = (block for block in PYTHON if "import hetero_tf" in block)
    # The same structure with tiny data; its clients have ids below 100 too.
    example = example.replace('"digits"', '"tiny/digits"')
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(example, names)
    assert names["state"].round == 5 and names["model"].count_params() > 0
    assert [line.split()[0] for line in said.getvalue().splitlines()[:5]] == ["1", "2", "3", "4", "5"]


def test_the_example_of_a_new_method_runs(tmp_path, monkeypatch):
    (example,) = (block for block in PYTHON if "def keep" in block)
    assert len(example.splitlines()) <= 20
    (tmp_path / "windows.py").write_text(example)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_plugged", {kind: {} for kind in registry.KINDS})
    registry.register_plugin("windows")
    process = learning_process(load_recipe("tiny/digits", ["round.submodel={name: windows, step: 2}"]))
    before = process.initialize()
    state, row = process.next(before)
    assert row["non_finite"] == 0
    assert any((np.asarray(state.weights[path]) != np.asarray(value)).any() for path, value in before.weights.items())


def test_flags_and_commands_exist():
    lines = "\n".join(line for line in TEXT.splitlines() if "benchmarks/" not in line)
    words = set(re.findall(r"(?<![\w-])--([a-z_]+)", lines))
    assert words and words <= set(definitions())
    called = set(re.findall(r"bin/hetero_tf ([a-z]+)", TEXT))
    assert called == set(COMMANDS) - {"train"}


def test_files_exist():
    named = re.findall(r"`((?:hetero_tf|recipes|benchmarks|tests|bin)/[\w./-]+)`", TEXT)
    assert len(named) > 10
    assert [name for name in named if not (CHECKOUT / name.replace("NAME.py", "__init__.py")).exists()] == []
    assert [link for link in re.findall(r"\]\(([\w./]+)[)#]", TEXT) if not (CHECKOUT / link).exists()] == []
