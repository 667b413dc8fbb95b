"""A custom plug-in, in a file and in a package: installed, trained, exported and compared as printed."""

import json
import re
import shlex
import subprocess
import sys

import pages
import programs
import pytest
from changed_pages import long_unless_changed
from programs import ROOT

from hetero_tf.runs import environment

PAGE = ROOT / "docs" / "tutorials" / "own_method.md"
SOURCE = pages.blocks(PAGE)[0].text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The module of the tutorial beside a recipe, and a finished run in a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "windows.py").write_text(SOURCE)
    recipe, runs = programs.recipe_file(folder), ["--run_dir", "my run", "--set", "rounds=1"]
    options = ["--plugin", "windows", "--set", "round.submodel=windows"]
    done = programs.command(
        "--recipe", recipe, *runs, *options, cwd=folder, env=programs.environment(HETERO_TF_PROGRAM=None)
    )
    assert done.returncode == 0, done.stderr
    (folder / "out").write_text(done.stdout)
    return folder


def typed(folder, line):
    """Runs a command line that the program printed."""
    program, *words = shlex.split(line)
    assert program == "hetero_tf"
    return programs.shared().run(*words, cwd=folder)


@pytest.mark.long
def test_its_key_and_options_are_explained(folder, tmp_path):
    run = programs.shared().run("explain", "windows", "--plugin", "windows", cwd=folder)
    assert run.code == 0, run.err
    assert "Windows: every client has a fixed window of channels. (key round.submodel)" in run.out
    assert programs.shared().run("explain", "windows", cwd=tmp_path).code == 2


@long_unless_changed(PAGE)
def test_the_printed_commands_work_unchanged(folder):
    lines = (folder / "out").read_text().partition("next: ")[2].split("\n")
    report, export = (line.strip() for line in lines[:2])
    results = [typed(folder, line) for line in (report.removesuffix(" --open"), export)]
    assert [one.code for one in results] == [0, 0], [one.err for one in results]
    assert (folder / "report.html").exists() and (folder / "my run" / "export" / "a" / "1" / "export.json").exists()


@pytest.mark.long
def test_a_forgotten_module_is_named_with_the_command_that_works(folder):
    for command in ("evaluate", "export"):
        done = programs.shared().run(command, "--run_dir", "my run", cwd=folder)
        expected = f"my run: needs --plugin windows to be read: hetero_tf {command} "
        assert (done.code, done.out) == (2, "") and done.err.startswith(f"hetero_tf: {expected}")
    done = typed(folder, done.err.strip().partition("to be read: ")[2])
    assert done.code == 0, done.err


def test_messages_contain_only_names_of_modules(tmp_path):
    path = tmp_path / "environment.json"
    assert environment.missing_plugins(path) == ()
    path.write_text("{")
    assert environment.missing_plugins(path) == ()
    names = ["windows", "../evil", "a b", "--flag", "x" * 200, "", "own.part_2"]
    environment.save(path, environment.environment({}, {}, names))
    assert environment.missing_plugins(path) == ("windows", "own.part_2")


PACKAGE_PAGE = ROOT / "docs" / "plugins.md"
TEXT = PACKAGE_PAGE.read_text("utf-8")


def written(folder):
    """The files of the page: the paragraph before each block begins with its path."""
    for before, text in re.findall(r"((?:(?!```).)*)```(?:toml|python)\n(.*?)```", TEXT, re.DOTALL):
        path = folder / re.findall(r"^`([\w/.]+)` ", before, re.MULTILINE)[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    module, test = (block.text for block in pages.blocks(PAGE) if block.language == "python")
    (folder / "hetero_tf_windows").mkdir()
    (folder / "hetero_tf_windows" / "__init__.py").touch()
    (folder / "hetero_tf_windows" / "windows.py").write_text(module)
    (folder / "test_windows.py").write_text(test.replace("import windows", "from hetero_tf_windows import windows"))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file())


@long_unless_changed(PACKAGE_PAGE, PAGE)
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
