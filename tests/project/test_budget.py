"""The size and the structure of the package: upper limits that may only fall.

A change that raises a limit lowers another one in the same commit, and CHANGELOG states the reason.
"""

import ast
import json
import subprocess
import sys

import import_graph
import pytest

ROOT, PACKAGE, TESTS = import_graph.ROOT, import_graph.PACKAGE, import_graph.TESTS
PYTHON_FILES = sorted(PACKAGE.rglob("*.py"))
COUNTED = (".py", ".csv", ".json", ".mplstyle", ".yaml")
# Lines of each package of hetero_tf: of Python files and tables.
LINES = {
    "base": 3022,
    "cli": 1761,
    "data": 9880,
    "devices": 2138,
    "evaluation": 1320,
    "export": 3718,
    "layers": 2593,
    "methods": 3792,
    "models": 4837,
    "planning": 2145,
    "recipe": 3661,
    "reports": 2472,
    "rounds": 3232,
    "run": 3100,
    "runs": 2055,
    "starter": 1357,
    "sweeps": 1052,
    "testing": 1708,
    "workers": 437,
}
FILES, TEST_SHARE = 415, 0.811
# See benchmarks/structure.py; the last two are those of a run of tiny/digits.
STRUCTURE = {"rooms": 22, "arrows": 98, "floors": 9, "modules_entered": 110, "frames_to_step": 18}


def count_lines(folder):
    """Lines of Python, and of tables that are read instead; recorded values are none."""
    files = [path for path in folder.rglob("*") if path.suffix in COUNTED or path.name == "refusals.txt"]
    files = [path for path in files if not path.match("published*.csv") and path.parent.name != "golden"]
    return sum(len(path.read_text("utf-8").splitlines()) for path in files)


def test_no_package_has_more_lines_than_its_limit():
    lines = {
        folder.name: count_lines(folder) for folder in PACKAGE.iterdir() if folder.is_dir() and any(folder.glob("*.py"))
    }
    assert lines.keys() == LINES.keys()
    assert {name: count for name, count in lines.items() if count > LINES[name]} == {}
    assert len(PYTHON_FILES) <= FILES
    assert count_lines(TESTS) <= TEST_SHARE * count_lines(PACKAGE)


def measure_structure(*flags):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "structure.py", *flags], stdout=-1, check=True, text=True
    )
    measured = json.loads(done.stdout)
    return {name: value for name, value in measured.items() if value > STRUCTURE.get(name, value)}


def test_packages_import_few_others():
    assert measure_structure("--sources") == {}


@pytest.mark.long
def test_a_run_enters_few_modules():
    assert measure_structure("--recipe=tiny/digits") == {}


def files_in_circles():
    """The files of the package that import each other, imports in functions and for type checkers included."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in PYTHON_FILES}
    imported = {}
    for path in PYTHON_FILES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        targets = [other for _, other in import_graph.imports(ast.parse(path.read_text("utf-8")), name)]
        imported[name] = {other if other in names else other.rpartition(".")[0] for other in targets} - {name}
    # Remove files that import none of the others, or that none of the others imports, until only circles are left.
    while imported:
        used = set().union(*imported.values())
        ends = {name for name, others in imported.items() if name not in used or not others & imported.keys()}
        if not ends:
            break
        imported = {name: others for name, others in imported.items() if name not in ends}
    return sorted(imported)


def test_files_do_not_import_each_other_in_a_circle():
    assert files_in_circles() == []
