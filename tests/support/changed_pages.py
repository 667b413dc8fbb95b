"""Tests that run the commands of pages are `long`; those of pages that changed are part of the quick suite."""

import subprocess
from pathlib import Path

import pytest
from programs import ROOT

MAIN_BRANCHES = ("origin/main", "main")


def _git(root, *words):
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout


def changed_files(root: Path) -> frozenset[Path]:
    """Return the files that differ from the main branch, also new ones; none without Git or its history."""
    try:
        bases = [_git(root, "merge-base", "HEAD", branch).strip() for branch in MAIN_BRANCHES]
        for base in filter(None, bases):
            names = _git(root, "diff", "--relative", "--name-only", "-z", base)
            names += _git(root, "ls-files", "--others", "--exclude-standard", "-z")
            return frozenset(root / name for name in names.split("\0") if name)
    except FileNotFoundError:
        pass
    return frozenset()


CHANGED = changed_files(ROOT)


def long_unless_changed(page: Path):
    """Decorator: mark a test that runs a page as `long`, unless the page changed."""
    return (lambda test: test) if page in CHANGED else pytest.mark.long


def page_cases(pages: list[Path]) -> list:
    """Return the cases of a test that runs pages: `long`, unless the page changed."""
    long = [() if page in CHANGED else pytest.mark.long for page in pages]
    return [pytest.param(page, id=f"{page.parent.name}-{page.stem}", marks=mark) for page, mark in zip(pages, long)]
