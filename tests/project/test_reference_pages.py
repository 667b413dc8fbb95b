"""The pages of docs/reference are generated from the code, complete and current."""

import ast
import re

import pytest

from hetero_tf.base import registry
from hetero_tf.cli import commands


@pytest.fixture(scope="module")
def reference_pages():
    """The module that writes the pages; its import lists all plug-ins."""
    import reference_pages

    return reference_pages


@pytest.fixture(scope="module")
def pages(reference_pages):
    return reference_pages.pages()


def headings(text):
    return set(re.findall(r"^##+ (\S+)$", text, re.MULTILINE))


def test_pages_are_current_escaped_and_with_an_entry_for_every_public_function(reference_pages, pages):
    """To write the current pages: `python docs/reference_pages.py`."""
    folder = reference_pages.FOLDER
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")} == set(pages)
    stale = [name for name, text in pages.items() if (folder / name).read_text("utf-8") != text]
    assert not stale, "run `python docs/reference_pages.py`"
    tree = ast.parse((reference_pages.PACKAGE / "__init__.py").read_text("utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    assert names <= headings(pages["python.md"])
    assert reference_pages.escape("2*w of `a*b <c>` < <pad>") == r"2\*w of `a*b <c>` &lt; &lt;pad>"


def test_every_key_plugin_layer_and_command_has_an_entry(pages):
    top = ("seed", "data.name", "data.fallback", "model.layers", "levels.mix", "round.non_finite_share", "precision")
    for key in (*top, "client.label_cut", "optimizer.clip_norm", "evaluate.best", "checkpoint.keep"):
        assert f"| `{key}` |" in pages["keys.md"]
    for kind in registry.EXPORTS:
        assert headings(pages[f"plugins/{kind}.md"]) == set(registry.names(kind))
    assert {*registry.names("layers"), "Dense", "Conv2D"} <= headings(pages["layers.md"])
    assert set(commands.COMMANDS) <= headings(pages["commands.md"])


def test_every_row_has_the_cells_of_its_head_and_every_option_a_meaning(pages):
    broken = []
    for block in re.findall(r"(?m)(?:^\|.*\n)+", "\n".join(pages.values())):
        head, _, *rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        column = next((index for index, cell in enumerate(head) if cell.strip() == "meaning"), 0)
        broken += [row for row in rows if len(row) != len(head) or not row[column].strip()]
    assert broken == []
