"""Examples of README.md and other documents work: Python code, flags, commands and files."""

import contextlib
import io
import re
from pathlib import Path

from changed_pages import long_unless_changed
from each import for_each

from hetero_tf import load_recipe
from hetero_tf.base import registry
from hetero_tf.cli.commands import COMMANDS
from hetero_tf.cli.flags import define_flags
from hetero_tf.recipe.explanations import explain
from hetero_tf.recipe.recipe_files import shipped

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()
BUILD = (CHECKOUT / "BUILD.md").read_text()
FOLDERS = ("benchmarks", "docs", "hetero_tf", "recipes", "tests")
TEXTS = [*CHECKOUT.glob("*.md"), *(path for name in FOLDERS for path in (CHECKOUT / name).rglob("*.md"))]
PAGES = sorted(path.relative_to(CHECKOUT).as_posix() for path in TEXTS)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@long_unless_changed(CHECKOUT / "README.md")
def test_the_example_for_a_notebook_runs_also_with_the_keras_model():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    # The same structure with tiny data; its clients have ids below 100 too.
    example = example.replace('"digits"', '"tiny/digits"')
    names, output = {}, io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(example, names)
    assert names["state"].round == 5 and names["model"].count_params() > 0
    assert [line.split()[0] for line in output.getvalue().splitlines()[:5]] == ["1", "2", "3", "4", "5"]
    exec(re.findall(r'```python title="my_model.py"\n(.*?)```', README, re.DOTALL)[0], names)
    process = names["hetero_tf"].learning_process(names["recipe"], model=names["build"])
    assert process.next(process.initialize())[0].round == 1


def test_the_front_page_is_short_and_its_commands_exist():
    assert len(README.encode()) <= 10 * 1024
    words = set(re.findall(r"(?<![\w-])--([a-z_]+)", README))
    assert words and words <= set(define_flags())
    called = set(re.findall(r"bin/hetero_tf ([a-z][a-z-]*)", README))
    assert called == set(COMMANDS) - {"train"}


def test_shown_overrides_are_valid():
    shown = re.findall(r"--set '?([\w.]+=[^'`\s]+)", README)
    assert len(shown) > 3
    for override in shown:
        if not override.startswith(("data=", "model=")):
            load_recipe("digits", [override])


def test_every_method_has_a_row_with_a_link():
    page = (CHECKOUT / "docs" / "methods.md").read_text()
    linked = {Path(link).stem for link in re.findall(r"\]\(\.\./(recipes/methods/\w+\.yaml)\)", page)}
    assert linked == {name.removeprefix("methods/") for name in shipped() if name.startswith("methods/")}


def test_every_kind_of_part_is_explained():
    for kind, function in {**registry.EXPORTS, "masks": "prepare"}.items():
        (key,) = re.findall(rf"^\| {kind} \| `{function}.* \| `([\w.]+)` \|", BUILD, re.MULTILINE)
        assert kind == "metrics" or f"(key {key})" in "".join(explain(registry.names(kind)[0])), kind


@for_each(PAGES)
def test_no_line_inside_a_sentence_is_an_item_of_a_list(page):
    """A sentence whose next line begins with "1. " becomes a list."""
    assert re.findall(r"\w\n *\d+\. .*", (CHECKOUT / page).read_text()) == []


@for_each(PAGES)
def test_files_and_links_exist(page):
    path = CHECKOUT / page
    text = path.read_text()
    named = re.findall(r"`((?:hetero_tf|recipes|benchmarks|tests|bin)/[\w./-]+)", text)
    assert [name for name in named if not (CHECKOUT / name.replace("NAME", "__init__")).exists()] == []
    for link, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", text):
        target = (path.parent / link) if link else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), anchor
