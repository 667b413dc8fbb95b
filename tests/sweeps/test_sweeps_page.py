"""The commands of `docs/sweeps.md`, with simulated schedulers and a program that trains nothing."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import programs
import pytest
import yaml
from changed_pages import long_unless_changed

from hetero_tf.cli.flags import define_flags
from hetero_tf.runs.run_folder import RunFolder

SUPPORT = Path(__file__).parents[1] / "support"
PATH = programs.ROOT / "docs" / "sweeps.md"
PAGE = PATH.read_text("utf-8")
# The program of the page: the real sweep, whose runs last one round of the fake program.
STUB = f"""#!{sys.executable}
import sys
if sys.argv[1:2] != ["sweep"]:
    from fake_run import main as train
    sys.exit(train("0", "nothing", *sys.argv[1:]))
from unittest import mock
from hetero_tf.cli import main
from hetero_tf.cli.commands import sweep
from hetero_tf.sweeps.pool import Program
program = Program(({sys.executable!r}, {str(SUPPORT / "fake_run.py")!r}, "0", "nothing"), (), 1, False)
mock.patch.object(sweep, "build_program", lambda flags, jobs: program).start()
sys.exit(main.main([*sys.argv, "--set=rounds=1"]))
"""
STUBS = {
    "hetero_tf": STUB,
    "parallel": "#!/bin/sh\nexec xargs -d '\\n' -P $2 -n 1 sh -c\n",
    "ray": '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
}


def block(language, word):
    return next(text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text)


def line(word):
    return next(line.strip() for line in PAGE.splitlines() if line.startswith("    bin/") and word in line)


@pytest.fixture
def shell(tmp_path):
    """Runs a script in a folder with the page's sweep, in an environment with the simulated schedulers."""
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "mixes.yaml").write_text(block("yaml", "a-c, c"))
    paths = [str(tmp_path / "bin"), str(SUPPORT / "fake_slurm"), os.environ["PATH"]]
    python_path = os.pathsep.join([str(programs.ROOT), str(SUPPORT)])

    def run(script, **variables):
        environment = programs.environment(PATH=os.pathsep.join(paths), PYTHONPATH=python_path, **variables)
        done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def finished(folder):
    """True if all six runs of the page have their round and have ended."""
    runs = [RunFolder(path.parents[1]) for path in folder.glob("runs/mixes/*/checkpoints/round-000001.npz")]
    return len(runs) == 6 and all(run.holder is None for run in runs)


def test_flags_of_the_page_exist():
    flags = set(re.findall(r"(?<![\w-])--([a-z_]+)(?![\w-])", re.sub(r"ray job submit --no-wait|sbatch.*", "", PAGE)))
    assert flags <= set(define_flags()) | {"array", "time", "requeue", "cpus", "nofork"}


@long_unless_changed(PATH)
def test_first_command_and_its_file_have_the_same_runs(shell, tmp_path):
    shell(line("--sweep levels.mix"))
    assert finished(tmp_path)
    assert "6 of 6 runs are finished; 6 of them earlier" in shell("bin/hetero_tf sweep mixes.yaml --run_dir runs/mixes")


@long_unless_changed(PATH)
def test_slurm_array(shell, tmp_path):
    (tmp_path / "mixes.sh").write_text(block("bash", "#SBATCH"))
    shell("sbatch mixes.sh")
    programs.wait_for(lambda: finished(tmp_path))


@long_unless_changed(PATH)
def test_kubernetes_indexed_job(shell, tmp_path):
    spec = yaml.safe_load(block("yaml", "kind: Job"))["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    script = shlex.join([*container["command"], *container["args"]])
    for index in range(spec["completions"]):
        shell(script, JOB_COMPLETION_INDEX=str(index))
    assert finished(tmp_path) and spec["completionMode"] == "Indexed"


@long_unless_changed(PATH)
@pytest.mark.parametrize("scheduler", ["ray job submit", "parallel"])
def test_other_schedulers(shell, tmp_path, scheduler):
    shell(block("bash", scheduler))
    assert finished(tmp_path)


@long_unless_changed(PATH)
def test_slurm_without_a_script(shell, tmp_path):
    pytest.importorskip("submitit")
    assert "submitted 6 of 6 runs\n" in shell(line("--on slurm"))
    programs.wait_for(lambda: finished(tmp_path))
    assert "submitted 0 of 6 runs" in shell(line("--on slurm"))
    script = next(tmp_path.glob("runs/mixes/slurm/*.sh")).read_text()
    assert "#SBATCH --time=60\n" in script and "#SBATCH --partition=cpu\n" in script and "--array=0-5%6\n" in script
