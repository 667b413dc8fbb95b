"""The container files, the wheel, the source distribution, and `bin/release`: linted, replayed, complete."""

import importlib.machinery
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile

import ports
import programs
import pytest
from programs import ROOT
from refusals import refusal

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def instructions(name):
    """The values of an instruction, with joined lines, without comments."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)


def tracked():
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a Git checkout")
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_dockerfile_has_no_lint():
    program = shutil.which("hadolint", path=f"{sys.prefix}/bin") or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_images_have_a_pinned_base_and_a_user_without_rights():
    bases = instructions("FROM")
    assert len(bases) == 3
    assert all(re.fullmatch(r"(python:\d+\.\d+\.\d+-\S+|base) AS \w+", base) for base in bases)
    assert instructions("USER") == ["1000:1000"] * 2
    assert {"HOME=/work", "TMPDIR=/tmp", "HETERO_TF_DATA=/data"} <= set(instructions("ENV")[0].split())


def test_the_serving_image_has_the_bounds_of_setup_py():
    text = (ROOT / "setup.py").read_text("utf-8")
    (line,) = [run for run in instructions("RUN") if "tensorflow-cpu" in run]
    needs = [need.replace("-cpu", "") for need in re.findall(r'"([^"]+)"', line)]
    assert needs and [need for need in needs if f'"{need}"' not in text] == []
    assert {"keras", "tensorflow", "starlette", "uvicorn"} <= {need.split(">=")[0] for need in needs}


def is_ready(port):
    """True if a server responds that it is ready."""
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200
    except OSError:
        return False


@pytest.mark.long
def test_the_copied_files_train_and_serve(tmp_path):
    """COPY, ENTRYPOINT and CMD, with the packages of this environment and a read-only copy of the sources."""
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    for words in map(str.split, instructions("COPY")):
        assert all(f"!{name}" in (ROOT / ".dockerignore").read_text().split() for name in words[:-1])
        for name in words[:-1]:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / words[-1], ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, source)
    subprocess.run(["chmod", "-R", "a-w", source], check=True)
    env = programs.environment(PYTHONPATH=str(source), HOME=str(work), PYTHONDONTWRITEBYTECODE="1")
    train, serve = ([*json.loads(entry)[1:]] for entry in reversed(instructions("ENTRYPOINT")))
    options = {"cwd": work, "env": env}
    assert programs.command(*train, *json.loads(instructions("CMD")[1]), **options).returncode == 0
    for words in (
        ["--recipe=tiny/digits", "--set=rounds=1", "--run_dir=run"],
        ["export", "--run_dir=run", "--out=export"],
    ):
        done = programs.command(*train, *words, **options)
        assert done.returncode == 0, done.stderr
    port = ports.free_ports(1)[0]
    words = [word.replace("/work/", f"{work}/") for word in json.loads(instructions("CMD")[0])]
    command = [sys.executable, "-m", "hetero_tf", *serve, *words, f"--port={port}"]
    with subprocess.Popen(command, cwd=work, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            programs.wait_for(lambda: server.poll() is not None or is_ready(port), 300)
            assert server.poll() is None
        finally:
            server.terminate()


@pytest.mark.long
def test_the_source_distribution_has_all_tracked_files_and_its_tests_run(tmp_path):
    files, source = tracked(), tmp_path / "source"
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=600)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert [name for name in files if not (unpacked / name).is_file()] == []
    tests = ["tests/base/test_registry.py", "tests/recipe/test_recipe.py", "-n", "0", "-q", "-p", "no:cacheprovider"]
    env = programs.environment(PYTHONPATH=str(unpacked))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests], cwd=unpacked, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_wheel_trains_a_shipped_recipe_outside_the_checkout(tmp_path):
    site = programs.install(tmp_path / "wheel")
    options = {"cwd": tmp_path, "env": programs.environment(PYTHONPATH=str(site)), "capture_output": True, "text": True}
    code = "import hetero_tf; print(hetero_tf.__file__)"
    assert subprocess.run([sys.executable, "-c", code], **options).stdout == f"{site}/hetero_tf/__init__.py\n"
    command = [site / "bin" / "hetero_tf", "--recipe", "tiny/digits", "--run_dir", "run"]
    done = subprocess.run(command, timeout=1200, **options)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]


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
