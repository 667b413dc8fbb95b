"""The pages of docs/reference are generated from the code, complete and current."""

import ast
import re

import pytest
import reference_pages

from hetero_tf.base import registry
from hetero_tf.cli import commands

PAGES = reference_pages.pages()


def headings(page):
    return set(re.findall(r"^##+ (\S+)$", PAGES[page], re.MULTILINE))


def test_pages_are_current():
    """To write the current pages: `python docs/reference_pages.py`."""
    folder = reference_pages.FOLDER
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} == set(PAGES)
    stale = [name for name, text in PAGES.items() if (folder / name).read_text("utf-8") != text]
    assert not stale, "run `python docs/reference_pages.py`"


def test_every_key_plugin_layer_and_command_has_an_entry():
    top = ("seed", "data.name", "data.fallback", "model.layers", "levels.mix", "round.non_finite_share", "precision")
    for key in (*top, "client.label_cut", "optimizer.clip_norm", "evaluate.best", "checkpoint.keep"):
        assert f"| `{key}` |" in PAGES["keys.md"]
    for kind in registry.EXPORTS:
        assert headings(f"plugins/{kind}.md") == set(registry.names(kind))
    assert {*registry.names("layers"), "Dense", "Conv2D"} <= headings("layers.md")
    assert set(commands.NAMES) <= headings("commands.md")


def test_every_public_function_has_an_entry():
    tree = ast.parse((reference_pages.PACKAGE / "__init__.py").read_text("utf-8"))
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} <= headings("python.md")


@pytest.mark.parametrize("name", PAGES)
def test_every_row_has_the_cells_of_its_head_and_every_option_a_meaning(name):
    for block in re.findall(r"(?m)(?:^\|.*\n)+", PAGES[name]):
        head, _, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        assert all(len(row) == len(head) for row in rows), block
        column = next((index for index, cell in enumerate(head) if cell.strip() == "meaning"), 0)
        assert all(row[column].strip() for row in rows), block


def test_emphasis_and_html_are_escaped_outside_code():
    assert reference_pages.escape("2*w of `a*b <c>` < <pad>") == r"2\*w of `a*b <c>` &lt; &lt;pad>"
