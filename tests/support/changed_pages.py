"""Slow tests of single files, such as the commands of a page, are `long`; those of changed files run with the quick."""

from pathlib import Path

import import_graph
import pytest

CHANGED = import_graph.changed_files(import_graph.main_base()) or set()


def long_unless_changed(*paths: Path):
    """Decorator: mark a test of files as `long`, unless one of them changed."""
    return pytest.mark.changed if CHANGED.intersection(paths) else pytest.mark.long


def page_cases(pages: list[Path]) -> list:
    """Return the cases of a test that runs pages: `long`, unless the page changed."""
    marks = [pytest.mark.changed if page in CHANGED else pytest.mark.long for page in pages]
    return [pytest.param(page, id=f"{page.parent.name}-{page.stem}", marks=mark) for page, mark in zip(pages, marks)]
