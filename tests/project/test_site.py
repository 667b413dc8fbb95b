"""The documentation site builds without a warning, and no page loads anything from another host."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_need_no_other_host(site):
    pages = list(site.rglob("index.html"))
    assert len(pages) > 30
    loaded = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]* (?:src|href)="(?:https?:)?//')
    assert [page for page in pages if loaded.search(page.read_text("utf-8"))] == []


def test_linked_files_of_the_repository_are_pages(site):
    recipe = (site / "repository/recipes/wikitext2.yaml/index.html").read_text("utf-8")
    assert "WikiText-2" in recipe and "bin/hetero_tf" in (site / "repository/BUILD/index.html").read_text("utf-8")
