"""`bin/release`: the version and the changelog of a release, and the index that serves its wheel."""

import importlib.machinery
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from programs import ROOT
from refusals import refusal

loader = importlib.machinery.SourceFileLoader("release", str(ROOT / "bin" / "release"))
release = importlib.util.module_from_spec(importlib.util.spec_from_loader("release", loader))
loader.exec_module(release)


@pytest.fixture
def checkout(tmp_path):
    for name in ("CHANGELOG.md", *release.VERSIONS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    # After a release, the section has no entries.
    replace(tmp_path / "CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- A part.\n")
    return tmp_path


def replace(path, old, new):
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def refused(*arguments):
    return refusal(release.prepare, *arguments, kind=release.Failed)


def test_a_release_has_the_entries_of_unreleased(checkout):
    old = release.sections((checkout / "CHANGELOG.md").read_text("utf-8"))
    last = list(old)[1]
    version = release.next_versions(last, old["Unreleased"])[-1]
    text = release.prepare(checkout, version, "2030-01-31")
    assert text == f"hetero_tf {version}\n\n{old['Unreleased']}\n"
    changelog = (checkout / "CHANGELOG.md").read_text("utf-8")
    assert f"## [Unreleased]\n\n## [{version}] - 2030-01-31\n\n### " in changelog
    assert release.sections(changelog) == {"Unreleased": "", version: old["Unreleased"], **dict([*old.items()][1:])}
    for name, form in release.VERSIONS.items():
        assert form.format(version) in (checkout / name).read_text("utf-8")
    assert refused(checkout, version, "2030-02-01").startswith("CHANGELOG.md has no entries under '## [Unreleased]'")


def test_versions_follow_semantic_versioning(checkout):
    assert release.next_versions("0.3.1", "### Fixed\n\n- It works.") == ["0.3.2", "0.4.0", "1.0.0"]
    assert release.next_versions("0.3.1", "### Fixed\n\n- It.\n\n### Removed\n\n- That.") == ["0.4.0", "1.0.0"]
    assert refused(checkout, "0.2.0", "").endswith("Received: 0.2.0")


def test_a_file_that_states_another_version_is_refused(checkout):
    last = list(release.sections((checkout / "CHANGELOG.md").read_text("utf-8")))[1]
    replace(checkout / "CITATION.cff", f"version: {last}", "version: 0.0.9")
    version = release.next_versions(last, "### Added")[0]
    assert refused(checkout, version, "") == (
        f"CITATION.cff does not state {last}, the last version of CHANGELOG.md; correct one of them."
    )


def test_the_command_of_readme_installs_from_the_index(tmp_path):
    """pip finds the wheel by the name of README, in a folder whose name is normalized."""
    info = "hetero_tf-0.0.1.dist-info"
    folder = tmp_path / "index" / "hetero-tf"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "hetero_tf-0.0.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("hetero_tf.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: hetero_tf\nVersion: 0.0.1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (words,) = re.findall(r"`pip (install hetero_tf)`", (ROOT / "README.md").read_text("utf-8"))
    with release.serve_index(folder.parent) as url:
        options = ["--isolated", "-q", "--index-url", url, "--target", tmp_path / "site"]
        subprocess.run([sys.executable, "-m", "pip", *words.split(), *options], check=True)
    assert (tmp_path / "site" / "hetero_tf.py").is_file()


def test_all_supported_versions_are_checked():
    first, last = (version.replace(".", ", ") for version in (release.PYTHONS[0], release.PYTHONS[-1]))
    assert f"({first}) <= sys.version_info[:2] <= ({last})" in (ROOT / "bin" / "environment.sh").read_text("utf-8")
    assert f"python_version = {release.PYTHONS[0]}" in (ROOT / ".mypy.ini").read_text("utf-8")
