"""Submits the runs of a sweep as jobs of a Slurm cluster, through submitit.

Each run is a task of a job array. A job that reaches its time limit, or is preempted, is requeued and resumes. The
files of the jobs are in the folder `slurm` of the sweep.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetero_tf.base import processes
from hetero_tf.base.errors import InputError, require_modules
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.sweeps.definition import SweepFolder, SweepRun
from hetero_tf.sweeps.pool import Program, read_progress, run_flags

if TYPE_CHECKING:
    from submitit import Executor, SlurmExecutor
    from submitit.helpers import DelayedSubmission

MAX_TIMEOUTS = 3


@dataclass(frozen=True)
class TrainingJob:
    """A run as a job. submitit calls it on the node."""

    command: tuple[str, ...]
    working_dir: str

    def __call__(self) -> None:
        os.chdir(self.working_dir)
        # The run exits with this process.
        with processes.start(self.command) as process:
            code = process.wait()
        if code:
            raise RuntimeError(f"the run {processes.describe_exit(code)}; its last message is in this job's output")

    def checkpoint(self) -> "DelayedSubmission":
        """Return the job to requeue: the same command resumes the run."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def read_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the options of `--slurm key=value`."""
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise InputError(f"--slurm {text[:80]}: must be key=value, such as --slurm partition=cpu")
        options[key] = to_plain(parse(value, f"--slurm {text[:80]}", is_file=False))
    if type(options.get("time")) is not int:
        raise InputError(
            "--on slurm needs the time limit of a job in minutes, such as --slurm time=240; a job that reaches it is "
            f"requeued and resumes. Received: time={options.get('time')!r}"
        )
    return options


def build_executor(folder: SweepFolder, options: Mapping[str, Any]) -> "SlurmExecutor":
    """Return the executor that submits jobs with these options of sbatch."""
    require_modules("--on slurm", ["submitit"], "slurm")
    import submitit

    try:
        executor = submitit.SlurmExecutor(folder.path / "slurm", options.get("max_num_timeout", MAX_TIMEOUTS))
        executor.update_parameters(**{key: options[key] for key in options if key != "max_num_timeout"})
    except (RuntimeError, ValueError, TypeError) as error:
        hint = "; other schedulers can run the lines of --commands" if isinstance(error, RuntimeError) else ""
        raise InputError(f"--on slurm: {' '.join(str(error).split())}{hint}") from error
    return executor


def submit(runs: Sequence[SweepRun], folder: SweepFolder, program: Program, executor: "Executor") -> dict[str, str]:
    """Submit the unfinished runs that no process trains.

    Returns:
        `{run: job id}` of the submitted runs.

    Raises:
        Locked: A process trains one of the runs; nothing was submitted.
        InputError: A run folder is damaged or contains another recipe, or Slurm rejected the jobs.
    """
    jobs = {}
    for run in runs:
        run_dir = (folder.path / run.name).absolute()
        _, is_finished, threads = read_progress(run, run_dir, program.threads)
        if not is_finished:
            flags = [*program.flags, *run_flags(run, run_dir), f"--threads={threads}"]
            jobs[run.name] = TrainingJob((*program.command, *flags), os.getcwd())
    if not jobs:
        return {}
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with executor.batch():
            submitted = [executor.submit(job) for job in jobs.values()]
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        raise InputError(f"--on slurm: {' '.join(str(error).split())}") from error
    return {name: job.job_id for name, job in zip(jobs, submitted, strict=True)}
