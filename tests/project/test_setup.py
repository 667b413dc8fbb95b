"""The set-up of a fresh machine: the search for a Python, `.venv` and its marker, and the package's metadata.

Nothing is downloaded: stub interpreters stand on PATH, and `environment.make` gets a stand-in for running pip.
"""

import ast
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import programs
import pytest
from programs import ROOT
from refusals import refusal

environment = programs.script("bin/environment.py")
# Packages that every command checks.
NEEDED = re.search(r'needed="hetero_tf (.*) \$', (ROOT / "bin" / "environment.sh").read_text()).group(1).split()
# A stub interpreter: VERSION answers --version; ANSWER answers the search for one that can make environments
# (empty: unsuitable); COMPLETE is the exit status of the question whether it has everything already.
STUB = """#!/bin/sh
case $1 in
    --version) echo "Python VERSION" ;;
    -I) echo "ANSWER" ;;
    -c) exit COMPLETE ;;
    -m | *start.py) echo "NAME ran: $*" "path: $PYTHONPATH" ;;
    *environment.py) echo "NAME sets up" >&2; mkdir -p "$2/.venv/bin"; cp "$0" "$2/.venv/bin/python"; exit SETUP ;;
esac
"""


def stub(folder, name, text=STUB, version="3.12.0", answer="complete", complete=1, setup=0):
    """Write an executable stub interpreter into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"VERSION": version, "ANSWER": answer, "COMPLETE": str(complete), "NAME": name, "SETUP": str(setup)}
    for word, value in values.items():
        text = text.replace(word, value)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def ready_venv(checkout):
    """A `.venv` of the copy with all modules by name and a stub interpreter."""
    venv = checkout / ".venv"
    stub(venv / "bin", "python")
    for name in NEEDED:
        (venv / "lib" / "python3.12" / "site-packages" / name).mkdir(parents=True)
    (venv / "ready").write_text("first\n")
    return venv


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files of the set-up, in a folder whose name has spaces and a quote, and an empty folder for stubs."""
    root = tmp_path / "a check'out $x"
    shutil.copytree(ROOT / "bin", root / "bin", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "setup.py").write_text("first\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cat", "dirname", "readlink", "mkdir", "cp", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    return root


def start(checkout, *arguments, command="hetero_tf", **variables):
    """Runs a command of the copy with only the stubs and a few tools on PATH, and no HOME."""
    path = f"{checkout.parent / 'stubs'}:{checkout.parent / 'tools'}"
    return subprocess.run(
        [checkout / "bin" / command, *arguments], env={"PATH": path, **variables}, cwd=checkout.parent,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_scripts_are_valid_shell():
    for path in map(ROOT.joinpath, ("bin/hetero_tf", "bin/test", "bin/check", "bin/environment.sh", ".ci/run")):
        for shell in filter(shutil.which, ("sh", "bash")):
            assert subprocess.run([shell, "-n", path], capture_output=True, text=True).stderr == ""
        assert path.read_text().startswith("#!/bin/sh\n") == os.access(path, os.X_OK) == (path.stem != "environment")


def test_the_active_environment_is_used_if_complete(checkout):
    stub(checkout.parent / "stubs", "python3", complete=0)
    done = start(checkout, "describe", "--x=a b")
    assert done.stdout == f"python3 ran: {checkout}/bin/start.py describe --x=a b path: {checkout}\n"
    assert done.stderr == ""
    assert not (checkout / ".venv").exists()
    # The user's PYTHONPATH follows the checkout, without empty entries, which mean the working folder.
    for python_path, expected in (("/mine", ":/mine"), (":/a b::/c:", ":/a b:/c"), (":", ""), ("", "")):
        assert start(checkout, PYTHONPATH=python_path).stdout.endswith(f" path: {checkout}{expected}\n")


def test_an_environment_uses_the_first_suitable_python(checkout):
    """Neither an old Python, nor one without venv, nor a shim that fails."""
    stubs = checkout.parent / "stubs"
    stub(stubs, "python3", version="3.8.1", answer="")
    stub(stubs, "python3.13", "#!/bin/sh\necho 'shim: version not installed' >&2\nexit 127\n")
    stub(stubs, "python3.12", answer="bare")
    stub(stubs, "python3.11")
    stub(stubs, "python3.10")
    done = start(checkout, "--help")
    assert done.stderr == "python3.11 sets up\n"
    assert done.stdout.startswith(f"python3.11 ran: {checkout}/bin/start.py --help")


@pytest.mark.parametrize(("version", "shown"), [("3.9.2", "Python 3.9.2"), (None, "missing")])
def test_no_suitable_python_is_reported_in_one_sentence(checkout, version, shown):
    if version:
        stub(checkout.parent / "stubs", "python3", version=version, answer="")
    done = start(checkout)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hetero_tf: no Python 3.10, 3.11, 3.12 or 3.13 was found on PATH (python3 is: {shown}); "
        "install one of them with its venv module and pip, then run this command again.\n"
    )


def test_a_failed_set_up_ends_the_command(checkout):
    stub(checkout.parent / "stubs", "python3", setup=3)
    done = start(checkout)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_ready_environment_runs_no_other_python(checkout):
    ready_venv(checkout)
    stub(checkout.parent / "stubs", "python3", complete=0)
    assert start(checkout, "x").stdout.startswith(f"python ran: {checkout}/bin/start.py x")
    assert start(checkout, "x", VIRTUAL_ENV=str(checkout / ".venv")).stdout.startswith("python ran:")
    assert start(checkout, "x", VIRTUAL_ENV="/another").stdout.startswith("python3 ran:")


@pytest.mark.parametrize(("lost", "name"), [("lib", "tensorflow"), ("lib/python3.12/site-packages/numpy", "numpy")])
def test_an_environment_with_missing_modules_is_rebuilt(checkout, lost, name):
    """Otherwise the failed import would look like a bug of the program."""
    venv = ready_venv(checkout)
    stub(checkout.parent / "stubs", "python3")
    shutil.rmtree(venv / lost)
    damaged = f"hetero_tf: {venv} is damaged: {name} is missing; it is not used until it is made again\n"
    assert start(checkout).stderr == f"{damaged}python3 sets up\n" and not (venv / "ready").exists()


def test_a_changed_setup_py_is_installed_again(checkout):
    (ready_venv(checkout) / "ready").write_text("older\n")
    stub(checkout.parent / "stubs", "python3")
    assert start(checkout).stderr == "python3 sets up\n"


XDIST = "-m pytest -n logical --dist loadfile --no-loadscope-reorder --max-worker-restart=0"
REST = "--layer math,graph,programs,export"


@pytest.mark.parametrize(
    ("arguments", "runs"),
    [
        (("-k", "a b"), ["--layer pure -k a b", f"{REST} -k a b"]),
        (("--all",), ["--layer pure --all", f"{REST} --all"]),
        (("math", "-x"), ["--layer math -x"]),
        (("setup.py::test_a", "-x"), ["setup.py::test_a -x"]),
        (("--layer=math,graph",), ["--layer=math,graph"]),
    ],
)
def test_bin_test_uses_all_cores_and_passes_arguments_on(checkout, arguments, runs):
    stub(checkout.parent / "stubs", "python3", complete=0)
    output = start(checkout, *arguments, command="test").stdout
    assert re.findall("ran: (.*) path:", output) == [f"{XDIST} {words}" for words in runs]


def test_bin_test_hides_the_gpu_and_fails_if_one_of_its_runs_fails(checkout):
    stubs = checkout.parent / "stubs"
    text = STUB.replace("path:", "gpu: <$CUDA_VISIBLE_DEVICES>")
    stub(stubs, "python3", f'{text}\ncase "$*" in *pure*) exit 3 ;; esac\n', complete=0)
    done = start(checkout, command="test")
    assert done.returncode == 3 and done.stdout.count("gpu: <-1>") == 2
    assert "gpu: <>" in start(checkout, command="test", CUDA_VISIBLE_DEVICES="").stdout


def test_bin_check_runs_every_checker_and_a_link_to_a_command_finds_its_checkout(checkout):
    stub(checkout.parent / "stubs", "python3", complete=0)
    ran = re.findall("ran: -m (.*) path:", start(checkout, command="check").stdout)
    assert ran == ["ruff check .", "ruff format --check .", "mypy"]
    link = checkout.parent / "stubs" / "link"
    link.symlink_to(checkout / "bin" / "hetero_tf")
    assert start(checkout, command=link).stdout == f"python3 ran: {checkout}/bin/start.py path: {checkout}\n"


class Runner:
    """A fake of `environment.run`: records the commands, creates the interpreter, fails on request."""

    def __init__(self, statuses=(0, 0)):
        self.commands, self.statuses = [], list(statuses)

    def __call__(self, command, cwd, log, lock):
        self.commands.append(command)
        (log.parent / "bin").mkdir(exist_ok=True)
        (log.parent / "bin" / "python").touch()
        log.write_text("".join(f"line {number}\n" for number in range(30)))
        return self.statuses.pop(0)


def test_make_installs_once_and_again_after_a_change(checkout):
    first, second, third = Runner(), Runner(), Runner()
    environment.make(checkout, first)
    assert [command[1:3] for command in first.commands] == [["-m", "venv"], ["-m", "pip"]]
    assert first.commands[1][-2:] == ["-e", ".[test]"] and (checkout / ".venv" / "ready").read_text() == "first\n"
    environment.make(checkout, second)
    assert second.commands == []
    (checkout / "setup.py").write_text("second\n")
    (checkout / ".venv" / "kept").touch()
    environment.make(checkout, third)
    assert len(third.commands) == 2 and (checkout / ".venv" / "kept").exists()
    assert (checkout / ".venv" / "ready").read_text() == "second\n"


def test_a_failure_shows_the_end_of_the_log_and_leaves_no_marker(checkout):
    text = refusal(environment.make, checkout, Runner([0, 1]), kind=environment.Failed)
    log = checkout / ".venv" / "install.log"
    assert text.startswith(f"the installation failed (exit status 1); the end of {log}:\n    line 18\n")
    assert text.endswith("    line 29") and not (checkout / ".venv" / "ready").exists()


def test_files_of_an_interrupted_set_up_are_removed(checkout):
    with pytest.raises(environment.Failed):
        environment.make(checkout, Runner([0, 1]))
    (checkout / ".venv" / "lib").mkdir()
    (checkout / ".venv" / "lib" / "half").touch()
    environment.make(checkout, Runner())
    assert sorted(path.name for path in (checkout / ".venv").iterdir()) == ["bin", "install.log", "ready", "setup.lock"]


def test_a_foreign_environment_is_not_changed(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "pyvenv.cfg").touch()
    with pytest.raises(environment.Failed, match=r"\.venv exists but was not made by this command; activate it"):
        environment.make(checkout, Runner())
    assert [path.name for path in (checkout / ".venv").iterdir()] == ["pyvenv.cfg"]


def test_without_ensurepip_the_base_pip_installs(checkout):
    runner = Runner()
    environment.make(checkout, runner, has_ensurepip=False, has_pip=True)
    inside = str(checkout / ".venv" / "bin" / "python")
    assert "--without-pip" in runner.commands[0]
    assert runner.commands[1][:6] == [sys.executable, "-m", "pip", "--python", inside, "install"]


def test_missing_pip_and_ensurepip_are_reported(checkout):
    missing = {"has_ensurepip": False, "has_pip": False}
    assert refusal(environment.make, checkout, Runner(), kind=environment.Failed, **missing) == (
        f"Python at {sys.executable} lacks its venv module or pip; install them (Debian and Ubuntu: "
        "`apt install python3-venv python3-pip`) or put another Python on PATH."
    )


def test_a_second_start_waits_for_the_first(checkout, tmp_path):
    """The waiting process finds the work done and must not install again (it would fail: setup.py is no set-up)."""
    venv = checkout / ".venv"
    with environment.take_lock(venv) as lock:
        command = [sys.executable, checkout / "bin" / "environment.py", checkout]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as other:
            assert other.stderr.readline() == f"hetero_tf: another command is installing into {venv}; waiting for it\n"
            (venv / "bin").mkdir()
            (venv / "bin" / "python").touch()
            (venv / "ready").write_text("first\n")
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert (other.wait(timeout=600), other.stderr.read()) == (0, "")


def test_the_installer_keeps_the_lock_when_its_parent_is_killed(checkout):
    """Otherwise a second start would remove files that a pip left over from the first is still writing."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import environment\n"
        "venv = Path(sys.argv[2]); lock = environment.take_lock(venv)\n"
        "environment.run(['sh', '-c', 'echo $$; exec sleep 60'], venv, venv / 'install.log', lock)"
    )
    log = checkout / ".venv" / "install.log"
    parent = subprocess.Popen([sys.executable, "-c", code, checkout / "bin", checkout / ".venv"])
    programs.wait_for(lambda: log.exists() and log.read_text().strip(), 600)
    child = int(log.read_text())
    try:
        parent.kill()
        parent.wait(timeout=600)
        with open(checkout / ".venv" / "setup.lock") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)


def test_run_writes_the_log_and_keeps_packages_inside(checkout, monkeypatch):
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "kept")
    with environment.take_lock(checkout / ".venv") as lock:
        log = checkout / ".venv" / "install.log"
        command = ["sh", "-c", 'echo "$PIP_TARGET $PIP_INDEX_URL"; echo bad >&2; exit 7']
        status = environment.run(command, checkout, log, lock)
    assert (status, log.read_text()) == (7, " kept\nbad\n")


def test_a_read_only_folder_is_reported(tmp_path, capsys):
    (tmp_path / "setup.py").write_text("x")
    (tmp_path / ".venv" / "setup.lock").mkdir(parents=True)
    assert environment.main(tmp_path) == 3
    assert capsys.readouterr().err.startswith(f"hetero_tf: could not set up {tmp_path / '.venv'}: ")


def test_a_file_instead_of_the_environment_folder_is_reported(tmp_path, capsys):
    (tmp_path / "setup.py").write_text("x")
    (tmp_path / ".venv").write_text("a file")
    assert environment.main(tmp_path) == 1 and (tmp_path / ".venv").read_text() == "a file"
    message = f"{tmp_path / '.venv'} is a file, not a folder; move it away and run this command again."
    assert capsys.readouterr().err == f"hetero_tf: {message}\n"


HOSTILE = ("yaml", "absl", "numpy", "json", "typing", "random", "contextlib")
HOSTILE += ("hetero_tf", "sitecustomize", "tensorflow")


@pytest.mark.long
@pytest.mark.parametrize("path", ["", ":", "{other}:"])
def test_no_file_of_the_working_folder_is_executed(tmp_path, path):
    """Neither bin/hetero_tf nor the search for an interpreter runs them; only the named plug-in runs."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text("open('RUN', 'a').write(__name__)")
    (tmp_path / "mine.py").write_text("import keras\nimport beside\nclass Mine(keras.layers.Layer): pass\n")
    (tmp_path / "beside.py").write_text("")
    # The interpreter of the tests, so that a checkout without `.venv` installs nothing.
    active = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env = programs.environment(PYTHONPATH=path.format(other=tmp_path / "other"), **active)
    words = [ROOT / "bin" / "hetero_tf", "--recipe=missing.yaml", *(["--plugin=mine"] if path == ":" else [])]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and done.stderr.startswith("hetero_tf: missing.yaml: unknown recipe")
    assert not (tmp_path / "RUN").exists()


@pytest.fixture(scope="module")
def metadata():
    """The arguments that setup.py passes to `setup`, from running it with a fake of setuptools."""
    code = (
        "import runpy, sys, types\ngiven = {}\nfake = types.ModuleType('setuptools')\n"
        "fake.setup, fake.find_packages = given.update, lambda include: include\nsys.modules['setuptools'] = fake\n"
        "runpy.run_path(sys.argv[1])\nimport json; print(json.dumps(given))"
    )
    return json.loads(programs.python(code, ROOT / "setup.py", cwd="/", check=True).stdout)


def test_the_version_is_the_one_of_the_package_whose_requirements_are_checked_at_start(metadata):
    import hetero_tf

    assert metadata["version"] == hetero_tf.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", metadata["version"])
    modules = {"absl-py": "absl", "pillow": "PIL", "pyyaml": "yaml", "tensorflow-datasets": "tensorflow_datasets"}
    names = [need.split(">=")[0] for need in metadata["install_requires"]]
    assert sorted(NEEDED) == sorted(modules.get(name, name) for name in names)


def test_requirements_are_bounds_that_the_setup_checks(metadata):
    lists = [metadata["install_requires"], *metadata["extras_require"].values()]
    bound = re.compile(r"[A-Za-z\d_\-\[\]]+>=[\d.]+(,<[\d.]+)?(; python_version >= '3\.\d+')?")
    assert [need for needs in lists for need in needs if not bound.fullmatch(need)] == []
    assert metadata["python_requires"] == ">=3.10"
    assert "(3, 10) <= sys.version_info" in (ROOT / "bin" / "environment.sh").read_text()
    extras = {need for name, needs in metadata["extras_require"].items() if name != "all" for need in needs}
    assert {need.split(";")[0] for need in metadata["extras_require"]["all"]} == extras
    for page in ("BUILD.md", "docs/start/install.md"):
        text = (ROOT / page).read_text("utf-8")
        assert [name for name in metadata["extras_require"] if f"`{name}`" not in text] == [], page
    # With Python 3.10, pip refuses the extra `flower` instead of installing a part of it.
    assert not any(";" in need for need in extras) and sum("3.11" in need for need in metadata["extras_require"]["all"])


# Modules that their libraries may change in any version, and everything else that this package imports of a library
# below its public name.
PRIVATE = {
    # Only devices/fleet_api.py.
    "flwr": ["flwr.supercore.heartbeat", "flwr.supercore.inflatable", "flwr.supercore.task_identity"]
    + ["flwr.superlink.grid", "flwr.superlink.main", "flwr.superlink.servicer.runtime"]
    + ["flwr.supernode.fleet_http_connection"],
    "tensorflow": ["tensorflow.python.framework"],
}
PUBLIC = {"tensorboard.plugins.hparams", "ai_edge_litert.interpreter", "flwr.app"}


def test_private_modules_of_libraries_are_listed_and_bounded(metadata):
    names = {name for names in PRIVATE.values() for name in names}
    roots = {name.split(".")[0] for name in names | PUBLIC}
    imported = {
        module
        for path in (ROOT / "hetero_tf").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for module in imported_modules(node)
        if module.split(".")[0] in roots and "." in module
    }
    assert imported - PUBLIC == names
    needs = {need for needs in metadata["extras_require"].values() for need in needs} | set(
        metadata["install_requires"]
    )
    for library in PRIVATE:
        assert all(",<" in need for need in needs if re.match(rf"{library}>=", need)), library


def imported_modules(node):
    """The modules that an import names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_recipes_are_packaged_and_the_command_is_declared(metadata):
    assert "hetero_tf.recipes" in metadata["packages"]
    files = {
        "export.serve": "page.*",
        "planning.fleets": "*.yaml LICENCES.md",
        "reports": "report.html figures.mplstyle",
    }
    files |= {"base": "metrics.csv plugin_kinds.csv", "cli": "flags.csv", "cli.commands": "commands.csv meanings.csv"}
    files |= {
        "recipe": "key_rules.json keras_layers.csv rejected_layers.csv",
        "runs": "published.csv published_runs.csv",
    }
    for package, names in files.items():
        assert metadata["package_data"][f"hetero_tf.{package}"] == names.split()
    assert metadata["package_dir"] == {"hetero_tf.recipes": "recipes"}
    assert metadata["entry_points"] == {"console_scripts": ["hetero_tf=hetero_tf.cli.main:main"]}
