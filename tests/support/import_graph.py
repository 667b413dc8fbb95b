"""The imports of the checkout, read from the source: what a module imports, and which tests a change can reach."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, TESTS = ROOT / "hetero_tf", ROOT / "tests"
# Tests that start programs reach every command through it; the tests of the commands themselves follow it.
MAIN = PACKAGE / "cli" / "main.py"


def imports(tree, package):
    """(line, full module name) of every import; `package` resolves relative imports.

    `from a.b import c` gives `a.b.c`, as c may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) + 1 - node.level]) if node.level else ""
            start = ".".join(part for part in (base, node.module) if part)
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


@functools.cache
def _file_of(name, folder):
    """The file of a module that is imported from a file in `folder`; None outside of the checkout."""
    words = name.split(".")
    # The last word may be a name inside of the module.
    for parts in (words, words[:-1]):
        for start in (ROOT, TESTS, TESTS / "support", folder, ROOT / "benchmarks", ROOT / "docs"):
            path = start.joinpath(*parts)
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if parts and file.is_file():
                    return file
    return None


@functools.cache
def imported_files(path):
    """The files of the checkout that a file imports, in functions too."""
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    files = {_file_of(name, path.parent) for _, name in imports(tree, package)}
    return frozenset(files - {None, path})


@functools.cache
def reachable_files(test):
    """All files that a test file imports, directly or through others."""
    reached, waiting = {test}, [test]
    barrier = set() if test.parent.name == "cli" else {MAIN}
    while waiting:
        for file in imported_files(waiting.pop()) - reached - barrier:
            reached.add(file)
            waiting.append(file)
    return reached


def main_base():
    """The commit at which the checkout left its main branch, or "HEAD"."""
    bases = (_git("merge-base", "HEAD", branch) for branch in ("origin/main", "main"))
    return next((base.strip() for base in bases if base), "HEAD")


def changed_files(revision):
    """The files that differ from a revision, new ones included; None if git cannot say."""
    changed = _git("diff", "--relative", "--name-only", "-z", revision, "--")
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return None if changed is None or new is None else {ROOT / name for name in (changed + new).split("\0") if name}


def _git(*words):
    """The output of a git command; None if it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout


def reached_tests(changed):
    """The test files that can see a change of some files.

    A test file sees what it imports. Plug-ins are imported by name: the folder of their kind has the tests in
    tests/contracts, and a folder of the package those in the folder of tests with its name. Files that are not Python
    (recipes, pages, data) have the tests of their folder, in tests/project and tests/recipes.
    """
    mirrored = {TESTS / path.relative_to(PACKAGE).parts[0] for path in changed if path.is_relative_to(PACKAGE)}
    if any(path.is_relative_to(PACKAGE / "methods") for path in changed):
        mirrored.add(TESTS / "contracts")
    if any(path.suffix != ".py" for path in changed):
        mirrored |= {TESTS / "project", TESTS / "recipes"}
    mirrored |= {path.parent for path in changed if path.is_relative_to(TESTS) and path.suffix != ".py"}
    tests = sorted(TESTS.rglob("test_*.py"))
    return [test for test in tests if mirrored & set(test.parents) or changed & reachable_files(test)]
