"""Jobs of submitit: options, and a run that is requeued."""

import io
import os
import shlex
import sys
from pathlib import Path

import programs
import pytest
from refusals import refusal

from hetero_tf.base.console import Console
from hetero_tf.base.errors import Locked
from hetero_tf.cli.commands import sweep
from hetero_tf.sweeps import definition, slurm
from hetero_tf.sweeps.definition import SweepFolder, expand
from hetero_tf.sweeps.pool import Program

submitit = pytest.importorskip("submitit")
SUPPORT = Path(__file__).parents[1] / "support"


def runs_of(seeds, rounds=2):
    return expand(definition.from_flags("digits", [f"rounds={rounds}"], [], seeds), "typed")


def program(seconds):
    return Program((sys.executable, str(SUPPORT / "fake_run.py"), seconds, "nothing"), (), 1, False)


def test_options_are_values_of_yaml():
    options = slurm.read_options(["time=60", "partition=cpu", "exclusive=true", "srun_args=[--overlap]"])
    assert options == {"time": 60, "partition": "cpu", "exclusive": True, "srun_args": ["--overlap"]}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["time"], "--slurm time: must be key=value, such as --slurm partition=cpu"),
        (["partition=cpu"], "such as --slurm time=240; a job that reaches it is requeued and resumes. Received: time=N"),
        (["time=1:30:00"], "Received: time='1:30:00'"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(texts, sentence):
    assert sentence in refusal(slurm.read_options, texts)


def test_executor_needs_slurm_and_known_options(tmp_path, monkeypatch):
    folder = SweepFolder(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    message = refusal(slurm.build_executor, folder, {"time": 60})
    assert '--on slurm: Could not detect "srun"' in message and message.endswith("the lines of --commands")
    monkeypatch.setenv("PATH", str(SUPPORT / "fake_slurm"))
    message = refusal(slurm.build_executor, folder, {"time": 60, "partitoin": "cpu"})
    assert message.startswith("--on slurm: Unavailable parameter(s): ['partitoin'] Valid parameters are: - account")
    executor = slurm.build_executor(folder, {"time": 60, "max_num_timeout": 5})
    assert executor.max_num_timeout == 5 and executor.parameters["time"] == 60 and not os.listdir(tmp_path)


def test_the_next_command_has_the_folder_as_one_word():
    out = io.StringIO()
    submission = None, program("1")
    assert sweep._submit([], SweepFolder(Path("my runs/it's")), submission, Console(out))["jobs"] == {}
    *_, command, output = out.getvalue().splitlines()
    assert shlex.split(command) == ["next:", "hetero_tf", "list", "my runs/it's"]
    assert output == "output of the jobs: my runs/it's/slurm"


@pytest.mark.long
def test_job_is_requeued_at_its_time_limit_and_resumes(tmp_path):
    """With submitit's executor of this machine, which sends the signal after ten seconds."""
    (run,), folder = runs_of("0", rounds=5), SweepFolder(tmp_path / "s")
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=1, signal_delay_s=50)
    jobs = []
    submitted = executor._internal_process_submissions
    executor._internal_process_submissions = lambda delayed: jobs.extend(submitted(delayed)) or jobs
    assert slurm.submit([run], folder, program("2.5"), executor) == {run.name: jobs[0].job_id}
    programs.wait_for(lambda: (folder.path / run.name / "checkpoints/round-000001.npz").exists())
    assert refusal(slurm.submit, [run], folder, program("2.5"), executor, kind=Locked)
    jobs[0].wait()
    assert "Requeued job" in jobs[0].stdout() and jobs[0].stderr().count("data: none") == 2
    assert (folder.path / run.name / "checkpoints/round-000005.npz").exists() and jobs[0].exception() is None
    assert slurm.submit([run], folder, program("2.5"), executor) == {}


def test_failed_run_fails_its_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = slurm.TrainingJob((sys.executable, "-c", "raise SystemExit(3)"), str(tmp_path))
    with pytest.raises(RuntimeError, match="the run ended with exit code 3; its last message is in this job's output"):
        job()
