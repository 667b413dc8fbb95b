"""Trains the runs of a sweep in parallel: as forks of a process that has imported TensorFlow, or as new processes."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from hetero_tf.base import processes
from hetero_tf.base.console import Console, ProgressDisplay, format_duration
from hetero_tf.base.errors import Locked, UserError
from hetero_tf.recipe import changed_keys, keys_of
from hetero_tf.runs import environment, metrics_file, overview
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.definition import SweepFolder, SweepRun

# Prefixes of the lines with the reason why a run ended.
_MESSAGE_PREFIXES = ("hetero_tf: ", "stopped by ")


@dataclass(frozen=True)
class Program:
    """Command of a run.

    Attributes:
        command: The program; with `--fork DESCRIPTOR` it calls `processes.serve_forks`.
        threads: Threads of a new run; a resumed run keeps its count, on which its exact numbers depend.
        forks: Fork the runs from one process, which imports TensorFlow once.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...]
    threads: int
    forks: bool


def can_fork() -> bool:
    """Return True on Linux without a visible GPU: elsewhere a library may start threads during its import."""
    has_gpu = os.path.exists("/dev/nvidiactl") and os.environ.get("CUDA_VISIBLE_DEVICES") != "-1"
    return sys.platform == "linux" and not has_gpu


class Launcher:
    """Context manager that trains one run after another.

    With `Program.forks` a process starts at the first run, forks for each run and ends with the context.
    """

    def __init__(self, program: Program):
        self._program, self._resources = program, contextlib.ExitStack()
        self._server: subprocess.Popen | None = None
        self._results = -1
        # Without a buffer, since the runs write at the position of this descriptor.
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed in `__exit__`)

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()
        self._output.close()

    def run(self, flags: Sequence[str]) -> tuple[int, str, float]:
        """Train a run with its flags to its end; return the exit code, the message of an error, and the seconds."""
        start, words = time.monotonic(), [*self._program.flags, *flags]
        self._output.truncate(self._output.seek(0))
        code = self._run_fork(words) if self._program.forks else self._run_process(words)
        self._output.seek(0)
        lines = [line.strip() for line in self._output.read().decode(errors="backslashreplace").splitlines()]
        message = next((line for line in reversed(lines) if line.startswith(_MESSAGE_PREFIXES)), "")
        problem = message.removeprefix(_MESSAGE_PREFIXES[0]) or processes.describe_exit(code)
        return code, problem if code else "", time.monotonic() - start

    def _run_process(self, words):
        with (
            processes.start([*self._program.command, *words], self._output) as process,
            processes.before_exit(lambda: processes.stop(process)),
        ):
            return process.wait()

    def _run_fork(self, words):
        server = self._server or self._start_server()
        # If the server has ended, its results end too.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(words), file=server.stdin, flush=True)
        with processes.before_exit(lambda: processes.stop(server)):
            text = os.read(self._results, 16)
        if text:
            return int(text)
        self._resources.close()
        self._server = None
        return server.wait()

    def _start_server(self):
        self._results, descriptor = os.pipe()
        self._resources.callback(os.close, self._results)
        with open(descriptor, "wb"):
            command = [*self._program.command, "--fork", str(descriptor)]
            server = processes.start(command, self._output, [descriptor])
        self._server = self._resources.enter_context(server)
        return server


FINISHED, SKIPPED, FAILED, ELSEWHERE = "finished", "skipped", "failed", "running elsewhere"


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of one run of a sweep.

    Attributes:
        state: FINISHED, SKIPPED (finished earlier, or by another process), FAILED, or ELSEWHERE (another process trains
            it).
        resumed_after: The round after which the run was resumed; 0: not resumed.
    """

    run: SweepRun
    folder: Path
    state: str
    resumed_after: int = 0
    seconds: float = 0.0
    problem: str = ""

    def to_json(self) -> dict:
        """Return the outcome with the metrics of its folder, ready for JSON."""
        run = overview.overview(self.folder)
        return {
            "name": self.run.name,
            "run_dir": str(self.folder),
            "state": self.state,
            "went_on_after": self.resumed_after,
            **{name: getattr(run, name) for name in ("round", "metric", "best", "last")},
            "seconds": round(self.seconds, 1),
            "problem": self.problem,
        }


def format_outcome(outcome: RunOutcome) -> str:
    """Return the final line of a run."""
    head = f"{outcome.run.name}  {outcome.state}"
    if outcome.problem:
        return f"{head}: {outcome.problem}"
    run_overview = overview.overview(outcome.folder)
    parts = [head, f"round {run_overview.round}"]
    if run_overview.best is not None and run_overview.last is not None:
        parts.append(f"{run_overview.metric} best {run_overview.best:.4g} last {run_overview.last:.4g}")
    if outcome.state == FINISHED:
        parts.append(format_duration(outcome.seconds))
        parts += [f"resumed after round {outcome.resumed_after}"] if outcome.resumed_after else []
    return "  ".join(parts)


# Seconds between two looks at the metrics of running runs.
WATCH_PAUSE = 0.5


class _Progress:
    """Progress of the runs of a sweep, read from the metrics in their folders.

    Attributes:
        first: `{name: finished rounds}` at the start of each run that trains now.
    """

    def __init__(self, runs: Sequence[SweepRun], folder: SweepFolder):
        self.first: dict[str, int] = {}
        self.ended: list[RunOutcome] = []
        self._runs, self._folder, self._trained = {run.name: run for run in runs}, folder, 0

    def end(self, outcome: RunOutcome) -> None:
        """Count a run that ended."""
        first = self.first.pop(outcome.run.name, None)
        self._trained += 0 if first is None else self._last_round(outcome.run.name) - first
        self.ended.append(outcome)
        self._runs.pop(outcome.run.name)

    def _last_round(self, name):
        return metrics_file.last_round(RunFolder(self._folder.path / name).metrics)

    def show(self, display: ProgressDisplay, elapsed: float) -> None:
        """Show the runs and the rounds, and estimate the seconds of the sweep from the rounds since its start."""
        first = dict(self.first)
        rounds = {name: max(self._last_round(name), done) for name, done in first.items()}
        trained = self._trained + sum(rounds[name] - first[name] for name in rounds)
        left = sum(run.recipe.rounds - rounds.get(name, 0) for name, run in self._runs.items())
        states = [outcome.state for outcome in self.ended]
        failed, finished = states.count(FAILED), states.count(FINISHED) + states.count(SKIPPED)
        line = f"{finished}/{len(states) + len(self._runs)} runs done  {len(rounds)} running"
        line += f"  {failed} failed" * bool(failed)
        details = "  ".join(f"{name} {rounds[name]}/{self._runs[name].recipe.rounds}" for name in sorted(rounds))
        display.update(line, elapsed * (1 + left / trained) if trained else None, details)


def train(
    runs: Sequence[SweepRun], folder: SweepFolder, program: Program, jobs: int, console: Console
) -> list[RunOutcome]:
    """Train the unfinished runs, and print a line for each run that ends.

    Other processes may train runs of the same folder, also on other machines: each run has a lock. Their runs are left
    to them.

    Returns:
        Outcome of each run, in the order of `runs`.
    """
    progress, launchers, start = _Progress(runs, folder), SimpleQueue[Launcher](), console.clock()

    def train_one(run):
        launcher = launchers.get()
        try:
            return _train_run(run, folder.path / run.name, launcher, program.threads, progress, console)
        finally:
            launchers.put(launcher)

    with ProgressDisplay(console) as display, contextlib.ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            launchers.put(stack.enter_context(Launcher(program)))
        display.begin("starting")
        pending = {pool.submit(train_one, run) for run in runs}
        while pending:
            progress.show(display, console.clock() - start)
            done, pending = wait(pending, WATCH_PAUSE, FIRST_COMPLETED)
            for outcome in (future.result() for future in done):
                progress.end(outcome)
                console.progress(f"{len(progress.ended)}/{len(runs)}  {format_outcome(outcome)}")
    outcomes = {outcome.run.name: outcome for outcome in progress.ended}
    return [outcomes[run.name] for run in runs]


def _train_run(run, folder, launcher, new_threads, progress, console):
    try:
        done, is_finished, threads = read_progress(run, folder, new_threads)
    except Locked as locked:
        return RunOutcome(run, folder, ELSEWHERE, problem=str(locked))
    except UserError as refusal:
        return RunOutcome(run, folder, FAILED, problem=str(refusal))
    if is_finished:
        return RunOutcome(run, folder, SKIPPED, done)
    if done:
        console.say(f"{run.name}: resumes after round {done}")
    progress.first[run.name] = done
    code, problem, seconds = launcher.run([*run_flags(run, folder), f"--threads={threads}"])
    state = FINISHED if code == 0 else ELSEWHERE if code == Locked.code else FAILED
    return RunOutcome(run, folder, state, done, seconds, problem)


def run_flags(run: SweepRun, folder: Path) -> list[str]:
    """Return the flags to train a run in a folder."""
    return [f"--recipe={run.path}", f"--run_dir={folder}", *(f"--set={override}" for override in run.overrides)]


def read_progress(run: SweepRun, folder: Path, threads: int) -> tuple[int, bool, int]:
    """Return the finished rounds of a run, whether it needs no more of them, and the threads that it must use.

    Raises:
        Locked: Another process trains the run.
        InputError: The folder is damaged, or contains a run of another recipe.
    """
    run_folder = RunFolder(folder)
    if (holder := run_folder.holder) is not None:
        raise Locked(f"{folder}: process {holder} uses this run folder")
    run_overview = overview.overview(folder) if overview.is_run(folder) else None
    if run_overview is None or (run_overview.state != overview.DAMAGED and not run_overview.round):
        return 0, False, threads
    is_damaged = run_overview.state == overview.DAMAGED
    is_finished = not is_damaged and overview.is_finished(run_folder, run_overview.round, keys_of(run.recipe))
    if is_finished and (changed := changed_keys(run_folder.read_recipe(), run.recipe.source)):
        raise UserError(f"{folder}: contains a run of another recipe ({'; '.join(changed)})")
    stored = environment.load(run_folder.environment)
    stored_threads = 0 if stored is None else stored.threads.get("inter_op", 0)
    # For a damaged folder, the program reports the error.
    return run_overview.round, is_finished, stored_threads if stored_threads > 0 else threads


def summarize(outcomes: Sequence[RunOutcome], folder: Path, seconds: float) -> dict:
    """Return the result of a sweep, ready for JSON."""
    return {
        "run_dir": str(folder),
        "runs": [outcome.to_json() for outcome in outcomes],
        "finished": sum(outcome.state in (FINISHED, SKIPPED) for outcome in outcomes),
        "failed": sum(outcome.state == FAILED for outcome in outcomes),
        "seconds": round(seconds, 1),
    }


def to_text(result: dict) -> str:
    """Return the final sentence of a sweep."""
    resumed = [run["name"] for run in result["runs"] if run["went_on_after"] and run["state"] == FINISHED]
    skipped = sum(run["state"] == SKIPPED for run in result["runs"])
    parts = [f"{result['finished']} of {len(result['runs'])} runs are finished"]
    parts += [f"{skipped} of them earlier or elsewhere"] if skipped else []
    parts += [f"resumed: {', '.join(resumed)}"] if resumed else []
    return "; ".join(parts)
