"""The package of docs/plugins.md is installed, listed, tested and trained with."""

import json
import re
import subprocess
import sys

import pages
import programs
from changed_pages import long_unless_changed
from programs import ROOT

PAGE, TUTORIAL = ROOT / "docs" / "plugins.md", ROOT / "docs" / "tutorials" / "own_method.md"
TEXT = PAGE.read_text("utf-8")


def written(folder):
    """The files of the page: the paragraph before each block begins with its path."""
    for before, text in re.findall(r"((?:(?!```).)*)```(?:toml|python)\n(.*?)```", TEXT, re.DOTALL):
        path = folder / re.findall(r"^`([\w/.]+)` ", before, re.MULTILINE)[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    module, test = (block.text for block in pages.blocks(TUTORIAL) if block.language == "python")
    (folder / "hetero_tf_windows").mkdir()
    (folder / "hetero_tf_windows" / "__init__.py").touch()
    (folder / "hetero_tf_windows" / "windows.py").write_text(module)
    (folder / "test_windows.py").write_text(test.replace("import windows", "from hetero_tf_windows import windows"))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file())


@long_unless_changed(PAGE, TUTORIAL)
def test_the_package_of_the_page_is_installed_tested_and_trained_with(tmp_path):
    source = tmp_path / "source"
    names = "hetero_tf_windows/__init__.py hetero_tf_windows/windows.py nova.py pyproject.toml test_windows.py"
    assert written(source) == names.split()
    site = programs.install(tmp_path / "site", source)
    env = programs.environment(PYTHONPATH=f"{ROOT}:{site}")
    listed = programs.command("list", "--plugins", cwd=tmp_path, env=env)
    assert listed.stdout.splitlines()[0] == "windows  hetero-tf-windows 0.1.0  hetero_tf_windows.windows"
    tested = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", source / "test_windows.py"]
    subprocess.run(tested, cwd=tmp_path, env=env, check=True, timeout=600)
    words = ("--recipe=tiny/digits", "--set=round.submodel=windows", "--run_dir=run", "--set=rounds=1")
    trained = programs.command("--plugin=windows", *words, cwd=tmp_path, env=env)
    assert trained.returncode == 0, trained.stderr
    assert json.loads((tmp_path / "run/environment.json").read_text())["plugins"] == ["hetero_tf_windows.windows"]
    evaluated = programs.command("evaluate", "--run_dir=run", "--plugin=windows", cwd=tmp_path, env=env)
    assert evaluated.returncode == 0, evaluated.stderr
