"""The table of modules in each package's docstring: one line for each, from the module's own docstring."""

import ast
import re
import textwrap
from pathlib import Path

from each import for_each

PACKAGE = Path(__file__).parents[2] / "hetero_tf"
# Their modules are plug-ins, which docs/reference lists.
PLUGINS = ("data/embedded", "methods", "partitions")
PACKAGES = sorted(
    path.parent
    for path in PACKAGE.rglob("__init__.py")
    if path.parent != PACKAGE and not path.parent.relative_to(PACKAGE).as_posix().startswith(PLUGINS)
)
WIDTH = 118


def summary(path, room):
    """The first line of a module's docstring, cut at the last mark that makes it fit."""
    text = ast.get_docstring(ast.parse(path.read_text())).splitlines()[0].rstrip(".")
    for mark in (r"\. ", "; ", ": ", ", "):
        if len(text) > room and len(re.split(mark, text)[0].split()) > 3:
            text = re.split(mark, text)[0]
    return textwrap.shorten(text, room, placeholder=" ...")


def table(package):
    """The lines of a package's table."""
    modules = {path.stem: path for path in sorted(package.glob("*.py")) if path.stem != "__init__"}
    modules |= {f"{path.parent.name}/": path for path in sorted(package.glob("*/__init__.py"))}
    width = max(map(len, modules), default=0) + 2
    return [f"    {name:{width}}{summary(path, WIDTH - 4 - width)}" for name, path in sorted(modules.items())]


def update():
    """Writes the present tables: `python -c "import test_package_tables as t; t.update()"` in tests/project."""
    # Inner packages first, as their first lines are in the tables of outer ones.
    for package in sorted(PACKAGES, key=lambda path: -len(path.parts)):
        path = package / "__init__.py"
        source = path.read_text()
        docstring = ast.get_docstring(ast.parse(source), clean=False)
        text = docstring.partition("\n\nModules:\n")[0].rstrip()
        new = "\n".join([text, "", "Modules:", "", *table(package), ""])
        path.write_text(source.replace(docstring, new, 1))


@for_each(PACKAGES)
def test_a_package_lists_its_modules(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False)
    assert docstring.partition("\n\nModules:\n\n")[2].rstrip("\n").splitlines() == table(package)
