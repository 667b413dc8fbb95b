"""The suite itself: every file has a layer, limits of operations hold, long tests have parts, changes select tests."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import import_graph
import pytest
import suite
from changed_pages import long_unless_changed

TESTS = sorted(import_graph.TESTS.rglob("test_*.py"))
# Files of the small checkout in which pytest runs.
COPIED = ("conftest.py", "operations.json")
COPIED += tuple(f"support/{name}.py" for name in ("suite", "shared_models", "traces", "import_graph"))
starts_pytest = long_unless_changed(*(import_graph.TESTS / name for name in COPIED), Path(__file__))


@pytest.fixture
def run_tests(tmp_path):
    """`(body of a test file, *options) -> (exit code, output)` of pytest in a small checkout, in one process."""
    (tmp_path / "tests" / "support").mkdir(parents=True)
    shutil.copy(import_graph.ROOT / ".pytest.ini", tmp_path)
    for name in COPIED:
        shutil.copy(import_graph.TESTS / name, tmp_path / "tests" / name)
    limits = {**json.loads((import_graph.TESTS / "operations.json").read_text()), "test": 20, "math": 30}
    (tmp_path / "tests" / "operations.json").write_text(json.dumps(limits))

    def run(body, *options, path="models/test_sums.py"):
        file = tmp_path / "tests" / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(body)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_every_file_has_a_layer_and_every_name_a_file():
    assert [path.name for path in TESTS if suite.layer_of(path) is None] == []
    names = [name for names in suite.FILES.values() for name in names.split()]
    assert [name for name in names if not (import_graph.TESTS / f"{name}.py").is_file()] == []
    folders = [name for names in suite.FOLDERS.values() for name in names.split()]
    assert [name for name in folders if not (import_graph.TESTS / name).is_dir()] == []
    assert len({*names, *folders}) == len(names) + len(folders) and suite.FOLDERS.keys() == set(suite.LAYERS)


def test_every_long_test_is_in_one_part():
    parts = [suite.part_of(SimpleNamespace(path=path, nodeid=f"{path.name}::test_a[{path.stem}]"), 8) for path in TESTS]
    assert set(parts) == {*range(1, 9)} and max(map(parts.count, parts)) < len(parts) / 4


LONG = "import pytest\ndef test_a(): pass\n@pytest.mark.long\ndef test_b(): pass\n"


@starts_pytest
def test_options_select_tests(run_tests):
    for options, expected in {
        "--all": "2 passed",
        "--part=1/1": "1 passed, 1 deselected",
        "--layer=pure,graph": "no tests ran",
        "--layer=math": "1 passed, 1 skipped",
        "--part=3/2": "argument --part: invalid",
        "--changed": "--changed: git knows no revision 'HEAD' here",
    }.items():
        assert expected in run_tests(LONG, options)[1]


# A module of this name is enough to be counted as TensorFlow; a graph is what its function returns.
FAKE = """
import sys, types
import pytest
graph = types.SimpleNamespace(get_operations=lambda: [None] * 12)
module = types.ModuleType("tensorflow.python.framework.func_graph")
module.func_graph_from_py_func = lambda: graph
sys.modules[module.__name__] = module
"""


@starts_pytest
def test_traced_operations_have_limits(run_tests):
    for mark, times, option, code, expected in (
        ("", 1, "-q", 0, "traced operations: math 12 (limit 30); all 12"),
        ("", 2, "-q", 1, "traced 24 operations, more than 20"),
        ("@pytest.mark.long\n", 3, "--all", 0, "all 36"),
        ("@pytest.mark.parametrize('_', 'abc')\n", 1, "-q", 1, "the tests of the layer math trace too much"),
    ):
        test = f"def test_a({'_' * ('param' in mark)}): [module.func_graph_from_py_func() for _ in range({times})]\n"
        status, output = run_tests(FAKE + mark + test, option)
        assert status == code and expected in output


@starts_pytest
def test_a_pure_test_must_not_import_tensorflow(run_tests):
    body = "import sys\ndef test_a(): sys.modules['tensorflow'] = sys\ndef test_b(): pass\n"
    status, output = run_tests(body, "--layer", "pure", path="base/test_words.py")
    assert status == 1 and "it imported TensorFlow: move it" in output and "2 passed, 1 error" in output
    assert run_tests(body, path="base/test_words.py")[0] == 0
    body = "import sys\nsys.modules['tensorflow'] = sys\ndef test_a(): pass\n"
    status, output = run_tests(body, "--layer", "pure", path="base/test_words.py")
    assert status == 2 and "it imported TensorFlow: move it" in output


def names(changed):
    paths = import_graph.reached_tests({import_graph.ROOT / changed})
    return {path.relative_to(import_graph.TESTS).as_posix() for path in paths}


@pytest.mark.long
def test_a_change_selects_the_tests_that_can_see_it():
    assert "runs/test_checkpoints.py" in names("hetero_tf/runs/checkpoints.py")
    assert {"rounds/test_submodel_cut.py", "rounds/test_engine.py"} <= names("hetero_tf/rounds/merge.py")
    # Plug-ins and layers are found by name.
    assert "contracts/test_losses.py" in names("hetero_tf/methods/losses/cross_entropy.py")
    assert "project/test_readme.py" in names("README.md")
    served = names("hetero_tf/export/serve/rest.py")
    assert any(name.startswith("export/") for name in served) and not any(name.startswith("rounds/") for name in served)
    assert names("tests/runs/test_checkpoints.py") == {"runs/test_checkpoints.py"}


def test_changed_files_are_those_of_git(tmp_path, monkeypatch):
    """Edited and new files differ from a commit; committed ones differ from the main branch, that of the origin first."""
    monkeypatch.setattr(import_graph, "ROOT", tmp_path)

    def git(*words):
        settings = ("-c", "user.name=a", "-c", "user.email=a", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *settings, *words], cwd=tmp_path, check=True, capture_output=True)

    def changed(revision):
        return {path.name for path in import_graph.changed_files(revision)}

    assert import_graph.changed_files("HEAD") is None
    for name in ("committed.md", "edited.md", "removed.md", "same.md"):
        (tmp_path / name).touch()
    git("init", "-qb", "main")
    git("add", ".")
    git("commit", "-qm", "one")
    assert changed(import_graph.main_base()) == changed("HEAD") == set()
    git("switch", "-qc", "branch")
    (tmp_path / "committed.md").write_text("more")
    git("commit", "-qam", "two")
    (tmp_path / "edited.md").write_text("more")
    (tmp_path / "removed.md").unlink()
    (tmp_path / "new page.md").touch()
    edited = {"edited.md", "removed.md", "new page.md"}
    assert changed("HEAD") == edited and changed(import_graph.main_base()) == edited | {"committed.md"}
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert changed(import_graph.main_base()) == edited
    assert import_graph.changed_files("no_such_revision") is None
