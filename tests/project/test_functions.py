"""Functions are short enough to read on one screen."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "hetero_tf"
MAX_LINES = 40


def long_functions(source):
    """`{name: lines without the docstring}` of the functions of a source that are too long."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
            lengths[node.name] = node.end_lineno - node.lineno + 1 - docstring
    return {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_functions_are_short():
    lengths = {
        path.relative_to(PACKAGE).as_posix(): long
        for path in sorted(PACKAGE.rglob("*.py"))
        if (long := long_functions(path.read_text(encoding="utf-8")))
    }
    assert lengths == {}


@pytest.mark.parametrize(("lines", "long"), [(39, {}), (40, {"f": 41})])
@pytest.mark.parametrize("docstring", ["", '    """A.\n\n    B.\n    """\n'])
def test_lines_count_without_the_docstring(docstring, lines, long):
    assert long_functions(f"def f():\n{docstring}" + "    x = 1\n" * lines) == long
