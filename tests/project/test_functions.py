"""Functions are short enough to read on one screen."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "hetero_tf"
MAX_LINES = 40


def long_functions(path):
    """Lines without the docstring of the functions of a file that are too long."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = first.end_lineno - first.lineno + 1 if ast.get_docstring(node, clean=False) is not None else 0
            lines = node.end_lineno - node.lineno + 1 - docstring
            if lines > MAX_LINES:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.name} has {lines} lines"


def test_functions_are_short():
    assert [message for path in sorted(PACKAGE.rglob("*.py")) for message in long_functions(path)] == []
