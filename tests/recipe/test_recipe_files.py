"""Recipe files by path and by name."""

import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.recipe.recipe_files import LARGEST_FILE


@pytest.mark.parametrize("path", ["mnist", "mnist.yaml", "recipes/mnist.yaml", "tiny/mnist", "recipes/tiny/mnist.yaml"])
def test_shipped_recipes_load_from_any_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = recipe.load(path)
    assert loaded.name == ("tiny_mnist" if "tiny" in path else "mnist")
    assert loaded.path.startswith("recipes/") and loaded.path.endswith("mnist.yaml")


def test_a_file_goes_before_a_shipped_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").write_text(BASE)
    assert recipe.load("mnist").name == "base"


EMPTY = ":1:1: the recipe is empty; expected keys and values"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("utf16", BASE.encode("utf-16"), ": is UTF-16 text; save it as UTF-8"),
        ("latin", b"name: caf\xe9\n", ": is not UTF-8 text (byte 9); save it as UTF-8"),
        ("binary", bytes(range(256)), ": is not UTF-8 text (byte 128); save it as UTF-8"),
        ("large", b"#" * (LARGEST_FILE + 1), f": has {LARGEST_FILE + 1} bytes, at most {LARGEST_FILE} are allowed"),
        ("nul", b"name: a\0b\n", ":1:8: unreadable character U+0000; a recipe must be plain text"),
        ("empty", b"", EMPTY),
        ("comment", b"# x\n", EMPTY),
    ],
)
def test_invalid_recipe_files_are_rejected(name, content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert refusal(recipe.load, name).split("\n")[0] == name + message


def test_names_of_no_recipe():
    assert refusal(recipe.load, "mnits") == "mnits: unknown recipe; did you mean 'mnist'?"
    for name in ("mnist/x", "a\0b", "x" * 5000):
        assert refusal(recipe.load, name).startswith(f"{name[:200]}: unknown recipe")


def test_a_byte_order_mark_is_fine(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert recipe.load(path) == recipe.loads(BASE)
