"""CHANGELOG.md has the form of Keep a Changelog 1.1, and its newest version is that of the package."""

import re
from datetime import date
from pathlib import Path

from hetero_tf.base.version import __version__

TEXT = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text("utf-8")
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
TITLE, *PARTS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
HEADINGS = [part.partition("\n")[0] for part in PARTS]
VERSIONS = [heading for heading in HEADINGS if heading != "[Unreleased]"]


def test_the_title_the_lines_and_the_sections():
    assert TITLE.startswith("# Changelog\n") and max(map(len, TEXT.splitlines())) <= 120
    for part in PARTS:
        before, *sections = re.split(r"^### ", part, flags=re.MULTILINE)
        names = [section.partition("\n")[0] for section in sections]
        assert before.strip() in HEADINGS and names == [name for name in SECTIONS if name in names]
        assert all(re.search("^- ", section, re.MULTILINE) for section in sections), part[:20]


def test_versions_have_descending_dates():
    assert "[Unreleased]" not in HEADINGS[1:]
    matches = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", version) for version in VERSIONS]
    assert None not in matches, VERSIONS
    assert matches[0][1] == __version__ or "[Unreleased]" in HEADINGS
    dates = [date.fromisoformat(match[2]) for match in matches]
    assert all(newer > older for newer, older in zip(dates, dates[1:], strict=False))
