"""The wheel: built from the checkout, installed in a fresh environment, and used far from the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"capture_output": True, "text": True, "timeout": 1200, "env": environment, **options}
    done = subprocess.run([str(word) for word in command], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip():
    """The command of a pip: of this environment, or of the interpreter that made it."""
    for python in (sys.executable, sys._base_executable):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
            return [python, "-m", "pip"]
    pytest.skip("there is no pip")


@pytest.mark.long
def test_the_wheel_trains_a_shipped_recipe_outside_the_checkout(tmp_path):
    # A copy, since the build leaves folders where it works.
    for name in ("hetero_tf", "recipes"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path / "source")
    run(*pip(), "wheel", "--no-deps", "-q", "-w", tmp_path / "wheels", tmp_path / "source")
    (wheel,) = (tmp_path / "wheels").glob("hetero_tf-*.whl")
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    run(*pip(), "--python", python, "install", "-q", "--no-deps", wheel)
    # Its dependencies, which take minutes to download, are those of this environment.
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    location = run(python, "-c", "import hetero_tf; print(hetero_tf.__file__)", cwd=tmp_path)
    assert Path(location.strip()).is_relative_to(tmp_path / "fresh")
    run(
        tmp_path / "fresh" / "bin" / "hetero_tf", "--recipe", "tiny/digits", "--run_dir", tmp_path / "run", cwd=tmp_path
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
