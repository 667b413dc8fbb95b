"""The tutorials and guides are true: their flags exist, every command runs as written, and prints the lines that they show."""

import subprocess
from pathlib import Path

import pages
import pytest
from changed_pages import changed_files, page_cases
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


def test_pages_that_differ_from_the_main_branch_are_changed(tmp_path):
    """Committed, edited and new pages count; without Git or a main branch none does."""

    def git(*words):
        settings = ("-c", "user.name=a", "-c", "user.email=a", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *settings, *words], cwd=tmp_path, check=True, capture_output=True)

    def write(*names):
        for name in names:
            (tmp_path / name).write_text((tmp_path / name).read_text() + "more\n" if (tmp_path / name).exists() else "")

    write("committed.md", "edited.md", "same.md")
    assert changed_files(tmp_path) == set()
    git("init", "-qb", "main")
    assert changed_files(tmp_path) == set()
    git("add", ".")
    git("commit", "-qm", "one")
    assert changed_files(tmp_path) == set()
    git("switch", "-qc", "branch")
    write("committed.md")
    git("commit", "-qam", "two")
    write("edited.md", "new page.md")
    changed = {tmp_path / name for name in ("committed.md", "edited.md", "new page.md")}
    assert changed_files(tmp_path) == changed
    # After a fetch, the main branch is that of the remote repository.
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert changed_files(tmp_path) == changed - {tmp_path / "committed.md"}
    git("branch", "-D", "main")
    git("update-ref", "-d", "refs/remotes/origin/main")
    assert changed_files(tmp_path) == set()
