"""The tutorials and guides are true: their flags exist, every command runs as written, and prints the lines that they show."""

from pathlib import Path

import pages
import pytest
from changed_pages import page_cases
from each import for_each

from hetero_tf.cli.flags import define_flags

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDERS = ("gallery", "guides", "start", "tutorials")
PAGES = [page for folder in FOLDERS for page in sorted(DOCS.glob(f"{folder}/*.md"))]


@for_each(PAGES)
def test_flags_exist(page):
    assert pages.program_flags(page) <= set(define_flags())


@pytest.mark.parametrize("page", page_cases(PAGES))
def test_every_command_runs(page, tmp_path):
    pages.Reader(tmp_path).follow(page)


@pytest.mark.parametrize(
    "text, error",
    [
        ("```sh\necho round 1/60\n```\n```text\nround 7/9\n...\n```\n", None),
        ("```sh\necho done in 1:11 min\n```\n```text\ndone in 23 s\n```\n", None),
        ("```sh\necho round 1/60\n```\n```text\nepoch 1/60\n```\n", "'epoch 1/60' is not in the output"),
        ("```sh\nfalse\n```\n", "false"),
        ('```sh title="a.sh"\necho good\n```\n```sh\nsh a.sh\n```\n```text\ngo...\n```\n', None),
    ],
)
def test_a_page_that_is_wrong_fails(text, error, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    if error is None:
        pages.Reader(tmp_path).follow(page)
    else:
        with pytest.raises(AssertionError, match=error):
            pages.Reader(tmp_path).follow(page)
