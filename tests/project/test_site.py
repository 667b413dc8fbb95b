"""The documentation site builds without a warning; a wrong link is one; no page loads anything from another host."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long


def build(checkout, site):
    """Build the site strictly; return the finished process."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = build(CHECKOUT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_need_no_other_host(site):
    pages = list(site.rglob("index.html"))
    assert len(pages) > 30
    loaded = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]* (?:src|href)="(?:https?:)?//')
    assert [page for page in pages if loaded.search(page.read_text("utf-8"))] == []


def test_searches_lead_to_pages(site):
    """The theme's search prefers tags; each word of docs/find.md is one of the page that its row links to first."""
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    tags = {entry["location"]: entry.get("tags", []) for entry in index["docs"]}
    assert "excel" in tags["data/tables/"] and "secure aggregation" in tags["guides/privacy/"]
    rows = re.findall(r"^\| ([^|]+) \| .*\]\(", (CHECKOUT / "docs/find.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 30 and set(", ".join(rows).split(", ")) <= set().union(*tags.values())


def test_linked_files_of_the_repository_and_groups_are_pages(site):
    assert 'href="../../guides/models/"' in (site / "groups/models/index.html").read_text("utf-8")
    assert '<td data-label="allowed">' in (site / "reference/keys/index.html").read_text("utf-8")
    assert '<td data-label="epsilon" data-number>1</td>' in (site / "guides/privacy/index.html").read_text("utf-8")
    assert '<td data-label="data">' in (site / "data/index.html").read_text("utf-8")
    recipe = (site / "repository/recipes/wikitext2.yaml/index.html").read_text("utf-8")
    assert "WikiText-2" in recipe and "bin/hetero_tf" in (site / "repository/BUILD/index.html").read_text("utf-8")


def test_results_are_short_parts_whose_tables_are_cards_on_phones(site):
    """A part of 14,000 characters has about 15 screens of 400 x 900 pixels."""
    for page in (site / "results").glob("*/index.html"):
        (article,) = re.findall("<article.*?</article>", page.read_text("utf-8"), re.DOTALL)
        tables = re.findall("<table.*?</table>", article, re.DOTALL)
        wide = [table for table in tables if len(re.findall("<th[ >]", table)) > 2]
        assert wide and all(table.startswith('<table data-cards="compact">') for table in wide)
        assert len(" ".join(re.sub("<[^>]+>", "", article).split())) < 14_000, page


def test_wrong_links_fail(tmp_path):
    links = ("missing.md", "../recipes/missing.yaml", "README.md#no-such-heading")
    for name in ("mkdocs.yml", "docs/repository_files.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / name, tmp_path / name)
    config = (tmp_path / "mkdocs.yml").read_text().partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(config)
    (tmp_path / "docs/README.md").write_text("# Page\n\n" + "".join(f"[link]({link})\n" for link in links))
    built = build(tmp_path, tmp_path / "site")
    output = built.stderr + built.stdout
    assert built.returncode != 0 and f"Aborted with {len(links)} warnings in strict mode" in output
    assert [link for link in links if link.rpartition("/")[2] not in output] == []
