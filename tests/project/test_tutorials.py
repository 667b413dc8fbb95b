"""The tutorials and guides are true: flags exist, overrides load, every command runs and prints the lines shown."""

import re
from pathlib import Path

import pages
import pytest
from changed_pages import page_cases
from each import for_each

from hetero_tf import recipe
from hetero_tf.base.errors import InputError
from hetero_tf.cli.flags import define_flags

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDERS = ("gallery", "guides", "start", "tutorials")
PAGES = [page for folder in FOLDERS for page in sorted(DOCS.glob(f"{folder}/*.md"))]
GUIDES = {path.stem: path.read_text("utf-8") for path in PAGES if path.parent.name == "guides"}
# Lines about other programs.
OTHERS = re.compile("chromium|docker|tensorflow_model_server|ovms|vit_checkpoint|scaling.py")


@for_each(PAGES)
def test_flags_exist(page):
    flags = pages.program_flags(page)
    if page.stem in GUIDES:
        lines = "\n".join(line for line in GUIDES[page.stem].splitlines() if not OTHERS.search(line))
        flags |= set(re.findall(r"(?<![\w-])--([a-z_]+)(?![\w-])", lines))
    assert flags <= set(define_flags())


@for_each(re.findall(r"`((?:--set [^`|]+)+)`", GUIDES["change_a_recipe"]))
def test_overrides_load_and_change_a_recipe(line):
    overrides = [part.strip().strip("'").replace("='", "=") for part in line.split("--set") if part.strip()]
    loaded = []
    for name in ("mnist", "cifar10", "wikitext2"):
        try:
            loaded.append(recipe.load(name, overrides))
        except InputError:
            continue
    assert loaded or overrides == ["PATH=VALUE"], f"no shipped recipe takes {overrides}"
    assert all(got.source != recipe.load(got.name).source for got in loaded) or "levels.mix=a-e" in overrides


def test_every_page_is_in_one_group_of_the_index():
    links = re.findall(r"\]\(([\w./]+)\)", GUIDES["README"])
    listed = [(DOCS / "guides" / link).resolve().relative_to(DOCS.parent).as_posix() for link in links]
    folders = ("guides", "start", "tutorials", "data", "notebooks")
    names = {f"docs/{folder}/{page.name}" for folder in folders for page in (DOCS / folder).glob("*.[im][pd]*")}
    others = {"docs/how_it_works.md", "docs/methods.md", "docs/sweeps.md", "docs/plugins.md", "BUILD.md"}
    assert len(names) > 40 and sorted(listed) == sorted(names - {"docs/guides/README.md"} | others)


@pytest.mark.parametrize("page", page_cases(PAGES))
def test_every_command_runs(page, tmp_path):
    if page.stem == "privacy":
        pytest.importorskip("dp_accounting", reason="needs the extra `privacy`")
    pages.Reader(tmp_path).follow(page)
